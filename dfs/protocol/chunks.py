"""Client → chunkserver, chunkserver → chunkserver."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.wire.messages import Count, Crc, Message, Request
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.protocol.shared import ServerAddress


class Done(Message, frozen=True):
    """On a bulk connection: it is done."""


class Number(Message, frozen=True):
    """On a bulk connection: an answer that is a number."""

    value: int


class PushData(Request, frozen=True):
    """Bytes for a mutation to come, held in a bounded buffer under an id (GFS §3.1 step 3, §3.2).

    `length_bytes` raw bytes follow. They are forwarded to `chain[0]`, with the rest as its chain,
    as they arrive; the answer comes when all of the chain have them.
    """

    reply: ClassVar[Any] = Done
    data_id: bytes
    length_bytes: Count
    chain: tuple[ServerAddress, ...]
    crc: Crc = 0
    """CRC32C of all of them."""


class WriteChunk(Request, frozen=True):
    """To the primary: apply pushed data at an offset, here and at all `replicas` (steps 4–7)."""

    reply: ClassVar[Any] = Done
    handle: ChunkHandle
    version: ChunkVersion
    offset: Count
    length_bytes: Count
    data_id: bytes
    replicas: tuple[ServerAddress, ...]
    durable: bool = True
    """Whether this write, and all of this version before it, is to be on all disks before the
    answer. Without it the bytes are only in all servers' caches: the writer says `durable` with its
    last write, and tells nobody that anything is written before that is answered."""


class AppendRecord(Request, frozen=True):
    """To the primary: append pushed data where you choose (GFS §3.3); the reply is the offset in
    the chunk. ChunkFull: it did not fit, the chunk is padded, take the next.

    With an `appender` it is a serialised append, its `number`-th: the reply is the offset in the
    file, the same one if it was appended before, and a failure ends what this version may do.
    """

    reply: ClassVar[Any] = Number
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: Count
    data_id: bytes
    replicas: tuple[ServerAddress, ...]
    chunk_bytes: Count
    appender: Count = 0
    number: Count = 0
    index: Count = 0
    """Of the chunk in its file."""


class AppendMark(Message, frozen=True):
    """Whose bytes a serialised append adds, and where they begin in the file; `appender` 0: they
    are nobody's, but padding."""

    appender: Count
    number: Count
    at: Count


class ApplyMutation(Request, frozen=True):
    """Primary to secondary: mutation number `serial` of this version (GFS §3.1 step 5).

    Applied strictly in serial order. An empty `data_id` pads with zeros up to the end. Refused with
    StaleReplica where it would leave a gap, unless `gap_allowed`: a record append that failed here
    alone leaves one (GFS §3.3). With a `mark` it is refused unless the replica ends exactly where
    it begins.
    """

    reply: ClassVar[Any] = Done
    handle: ChunkHandle
    version: ChunkVersion
    serial: Count
    offset: Count
    length_bytes: Count
    data_id: bytes
    durable: bool = True
    gap_allowed: bool = False
    mark: AppendMark | None = None


class Piece(Message, frozen=True):
    """Up to 1 MiB of what was asked for: `count` raw bytes follow, with this CRC32C.

    `length_bytes` is the length of the whole replica. Another piece comes unless `last`; an error
    may come in place of any piece.
    """

    count: Count
    crc: Crc
    length_bytes: Count
    last: bool
    appends: bytes = b""
    """In the first piece, if asked for: who appended last (docs/formats/chunk.md)."""


class ReadChunk(Request, frozen=True):
    """Verified bytes of a replica whose version is at least this, in `Piece`s; fewer than
    `length_bytes` where the replica ends."""

    reply: ClassVar[Any] = Piece
    handle: ChunkHandle
    version: ChunkVersion
    offset: Count
    length_bytes: Count
    appends: bool = False
    """Also the table of appends, as it is for a chunk that ends with these bytes."""


class ReplicaFiles(Message, frozen=True):
    """Two descriptors follow: the data and the checksum file (docs/formats/chunk.md)."""

    version: ChunkVersion
    length_bytes: Count
    tail_crc: Crc


class OpenReplica(Request, frozen=True):
    """Over the Unix socket: the files of a replica whose version is at least this, for reading
    them without us (the reader verifies; what fails it reads through us, who judge)."""

    reply: ClassVar[Any] = ReplicaFiles
    handle: ChunkHandle
    version: ChunkVersion


class ChunkLength(Request, frozen=True):
    """How long is your replica? Where appends are serialised: how many of its bytes do all replicas
    have, as far as you know?"""

    reply: ClassVar[Any] = Number
    handle: ChunkHandle
    version: ChunkVersion


class Checksums(Message, frozen=True):
    """Checksums of blocks, packed `<I`."""

    packed: bytes


class ChecksumChunk(Request, frozen=True):
    """CRC32C of each block of the first `length_bytes`, verified against the data, packed `<I`."""

    reply: ClassVar[Any] = Checksums
    handle: ChunkHandle
    version: ChunkVersion
    length_bytes: Count
