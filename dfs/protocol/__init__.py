"""Every message of the file system: client ↔ master, chunkserver ↔ master, client ↔ chunkserver.

How a write goes (GFS §3.1), with the names used here:

1. `CreateFile` opens a new path for one writer and gives an *epoch*; with `first_chunk` it also
   gives a `ChunkGrant` for the first chunk. `OpenAppend` does the same for an existing file.
2. A `ChunkGrant` names handle, version, primary and all replicas. The client pushes bytes down the
   chain and asks the primary to apply them with that version. Every later chunk: `AllocateChunk`.
3. When a replica fails, or the lease is over, `FindLease` with the names of the failed servers
   gives a new grant: a higher version, only replicas that have it. The client repeats what was not
   acknowledged.
4. `CloseFile` makes the length durable. A writer whose epoch is not the file's any more gets
   `WriterFenced` from the master, and `StaleReplica` from the chunkservers, since sealing raised
   the version. `KeepAlive` says that the writer still lives.

A chunk that may still change is *unsealed*. To seal it (writer lost, file idle, snapshot, clone)
the master raises the version on all replicas, takes the shortest length that they report (whatever
was acknowledged is on all of them), logs it, and cuts the longer ones.

Where a directory has its record appends *serialised*, `AppendRecord` says whose it is and which.
When one fails at any replica its primary orders nothing more at that version; the master seals the
chunk, and the next grant has all replicas cut to the length on which they agreed
(`SetVersion.cut_to`).

A lease counts only while its holder is in touch with the master: a primary orders mutations only if
`now < lease end` *and* the last answered heartbeat was **sent** less than `contact_s` ago (both on
CLOCK_BOOTTIME). So a server that the master has given up for dead has given up its leases too.

Commands to a chunkserver are pushed over the connection on which it registered; it answers each
with `CommandDone` and carries the same `command_id` out once at most.
"""

from __future__ import annotations

# Every name of each: a message is written down where it is defined, and nowhere else.
# ruff: noqa: F403
from mrstream.dfs.protocol.attributes import *
from mrstream.dfs.protocol.chunks import *
from mrstream.dfs.protocol.keys import *
from mrstream.dfs.protocol.names import *
from mrstream.dfs.protocol.rules import *
from mrstream.dfs.protocol.servers import *
from mrstream.dfs.protocol.shadow import *
from mrstream.dfs.protocol.shared import *
from mrstream.dfs.protocol.state import *
from mrstream.dfs.protocol.writing import *
