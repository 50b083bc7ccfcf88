"""The data path of a chunkserver: chunks as plain files, and the order in which they change.

    disk          one directory of one disk, behind a seam
    replica_files names, opening and syncing of a replica's files
    append_log    who appended what last, where appends are serialised
    verified      bytes together with the proof that they are right
    recovery      what a replica holds after a stop of any kind
    replica       one chunk on one disk: read and write
    identity      whose disk it is
    chunk_store   all replicas of a server, over several disks
    push_buffer   pushed data waiting for its write request
    mutation      who orders a chunk's mutations, and in which order they are applied
    chunk_service what clients and other servers ask for
    commands      what the master tells it to do
    scrub         reads what nobody reads

What it shares with clients, the bytes of the checksum file and the push along the chain, is in
`dfs.transfer`.

Invariants:
B1  an acknowledged byte is on disk, with a checksum that covers it, before the acknowledgement.
B2  no byte leaves that its checksum does not cover.
B3  a replica applies mutations of one version in the order of their serial numbers.
B4  where appends are serialised, the bytes of an append and the note of whose they are are on disk
    together; replicas of one version differ by the bytes of at most one append, the last.
"""
