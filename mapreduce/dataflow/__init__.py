"""The path of a record, from the chunks of the input to a file that is visible only when complete.

     1 split_plan      chunks of the input            → splits
     2 split_reader    a split                        → bytes that end at record borders
     3 mapper          bytes                          → bytes of the map command
     4 sort_buffer     map output                     → sorted runs by partition        (kernel)
     5 spill           runs (combined)                → one segment file per map
     6 segment_server  a segment file                 → bytes for who asks
     7 fetcher         my partition of every map      → segments here
     8 merger          segments                       → one sorted stream               (kernel)
     9 reducer         the stream                     → bytes of the reduce command
    10 committer       output                         → a file, visible only when complete

A stage takes an iterator or a file and gives an iterator or a file; it is given its
paths and streams and knows nothing of jobs or masters. Beside the stages stand
`segment` (the file between 5 and 8), `record_form` (the forms of records), `files`
(what a stage needs of a file system), and `kernel`, the small piece of C (with its
`twin` in Python) that alone touches records one by one. Users' programs are run by
`mapreduce.program`, the room below.

D1: within a partition a segment is in comparator order.
"""
