"""The brain of a lock cell: events in, commands out (all of `lock.cell` behind one door).

There are two ways to change it, one after the other. Recovery folds what is on disk: `load_image`
for a checkpoint, then `apply` for each record (L7). From the event `LeadershipBegan` on, `handle`
is the only mutator. Time comes in as an argument; there is no chance in it. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request
from mrstream.lock import protocol as p
from mrstream.lock.cell import invariants
from mrstream.lock.cell import records as r
from mrstream.lock.cell.acl import Permissions
from mrstream.lock.cell.caching import Caching
from mrstream.lock.cell.changes import Changes
from mrstream.lock.cell.events import Called, Command, Event, LeadershipBegan, Tick
from mrstream.lock.cell.failover import Failover
from mrstream.lock.cell.handles import Handles
from mrstream.lock.cell.locks import Locks
from mrstream.lock.cell.nodes import Node, State
from mrstream.lock.cell.outbox import Outbox
from mrstream.lock.cell.reading import Reading
from mrstream.lock.cell.repeats import Repeats
from mrstream.lock.cell.sessions import Live, OpenHandle, Sessions
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import (
    BadLockRequest,
    CellFailingOver,
    HandleInvalid,
    LimitReached,
    SequencerInvalid,
    SessionExpired,
)
from mrstream.lock.paths import canonical

WORD_MAX = 255
Verb = Callable[[Live, Called, Any], bool]
OnHandle = Callable[[Live, Called, Any, OpenHandle, Node], bool | None]


class Cell:
    def __init__(self, settings: Settings, secret: bytes, name: str = "local") -> None:
        self._settings = settings
        self._name = name
        self.state = State()
        self._outbox = outbox = Outbox(self.state.apply)
        self.sessions = Sessions(self.state, settings, outbox)
        self.handles = Handles(self.state, settings, self.sessions, secret)
        self.caching = Caching(settings, self.sessions)
        self.locks = Locks(self.state, self.handles, outbox)
        self._changes = Changes(
            self.state, settings, outbox, self.handles, self.caching, self.locks
        )
        self.failover = Failover(
            self.state, settings, outbox, self.sessions, self.handles, self.locks, self._changes
        )
        permissions = Permissions(self.state, settings.superuser)
        self._reading = Reading(
            self.state, permissions, self.caching, self.handles, self.locks, self.sessions
        )
        self._repeats = Repeats(self.state, self.handles, outbox, name)
        self._parked: dict[int, Called] = {}
        """Changes that wait for caches."""
        self._counts: dict[str, int] = {}
        self._queries = self._query_table()
        self._verbs = self._verb_table()

    # --- before the first event

    def apply(self, record: r.AnyRecord) -> None:
        """Fold one record of the log, as recovery does. Never fails."""
        assert not self.failover.step, "who leads changes by events; the log follows from them"
        self.state.apply(record)

    # --- the door

    def handle(self, event: Event, now_s: float, wall_s: float) -> list[Command]:
        """Take in one event; return what is to be made durable and said, in this order."""
        assert self.failover.step or type(event) is LeadershipBegan, f"{event} before its time"
        self._outbox.begin(now_s, wall_s)
        match event:
            case Called():
                self._counts[type(event.request).__name__] = (
                    self._counts.get(type(event.request).__name__, 0) + 1
                )
                self._called(event)
            case Tick():
                self._tick(event)
            case LeadershipBegan():
                assert not self.failover.step, "who loses the lead starts anew from the log"
                self.failover.begin(event.epoch)
                self.sessions.choose_lease()
            case _ as never:
                assert_never(never)
        self.failover.go_on()
        self._go_on()
        self.sessions.answer_due()
        return self._outbox.take()

    @property
    def calls(self) -> list[type[Request]]:
        """The requests that `handle` takes."""
        return [p.OpenSession, p.KeepAlive, *self._queries, *self._verbs]

    @property
    def epoch(self) -> int:
        return self.failover.epoch

    @property
    def step(self) -> int:
        """The step of the fail-over that has begun last."""
        return self.failover.step

    def check_invariants(self) -> None:
        """Assert what must hold."""
        invariants.check(self)

    # --- time

    def _tick(self, event: Tick) -> None:
        self.sessions.forgive(event.late_s)
        self.locks.forgive(event.late_s)
        self.sessions.choose_lease()
        for live in self.sessions.expired():
            self._end(live, SessionExpired(f"session {live.id}: its lease ran out"), failed=True)
        if self.failover.step >= 7:
            for live in self.sessions.idle():
                self._end(live, None, failed=False)
        self.locks.tick()
        self.sessions.touch_all()

    def _go_on(self) -> None:
        """Changes whose caches are empty now; ephemeral nodes that nobody has."""
        while self.caching.is_emptied:
            self.caching.is_emptied = False
            for called in list(self._parked.values()):
                if called.call in self._parked and self.caching.is_clear(called.call):
                    del self._parked[called.call]
                    self._run(called)
        self._changes.let_leave()

    # --- calls

    def _called(self, called: Called) -> None:
        kind = type(called.request)
        try:
            if kind in self._queries:
                self._outbox.reply(called.call, self._queries[kind](called.request))
            elif isinstance(called.request, p.OpenSession):
                self._open_session(called, called.request)
            else:
                self._of_session(called, called.request)
        except ClusterError as error:
            self._outbox.refuse(called.call, error)

    def _of_session(self, called: Called, ask: Any) -> None:
        self.failover.check(ask.epoch, isinstance(ask, p.KeepAlive))
        live = self.sessions.live.get(ask.session)
        if live is None:
            raise SessionExpired(f"session {ask.session} is over")
        if isinstance(ask, p.KeepAlive):
            self.sessions.keep_alive(live, called, ask)
            self.caching.acknowledged(live)
            return
        live.called_at_s = self._outbox.now_s
        if self._repeats.is_answered(live, called, ask):
            return
        if len(live.waiting) >= self._settings.calls_waiting_max:
            raise LimitReached(f"session {live.id} has {len(live.waiting):,} calls under way")
        self._repeats.begin(live, called, ask)
        self._run(called)

    def _run(self, called: Called) -> None:
        """Decide a call, for the first time or anew."""
        ask: Any = called.request
        live = self.sessions.live[ask.session]
        try:
            answered = self._verbs[type(ask)](live, called, ask)
        except ClusterError as error:
            self._outbox.refuse(called.call, error)
            answered = True
        if answered:
            self.caching.done(called.call)
        else:
            self._parked[called.call] = called

    def _on_handle(self, verb: OnHandle) -> Verb:
        def run(live: Live, called: Called, ask: Any) -> bool:
            known, node = self.failover.step_8_make_a_handle_again(live, ask.handle)
            self._check_under(ask.under)
            return verb(live, called, ask, known, node) is not False

        return run

    def _check_under(self, sequencer: str) -> None:
        if sequencer and not self.locks.is_good(sequencer):
            raise SequencerInvalid(f"{sequencer[:200]!r} is not held any more")

    def _verb_table(self) -> dict[type[Request], Verb]:
        c = self._changes
        return {
            p.EndSession: self._end_session,
            p.OpenNode: self._open,
            p.PutContents: self._put,
            p.Look: self._look,
            p.ListNode: self._list,
            p.LookAtLock: self._look_at_lock,
            p.CloseNode: self._close,
            p.PoisonHandle: self._on_handle(self._poison),
            p.RefreshHandle: self._on_handle(self._refresh),
            p.SetContents: self._on_handle(c.set_contents),
            p.SetAcl: self._on_handle(c.set_acl),
            p.DeleteNode: self._on_handle(c.delete),
            p.AcquireLock: self._on_handle(self._acquire),
            p.ReleaseLock: self._on_handle(self._release),
            p.GetSequencer: self._on_handle(self._sequencer),
        }

    def _query_table(self) -> dict[type[Request], Callable[[Any], Any]]:
        return {
            p.CheckSequencer: lambda ask: self.locks.is_good(ask.sequencer),
            p.ListSessions: lambda _: self._reading.sessions(self._outbox.now_s),
            p.DescribeCell: lambda _: self.describe(),
        }

    # --- sessions

    def _open_session(self, called: Called, ask: p.OpenSession) -> None:
        if self.failover.step < 7:
            raise CellFailingOver("the cell has a new leader, which waits for its clients to know")
        for word in (ask.user, ask.host, ask.program):
            if len(word) > WORD_MAX or not word.isprintable():
                raise BadLockRequest(f"{word[:80]!r}: a name has at most {WORD_MAX} characters")
        lease_s = self.sessions.lease_s
        known = self.sessions.of_nonce(ask.nonce)
        if known is not None:
            session = known.id
            self.sessions.begin_again(known, lease_s)
        else:
            count = len(self.sessions.live)
            if count >= self._settings.sessions_max:
                raise LimitReached(f"the cell has {count:,} sessions, the most that it may")
            session = self.state.next_session
            self._outbox.emit(
                r.SessionOpened(
                    session, ask.nonce, ask.user, ask.host, ask.program, self._outbox.wall_s
                )
            )
            self.sessions.begin(session, lease_s)
        granted = p.SessionGranted(session, self.epoch, lease_s, self._settings.grace_s)
        self._outbox.reply(called.call, granted)

    def _end_session(self, live: Live, called: Called, ask: p.EndSession) -> bool:
        self._end(live, SessionExpired(f"session {live.id} was ended"), failed=False)
        self._outbox.reply(called.call, None)
        return True

    def _end(self, live: Live, error: SessionExpired | None, failed: bool) -> None:
        """A session is over: one record, and everything that hung on it."""
        held = list(self.state.held.get(live.id, ()))
        self._outbox.emit(r.SessionEnded(live.id, failed))
        for call in list(live.waiting.values()):
            self._parked.pop(call, None)
            self.caching.done(call)
            why = error or SessionExpired(f"session {live.id} was ended")
            self._outbox.refuse(call, why)
        self.caching.forget(live.id)
        for known in list(live.handles.values()):
            self._shut(live, known)
        self.sessions.drop(live, error)
        self.locks.session_ended(live.id, held)

    # --- handles

    def _open(self, live: Live, called: Called, ask: p.OpenNode) -> bool:
        path = canonical(ask.path, self._name)
        return self._changes.open(live, called, msgspec.structs.replace(ask, path=path))

    def _put(self, live: Live, called: Called, ask: p.PutContents) -> bool:
        path = canonical(ask.path, self._name)
        return self._changes.put_contents(live, called, msgspec.structs.replace(ask, path=path))

    def _close(self, live: Live, called: Called, ask: p.CloseNode) -> bool:
        """Never fails: whatever the handle was, it is closed."""
        try:
            known = self.handles.find(live, ask.handle)
        except HandleInvalid:
            pass
        else:
            node = self.state.nodes.get(known.handle.path)
            if node is not None and node.instance == known.handle.instance:
                self.locks.release(live, known, node, ask.number)
            self._shut(live, known)
        self._outbox.reply(called.call, None)
        return True

    def _shut(self, live: Live, known: OpenHandle) -> None:
        self.handles.close(live, known)
        node = self.state.nodes.get(known.handle.path)
        if node is not None and node.instance == known.handle.instance:
            self._changes.nobody_has(node)

    def _poison(
        self, live: Live, called: Called, ask: p.PoisonHandle, known: OpenHandle, node: Node
    ) -> None:
        known.is_poisoned = True
        why = HandleInvalid(f"the handle of {node.path} was poisoned")
        self.locks.withdraw(live.id, known.key, node.path, why)
        self.locks.serve(node)
        self._outbox.reply(called.call, None)

    def _refresh(
        self, live: Live, called: Called, ask: p.RefreshHandle, known: OpenHandle, node: Node
    ) -> None:
        self._outbox.reply(called.call, None)

    # --- locks

    def _acquire(
        self, live: Live, called: Called, ask: p.AcquireLock, known: OpenHandle, node: Node
    ) -> None:
        self.locks.acquire(live, called, known, node)

    def _release(
        self, live: Live, called: Called, ask: p.ReleaseLock, known: OpenHandle, node: Node
    ) -> None:
        self.locks.release(live, known, node, ask.number)
        self._outbox.reply(called.call, None)

    def _sequencer(
        self, live: Live, called: Called, ask: p.GetSequencer, known: OpenHandle, node: Node
    ) -> None:
        if node.holder(live.id, known.key) is None:
            raise HandleInvalid(f"this handle of {node.path} does not hold its lock")
        self._outbox.reply(called.call, str(self.locks.sequencer(node)))

    # --- reading

    def _look(self, live: Live, called: Called, ask: p.Look) -> bool:
        self._check_under(ask.under)
        path = canonical(ask.path, self._name)
        self._outbox.reply(called.call, self._reading.look(live, ask, path))
        return True

    def _list(self, live: Live, called: Called, ask: p.ListNode) -> bool:
        path = canonical(ask.path, self._name)
        self._outbox.reply(called.call, self._reading.children(live, ask, path))
        return True

    def _look_at_lock(self, live: Live, called: Called, ask: p.LookAtLock) -> bool:
        path = canonical(ask.path, self._name)
        self._outbox.reply(called.call, self._reading.lock(live, path))
        return True

    def describe(self) -> p.CellFigures:
        """The cell as people see it."""
        state, settings = self.state, self._settings
        return p.CellFigures(
            self.epoch, self.step, len(state.nodes), settings.nodes_max, state.contents_bytes,
            settings.contents_bytes_max, len(self.sessions.live),
            sum(len(live.handles) for live in self.sessions),
            sum(1 for node in state.nodes.values() if node.holders),
            self.locks.waiting_count + len(self._parked), self.caching.count,
            self.sessions.lease_s, dict(self._counts),
        )  # fmt: skip
