"""The blocking shell of a session: keeps it alive in a thread, repeats calls, tells what happens.

Two threads: one always has a KeepAlive under way; the other watches the lease, so that jeopardy is
noticed while nobody answers, and tells the application what happened (its callbacks may take long).
A call waits while the session is in jeopardy, is repeated with its number until it is answered, and
fails when the session is over. Decides nothing: `session` does.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from mrstream.cluster.clock import Clock, SystemClock
from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.leader.connection import LeaderConnection
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.wire.messages import Request
from mrstream.lock import protocol as p
from mrstream.lock.client.session import News, Session, Standing, Told, is_repeated
from mrstream.lock.errors import SessionExpired

log = logging.getLogger(__name__)

CALL_S_MAX = 20.0
PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)
OPEN_S_MAX = 60.0
END_S_MAX = 3.0
ANSWER_SHARE = 2.0
"""Of a lease: held back for most of one, an answer may be late by nearly another and still be in
time. Who gives up sooner loses every answer of a slow leader, though that keeps the session."""
PATIENT_SHARE = 0.45
LOOK_SHARE = 0.25
"""Of a lease. A KeepAlive that is held back says nothing of its leader: after this time without an
answer it is looked whether that one lives and leads, and now and then from there on. An idle client
notices only so that its leader hangs or is cut off, and a new one waits for it for the time of a
lease and no longer."""


class Link:
    """One session, from its opening to its end; a new one where the cell ended an idle one."""

    def __init__(
        self, connect: Callable[[Finding | None], LeaderConnection],
        *, user: str, host: str, program: str, on_news: Callable[[News], None],
    ) -> None:  # fmt: skip
        self._names = (user, host, program)
        self._on_news = on_news
        self._clock: Clock = SystemClock()
        self._calling = connect(None)
        self._keeping = connect(self._calling.finding)
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._number = 0
        self._is_closed = False
        self._is_ended = False
        """The cell has been told, or nobody was there to tell."""
        self._pid = os.getpid()
        self._told: queue.SimpleQueue[News | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    # --- life

    def open(self, seconds: float = OPEN_S_MAX) -> None:
        """Open a session, or raise why there is none after so long."""
        user, host, program = self._names
        ask = p.OpenSession(secrets.randbits(63), user, host, program)
        deadline_s = self._clock.now_s() + seconds
        for pause_s in _pauses():
            sent_at_s = self._clock.now_s()
            try:
                granted: p.SessionGranted = self._calling.call(ask, CALL_S_MAX)
                break
            except Unavailable:
                if self._clock.now_s() > deadline_s:
                    raise
                threading.Event().wait(pause_s)
        with self._changed:
            self._session = Session(granted, sent_at_s)
            session = self._session
        self._threads = [
            threading.Thread(target=self._keep, args=(session,), name="lock-keep", daemon=True),
            threading.Thread(target=self._watch, args=(session,), name="lock-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the session: its locks are free at once."""
        if self._pid != os.getpid():
            return  # the parent's
        with self._changed:
            session, self._is_closed = self._session, True
            was_alive = session is not None and not session.is_over
            self._changed.notify_all()
        if session is not None and was_alive:
            self._end(session)
            with self._changed:
                session.end()
        self._is_ended = True
        self._told.put(None)
        self._keeping.close()
        self._calling.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(END_S_MAX)

    def _end(self, session: Session) -> None:
        """Tell the cell; also one that has just got another leader, which lets that in when all its
        clients know of it, us included: KeepAlives go on until then."""
        deadline_s = self._clock.now_s() + END_S_MAX
        for pause_s in _pauses():
            try:
                self._calling.call(p.EndSession(session.id, session.epoch), END_S_MAX)
                return
            except ClusterError as error:
                with self._changed:
                    self._tell(session.refused(error))
                if not is_repeated(error) or self._clock.now_s() + pause_s > deadline_s:
                    return  # it ends by itself when its lease does
            threading.Event().wait(pause_s)

    @property
    def standing(self) -> Standing:
        """How the session is, by the clock."""
        with self._changed:
            assert self._session is not None
            self._tell(self._session.pass_time(self._clock.now_s()))
            return self._session.standing

    # --- calls

    def number(self) -> int:
        """A number for a call, never used before in this session."""
        with self._changed:
            self._number += 1
            return self._number

    def session(self) -> Session:
        """The session, once calls may be made in it; raise `SessionExpired` if there is none."""
        if self._pid != os.getpid():
            raise UserError("a session is not inherited over a fork: connect anew in the child")
        with self._changed:
            while True:
                session = self._session
                assert session is not None, "open() comes first"
                self._tell(session.pass_time(self._clock.now_s()))
                if self._is_closed:
                    raise SessionExpired("the session was closed here")
                if session.standing is Standing.SAFE:
                    return session
                if session.standing is Standing.EXPIRED:
                    raise SessionExpired(f"session {session.id} is over: its locks are gone")
                if session.standing is Standing.ENDED:
                    break
                self._changed.wait(0.5)
        self.open()  # the cell ended it since nothing was done with it: nothing is lost
        return self.session()

    def call(self, request: Any, timeout_s: float = CALL_S_MAX) -> Any:
        """Have a request answered in this session, however many leaders that takes."""
        pauses = _pauses()
        while True:
            session = self.session()
            ask = msgspec.structs.replace(request, session=session.id, epoch=session.epoch)
            try:
                return self._calling.call(ask, timeout_s)
            except ClusterError as error:
                with self._changed:
                    self._tell(session.refused(error))
                    self._changed.notify_all()
                if not is_repeated(error):
                    raise
            threading.Event().wait(next(pauses))

    def ask(self, request: Request, timeout_s: float = CALL_S_MAX) -> Any:
        """Have a question answered that needs no session."""
        return self._calling.call(request, timeout_s)

    def cached(self, key: str) -> Any | None:
        """What is known of the key without asking. Programs read in loops: the common case, in
        which nothing has to be waited for, takes the lock once."""
        with self._changed:
            session = self._session
            if (
                session is not None
                and session.standing is Standing.SAFE
                and self._clock.now_s() < session.lease_end_s
                and self._pid == os.getpid()
                and not self._is_closed
            ):
                return session.cache.get(key)
        session = self.session()
        with self._changed:
            return session.cache.get(key)

    def read(self, key: str, request: Any, size_of: Callable[[Any], int]) -> Any:
        """Ask, and keep the answer if it may be kept."""
        session = self.session()
        with self._changed:
            reading = session.cache.begin(key)
        value = None
        try:
            value = self.call(request)
            return value
        finally:
            with self._changed:
                may = value is not None and value.cachable and session is self._session
                session.cache.end(reading, value if may else None, size_of(value) if may else 0)

    # --- the two threads

    def _keep(self, session: Session) -> None:
        pauses = _pauses()
        has_others = len(self._keeping.finding.members()) > 1  # a lone leader need not be looked at
        while not session.is_over and not self._is_ended:
            with self._changed:
                asked, lease_s = session.keep_alive(), session.lease_s
            sent_at_s = self._clock.now_s()
            try:
                kept: p.Kept = self._keeping.call(
                    asked,
                    ANSWER_SHARE * lease_s,
                    patience_s=(PATIENT_SHARE if has_others else 1.0) * lease_s,
                    look_s=LOOK_SHARE * lease_s,
                )
            except ClusterError as error:
                if self._is_ended:
                    return
                with self._changed:
                    self._tell(session.refused(error))
                    self._changed.notify_all()
                if is_repeated(error):
                    threading.Event().wait(next(pauses))
                continue
            pauses = _pauses()
            with self._changed:
                self._tell(session.kept(asked, kept, sent_at_s, self._clock.now_s()))
                self._changed.notify_all()

    def _watch(self, session: Session) -> None:
        while True:
            with self._changed:
                now_s = self._clock.now_s()
                self._tell(session.pass_time(now_s))
                self._changed.notify_all()
                is_safe = session.standing is Standing.SAFE
                due_s = session.lease_end_s if is_safe else session.grace_end_s
                left_s = 0.0 if session.is_over else max(0.01, due_s - now_s)
            try:
                news = self._told.get(timeout=left_s) if left_s else self._told.get_nowait()
            except queue.Empty:
                if session.is_over:
                    return
                continue
            if news is None:
                return
            self._on_news(news)

    def announce(self, event: p.Happened) -> None:
        """Have an event told behind all that have come."""
        self._told.put(Told(event))

    def _tell(self, news: list[News]) -> None:
        for one in news:
            self._told.put(one)


def _pauses() -> Any:
    yield from PAUSES_S
    while True:
        yield PAUSES_S[-1]
