"""A chunk store after the GFS paper: a master, many chunkservers, clients that talk to both.

    client ──(path, chunk index)──► master          names, chunks, versions, leases; never bytes
       │  ◄─(handle, version, replicas)──┘ ▲
       │                                   │ heartbeats up, commands down
       └──(handle, byte range)──► chunkserver        bytes and their checksums; never names

The brain of the master is `dfs.metadata`, which never does any IO; `dfs.master` is the shell around
it. `dfs.chunks` is what a chunkserver does to its disks. What must always hold:

M1  an answer given, a read's too, rests only on what is on disk                       duties
M2  the namespace is the fold of `apply` over the log; nothing else changes it         namespace
M3  a chunk has at most one unexpired lease                                            leases
M4  a replica whose version is behind is never shown to a client                       chunk_table
M5  a chunk is deleted only if no file names it and the master confirms it just then   repair
M6  repair never lowers the number of good replicas below the goal                     repair
M7  a chunk, and a replica, changes only as the table of its life allows               life
"""
