"""The data path of a chunkserver: chunks as plain files, and the order in which they change.

    disk          one directory of one disk, behind a seam
    chunk_format  the bytes of the checksum file
    replica       one chunk on one disk: read, write, recover
    chunk_store   all replicas of a server, over several disks
    push_buffer   pushed data waiting for its write request
    mutation      who orders a chunk's mutations, and in which order they are applied
    scrub         reads what nobody reads

Invariants:
C1  an acknowledged byte is on disk, with a checksum that covers it, before the acknowledgement.
C2  no byte leaves that its checksum does not cover.
C3  a replica applies mutations of one version in the order of their serial numbers.
"""
