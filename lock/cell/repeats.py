"""Calls that come again: carried out once, answered as often as they come, over all leaders.

A client repeats a call, with the number that it had, when it does not know whether it was carried
out. What changed something is in the log with its number; how it was answered in this epoch is
remembered besides, refusals too. A number older than what is remembered is refused: it cannot be
known what became of it, and an honest client is not asking.
"""

from __future__ import annotations

from typing import Any

from mrstream.cluster.wire.messages import Request
from mrstream.lock import protocol as p
from mrstream.lock.cell.events import Called
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.nodes import State
from mrstream.lock.cell.outbox import Outbox
from mrstream.lock.cell.sessions import Live
from mrstream.lock.errors import BadLockRequest, CallReplaced
from mrstream.lock.paths import canonical
from mrstream.lock.sequencer import Sequencer

Numbered = p.HandleCall | p.OpenNode | p.PutContents
"""Calls that have effect once."""


class Repeats:
    def __init__(self, state: State, handles: Handles, outbox: Outbox, cell_name: str) -> None:
        self._state = state
        self._handles = handles
        self._outbox = outbox
        self._cell_name = cell_name

    def is_answered(self, live: Live, called: Called, ask: Request) -> bool:
        """Has this call been here before? Then it is answered as it was, or will be with it."""
        if not isinstance(ask, Numbered):
            return False
        number = ask.number
        if number <= 0:
            raise BadLockRequest(f"{type(ask).__name__} has no number")
        if number in live.answered:
            value, error = live.answered[number]
            if error is None:
                self._outbox.reply(called.call, value)
            else:
                self._outbox.refuse(called.call, error)
            return True
        if number in live.waiting:
            first = live.waiting[number]
            why = CallReplaced("the call came again; that one is answered")
            self._outbox.refuse_quietly(self._outbox.stand_in(first), why)
            self._outbox.replace(first, called.call)
            return True
        if number in live.record.done:
            value = self._again(live, ask, live.record.done[number])
            live.remember(number, value, None)
            self._outbox.reply(called.call, value)
            return True
        if number <= max(live.record.forgotten, live.answered_floor):
            raise BadLockRequest(f"call {number} of session {live.id} is too old", too_old=True)
        return False

    def begin(self, live: Live, called: Called, ask: Request) -> None:
        """Note that a call is under way, and how it will have been answered."""
        if isinstance(ask, Numbered):
            number = ask.number
            live.waiting[number] = called.call
            self._outbox.listen(
                called.call, lambda value, error: live.remember(number, value, error)
            )

    def _again(self, live: Live, ask: Numbered, done: int) -> Any:
        """What the leader that carried it out would have said."""
        match ask:
            case p.SetContents() | p.PutContents() | p.SetAcl():
                return done
            case p.AcquireLock():
                return p.Taken(str(Sequencer(ask.handle.path, done, ask.is_shared)))
            case p.OpenNode():
                return self._opened_again(live, ask, done)
            case _:
                return None

    def _opened_again(self, live: Live, ask: p.OpenNode, instance: int) -> p.Opened:
        path = canonical(ask.path, self._cell_name)
        node = self._state.nodes.get(path)
        if node is None or node.instance != instance:
            raise BadLockRequest(f"{path} was made by this call, and has been deleted since")
        handle = self._handles.make(
            live, node, mode=ask.mode, events=ask.events, lock_delay_s=ask.lock_delay_s
        )
        return p.Opened(handle, True, node.stat())
