"""`mrstream dfs`: the verbs, options, output and exit status of `hdfs dfs`.

    arguments   words of a command line → flags and paths, or a usage error
    volumes     the file systems that a path can name: the cluster's and this machine's disk
    items       a path as a user wrote it → what it names, shown as the user wrote it
    listing     ls, du, df, count, stat, find, test
    reading     cat, text, head, tail, checksum
    changing    mkdir, rm, rmdir, mv, touchz, setrep, chmod, chown, chgrp, trash, snapshot
    copying     put, get, cp, getmerge, appendToFile, with progress, several files at a time
    fsck        the state of every replica
    verbs       the table of all of them, and their help

A verb takes a `Shell` (where to write, which cluster) and its words; it returns 0, or 1 after it
has said on standard error what went wrong with which path, and gone on with the others.
"""
