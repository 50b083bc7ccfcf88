"""The tree of nodes, each with its four numbers and its lock: the fold of the log (Chubby §2.3).

Nothing else changes it, it reads no clock, and `apply` never fails (L7). A number of a node never
goes down, not even where a node is deleted and made anew: a new one begins above all that were ever
deleted, so that a fence by (path, lock generation) and a write under a content generation stay good
for ever (L2).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from mrstream.lock.cell import records as r
from mrstream.lock.paths import ACL_DIRECTORY, ROOT, name_of, parent_of
from mrstream.lock.protocol import Acl, Stat

DONE_MAX = 128
"""Answers that are remembered of a session; its client has fewer calls under way."""

HandleKey = tuple[int, int]
"""(epoch, number): which leader made the handle, and which of its handles it is."""


def checksum_of(contents: bytes) -> int:
    """Return the 64-bit checksum that tells two contents apart (§2.3)."""
    return int.from_bytes(hashlib.blake2b(contents, digest_size=8).digest(), "little")


@dataclass(slots=True)
class Holder:
    """One handle that holds a lock, and the delay that its failure would cause."""

    session: int
    handle: HandleKey
    delay_s: float


@dataclass(slots=True)
class Node:
    """A file or a directory."""

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
    checksum: int
    is_shared: bool = False
    holders: list[Holder] = field(default_factory=list)
    delay_s: float = 0.0
    """A failed holder left it, and nobody has written down that its delay is over."""
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        """What a client may keep of it."""
        return Stat(
            self.path, self.instance, self.is_directory, self.is_ephemeral,
            self.content_generation, self.acl_generation, self.checksum, len(self.contents),
            self.modified_at_s, self.acl,
        )  # fmt: skip

    def holder(self, session: int, handle: HandleKey) -> Holder | None:
        """The holder that is this handle, if it is one."""
        for holder in self.holders:
            if holder.session == session and holder.handle == handle:
                return holder
        return None


@dataclass(slots=True)
class SessionRecord:
    """A session as the log knows it."""

    session: int
    nonce: int
    user: str
    host: str
    program: str
    opened_at_s: float
    done: dict[int, int] = field(default_factory=dict)
    """Calls that changed something, by number, and the number that answered them."""
    forgotten: int = 0
    """The highest number of a call that is not remembered any more."""

    def remember(self, number: int, value: int) -> None:
        """Note what answered a call."""
        self.done[number] = value
        if len(self.done) > DONE_MAX:
            oldest = min(self.done)
            del self.done[oldest]
            self.forgotten = max(self.forgotten, oldest)


class State:
    """Everything that the log says."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.sessions: dict[int, SessionRecord] = {}
        self.contents_bytes = 0
        self.next_session = 1
        self.next_instance = 1
        self.floor = 0
        """No number of a deleted node was higher."""
        self.lease_s = 0.0
        """The longest lease that some session may have; 0: the log does not say yet."""
        self.held: dict[int, dict[str, None]] = {}
        """The locks of each session: what the nodes say, by session."""
        self._make(r.NodeMade(ROOT, True, False, b"", Acl(), 0.0))
        self._make(r.NodeMade(ACL_DIRECTORY, True, False, b"", Acl(), 0.0))

    def apply(self, record: r.AnyRecord) -> None:
        """Fold one record. Never fails."""
        match record:
            case r.NodeMade():
                node = self._make(record)
                self._remember(record.session, record.number, node.instance)
            case r.NodeRemoved():
                self._remove(record)
            case r.ContentsSet():
                self._set_contents(record)
            case r.AclSet():
                node = self.nodes[record.path]
                node.acl = record.acl
                node.acl_generation += 1
                self._remember(record.session, record.number, node.acl_generation)
            case r.SessionOpened():
                self.sessions[record.session] = SessionRecord(
                    record.session, record.nonce, record.user, record.host, record.program,
                    record.at_s,
                )  # fmt: skip
                self.next_session = max(self.next_session, record.session + 1)
            case r.SessionEnded():
                self._end_session(record)
            case r.LockTaken():
                self._take_lock(record)
            case r.LockFreed():
                self._free_lock(record)
            case r.DelayOver():
                self.nodes[record.path].delay_s = 0.0
            case r.LeaseSet():
                self.lease_s = record.lease_s

    def _remember(self, session: int, number: int, value: int) -> None:
        if number and session in self.sessions:
            self.sessions[session].remember(number, value)

    def _make(self, record: r.NodeMade) -> Node:
        instance, self.next_instance = self.next_instance, self.next_instance + 1
        floor = self.floor
        node = self.nodes[record.path] = Node(
            record.path, instance, record.is_directory, record.is_ephemeral, record.contents,
            floor + 1, floor, floor + 1, record.acl, record.at_s, checksum_of(record.contents),
        )  # fmt: skip
        self.contents_bytes += len(record.contents)
        if record.path != ROOT:
            self.nodes[parent_of(record.path)].children[name_of(record.path)] = None
        return node

    def _remove(self, record: r.NodeRemoved) -> None:
        node = self.nodes.pop(record.path)
        for holder in node.holders:
            self.held.get(holder.session, {}).pop(record.path, None)
        del self.nodes[parent_of(record.path)].children[name_of(record.path)]
        self.contents_bytes -= len(node.contents)
        numbers = (node.content_generation, node.lock_generation, node.acl_generation)
        self.floor = max(self.floor, *numbers)
        self._remember(record.session, record.number, 0)

    def _set_contents(self, record: r.ContentsSet) -> None:
        node = self.nodes[record.path]
        self.contents_bytes += len(record.contents) - len(node.contents)
        node.contents = record.contents
        node.checksum = checksum_of(record.contents)
        node.modified_at_s = record.at_s
        node.content_generation += 1
        self._remember(record.session, record.number, node.content_generation)

    def _take_lock(self, record: r.LockTaken) -> None:
        node = self.nodes[record.path]
        if not node.holders:
            node.lock_generation += 1
        node.is_shared = record.is_shared
        self.hold(node, Holder(record.session, record.handle, record.delay_s))
        self._remember(record.session, record.number, node.lock_generation)

    def hold(self, node: Node, holder: Holder) -> None:
        """Put a holder to a lock, without any number changing: for a checkpoint that is read."""
        node.holders.append(holder)
        self.held.setdefault(holder.session, {})[node.path] = None

    def _free_lock(self, record: r.LockFreed) -> None:
        node = self.nodes[record.path]
        holder = node.holder(record.session, record.handle)
        if holder is not None:
            node.holders.remove(holder)
        if all(other.session != record.session for other in node.holders):
            self.held.get(record.session, {}).pop(record.path, None)
        self._remember(record.session, record.number, 0)

    def _end_session(self, record: r.SessionEnded) -> None:
        del self.sessions[record.session]
        for path in self.held.pop(record.session, {}):
            node = self.nodes[path]
            gone = [h for h in node.holders if h.session == record.session]
            node.holders = [h for h in node.holders if h.session != record.session]
            if record.failed:
                node.delay_s = max([node.delay_s, *(h.delay_s for h in gone)])
