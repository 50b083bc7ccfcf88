"""What really happened: every record of the cell's log with its true time, folded by itself.

Checks what needs time and all clients at once: L1 as clients believe it, L2 to L5, and that no
call has effect twice (F5). A crash may take records back that nobody was told of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mrstream.lock.cell import records as r
from mrstream.lock.cell.invariants import check_state
from mrstream.lock.cell.nodes import State
from mrstream.lock.paths import ROOT, parent_of
from mrstream.lock.sequencer import parse


class Book:
    """The truth."""

    def __init__(self) -> None:
        self.records: list[tuple[r.AnyRecord, float]] = []
        self.clients: list[Any] = []
        self.told: dict[tuple[str, int], tuple[int, tuple[int, int]]] = {}
        """(path, generation) of an exclusive lock to who was told that it has it."""
        self.acked: dict[str, int] = {}
        """Key to the last change of it that somebody was told of."""
        self._fresh()

    def _fresh(self) -> None:
        self.state = State()
        self.timeline: dict[str, list[tuple[int, Any]]] = {}
        self.caused: dict[tuple[int, int], int] = {}
        self.delay_until_s: dict[str, float] = {}
        self.generation: dict[str, int] = {}
        for path in (ROOT, f"{ROOT}/acl"):
            self._note(0, path)

    # --- the log

    def append(self, record: r.AnyRecord, now_s: float) -> None:
        self.records.append((record, now_s))
        self._fold(record, now_s, len(self.records), is_new=True)

    def truncate(self, length: int) -> None:
        """A crash left so many records."""
        assert max(self.acked.values(), default=0) <= length, "M1: a change that was told is lost"
        if length == len(self.records):
            return
        del self.records[length:]
        self._fresh()
        for index, (record, at_s) in enumerate(self.records, 1):
            self._fold(record, at_s, index, is_new=False)

    def _fold(self, record: r.AnyRecord, now_s: float, index: int, is_new: bool) -> None:
        state = self.state
        if isinstance(record, r.SessionEnded) and record.failed:
            if is_new:
                self._check_lease(record.session)
            for path in state.held.get(record.session, {}):
                self._failed(state.nodes[path], record.session, now_s)
        if isinstance(record, r.LockTaken):
            self._check_delay(record, now_s)
        if isinstance(record, r.LockFreed):
            assert record.number, f"L3: {record.path} is freed though its holder did not release it"
        session, number = getattr(record, "session", 0), getattr(record, "number", 0)
        if number:
            assert (session, number) not in self.caused, f"F5: {record} has effect twice"
            self.caused[(session, number)] = index
        state.apply(record)
        if isinstance(record, r.LockTaken):
            self._check_generation(record)
        path = getattr(record, "path", "")
        if path:
            self._note(index, path)
        check_state(state)

    def _note(self, index: int, path: str) -> None:
        node = self.state.nodes.get(path)
        self._see(index, path, None if node is None else (node.instance, node.contents))
        self._see(index, f"{path}/", None if node is None else tuple(sorted(node.children)))
        if path != ROOT:
            above = parent_of(path)
            parent = self.state.nodes.get(above)
            names = None if parent is None else tuple(sorted(parent.children))
            self._see(index, f"{above}/", names)

    def _see(self, index: int, key: str, value: Any) -> None:
        line = self.timeline.setdefault(key, [(0, None)])
        if line[-1][1] != value:
            line.append((index, value))

    # --- L2, L3, L5

    def _failed(self, node: Any, session: int, now_s: float) -> None:
        gone = [h.delay_s for h in node.holders if h.session == session]
        others = [h for h in node.holders if h.session != session]
        if not others:
            until_s = now_s + max(gone)
            self.delay_until_s[node.path] = max(until_s, self.delay_until_s.get(node.path, 0.0))

    def _check_delay(self, record: r.LockTaken, now_s: float) -> None:
        if not self.state.nodes[record.path].holders:
            until_s = self.delay_until_s.get(record.path, 0.0)
            assert now_s >= until_s - 1e-6, (
                f"L3: {record.path} is given {until_s - now_s:.2f} s before its delay is over"
            )

    def _check_generation(self, record: r.LockTaken) -> None:
        node = self.state.nodes[record.path]
        if len(node.holders) == 1:
            before = self.generation.get(record.path, 0)
            assert node.lock_generation > before, (
                f"L2: {record.path} is held in generation {node.lock_generation} after {before}"
            )
            self.generation[record.path] = node.lock_generation

    def _check_lease(self, session: int) -> None:
        for client in self.clients:
            if client.session_id == session:
                left_s = client.believed_lease_left_s()
                assert left_s <= 0.0, f"L5: {client.name} was told {left_s:.3f} s more of its lease"

    # --- what clients are told and believe

    def was_told(self, session: int, number: int) -> None:
        """A client got the answer to a call: whatever it changed is acknowledged."""
        index = self.caused.get((session, number))
        if index is None:
            return
        path = getattr(self.records[index - 1][0], "path", "")
        for key in (path, f"{path}/", f"{parent_of(path)}/") if path not in ("", ROOT) else ():
            if any(at == index for at, _ in self.timeline.get(key, ())):
                self.acked[key] = max(self.acked.get(key, 0), index)

    def was_given(self, sequencer: str, session: int, handle: tuple[int, int]) -> None:
        """A client was told that it has a lock."""
        parsed = parse(sequencer)
        if not parsed.is_shared:
            holder = self.told.setdefault(parsed.fence, (session, handle))
            assert holder == (session, handle), f"L2: {sequencer} was given to two"

    def check_read(self, key: str, value: Any, since: int, how: str) -> None:
        """L4: what was read was so at some moment since the last change that was acknowledged when
        the read began."""
        line = self.timeline.get(key, [(0, None)])
        ends = [at for at, _ in line[1:]] + [len(self.records) + 1]
        for (_, there), end in zip(line, ends, strict=True):
            if end > since and there == value:
                return
        raise AssertionError(f"L4: {how} read of {key} gives {value}, after change {since}: {line}")

    def check_beliefs(self) -> None:
        """L1: of those with reason to think that they hold a lock, one is alone or all share."""
        exclusive: dict[str, str] = {}
        shared: dict[str, str] = {}
        for client in self.clients:
            for path, is_shared in client.believes_to_hold():
                who = exclusive.get(path) or (None if is_shared else shared.get(path))
                assert who is None, f"L1: {who} and {client.name} both hold {path}"
                (shared if is_shared else exclusive)[path] = client.name

    def check_sessions(self, sessions: Iterable[int]) -> None:
        """Every session of the log is one of the leader's."""
        assert list(self.state.sessions) == list(sessions)
