"""WebHDFS: the dfs for other people's programs."""
