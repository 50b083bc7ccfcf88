"""The whole logged state as bytes and back: what a checkpoint holds (docs/formats/oplog.md).

A stream of sections: tag (8 bytes, zero-padded), length (u64, little-endian), payload. Columns of
the node table and pages of the chunk table go as they are in memory, so packing is copying. Replica
locations are not in it: they are never persisted (GFS §2.6.2). Never does any IO.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import Any

import msgspec

from mrstream.cluster.errors import JournalCorrupt, NewerFormat
from mrstream.dfs.chunk import NO_FENCE, Epoch, FileId, ServerId, fences_of
from mrstream.dfs.metadata.chunk_table import PAGE_CHUNKS, ChunkTable, Page
from mrstream.dfs.metadata.entries import NO_RULE, UNKNOWN, Hidden, Policy
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY, FREE, ROOT, NodeTable
from mrstream.dfs.metadata.paths import HIDDEN_PREFIX
from mrstream.dfs.metadata.quotas import Quota
from mrstream.dfs.protocol import DoorKey

FORMAT = 2
_SECTION = struct.Struct("<8sQ")
_PAGE = struct.Struct("<Q")
_attributes = msgspec.msgpack.Decoder(list[tuple[int, bytes]])
NAMES_PER_SECTION = 100_000
ATTRIBUTES_PER_SECTION = 10_000
assert sys.byteorder == "little", "columns are stored as they lie in memory, little-endian"


def pack_image(brain: Metadata) -> Iterator[bytes]:
    """Yield the state of the brain, piece by piece."""
    space, nodes = brain.space, brain.space.nodes
    yield from _section("format", msgspec.msgpack.encode(FORMAT))
    for column, _ in NodeTable.COLUMNS:
        yield from _section(column[:8], getattr(nodes, column).tobytes())
    for begin in range(0, len(nodes.name), NAMES_PER_SECTION):
        names = nodes.name[begin : begin + NAMES_PER_SECTION]
        yield from _section("names", msgspec.msgpack.encode(names))
    yield from _section("small", msgspec.msgpack.encode(_small(space, brain)))
    packed = list(space.attributes.items())
    for begin in range(0, len(packed), ATTRIBUTES_PER_SECTION):
        part = packed[begin : begin + ATTRIBUTES_PER_SECTION]
        yield from _section("attribut", msgspec.msgpack.encode(part))
    yield from _section("implicit", array("I", space.implicit).tobytes())
    yield from _section("free", array("I", nodes.free).tobytes())
    for row, handles in nodes.more_chunks.items():
        yield from _section("chunks", _PAGE.pack(row) + handles.tobytes())
    for number, page in brain.tables.chunks.pages():
        columns = b"".join(getattr(page, name).tobytes() for name in Page.LOGGED)
        yield from _section("page", _PAGE.pack(number) + columns)
    yield from _section("end", b"")


def _section(tag: str, payload: bytes) -> Iterator[bytes]:
    yield _SECTION.pack(tag.encode(), len(payload))
    yield payload


def _small(space: Namespace, brain: Metadata) -> dict[str, Any]:
    return {
        "principals": space.principals.strings,
        "chunk_sizes": space.chunk_sizes,
        "next_epoch": space.next_epoch,
        "handles_reserved": space.handles_reserved,
        "writers": [
            # The first by itself, as versions before read it: they knew one only.
            [row, w.epoch, w.client, w.is_first, *(w.fences or (NO_FENCE,))]
            for row, w in space.writers.items()
        ],
        "policies": [[r, p.replication, p.trash_after_s] for r, p in space.policies.items()],
        "appends": [[r, p.appends] for r, p in space.policies.items() if p.appends != NO_RULE],
        "quotas": [[row, *astuple(quota)] for row, quota in space.quotas.by_row.items()],
        "trash": [[row, h.original, h.at_s] for row, h in space.trash.items()],
        "requests": space.requests.packed(),
        "fences": [[name, *known] for name, known in brain.fences.raised.items()],
        "doors": [brain.doors.version, brain.doors.known_since],
        "keys": list(brain.doors.keys.values()),
        "revoked": [[key, *known] for key, known in brain.doors.revoked.items()],
        "spent": list(brain.doors.spent.items()),
        "accessed": list(space.nodes.accessed_at_s.items()),
        "servers": [
            None if s is None else [s.id, s.is_draining] for s in brain.tables.servers.by_index()
        ],
    }


def load_image(brain: Metadata, blocks: Iterable[bytes]) -> None:
    """Put a packed state into a brain that has none yet; the blocks are already verified."""
    nodes = brain.space.nodes
    columns = {column[:8]: column for column, _ in NodeTable.COLUMNS}
    started = ended = False
    for tag, payload in _sections(blocks):
        if tag == "format":
            number = msgspec.msgpack.decode(payload)
            if number > FORMAT:
                raise NewerFormat(
                    f"the checkpoint has format {number}; this version reads up to {FORMAT}"
                )
            nodes.name.clear()
            nodes.entries.clear()
            started = True
        elif tag in columns:
            column: array[Any] = getattr(nodes, columns[tag])
            del column[:]
            column.frombytes(payload)
        elif tag == "names":
            nodes.name += msgspec.msgpack.decode(payload, type=list[bytes])
        elif tag == "small":
            _load_small(brain, msgspec.msgpack.decode(payload))
        elif tag == "attribut":
            brain.space.attributes.update(_attributes.decode(payload))
        elif tag == "implicit":
            brain.space.implicit.update(dict.fromkeys(array("I", payload)))
        elif tag == "free":
            nodes.free = list(array("I", payload))
        elif tag == "chunks":
            handles: array[int] = array("Q")
            handles.frombytes(payload[_PAGE.size :])
            nodes.more_chunks[_PAGE.unpack_from(payload)[0]] = handles
        elif tag == "page":
            _load_page(brain.tables.chunks, payload)
        elif tag == "end":
            ended = True
    if not started or not ended:
        raise JournalCorrupt("the checkpoint is not an image of the metadata, or ends too early")
    _link(nodes)


def _sections(blocks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    held = bytearray()
    for block in blocks:
        held += block
        at = 0
        while len(held) - at >= _SECTION.size:
            tag, length = _SECTION.unpack_from(held, at)
            end = at + _SECTION.size + length
            if len(held) < end:
                break
            yield tag.rstrip(b"\0").decode(), bytes(held[at + _SECTION.size : end])
            at = end
        del held[:at]
    if held:
        raise JournalCorrupt(f"the checkpoint ends inside a section ({len(held)} bytes)")


def _load_small(brain: Metadata, small: dict[str, Any]) -> None:
    space = brain.space
    space.principals.forget()
    for string in small["principals"]:
        space.principals.number(string)
    space.chunk_sizes[:] = small["chunk_sizes"]
    space.next_epoch = small["next_epoch"]
    space.handles_reserved = small["handles_reserved"]
    for row, epoch, client, *more in small["writers"]:
        is_first = bool(more and more[0])
        fences = fences_of(NO_FENCE, tuple((name, n) for name, n in more[1:]))
        space.begin_writer(row, Epoch(epoch), client, is_first=is_first, fences=fences)
    space.policies.update({row: Policy(n, after_s) for row, n, after_s in small["policies"]})
    for row, appends in small.get("appends", ()):
        space.policies[row].appends = appends
    space.quotas.by_row.update({row: Quota(*rest) for row, *rest in small.get("quotas", ())})
    space.trash.update({row: Hidden(path, at_s) for row, path, at_s in small["trash"]})
    for client_id, number, file_id, *answer in small["requests"]:
        known = answer[0] if answer else UNKNOWN
        space.requests.remember((client_id, number), FileId(file_id), known)
    _load_doors(brain, small)
    space.nodes.accessed_at_s.update(dict(small["accessed"]))
    for entry in small["servers"]:
        brain.tables.servers.restore(None if entry is None else ServerId(entry[0]))
        if entry is not None and entry[1]:
            brain.tables.servers.drain(ServerId(entry[0]), True)


def _load_doors(brain: Metadata, small: dict[str, Any]) -> None:
    """What images of format 1 do not have."""
    fences, doors = brain.fences, brain.doors
    fences.raised.update({name: (n, at_s) for name, n, at_s in small.get("fences", ())})
    doors.version, doors.known_since = small.get("doors", (0, 0))
    for version, key in small.get("keys", ()):
        made = msgspec.convert(key, DoorKey)
        doors.keys[made.id] = (version, made)
    doors.revoked.update(
        {i: (version, until_s) for i, version, until_s in small.get("revoked", ())}
    )
    doors.spent.update(dict(small.get("spent", ())))


def _load_page(chunks: ChunkTable, payload: bytes) -> None:
    number = _PAGE.unpack_from(payload)[0]
    page, at = Page(), _PAGE.size
    for name in Page.LOGGED:
        column: array[int] = getattr(page, name)
        width = column.itemsize * PAGE_CHUNKS
        del column[:]
        column.frombytes(payload[at : at + width])
        at += width
    chunks.restore_page(number, page)


def _link(nodes: NodeTable) -> None:
    """Rebuild what follows from the columns: directories, counts."""
    nodes.file_count = nodes.directory_count = 0
    entries = nodes.entries
    for row, kind in enumerate(nodes.kind):
        if kind == DIRECTORY:
            entries[row] = {}
            nodes.directory_count += 1
        elif kind != FREE:
            nodes.file_count += 1
    for row, (kind, parent, name) in enumerate(
        zip(nodes.kind, nodes.parent, nodes.name, strict=True)
    ):
        if kind != FREE and row != ROOT:
            entries[parent][name] = row
            if name.startswith(HIDDEN_PREFIX):
                nodes.hidden[row] = None
