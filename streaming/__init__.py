"""The contract with users' programs: options, properties, records, the task's environment.

Everything Hadoop Streaming promises to a script is here, and nothing about machines:
this package knows `cluster.errors` and `cluster.config.extras` below it and never imports
`dfs` or `mapreduce` (only `streaming.cli`, the root of the `mrstream` command, does, and lazily).
Hadoop's properties are read and set in `streaming.conf` alone.
"""
