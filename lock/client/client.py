"""The lock service as programs use it: one session, its files, locks, events and elections.

    with connect() as cell:
        with cell.acquire("/ls/local/nightly", delay_s=15) as held:
            run(fence=held.fence)
        cell.watch("/ls/local/config", on_change)
        leading = cell.elect("/ls/local/app/leader", b"h3:9000")

Reads come from a cache that is never stale. All methods block, and may be called from any thread.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable

from mrstream.cluster.closing import Closing
from mrstream.cluster.config.config import LOCK_MASTER, Cluster, cluster_meant
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.leader.connection import connect_to_leader
from mrstream.cluster.user import user_name
from mrstream.lock import protocol as p
from mrstream.lock.client.election import elect
from mrstream.lock.client.handle import Held, NodeHandle
from mrstream.lock.client.link import Link
from mrstream.lock.client.session import FailedOver, News, Standing, Told
from mrstream.lock.errors import (
    AclRefuses,
    GenerationChanged,
    NodeExists,
    NodeIsDirectory,
    NoSuchNode,
)
from mrstream.lock.paths import canonical

OnChange = Callable[[p.Happened], None]
OnNews = Callable[[News], None]
WATCHED = p.CONTENTS_CHANGED | p.CHILDREN_CHANGED | p.HANDLE_INVALID | p.FAILED_OVER


class CellClient(Closing):
    """A session with a lock cell."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        user: str = "",
        program: str = "",
        on_news: OnNews | None = None,
    ) -> None:
        config = cluster.config
        if config.lock is None:
            raise UserError(
                f"cluster {config.name} has no lock cell: write `lock: {{}}` into its cluster.yaml "
                "and run `mrstream cluster up`"
            )
        self._cell = config.name
        self._on_news = on_news
        self._mutex = threading.Lock()
        self._handles: dict[tuple[int, int], NodeHandle] = {}
        self._watchers: dict[tuple[int, int], OnChange] = {}
        self._link = Link(
            lambda finding: connect_to_leader(cluster, LOCK_MASTER, finding),
            user=user or user_name(), host=socket.gethostname()[:255],
            program=program or _program(), on_news=self._heard,
        )  # fmt: skip

    def open_session(self) -> CellClient:
        """Open the session; `connect` has done so."""
        self._link.open()
        return self

    def close(self) -> None:
        """End the session: locks are free at once, ephemeral nodes go."""
        self._link.close()

    @property
    def standing(self) -> Standing:
        """Safe, in jeopardy, expired or ended."""
        return self._link.standing

    # --- nodes

    def open(
        self,
        path: str,
        mode: int = p.READ | p.WRITE,
        *,
        create: int = p.EXISTING,
        directory: bool = False,
        ephemeral: bool = False,
        contents: bytes = b"",
        acl: p.Acl | None = None,
        events: int = 0,
        delay_s: float = 0.0,
    ) -> NodeHandle:
        """Open a node, and make it where `create` says so; the handle says whether it was made."""
        request = p.OpenNode(
            0, 0, self._link.number(), self._path(path), mode, events, delay_s, create, directory,
            ephemeral, contents, acl,
        )  # fmt: skip
        handle = NodeHandle(self._link, self._link.call(request), self._closed)
        with self._mutex:
            self._handles[handle.key] = handle
        return handle

    def look(self, path: str) -> p.Seen:
        """Return a node's contents and numbers, or that there is none (`stat` None)."""
        path = self._path(path)
        seen: p.Seen | None = self._link.cached(path)
        if seen is None:
            request = p.Look(0, 0, path)
            seen = self._link.read(path, request, lambda found: len(found.contents) + 200)
        assert seen is not None
        return seen

    def get(self, path: str) -> bytes:
        """Return the contents of a file."""
        seen = self.look(path)
        if seen.stat is None:
            raise NoSuchNode(f"{self._path(path)} does not exist")
        if seen.stat.is_directory:
            raise NodeIsDirectory(f"{seen.stat.path} is a directory")
        return seen.contents

    def stat(self, path: str) -> p.Stat:
        """Return the numbers of a node, or raise `NoSuchNode`."""
        stat = self.look(path).stat
        if stat is None:
            raise NoSuchNode(f"{self._path(path)} does not exist")
        return stat

    def exists(self, path: str) -> bool:
        """Is there such a node? A program may ask in a loop: absence is cached too."""
        return self.look(path).stat is not None

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, in order."""
        path = self._path(path)
        kept: p.Children | None = self._link.cached(f"{path}/")
        if kept is None:
            request = p.ListNode(0, 0, path)
            kept = self._link.read(f"{path}/", request, lambda found: 50 * len(found.names) + 100)
        assert kept is not None
        return kept.names

    def list_files(self, path: str) -> dict[str, bytes]:
        """Return the small files in a directory (up to a hundred) with their contents, at once."""
        listed: p.Children = self._link.call(p.ListNode(0, 0, self._path(path), True))
        return {
            seen.stat.path.rpartition("/")[2]: seen.contents
            for seen in listed.files
            if seen.stat is not None and not seen.stat.is_directory
        }

    def lock_state(self, path: str) -> p.LockState:
        """Return who holds the node's lock, and who waits."""
        state: p.LockState = self._link.call(p.LookAtLock(0, 0, self._path(path)))
        return state

    def put(self, path: str, contents: bytes, if_generation: int = p.ANY_GENERATION) -> int:
        """Write a whole file, made if there is none; return its generation. `if_generation`: only
        if it is still that one (0: only if there is none)."""
        if if_generation != 0:
            ask = p.PutContents(
                0, 0, self._link.number(), self._path(path), contents, if_generation
            )  # fmt: skip
            try:
                generation: int = self._link.call(ask)
                return generation
            except NoSuchNode:
                if if_generation > 0:
                    raise GenerationChanged(f"{ask.path} does not exist any more") from None
        create = p.MUST_CREATE if if_generation == 0 else p.MAY_CREATE
        try:
            handle = self.open(path, p.WRITE, create=create, contents=contents)
        except NodeExists:
            raise GenerationChanged(f"{self._path(path)} exists already") from None
        with handle:
            if handle.created:
                return self._generation(path)
            return handle.set(contents, if_generation)

    def _generation(self, path: str) -> int:
        try:
            return self.stat(path).content_generation
        except (AclRefuses, NoSuchNode):
            return 0

    def mkdir(self, path: str) -> bool:
        """Make a directory; return whether there was none."""
        with self.open(path, p.READ, create=p.MAY_CREATE, directory=True) as handle:
            return handle.created

    def delete(self, path: str) -> None:
        """Delete a node that has no children and whose lock is free."""
        with self.open(path, p.WRITE) as handle:
            handle.delete()

    # --- locks

    def acquire(
        self,
        path: str,
        *,
        shared: bool = False,
        wait_s: float | None = None,
        delay_s: float = 0.0,
    ) -> Held:
        """Take a lock (its file is made if there is none); `delay_s`: how long nobody else may have
        it if this program fails."""
        handle = self.open(path, create=p.MAY_CREATE, delay_s=delay_s, events=p.HANDLE_INVALID)
        try:
            return Held(handle, handle.acquire(shared=shared, wait_s=wait_s))
        except BaseException:
            handle.close()
            raise

    def try_acquire(self, path: str, *, shared: bool = False, delay_s: float = 0.0) -> Held | None:
        """Take a lock if it is free; None: somebody has it."""
        from mrstream.lock.errors import LockHeld

        try:
            return self.acquire(path, shared=shared, wait_s=0.0, delay_s=delay_s)
        except LockHeld:
            return None

    def elect(
        self, path: str, name: bytes, *, wait_s: float | None = None, delay_s: float = 0.0
    ) -> Held:
        """Wait in line to be the primary; then the file holds the name, for all to read."""
        handle = self.open(path, create=p.MAY_CREATE, delay_s=delay_s, events=p.HANDLE_INVALID)
        try:
            return elect(handle, name, wait_s)
        except BaseException:
            handle.close()
            raise

    def check(self, sequencer: str) -> bool:
        """Is this the sequencer of a lock that is held now?"""
        is_good: bool = self._link.ask(p.CheckSequencer(sequencer))
        return is_good

    # --- events

    def watch(self, path: str, on_change: OnChange, events: int = WATCHED) -> NodeHandle:
        """Have a function called after each change of a node, from a thread of ours; a read that
        follows sees that change or a later one. After a fail-over it is called with `FAILED_OVER`,
        since changes may have been missed. Close the result to end it."""
        handle = self.open(path, p.READ, events=events)
        with self._mutex:
            self._watchers[handle.key] = on_change
        return handle

    def _heard(self, news: News) -> None:
        if isinstance(news, Told):
            watcher = self._watchers.get(news.event.handle)
            if watcher is not None:
                watcher(news.event)
        elif isinstance(news, FailedOver):
            threading.Thread(target=self._refresh, name="lock-refresh", daemon=True).start()
        if self._on_news is not None:
            self._on_news(news)

    def _refresh(self) -> None:
        """A new leader leads: it knows our handles when we use them, and sends no events before."""
        with self._mutex:
            handles, watchers = list(self._handles.values()), list(self._watchers)
        for handle in handles:
            try:
                handle.refresh()
            except ClusterError:
                continue  # its node is gone, or our session: whoever uses it hears of it
        # Only now: whoever reads when told must not miss what changes after its read.
        for handle in handles:
            if handle.key in watchers:
                self._link.announce(p.Happened(0, p.FAILED_OVER, handle.path, handle.key))

    def _closed(self, handle: NodeHandle) -> None:
        with self._mutex:
            self._handles.pop(handle.key, None)
            self._watchers.pop(handle.key, None)

    # --- the cell

    def sessions(self) -> tuple[p.SessionRow, ...]:
        """Return all sessions of the cell."""
        rows: tuple[p.SessionRow, ...] = self._link.ask(p.ListSessions())
        return rows

    def figures(self) -> p.CellFigures:
        """Return the cell's numbers."""
        figures: p.CellFigures = self._link.ask(p.DescribeCell())
        return figures

    def locate(self) -> p.Whereabouts:
        """Return who leads the cell."""
        found: p.Whereabouts = self._link.ask(p.Locate())
        return found

    def _path(self, path: str) -> str:
        return canonical(path, self._cell)


def connect(
    cluster: str | None = None,
    *,
    user: str = "",
    program: str = "",
    on_news: OnNews | None = None,
) -> CellClient:
    """Open a session with the lock cell of a cluster: of the file or name given, or the current."""
    found = cluster_meant(cluster)
    return CellClient(found, user=user, program=program, on_news=on_news).open_session()


def _program() -> str:
    words = " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:3]])
    return "".join(c for c in words if c.isprintable())[:100]
