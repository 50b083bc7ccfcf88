"""Locks: one exclusive holder or many shared ones, lines of those who wait, delays (Chubby §2.4).

L1: exclusive xor shared. L3: where a holder failed, nobody gets the lock before its delay is over;
after a fail-over the delay begins anew, in full. Whoever waits is served in the order of coming,
so that readers do not starve a writer. Holding a lock neither allows nor forbids anything else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mrstream.lock.cell import records as r
from mrstream.lock.cell.events import Called
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.nodes import HandleKey, Node, State
from mrstream.lock.cell.outbox import Outbox
from mrstream.lock.cell.sessions import Live, OpenHandle
from mrstream.lock.errors import BadLockRequest, HandleInvalid, LockHeld, SequencerInvalid
from mrstream.lock.protocol import (
    CLOCK_RATE,
    LOCK_ACQUIRED,
    LOCK_WANTED,
    WRITE,
    AcquireLock,
    LockState,
    Taken,
)
from mrstream.lock.sequencer import Sequencer, parse


@dataclass(slots=True, eq=False)
class Waiter:
    called: Called
    ask: AcquireLock
    session: int
    handle: HandleKey
    delay_s: float
    until_s: float


class Locks:
    """All locks, as the leader sees them."""

    def __init__(self, state: State, handles: Handles, outbox: Outbox) -> None:
        self._state = state
        self._handles = handles
        self._outbox = outbox
        self._lines: dict[str, deque[Waiter]] = {}
        self._delay_until_s: dict[str, float] = {}

    @property
    def waiting_count(self) -> int:
        return sum(len(line) for line in self._lines.values())

    # --- taking

    def acquire(self, live: Live, called: Called, known: OpenHandle, node: Node) -> None:
        """Give the lock, wait for it, or refuse."""
        ask = called.request
        assert isinstance(ask, AcquireLock)
        if not known.handle.mode & WRITE:
            # Also to share it: a reader could keep every writer out (CH-19).
            raise BadLockRequest(f"{node.path} was opened to read: a lock needs a handle to write")
        if node.holder(live.id, known.key) is not None:
            if node.is_shared != ask.is_shared:
                raise BadLockRequest(f"{node.path}: release the lock before taking it otherwise")
            self._outbox.reply(called.call, self._taken(node))
            return
        if any(w.session == live.id and w.handle == known.key for w in self._line(node.path)):
            raise BadLockRequest(f"{node.path}: this handle waits for the lock already")
        delay_s, until_s = known.handle.lock_delay_s, self._outbox.now_s + ask.wait_s
        waiter = Waiter(called, ask, live.id, known.key, delay_s, until_s)
        self._lines.setdefault(node.path, deque()).append(waiter)
        self.serve(node)
        if any(other is waiter for other in self._line(node.path)):
            self._handles.tell_holders(node, LOCK_WANTED)
            if not ask.wait_s > 0.0:  # also where it is no number
                self._give_up(node, waiter)

    def serve(self, node: Node) -> None:
        """Give the lock to whoever is first in line, as long as they may have it together."""
        line = self._lines.get(node.path)
        while line and self._may_take(node, line[0].ask.is_shared):
            waiter = line.popleft()
            self._outbox.emit(
                r.LockTaken(
                    node.path, waiter.session, waiter.handle, waiter.ask.is_shared, waiter.delay_s,
                    waiter.ask.number,
                )
            )  # fmt: skip
            self._outbox.reply(waiter.called.call, self._taken(node))
            self._handles.tell(node, LOCK_ACQUIRED)
        if line is not None and not line:
            del self._lines[node.path]

    def _may_take(self, node: Node, is_shared: bool) -> bool:
        if node.holders:
            return is_shared and node.is_shared
        return not self.is_delayed(node)

    def is_delayed(self, node: Node) -> bool:
        """Did a failed holder leave it, whose delay is not over (L3)?"""
        return node.delay_s > 0.0

    def _taken(self, node: Node) -> Taken:
        return Taken(str(self.sequencer(node)))

    # --- leaving

    def release(self, live: Live, known: OpenHandle, node: Node, number: int) -> None:
        """Free the lock if this handle has it, and end its wait for it if it waits."""
        if node.holder(live.id, known.key) is not None:
            self._outbox.emit(r.LockFreed(node.path, live.id, known.key, number))
        self.withdraw(live.id, known.key, node.path, LockHeld(f"{node.path}: the wait was ended"))
        self.serve(node)

    def withdraw(
        self, session: int, handle: HandleKey, path: str, error: LockHeld | HandleInvalid
    ) -> None:
        """Whatever this handle waits for, it does not get."""
        for waiter in list(self._line(path)):
            if waiter.session == session and waiter.handle == handle:
                self._leave(waiter, path)
                self._outbox.refuse(waiter.called.call, error)

    def session_ended(self, session: int, held: list[str]) -> None:
        """The log has ended a session that held these: nobody of it waits any more (its calls are
        answered elsewhere), and what it left is for others, after its delay."""
        paths = dict.fromkeys(held)
        for path, line in list(self._lines.items()):
            for waiter in [w for w in line if w.session == session]:
                self._leave(waiter, path)
                paths[path] = None
        for path in paths:
            node = self._state.nodes[path]
            self._begin_delay(node)
            self.serve(node)

    def restore(self) -> None:
        """After a fail-over: every delay that is not written off begins anew, in full."""
        for node in self._state.nodes.values():
            self._begin_delay(node)

    def _begin_delay(self, node: Node) -> None:
        if node.delay_s > 0.0:
            until_s = self._outbox.now_s + node.delay_s * (1 + CLOCK_RATE)
            self._delay_until_s[node.path] = max(until_s, self._delay_until_s.get(node.path, 0.0))

    def removed(self, node: Node) -> None:
        """The node is gone: so is its lock, and whoever waits for it."""
        self._delay_until_s.pop(node.path, None)
        for waiter in self._lines.pop(node.path, ()):
            self._outbox.refuse(waiter.called.call, HandleInvalid(f"{node.path} was deleted"))

    # --- time

    def forgive(self, late_s: float) -> None:
        """The leader stood still for so long: those who wait have not waited."""
        for line in self._lines.values():
            for waiter in line:
                waiter.until_s += late_s

    def tick(self) -> None:
        """Delays that are over, waits that are over."""
        now_s = self._outbox.now_s
        for path in [p for p, until_s in self._delay_until_s.items() if until_s <= now_s]:
            del self._delay_until_s[path]
            self._outbox.emit(r.DelayOver(path))
            self.serve(self._state.nodes[path])
        for path in list(self._lines):
            node = self._state.nodes[path]
            for waiter in [w for w in self._lines[path] if w.until_s <= now_s]:
                self._give_up(node, waiter)
            self.serve(node)

    def _give_up(self, node: Node, waiter: Waiter) -> None:
        self._leave(waiter, node.path)
        self._outbox.refuse(waiter.called.call, LockHeld(self._why(node, waiter)))

    def _why(self, node: Node, waiter: Waiter) -> str:
        if node.holders:
            who = ", ".join(self._who(holder.session) for holder in node.holders[:3])
            return f"{node.path} is held by {who}"
        left_s = self.delay_left_s(node)
        if left_s > 0.0:
            return f"{node.path}: its last holder failed; its lock-delay is over in {left_s:.0f} s"
        return f"{node.path}: {len(self._line(node.path))} others wait for it"

    def _who(self, session: int) -> str:
        record = self._state.sessions[session]
        return f"session {session} ({record.user}@{record.host})"

    def _line(self, path: str) -> deque[Waiter]:
        return self._lines.get(path, deque())

    def _leave(self, waiter: Waiter, path: str) -> None:
        line = self._lines[path]
        line.remove(waiter)
        if not line:
            del self._lines[path]

    # --- questions

    def delay_left_s(self, node: Node) -> float:
        """How long nobody may have it because its holder failed."""
        until_s = self._delay_until_s.get(node.path, 0.0)
        return max(0.0, until_s - self._outbox.now_s) if node.delay_s > 0.0 else 0.0

    def look(self, node: Node) -> LockState:
        """The lock as people see it."""
        return LockState(
            node.lock_generation, bool(node.holders), bool(node.holders) and node.is_shared,
            tuple(self._who(holder.session) for holder in node.holders), self.delay_left_s(node),
            len(self._line(node.path)), self._handles.open_count(node),
        )  # fmt: skip

    def sequencer(self, node: Node) -> Sequencer:
        """What the holder shows to servers (CH-20)."""
        return Sequencer(node.path, node.lock_generation, node.is_shared)

    def is_good(self, text: str) -> bool:
        """Is it the sequencer of a lock that is held now, in that way?"""
        try:
            sequencer = parse(text)
        except SequencerInvalid:
            return False
        node = self._state.nodes.get(sequencer.path)
        if node is None or not node.holders or node.lock_generation != sequencer.generation:
            return False
        return sequencer.is_shared in (None, node.is_shared)
