"""What changes nodes: opening with creation, contents, lists, deletion, ephemeral nodes that end.

Order of a change (Chubby §2.7): checked → nobody may cache what it touches any more → those who may
have it acknowledge, or their leases end → record → answer. A change that must wait is decided anew,
from the first check on, when it may go on.
"""

from __future__ import annotations

from mrstream.lock.cell import records as r
from mrstream.lock.cell.acl import Permissions, check_names
from mrstream.lock.cell.caching import Caching, keys_of_coming_or_going
from mrstream.lock.cell.events import Called
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.locks import Locks
from mrstream.lock.cell.nodes import Node, State
from mrstream.lock.cell.outbox import Outbox
from mrstream.lock.cell.sessions import Live, OpenHandle
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import (
    AclRefuses,
    BadLockRequest,
    GenerationChanged,
    LimitReached,
    LockHeld,
    NodeExists,
    NodeHasChildren,
    NodeIsDirectory,
    NodeNotDirectory,
    NoSuchNode,
)
from mrstream.lock.paths import ACL_DIRECTORY, ROOT, parent_of
from mrstream.lock.protocol import (
    ANY_GENERATION,
    CHANGE_ACL,
    CHILDREN_CHANGED,
    CONTENTS_CHANGED,
    EXISTING,
    HANDLE_INVALID,
    LOCK_DELAY_S_MAX,
    MUST_CREATE,
    READ,
    WRITE,
    DeleteNode,
    Opened,
    OpenNode,
    PutContents,
    SetAcl,
    SetContents,
)

ALL_MODES = READ | WRITE | CHANGE_ACL
WAITS = False
"""What a change returns that has to wait; True: it is answered."""


class Changes:
    """The verbs that change nodes."""

    def __init__(
        self, state: State, settings: Settings, outbox: Outbox, handles: Handles, caching: Caching,
        locks: Locks,
    ) -> None:  # fmt: skip
        self._state = state
        self._settings = settings
        self._outbox = outbox
        self._handles = handles
        self._caching = caching
        self._locks = locks
        self._permissions = Permissions(state, settings.superuser)
        self.leaving: dict[str, int] = {}
        """Ephemeral nodes that nobody has open, to their instance: they go as soon as they may."""

    # --- opening

    def open(self, live: Live, called: Called, ask: OpenNode) -> bool:
        """Open a node, and make it first if there is none and the caller said so."""
        self._check_open(ask)
        node = self._state.nodes.get(ask.path)
        if node is None and ask.create == EXISTING:
            raise NoSuchNode(f"{ask.path} does not exist")
        created = node is None
        if node is None:
            self._check_room(live, ask)
            if not self._caching.prepare(called.call, keys_of_coming_or_going(ask.path)):
                return WAITS
            node = self._make(live, ask)
        elif ask.create == MUST_CREATE:
            raise NodeExists(f"{ask.path} exists")
        else:
            self._permissions.check(live.record.user, node, ask.mode)
            if ask.create and node.is_directory != ask.is_directory:
                kind = NodeIsDirectory if node.is_directory else NodeNotDirectory
                raise kind(f"{ask.path} is a {'directory' if node.is_directory else 'file'}")
        self._outbox.reply(called.call, self.opened(live, node, ask, created))
        return True

    def opened(self, live: Live, node: Node, ask: OpenNode, created: bool) -> Opened:
        """Make the handle and what is said with it."""
        handle = self._handles.make(
            live, node, mode=ask.mode, events=ask.events, lock_delay_s=ask.lock_delay_s
        )
        return Opened(handle, created, node.stat())

    def _check_open(self, ask: OpenNode) -> None:
        if not 0.0 <= ask.lock_delay_s <= LOCK_DELAY_S_MAX:
            raise BadLockRequest(
                f"the lock-delay is {ask.lock_delay_s:g} s; it is from 0 to {LOCK_DELAY_S_MAX:g} s"
            )
        if ask.mode & ~ALL_MODES or not EXISTING <= ask.create <= MUST_CREATE:
            raise BadLockRequest(f"mode {ask.mode} or create {ask.create} is not known")
        if ask.is_directory and ask.contents:
            raise NodeIsDirectory(f"{ask.path}: a directory has no contents")

    def _check_room(self, live: Live, ask: OpenNode) -> None:
        parent = self._state.nodes.get(parent_of(ask.path))
        if parent is None:
            raise NoSuchNode(f"{parent_of(ask.path)} does not exist; make it first")
        if not parent.is_directory:
            raise NodeNotDirectory(f"{parent.path} is a file")
        self._permissions.check(live.record.user, parent, WRITE)
        if ask.acl is not None:
            check_names(ask.acl)
        count = len(self._state.nodes)
        if count >= self._settings.nodes_max:
            raise LimitReached(f"the cell has {count:,} nodes, the most that it may; delete some")
        self._check_size(ask.path, ask.contents, 0)
        if len(live.handles) >= self._settings.handles_max:
            raise LimitReached(f"session {live.id} has {len(live.handles):,} open handles")

    def _check_size(self, path: str, contents: bytes, before_bytes: int) -> None:
        size, most = len(contents), self._settings.file_bytes_max
        if size > most:
            raise LimitReached(f"{path}: {size:,} bytes; a file of a cell has at most {most:,}")
        total = self._state.contents_bytes - before_bytes + size
        if total > self._settings.contents_bytes_max:
            raise LimitReached(
                f"{path}: the cell's files would have {total:,} bytes; at most "
                f"{self._settings.contents_bytes_max:,} in all: large data belongs in the dfs"
            )

    def _make(self, live: Live, ask: OpenNode) -> Node:
        parent = self._state.nodes[parent_of(ask.path)]
        acl = parent.acl if ask.acl is None else ask.acl
        self._outbox.emit(
            r.NodeMade(
                ask.path, ask.is_directory, ask.is_ephemeral, ask.contents, acl,
                self._outbox.wall_s, live.id, ask.number,
            )
        )  # fmt: skip
        self._handles.tell(parent, CHILDREN_CHANGED, ask.path)
        return self._state.nodes[ask.path]

    # --- contents and lists

    def set_contents(
        self, live: Live, called: Called, ask: SetContents, known: OpenHandle, node: Node
    ) -> bool:
        """Write the whole file, if its generation is still the one that was seen."""
        self._check_mode(known, WRITE)
        return self._write(live, called, ask, node)

    def put_contents(self, live: Live, called: Called, ask: PutContents) -> bool:
        """The same by path: whoever may open the file to write it may write it so."""
        node = self._state.nodes.get(ask.path)
        if node is None:
            raise NoSuchNode(f"{ask.path} does not exist")
        self._permissions.check(live.record.user, node, WRITE)
        return self._write(live, called, ask, node)

    def _write(
        self, live: Live, called: Called, ask: SetContents | PutContents, node: Node
    ) -> bool:
        if node.is_directory:
            raise NodeIsDirectory(f"{node.path} is a directory: it has no contents")
        self._check_size(node.path, ask.contents, len(node.contents))
        generation = node.content_generation
        if ask.if_generation not in (ANY_GENERATION, generation):
            raise GenerationChanged(
                f"{node.path} is of generation {generation}, not {ask.if_generation}: somebody has "
                "written it since; read it again",
                generation=generation,
            )
        if not self._caching.prepare(called.call, (node.path,)):
            return WAITS
        wall_s = self._outbox.wall_s
        self._outbox.emit(r.ContentsSet(node.path, ask.contents, wall_s, live.id, ask.number))
        self._handles.tell(node, CONTENTS_CHANGED)
        self._tell_parent(node.path)
        self._outbox.reply(called.call, node.content_generation)
        return True

    def set_acl(
        self, live: Live, called: Called, ask: SetAcl, known: OpenHandle, node: Node
    ) -> bool:
        """Name other lists."""
        self._check_mode(known, CHANGE_ACL)
        check_names(ask.acl)
        if not self._caching.prepare(called.call, (node.path,)):
            return WAITS
        self._outbox.emit(r.AclSet(node.path, ask.acl, live.id, ask.number))
        self._outbox.reply(called.call, node.acl_generation)
        return True

    def _check_mode(self, known: OpenHandle, mode: int) -> None:
        if not known.handle.mode & mode:
            raise AclRefuses(f"{known.handle.path} was not opened for this")

    # --- ends

    def delete(
        self, live: Live, called: Called, ask: DeleteNode, known: OpenHandle, node: Node
    ) -> bool:
        """Remove a node that has no children. A lock that is held, or that its failed holder left,
        is not deleted: whoever made the node anew could hold it at once (L1, L3)."""
        self._check_mode(known, WRITE)
        if node.path in (ROOT, ACL_DIRECTORY):
            raise BadLockRequest(f"{node.path} belongs to the cell and cannot be deleted")
        if node.children:
            raise NodeHasChildren(f"{node.path} has {len(node.children)} children; delete them")
        if node.holders:
            raise LockHeld(f"{node.path}: its lock is held; it can be deleted when it is free")
        if self._locks.is_delayed(node):
            left_s = self._locks.delay_left_s(node)
            raise LockHeld(f"{node.path}: its lock-delay is over in {left_s:.0f} s; try again then")
        if not self._caching.prepare(called.call, keys_of_coming_or_going(node.path)):
            return WAITS
        self._remove(node, live.id, ask.number)
        self._outbox.reply(called.call, None)
        return True

    def _remove(self, node: Node, session: int = 0, number: int = 0) -> None:
        self._outbox.emit(r.NodeRemoved(node.path, session, number))
        self._locks.removed(node)
        self._handles.tell(node, HANDLE_INVALID)
        self._tell_parent(node.path)
        parent = self._state.nodes[parent_of(node.path)]
        self.nobody_has(parent)

    def _tell_parent(self, path: str) -> None:
        if path != ROOT:
            self._handles.tell(self._state.nodes[parent_of(path)], CHILDREN_CHANGED, path)

    def nobody_has(self, node: Node) -> None:
        """If the node is ephemeral and nobody has it open, it leaves (CH-11)."""
        if node.is_ephemeral and not self._handles.open_count(node) and not node.children:
            self.leaving[node.path] = node.instance

    def let_leave(self) -> None:
        """Remove the ephemeral nodes whose time has come, and those directories that they leave
        empty; one that is in use again stays."""
        paths = list(self.leaving)
        while paths:
            path = paths.pop()
            instance, node = self.leaving[path], self._state.nodes.get(path)
            change = -instance  # no call has this number
            if node is None or node.instance != instance or self._is_in_use(node):
                del self.leaving[path]
                self._caching.done(change)
            elif self._may_leave(node, change):
                del self.leaving[path]
                self._caching.done(change)
                self._remove(node)
                paths += [above for above in [parent_of(path)] if above in self.leaving]

    def _is_in_use(self, node: Node) -> bool:
        return bool(self._handles.open_count(node) or node.children)

    def _may_leave(self, node: Node, change: int) -> bool:
        # With its lock's delay the node would be gone too, and a new one of its name be free (L3).
        if node.holders or self._locks.is_delayed(node):
            return False
        return self._caching.prepare(change, keys_of_coming_or_going(node.path))
