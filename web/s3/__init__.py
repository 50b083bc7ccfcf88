"""The dfs for programs that speak to S3."""
