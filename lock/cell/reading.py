"""What is asked of nodes: contents and numbers, names, locks, and lists for people (Chubby §2.6).

Reads go on while a change waits for caches; they are then told not to keep what they see (§2.7).
"""

from __future__ import annotations

from mrstream.lock import protocol as p
from mrstream.lock.cell.acl import Permissions
from mrstream.lock.cell.caching import Caching, names_key
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.locks import Locks
from mrstream.lock.cell.nodes import Node, State
from mrstream.lock.cell.sessions import Live, Sessions
from mrstream.lock.errors import AclRefuses, NodeNotDirectory, NoSuchNode
from mrstream.lock.protocol import READ


class Reading:
    """The verbs that change nothing."""

    def __init__(
        self, state: State, permissions: Permissions, caching: Caching, handles: Handles,
        locks: Locks, sessions: Sessions,
    ) -> None:  # fmt: skip
        self._state = state
        self._permissions = permissions
        self._caching = caching
        self._handles = handles
        self._locks = locks
        self._sessions = sessions

    def look(self, live: Live, ask: p.Look, path: str) -> p.Seen:
        """Contents and numbers of a node, or that there is none."""
        if ask.handle is not None:
            known, node = self._handles.node_of(live, ask.handle)
            if not known.handle.mode & READ:
                raise AclRefuses(f"{node.path} was not opened to be read")
            return self._seen(live, node)
        there = self._state.nodes.get(path)
        if there is None:
            return p.Seen(None, b"", self._caching.allow(live, path))
        self._permissions.check(live.record.user, there, READ)
        return self._seen(live, there)

    def _seen(self, live: Live, node: Node) -> p.Seen:
        return p.Seen(node.stat(), node.contents, self._caching.allow(live, node.path))

    def children(self, live: Live, ask: p.ListNode, path: str) -> p.Children:
        """The names in a directory, in order; on demand with the small files among them."""
        node = self._node(live, path)
        if not node.is_directory:
            raise NodeNotDirectory(f"{path} is a file")
        names = tuple(sorted(node.children))
        files: list[p.Seen] = []
        if ask.with_contents:
            for name in names[: p.LISTED_CONTENTS_MAX]:
                child = self._state.nodes[f"{path}/{name}"]
                if len(child.contents) <= p.LISTED_BYTES_MAX and self._may_read(live, child):
                    files.append(self._seen(live, child))
        return p.Children(names, tuple(files), self._caching.allow(live, names_key(path)))

    def lock(self, live: Live, path: str) -> p.LockState:
        """A node's lock now."""
        return self._locks.look(self._node(live, path))

    def _node(self, live: Live, path: str) -> Node:
        node = self._state.nodes.get(path)
        if node is None:
            raise NoSuchNode(f"{path} does not exist")
        self._permissions.check(live.record.user, node, READ)
        return node

    def _may_read(self, live: Live, node: Node) -> bool:
        try:
            self._permissions.check(live.record.user, node, READ)
        except AclRefuses:
            return False
        return True

    def sessions(self, now_s: float) -> tuple[p.SessionRow, ...]:
        return tuple(
            p.SessionRow(
                live.id, live.record.user, live.record.host, live.record.program,
                live.record.opened_at_s, max(0.0, live.lease_end_s - now_s), len(live.handles),
                tuple(self._state.held.get(live.id, ())),
            )
            for live in self._sessions
        )  # fmt: skip
