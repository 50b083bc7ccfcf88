"""Sessions: leases, KeepAlives that are held back, and the events that ride on them (Chubby §2.8).

The log knows that a session exists; all here is the leader's alone and dies with it. L5: no session
ends before the lease that its client was told is over, by any clock within `CLOCK_RATE`. A lease is
only ever extended, and only for a client that has acknowledged every event that it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.lock.cell import records as r
from mrstream.lock.cell.events import Called
from mrstream.lock.cell.nodes import HandleKey, SessionRecord, State
from mrstream.lock.cell.outbox import Outbox
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import CallReplaced, SessionExpired
from mrstream.lock.protocol import CLOCK_RATE, Handle, Happened, KeepAlive, Kept

HOLD_SHARE = 0.75
"""Of its lease, the time that a KeepAlive is held back."""
ANSWERED_MAX = 256
LATE_S = 1.0
"""A tick that is so late says that the leader has too much to do."""
SLACK_S = 0.1
"""A tick is late by less on any machine."""
LAGS = 3


@dataclass(slots=True)
class OpenHandle:
    handle: Handle
    is_poisoned: bool = False

    @property
    def key(self) -> HandleKey:
        return self.handle.epoch, self.handle.number


@dataclass(slots=True)
class Live:
    """What this leader knows of a session."""

    record: SessionRecord
    lease_end_s: float
    called_at_s: float
    parked: Called | None = None
    parked_at_s: float = 0.0
    may_extend: bool = False
    """The KeepAlive that waits has acknowledged all that was sent."""
    events: list[Happened] = field(default_factory=list)
    next_event: int = 1
    sent: int = 0
    acked: int = 0
    handles: dict[HandleKey, OpenHandle] = field(default_factory=dict)
    closed: dict[HandleKey, None] = field(default_factory=dict)
    """Handles of earlier epochs that were closed in this one: never made again (§2.9 step 8)."""
    next_handle: int = 1
    waiting: dict[int, int] = field(default_factory=dict)
    """Numbered calls that are not answered yet: number to call."""
    answered: dict[int, tuple[Any, ClusterError | None]] = field(default_factory=dict)
    answered_floor: int = 0

    @property
    def id(self) -> int:
        return self.record.session

    def remember(self, number: int, value: Any, error: ClusterError | None) -> None:
        """Note how a numbered call was answered in this epoch."""
        self.waiting.pop(number, None)
        self.answered[number] = (value, error)
        if len(self.answered) > ANSWERED_MAX:
            oldest = min(self.answered)
            del self.answered[oldest]
            self.answered_floor = max(self.answered_floor, oldest)


class Sessions:
    """All sessions, as the leader sees them."""

    def __init__(self, state: State, settings: Settings, outbox: Outbox) -> None:
        self._state = state
        self._settings = settings
        self._outbox = outbox
        self.live: dict[int, Live] = {}
        self._by_nonce: dict[int, int] = {}
        self._touched: dict[int, None] = {}
        """Sessions that there may be something to say to since the last event."""
        self._under_load = False
        self._lagged_at_s: list[float] = []
        self._long_until_s = 0.0

    # --- beginnings and ends

    def restore(self) -> None:
        """Take over every session of the log, each with the longest lease that it may have."""
        # Twice the rate: the last leader's clock may have run fast while it held a KeepAlive, too.
        end_s = self._outbox.now_s + self._state.lease_s * (1 + 2 * CLOCK_RATE)
        self._long_until_s = end_s
        for record in self._state.sessions.values():
            self.live[record.session] = Live(record, end_s, self._outbox.now_s)
            self._by_nonce[record.nonce] = record.session

    def begin(self, session: int, lease_s: float) -> Live:
        """Count the first lease of a new session."""
        now_s = self._outbox.now_s
        live = self.live[session] = Live(self._state.sessions[session], now_s, now_s)
        self._by_nonce[live.record.nonce] = session
        self._extend(live, now_s, lease_s)
        return live

    def of_nonce(self, nonce: int) -> Live | None:
        """The session that this request was given before, if it was."""
        return self.live.get(self._by_nonce.get(nonce, 0))

    def begin_again(self, live: Live, lease_s: float) -> None:
        """The client did not hear that it has a session, and asks again."""
        self._extend(live, self._outbox.now_s, lease_s)

    def drop(self, live: Live, error: SessionExpired | None) -> None:
        """Forget a session that the log has ended; its KeepAlive hears of it."""
        del self.live[live.id]
        self._by_nonce.pop(live.record.nonce, None)
        if live.parked is not None:
            if error is None:
                self._outbox.reply(live.parked.call, Kept(0.0, (), ended=True))
            else:
                self._outbox.refuse(live.parked.call, error)

    def expired(self) -> list[Live]:
        """The sessions whose lease is over."""
        now_s = self._outbox.now_s
        return [live for live in self.live.values() if live.lease_end_s < now_s]

    def idle(self) -> list[Live]:
        """The sessions that nobody does anything with (CH-36)."""
        since_s = self._outbox.now_s - self._settings.idle_s
        return [
            live for live in self.live.values()
            if live.called_at_s < since_s and not live.handles and not live.waiting
            and not self._state.held.get(live.id)
        ]  # fmt: skip

    def forgive(self, late_s: float) -> None:
        """The leader heard nobody for so long: every lease goes on by as much. Also where that is
        little, and again and again: a crowded machine gives it a core now and then, and a client
        that has to connect anew needs several of those moments."""
        if late_s > LATE_S:
            self._lagged_at_s.append(self._outbox.now_s)
        if late_s > SLACK_S:
            for live in self.live.values():
                live.lease_end_s += late_s
            self._long_until_s += late_s

    # --- leases

    @property
    def lease_s(self) -> float:
        settings = self._settings
        return settings.lease_under_load_s if self._under_load else settings.lease_s

    def choose_lease(self) -> None:
        """Long leases under load, short ones else; longer ones only once the log says so, and
        shorter ones are logged only when no longer one is left (§2.9 step 3)."""
        settings, count = self._settings, len(self.live)
        since_s = self._outbox.now_s - settings.lease_under_load_s
        self._lagged_at_s = [at_s for at_s in self._lagged_at_s if at_s > since_s]
        lagged = len(self._lagged_at_s) >= LAGS  # once is a pause, not load
        low = settings.load_sessions * (0.8 if self._under_load else 1.0)
        self._under_load = lagged or count > low
        known_s = self._state.lease_s
        if self.lease_s > known_s or (
            self.lease_s < known_s and self._outbox.now_s > self._long_until_s
        ):
            self._outbox.emit(r.LeaseSet(self.lease_s))

    def _extend(self, live: Live, from_s: float, lease_s: float) -> None:
        end_s = from_s + lease_s * (1 + CLOCK_RATE)
        live.lease_end_s = max(live.lease_end_s, end_s)
        if self.lease_s > self._settings.lease_s:
            self._long_until_s = max(self._long_until_s, end_s)

    # --- KeepAlives

    def keep_alive(self, live: Live, called: Called, ask: KeepAlive) -> None:
        """Take the acknowledgements in, and hold the call back until there is something to say."""
        if live.parked is not None:
            self._outbox.refuse(live.parked.call, CallReplaced("another KeepAlive came since"))
        live.acked = max(live.acked, min(ask.acked, live.sent))
        live.events = [event for event in live.events if event.number > live.acked]
        live.parked, live.parked_at_s = called, self._outbox.now_s
        live.may_extend = live.acked == live.sent
        self._touched[live.id] = None

    def touch_all(self) -> None:
        """Time has passed: look at every KeepAlive."""
        self._touched.update(dict.fromkeys(self.live))

    def answer_due(self) -> None:
        """Answer every KeepAlive whose time has come, of sessions that something happened to."""
        for session in self._touched:
            live = self.live.get(session)
            if live is not None and live.parked is not None and self._is_due(live):
                self._answer(live)
        self._touched.clear()

    def _is_due(self, live: Live) -> bool:
        if live.events or not live.may_extend:
            return True
        lease_s = self.lease_s
        hold_until_s = min(
            live.parked_at_s + HOLD_SHARE * lease_s,
            live.lease_end_s - (1 - HOLD_SHARE) * lease_s,
        )
        return self._outbox.now_s >= hold_until_s

    def _answer(self, live: Live) -> None:
        assert live.parked is not None
        lease_s = 0.0
        if live.may_extend:
            lease_s = self._outbox.now_s - live.parked_at_s + self.lease_s
            self._extend(live, live.parked_at_s, lease_s)
        if live.events:
            live.sent = live.events[-1].number
        kept = Kept(lease_s, tuple(live.events), given_s=self.lease_s)
        self._outbox.reply(live.parked.call, kept)
        live.parked = None

    # --- events

    def tell(self, live: Live, kind: int, path: str = "", handle: HandleKey = (0, 0)) -> int:
        """Put an event into the session's line; return its number. One that says the same and was
        not sent yet is not put there twice."""
        for event in reversed(live.events):
            if event.number <= live.sent:
                break
            if (event.kind, event.path, event.handle) == (kind, path, handle):
                return event.number
        self._touched[live.id] = None
        number, live.next_event = live.next_event, live.next_event + 1
        live.events.append(Happened(number, kind, path, handle))
        return number

    def __iter__(self) -> Iterator[Live]:
        return iter(list(self.live.values()))
