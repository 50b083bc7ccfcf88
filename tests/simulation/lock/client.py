"""A client in the simulator: the real session and cache, and a program that does by chance what
programs do. Calls are repeated as the library repeats them: with the same number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.lock import protocol as p
from mrstream.lock.client.session import FailedOver, News, Session, Standing, is_repeated
from mrstream.lock.errors import SessionExpired
from mrstream.lock.paths import ROOT
from tests.simulation.lock.book import Book
from tests.simulation.lock.cell import NAME as CELL
from tests.simulation.lock.cell import SimCell
from tests.simulation.world import Clock, World

PATHS = [f"{ROOT}/a", f"{ROOT}/b", f"{ROOT}/d", f"{ROOT}/d/x", f"{ROOT}/d/y"]
REPEAT_S = 1.5
CHECK_S = 0.3
LATE_SHARE = 0.03
"""Of messages that take another way, and come late and out of order."""
Done = Callable[[Any], None]


class SimClient:
    """One program over its lives."""

    def __init__(self, world: World, name: str, cell: SimCell, book: Book, rate: float) -> None:
        self.world = world
        self.name = name
        self.cell = cell
        self.book = book
        self.clock = Clock(world, rate=rate, offset_s=world.random.uniform(0, 1000))
        self.chance = random.Random(f"{world.seed}-{name}")
        self.is_calm = False
        self.done_count = 0
        self.reads = 0
        self.cached_reads = 0
        self.writes = 0
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.session: Session | None = None
        self.number = 0
        self.handles: dict[tuple[int, int], p.Handle] = {}
        self.holding: dict[tuple[int, int], tuple[str, bool]] = {}
        self._asking = 0
        self._under_way: dict[int, None] = {}
        self._waiting_lock: dict[tuple[int, int], None] = {}
        self._open_session()
        self.world.at_host(self.name, CHECK_S, self._watch)

    def crash(self) -> None:
        self.world.note(f"{self.name} crashes")
        host = self.world.hosts[self.name]
        host.is_up = False
        host.life += 1
        host.stopped_until_s = 0.0
        self.session = None
        self.holding.clear()

    # --- what the book asks

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    def believed_lease_left_s(self) -> float:
        if self.session is None or self.session.is_over:
            return 0.0
        return self.session.lease_end_s - self.clock.now_s()

    def believes_to_hold(self) -> Iterator[tuple[str, bool]]:
        if self.believed_lease_left_s() > 0.0:
            yield from self.holding.values()

    # --- the wire

    def _send(self, request: Any, answer: Done) -> None:
        world = self.world
        host = world.hosts[self.name]
        life = host.life

        def back(value: Any) -> None:
            self._transmit(CELL, self.name, lambda: host.life == life and answer(value))

        self._transmit(self.name, CELL, lambda: self.cell.request(request, back))

    def _transmit(self, source: str, target: str, action: Callable[[], Any]) -> None:
        world = self.world
        late = world.random.random() < LATE_SHARE and not self.is_calm
        if late and not world.is_cut(source, target):
            host = world.hosts[target]
            late_s = world.random.expovariate(0.5)
            world.after(late_s, partial(world._arrive, host, host.life, action))
        else:
            world.send(source, target, action)

    # --- the session

    def _open_session(self) -> None:
        self._asking += 1
        asking = self._asking
        ask = p.OpenSession(self.chance.getrandbits(63), "sim", self.name)
        self._try_open(ask, asking)

    def _try_open(self, ask: p.OpenSession, asking: int) -> None:
        if self.session is not None or asking != self._asking:
            return
        sent_at_s = self.clock.now_s()

        def answered(value: Any) -> None:
            if isinstance(value, p.SessionGranted) and self.session is None:
                self._opened(Session(value, sent_at_s))

        self._send(ask, answered)
        self.world.at_host(self.name, REPEAT_S, lambda: self._try_open(ask, asking))

    def _opened(self, session: Session) -> None:
        self.session = session
        self.number = 0
        self.handles, self.holding, self._under_way, self._waiting_lock = {}, {}, {}, {}
        self._news(session.pass_time(self.clock.now_s()))
        self._keep_alive(session)
        for _ in range(2):
            self._act_later()

    def _keep_alive(self, session: Session) -> None:
        if session is not self.session or session.is_over:
            return
        asked, sent_at_s = session.keep_alive(), self.clock.now_s()
        state = {"answered": False}

        def answered(value: Any) -> None:
            if session is not self.session:
                return
            again = not state["answered"]
            state["answered"] = True
            if isinstance(value, ClusterError):
                self._news(session.refused(value))
                wait_s = 0.05 if is_repeated(value) else 0.0
            else:
                self._news(session.kept(asked, value, sent_at_s, self.clock.now_s()))
                wait_s = 0.0
            if again:
                self.world.at_host(self.name, wait_s, lambda: self._keep_alive(session))

        self._send(asked, answered)

        def unanswered() -> None:
            if not state["answered"]:
                state["answered"] = True
                self._keep_alive(session)

        self.world.at_host(self.name, self.cell.settings.lease_s, unanswered)

    def _watch(self) -> None:
        self.world.at_host(self.name, CHECK_S, self._watch)
        if self.session is not None:
            self._news(self.session.pass_time(self.clock.now_s()))

    def _news(self, news: list[News]) -> None:
        session = self.session
        assert session is not None
        for one in news:
            self.world.note(f"{self.name} session {session.id}: {type(one).__name__}")
            if isinstance(one, FailedOver):
                for handle in list(self.handles.values()):
                    self._on(p.RefreshHandle, handle, lambda _: None)
        if session.is_over and session is self.session:
            self.session = None
            self.holding.clear()
            self.world.at_host(self.name, 0.1, self._open_session)

    # --- calls

    def _call(self, request: Any, done: Done) -> None:
        """Send until there is an answer; `done` gets it, or the error that the program sees."""
        session = self.session
        assert session is not None
        key = self._asking = self._asking + 1
        self._under_way[key] = None

        def attempt() -> None:
            if key not in self._under_way:
                return
            if session is not self.session:
                self._under_way.pop(key, None)
                done(SessionExpired("gone"))
                return
            if session.standing is Standing.SAFE:
                self._send(msgspec.structs.replace(request, epoch=session.epoch), answered)
            self.world.at_host(self.name, REPEAT_S, attempt)

        def answered(value: Any) -> None:
            if key not in self._under_way or session is not self.session:
                return
            if isinstance(value, ClusterError):
                self._news(session.refused(value))
                if session is self.session and is_repeated(value):
                    return
            if session is not self.session:
                value = SessionExpired("gone")
            self._under_way.pop(key, None)
            if not isinstance(value, ClusterError) and hasattr(request, "number"):
                self.book.was_told(session.id, request.number)
            self.done_count += 1
            done(value)

        attempt()

    def _on(self, kind: type[p.HandleCall], handle: p.Handle, done: Done, **fields: Any) -> None:
        assert self.session is not None
        self.number += 1
        self._call(kind(self.session.id, 0, self.number, handle, **fields), done)

    # --- the application

    def _act_later(self, _: Any = None) -> None:
        session = self.session

        def act() -> None:
            if self.session is session and session is not None:
                self._act()

        self.world.at_host(self.name, self.chance.expovariate(6.0), act)

    def _act(self) -> None:
        draw = self.chance.random()
        if not self.handles or (draw < 0.12 and len(self.handles) < 8):
            self._open()
        elif draw < 0.45:
            self._read(self.chance.choice(PATHS))
        elif draw < 0.52:
            self._list()
        else:
            handle = self.chance.choice(list(self.handles.values()))
            if draw < 0.64:
                self.writes += 1
                contents = f"{self.name}-{self.number}-{self.world.now_s:.3f}".encode()
                if self.number % 2:
                    self._on(p.SetContents, handle, self._act_later, contents=contents)
                else:
                    self._put(handle.path, contents)
            elif draw < 0.82:
                self._lock(handle)
            elif draw < 0.93:
                self._close(handle)
            else:
                self._on(p.DeleteNode, handle, self._act_later)

    def _put(self, path: str, contents: bytes) -> None:
        assert self.session is not None
        self.number += 1
        self._call(p.PutContents(self.session.id, 0, self.number, path, contents), self._act_later)

    def _open(self) -> None:
        assert self.session is not None
        self.number += 1
        path = self.chance.choice(PATHS)
        is_directory = path.endswith("/d")
        request = p.OpenNode(
            self.session.id, 0, self.number, path, 7, 63,
            lock_delay_s=self.chance.choice([0.0, 1.0, 6.0]),
            create=self.chance.choice([p.EXISTING, p.MAY_CREATE, p.MAY_CREATE, p.MUST_CREATE]),
            is_directory=is_directory, is_ephemeral=self.chance.random() < 0.4,
            contents=b"" if is_directory else f"{self.name}+{self.number}".encode(),
        )  # fmt: skip

        def opened(value: Any) -> None:
            if isinstance(value, p.Opened):
                self.handles[(value.handle.epoch, value.handle.number)] = value.handle
            self._act_later()

        self._call(request, opened)

    def _read(self, path: str) -> None:
        session = self.session
        assert session is not None
        self.reads += 1
        self._news(session.pass_time(self.clock.now_s()))
        if session.is_over:
            return
        since = self.book.acked.get(path, 0)
        seen = session.cache.get(path)
        if seen is not None:
            self.cached_reads += 1
            self._check_seen(path, seen, since, "cached")
            self._act_later()
            return
        handles = [h for h in self.handles.values() if h.path == path]
        handle = self.chance.choice(handles) if handles and self.chance.random() < 0.3 else None
        reading = session.cache.begin(path)

        def read(value: Any) -> None:
            if isinstance(value, p.Seen):
                self._check_seen(path, value, since, "fresh")
                if handle is not None and value.stat is not None:
                    assert value.stat.instance == handle.instance, "L6: another instance"
                session.cache.end(reading, value if value.cachable else None, 1)
            else:
                session.cache.end(reading)
            self._act_later()

        self._call(p.Look(session.id, 0, path, handle), read)

    def _check_seen(self, path: str, seen: p.Seen, since: int, how: str) -> None:
        value = None if seen.stat is None else (seen.stat.instance, seen.contents)
        self.book.check_read(path, value, since, f"{self.name}'s {how}")

    def _list(self) -> None:
        session = self.session
        assert session is not None
        key = f"{ROOT}/d/"
        self._news(session.pass_time(self.clock.now_s()))
        if session.is_over:
            return
        since = self.book.acked.get(key, 0)
        kept = session.cache.get(key)
        if kept is not None:
            self.book.check_read(key, kept.names, since, f"{self.name}'s cached")
            self._act_later()
            return
        reading = session.cache.begin(key)

        def read(value: Any) -> None:
            listed = value if isinstance(value, p.Children) else None
            if listed is not None:
                self.book.check_read(key, listed.names, since, f"{self.name}'s fresh")
            session.cache.end(reading, listed if listed and listed.cachable else None, 1)
            self._act_later()

        self._call(p.ListNode(session.id, 0, f"{ROOT}/d"), read)

    def _lock(self, handle: p.Handle) -> None:
        key = (handle.epoch, handle.number)
        if key in self._waiting_lock:
            self._act_later()
            return
        if key in self.holding:
            self._release(handle, key)
            return
        is_shared = self.chance.random() < 0.4
        wait_s = self.chance.choice([0.0, 2.0, 20.0])
        self._waiting_lock[key] = None

        def taken(value: Any) -> None:
            self._waiting_lock.pop(key, None)
            if isinstance(value, p.Taken):
                assert self.session is not None
                self.book.was_given(value.sequencer, self.session.id, key)
                if key in self.handles:
                    self.holding[key] = (handle.path, is_shared)
            self._act_later()

        self._on(p.AcquireLock, handle, taken, is_shared=is_shared, wait_s=wait_s)

    def _release(self, handle: p.Handle, key: tuple[int, int]) -> None:
        """One call about the lock of a handle at a time, as the library sees to (CH-29)."""
        del self.holding[key]
        self._waiting_lock[key] = None

        def released(_: Any) -> None:
            self._waiting_lock.pop(key, None)
            self._act_later()

        self._on(p.ReleaseLock, handle, released)

    def _close(self, handle: p.Handle) -> None:
        key = (handle.epoch, handle.number)
        if key in self._waiting_lock:
            self._act_later()
            return
        self.handles.pop(key, None)
        self.holding.pop(key, None)
        self._on(p.CloseNode, handle, self._act_later)
