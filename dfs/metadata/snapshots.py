"""Snapshots: first end all leases below the source, then log, then share the chunks (GFS §3.4).

While the seals go on no lease is given below the source, so that they come to an end; names may
change meanwhile, and the snapshot is of what is there when it is logged. Never does any IO.
"""

from __future__ import annotations

from mrstream.dfs.chunk import ChunkHandle
from mrstream.dfs.errors import BadRequest
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.chunk_table import REFERENCES_MAX
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.nodes import FILE
from mrstream.dfs.metadata.paths import join_path
from mrstream.dfs.metadata.seals import Seals
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.protocol import Snapshot


class Snapshots:
    def __init__(
        self, tables: Tables, changes: Changes, underways: Underways, seals: Seals
    ) -> None:
        self._t = tables
        self._nodes = tables.space.nodes
        self._changes = changes
        self._underways = underways
        self._seals = seals
        self._freezing: dict[int, tuple[int, list[Called]]] = {}
        """Those that wait for seals, by call: the row of the source, and who must wait for it."""

    def snapshot(self, called: Called, ask: Snapshot) -> None:
        """First end all leases below the source, then log, then share the chunks (GFS §3.4)."""
        t = self._t
        if called.request_id in t.space.requests:
            t.outbox.reply(called.call, None)
            return
        try:
            row = self._changes.check_snapshot(ask)
            if self._freeze(row, called):
                return
            self._changes.snapshot(ask, t.outbox.wall_s, called.request_id)
        except Exception:
            self._thaw(called.call)
            raise
        self._thaw(called.call)
        t.outbox.reply(called.call, None)

    def _freeze(self, row: int, called: Called) -> bool:
        """Seal everything open below; true while that goes on. No new lease meanwhile."""
        t = self._t
        open_handles: list[ChunkHandle] = []
        for node in self._nodes.walk(row):
            if self._nodes.kind[node] != FILE:
                continue
            if (work := self._underways.creating(self._nodes.id_of(node))) is not None:
                open_handles.append(work.handle)
            for handle in map(ChunkHandle, self._nodes.chunks(node)):
                if t.chunks.references(handle) >= REFERENCES_MAX:
                    path = join_path(self._nodes.path_of(node))
                    raise BadRequest(f"{path}: has {REFERENCES_MAX} snapshots, the most")
                if handle in t.chunks.unsealed or self._underways.of(handle) is not None:
                    open_handles.append(handle)
        if not open_handles:
            return False
        self._freezing.setdefault(called.call, (row, []))
        for handle in open_handles:
            if self._underways.of(handle) is None:
                self._seals.seal(handle)
        work = self._underways.of(open_handles[0])
        if work is None and open_handles[0] in t.chunks.unsealed:
            raise self._underways.no_replica(open_handles[0])
        if work is None:
            t.outbox.again.append(called)
        else:
            work.then.append(lambda _: t.outbox.again.append(called))
        return True

    def _thaw(self, call: int) -> None:
        _, waiting = self._freezing.pop(call, (0, []))
        self._t.outbox.again += waiting

    def must_wait(self, row: int, called: Called) -> bool:
        """Park a request for a lease below a source that is being sealed."""
        for source, waiting in self._freezing.values():
            if self._nodes.is_within(row, source):
                waiting.append(called)
                return True
        return False

    def given_up(self, called: Called) -> None:
        """The request waited too long and has been refused."""
        self._thaw(called.call)
