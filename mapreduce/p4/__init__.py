"""The MapReduce server of a university course: its wire protocol, spoken with foreign peers.

`brain/` decides without IO, for the master and for a worker; `transport` carries one JSON object a
connection; `master` and `worker` are the shells; `execution` runs executables over files,
`grouping` sorts, merges and cuts lines, `output_file` shows files only when they are whole;
`submit` sends jobs. This protocol has no authentication: everything listens on localhost, and
whoever can connect there runs programs as the user of a worker.
"""
