"""The whole logged state as bytes and back: what a checkpoint holds (docs/formats/lock.md).

A run of parts, each a length (u32, little-endian) and a MessagePack array that begins with its
name: one `ImageBegin`, the nodes (parents first), the sessions, one `ImageEnd`. Never does any IO.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import msgspec

from mrstream.cluster.errors import JournalCorrupt, NewerFormat
from mrstream.cluster.wire.messages import Message, pack, unpack
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.nodes import Holder, Node, SessionRecord, State, checksum_of
from mrstream.lock.paths import ROOT, name_of, parent_of
from mrstream.lock.protocol import CONTENTS_BYTES_MAX, Acl

FORMAT = 1
_LENGTH = struct.Struct("<I")
PART_BYTES_MAX = CONTENTS_BYTES_MAX + (1 << 20)


class ImageBegin(Message, frozen=True):
    format: int
    next_session: int
    next_instance: int
    floor: int
    lease_s: float


class HolderImage(Message, frozen=True):
    session: int
    handle: tuple[int, int]
    delay_s: float


class NodeImage(Message, frozen=True):
    path: str
    instance: int
    is_directory: bool
    is_ephemeral: bool
    contents: bytes
    content_generation: int
    lock_generation: int
    acl_generation: int
    acl: Acl
    modified_at_s: float
    is_shared: bool
    holders: tuple[HolderImage, ...]
    delay_s: float


class SessionImage(Message, frozen=True):
    session: int
    nonce: int
    user: str
    host: str
    program: str
    opened_at_s: float
    done: dict[int, int]
    forgotten: int


class ImageEnd(Message, frozen=True):
    nodes: int
    sessions: int


Part = ImageBegin | NodeImage | SessionImage | ImageEnd


def pack_image(brain: Cell) -> Iterator[bytes]:
    """Yield the state of the brain, part by part."""
    state = brain.state
    yield _part(
        ImageBegin(
            FORMAT, state.next_session, state.next_instance, state.floor, state.lease_s
        )
    )  # fmt: skip
    for path in sorted(state.nodes):
        yield _part(_node_image(state.nodes[path]))
    for record in state.sessions.values():
        yield _part(
            SessionImage(
                record.session, record.nonce, record.user, record.host, record.program,
                record.opened_at_s, record.done, record.forgotten,
            )
        )  # fmt: skip
    yield _part(ImageEnd(len(state.nodes), len(state.sessions)))


def _part(part: Part) -> bytes:
    payload = pack(part)
    return _LENGTH.pack(len(payload)) + payload


def _node_image(node: Node) -> NodeImage:
    holders = tuple(HolderImage(h.session, h.handle, h.delay_s) for h in node.holders)
    return NodeImage(
        node.path, node.instance, node.is_directory, node.is_ephemeral, node.contents,
        node.content_generation, node.lock_generation, node.acl_generation, node.acl,
        node.modified_at_s, node.is_shared, holders, node.delay_s,
    )  # fmt: skip


def load_image(brain: Cell, blocks: Iterable[bytes]) -> None:
    """Put a packed state into a brain that has none yet; raise `JournalCorrupt` or `NewerFormat`
    for anything else."""
    state = brain.state
    state.nodes.clear()
    parts = _parts(blocks)
    begin = next(parts, None)
    if not isinstance(begin, ImageBegin):
        raise JournalCorrupt("the checkpoint is not an image of a lock cell")
    if begin.format > FORMAT:
        raise NewerFormat(f"the checkpoint has format {begin.format}; this reads up to {FORMAT}")
    end = None
    for part in parts:
        if end is not None:
            raise JournalCorrupt("the checkpoint goes on behind its end")
        match part:
            case NodeImage():
                _load_node(state, part)
            case SessionImage():
                _load_session(state, part)
            case ImageEnd():
                end = part
            case ImageBegin():
                raise JournalCorrupt("the checkpoint begins twice")
    if end != ImageEnd(len(state.nodes), len(state.sessions)) or ROOT not in state.nodes:
        raise JournalCorrupt("the checkpoint ends too early")
    state.next_session, state.next_instance = begin.next_session, begin.next_instance
    state.floor, state.lease_s = begin.floor, begin.lease_s
    _check_holders(state)


def _load_node(state: State, part: NodeImage) -> None:
    if part.path != ROOT:
        parent = state.nodes.get(parent_of(part.path)) if "/" in part.path[1:] else None
        if parent is None or part.path in state.nodes:
            raise JournalCorrupt(f"the checkpoint has {part.path[:200]!r} in the wrong place")
        parent.children[name_of(part.path)] = None
    node = state.nodes[part.path] = Node(
        part.path, part.instance, part.is_directory, part.is_ephemeral, part.contents,
        part.content_generation, part.lock_generation, part.acl_generation, part.acl,
        part.modified_at_s, checksum_of(part.contents), part.is_shared, [], part.delay_s,
    )  # fmt: skip
    state.contents_bytes += len(part.contents)
    for holder in part.holders:
        state.hold(node, Holder(holder.session, holder.handle, holder.delay_s))


def _load_session(state: State, part: SessionImage) -> None:
    state.sessions[part.session] = SessionRecord(
        part.session, part.nonce, part.user, part.host, part.program, part.opened_at_s,
        dict(part.done), part.forgotten,
    )  # fmt: skip


def _check_holders(state: State) -> None:
    for session in state.held:
        if session not in state.sessions:
            raise JournalCorrupt(f"the checkpoint has locks of session {session}, which it lacks")


def _parts(blocks: Iterable[bytes]) -> Iterator[Part]:
    held = bytearray()
    for block in blocks:
        held += block
        at = 0
        while len(held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held, at)
            if length > PART_BYTES_MAX:
                raise JournalCorrupt(f"the checkpoint has a part of {length:,} bytes")
            end = at + _LENGTH.size + length
            if len(held) < end:
                break
            try:
                yield unpack(held[at + _LENGTH.size : end], Part)
            except msgspec.DecodeError as error:
                raise JournalCorrupt(f"a part of the checkpoint cannot be read: {error}") from None
            at = end
        del held[:at]
    if held:
        raise JournalCorrupt(f"the checkpoint ends inside a part ({len(held)} bytes)")
