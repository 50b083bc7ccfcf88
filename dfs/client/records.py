"""Records that survive record append: padding, fragments and duplicates are skipped (GFS §2.7.2).

    record := magic:4 = "\\xabREC"  length:u32  crc:u32  id:16  payload[length]

`crc` is the CRC32C of id and payload. A record carries its own length, checksum and unique id, so a
reader needs nothing but the bytes of the file, zeros and torn copies included. Sans-IO: bytes in,
records out. The writer's side is `RecordAppender`.
"""

from __future__ import annotations

import secrets
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from crc32c import crc32c

from mrstream.cluster.errors import Unavailable
from mrstream.dfs.chunk import NO_HANDLE, RECORD_FRACTION_OF_CHUNK, ChunkHandle, ServerId
from mrstream.dfs.client.chunk_writer import Run, as_unavailable, ask_primary, failed_servers, push
from mrstream.dfs.errors import ChunkCorrupt, ChunkFull, DataNotPushed, RecordTooLarge
from mrstream.dfs.protocol import AppendRecord, AppendTarget, ChunkGrant

if TYPE_CHECKING:
    from mrstream.dfs.client.client import DfsClient

MAGIC = b"\xabREC"
ID_BYTES = 16
_HEADER = struct.Struct(f"<4sII{ID_BYTES}s")
RECORD_OVERHEAD_BYTES = _HEADER.size
IDS_REMEMBERED = 100_000
APPENDER_BITS = 61


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was found: where in the file, its unique id, its bytes."""

    offset: int
    record_id: bytes
    payload: bytes


def pack_record(payload: bytes, record_id: bytes | None = None) -> bytes:
    """Return the payload as a record; a repeat of one record must give the same id."""
    record_id = record_id or secrets.token_bytes(ID_BYTES)
    crc = crc32c(payload, crc32c(record_id))
    return _HEADER.pack(MAGIC, len(payload), crc, record_id) + payload


class RecordCutter:
    """Feed it a file's bytes in order; it gives whole records, each once."""

    def __init__(self, record_bytes_max: int) -> None:
        self._bytes_max = record_bytes_max
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        """The ids of the last records, oldest first: a duplicate comes soon, or is let through."""
        self._held = bytearray()
        """What may be the beginning of a record, or hold one: not yet given, not yet skipped."""
        self._offset = 0
        """Where in the file that begins. Between calls everything before it was given, dropped as a
        duplicate, or skipped."""

    def feed(self, data: bytes | memoryview) -> Iterator[Record]:
        """Yield the records that these bytes complete."""
        self._held += data
        at = 0
        try:
            while True:
                found = self._held.find(MAGIC, at)
                if found < 0:
                    # The last bytes may be the beginning of a magic.
                    at = max(at, len(self._held) - len(MAGIC) + 1)
                    return
                at = found
                if len(self._held) - at < _HEADER.size:
                    return
                _, length, crc, record_id = _HEADER.unpack_from(self._held, at)
                end = at + _HEADER.size + length
                if length <= self._bytes_max and len(self._held) < end:
                    return
                if length > self._bytes_max or not self._is_whole(at, end, crc, record_id):
                    at += 1
                    continue
                payload = bytes(self._held[at + _HEADER.size : end])
                offset = self._offset + at
                at = end
                if not self._is_duplicate(record_id):
                    yield Record(offset, record_id, payload)
        finally:
            del self._held[:at]
            self._offset += at

    def finish(self) -> Iterator[Record]:
        """Yield what a fragment at the end hid; then nothing more comes."""
        while len(self._held) >= _HEADER.size:
            # The record at the front is cut short for good: look behind its magic.
            del self._held[:1]
            self._offset += 1
            yield from self.feed(b"")

    def _is_whole(self, at: int, end: int, crc: int, record_id: bytes) -> bool:
        payload = memoryview(self._held)[at + _HEADER.size : end]
        try:
            return bool(crc32c(payload, crc32c(record_id)) == crc)
        finally:
            payload.release()

    def _is_duplicate(self, record_id: bytes) -> bool:
        if record_id in self._seen:
            return True
        self._seen[record_id] = None
        if len(self._seen) > IDS_REMEMBERED:
            self._seen.popitem(last=False)
        return False


class RecordAppender:
    """Appends to a file that any number of others append to as well (GFS §3.3).

    A record lands whole, at least once, at an offset of the primary's choice; exactly once where
    the directory has its appends serialised (EV-08): then each says whose it is and which. Not for
    two threads at once; many appenders may share a file.
    """

    def __init__(self, client: DfsClient, path: str) -> None:
        """The file must exist."""
        self._client = client
        self._path = path
        self._grant: ChunkGrant | None = None
        """Under which the next record goes out; None: the master is asked for one."""
        self._failed_grant: ChunkGrant | None = None
        """The last that was of no use: the master is told, and gives a later one."""
        self._id = 1 + secrets.randbits(APPENDER_BITS)
        """Whose records these are, where appends are serialised; never 0, which is nobody."""
        self._number = 0
        """Of the record; one higher for each, the same whenever one is tried again: so a repeat is
        known, and lands once."""

    def append(self, data: bytes) -> int:
        """Append bytes as they are; return their offset in the file."""
        self._number += 1
        full = NO_HANDLE
        failed: tuple[ServerId, ...] = ()
        run = Run(0, 0, memoryview(data))
        for attempt in self._client.retry.attempts():
            grant = self._target(full, failed)
            try:
                return self._append_once(run, grant)
            except ChunkFull:
                full, failed = grant.handle, ()
            except DataNotPushed as error:
                run.pushed_to = ()
                if attempt.number > 1:
                    attempt.failed(error)
                continue
            except (Unavailable, ChunkCorrupt) as error:
                failed = failed_servers(error, grant)
                if attempt.number > 1:
                    attempt.failed(as_unavailable(error))
            self._failed_grant = self._grant
            self._grant = None
            run.pushed_to = ()
        raise AssertionError("attempts do not end")

    def append_record(self, payload: bytes, record_id: bytes | None = None) -> int:
        """Append a payload in the record form, which `RecordCutter` reads."""
        return self.append(pack_record(payload, record_id))

    def _target(self, full: ChunkHandle, failed: tuple[ServerId, ...]) -> ChunkGrant:
        if self._grant is None:
            old = self._failed_grant
            request = AppendTarget(
                self._path, self._client.user, full, near=self._client.place.host, once=True
            )
            if old is not None and not full:
                request = msgspec.structs.replace(
                    request, version=old.version, failed=failed, handle=old.handle
                )
            self._grant = self._client.call(request)
        return self._grant

    def _append_once(self, run: Run, grant: ChunkGrant) -> int:
        size_max = grant.chunk_bytes // RECORD_FRACTION_OF_CHUNK
        if len(run.data) > size_max:
            raise RecordTooLarge(
                f"a record of {len(run.data)} bytes; a fourth of a chunk, {size_max}, is the limit"
            )
        push(self._client, run, grant)
        request = AppendRecord(
            grant.handle, grant.version, len(run.data), run.data_id, grant.replicas,
            grant.chunk_bytes, *((self._id, self._number, grant.index) if grant.serialised else ()),
        )  # fmt: skip
        reply = ask_primary(self._client, grant, request)
        if grant.serialised:
            return int(reply.value)
        return grant.index * grant.chunk_bytes + int(reply.value)
