"""The master in the simulator: the real brain, duties, operation log and journal over a disk that
forgets; its loop is the world's.

Checked here: after every crash the journal gives exactly the prefix that was called durable, or
more of the same, and everything that was ever said rests on it (M1); no chunkserver is given up for
a silence that was the master's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.replies import PendingReply, ReplyCache
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.duties import Duties
from mrstream.dfs.metadata.events import (
    Called,
    Command,
    Event,
    Founded,
    Halt,
    LeadershipBegan,
    Log,
    Outrun,
    Refuse,
    Reply,
    Send,
    ServerGone,
    Tick,
)
from mrstream.dfs.metadata.image import pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.servers import Server
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import replay
from tests.simulation.world import Clock, World
from tests.support.forgetful_disk import ForgetfulDisk

NAME = "master"
TICK_S = 0.5
Respond = Callable[[Any], None]
"""Called with the reply, or with the ClusterError that refuses."""


class SimMaster:
    """One master over its lives."""

    def __init__(self, world: World, settings: Settings, name: str = NAME) -> None:
        self.world = world
        self.name = name
        self.settings = settings
        self.clock = Clock(world)
        self.disk = ForgetfulDisk(world.seed)
        self.history: list[bytes] = []
        """Every record by sequence, as far as it survived."""
        self.servers: dict[str, Any] = {}
        self.crash_at_record: int | None = None
        self._said: dict[tuple[int, int], Any] = {}
        """What was answered to requests that change something, over all lives."""
        self.lives = 0
        self.names = [name]
        self.start()

    def at(self, name: str) -> SimMaster:
        """The master on that host."""
        return self

    @property
    def seen(self) -> int:
        """So many records what it says now may rest on."""
        return self.oplog.seen

    # --- lives

    def start(self) -> None:
        world = self.world
        self.lives += 1
        host = world.hosts[self.name]
        host.is_up = True
        self.journal = Journal("/journal", "cluster", disk=self.disk)
        found = self.journal.recover()
        self._check_recovered(found.last_sequence, durable=getattr(self, "durable", 0))
        self.brain = Metadata(self.settings, random.Random(f"{world.seed}-{self.lives}"))
        replay(found, self.brain)
        self.brain.check_invariants(everything=True)
        self.oplog = RecordLog(self.journal, 1 << 60)
        self.gate: Gate[Command] = Gate(self.oplog, self._carry_out)
        self.duties = Duties(self.brain, self.oplog, self.gate, self._carry_out)
        self.replies = ReplyCache()
        self.durable = self.journal.durable
        self._responds: dict[int, Respond] = {}
        self._next_call = 1
        self._commit_due = False
        self._connected: dict[str, int] = {}
        world.note(f"{self.name} life {self.lives} recovered sequence {found.last_sequence}")
        self._stalls: list[tuple[float, float]] = []
        self._event(LeadershipBegan(self.lives))
        if found.last_sequence == 0:
            self._event(Founded("me", "us"))
        self._tick_later()

    def _check_recovered(self, last: int, durable: int) -> None:
        assert last >= durable, f"records {last + 1} to {durable} were acknowledged and are lost"
        kept = self.history[:last]
        found = self._read_all()
        for sequence, payload in found.items():
            assert kept[sequence - 1] == payload, f"record {sequence} is not what was written"
        self.history = kept

    def _read_all(self) -> dict[int, bytes]:
        from mrstream.cluster.journal.recovery import recover

        marker = self.journal._marker
        found = recover(self.disk, "/journal", "cluster", marker)
        return dict(found.records)

    def crash(self) -> None:
        """Power off: whatever is not synced may be lost."""
        self.world.note(f"{self.name} crashes")
        host = self.world.hosts[self.name]
        host.is_up = False
        host.life += 1
        host.stopped_until_s = 0.0
        self.disk.crash()

    def stall(self, seconds: float) -> None:
        """Stopped, or starved: nothing is read, said or noticed; then all of it, and late."""
        self.world.note(f"{self.name} is stopped for {seconds:.1f} s")
        until_s = self.world.now_s + seconds
        self.world.hosts[self.name].stopped_until_s = until_s
        self._stalls.append((self.world.now_s, until_s))

    @property
    def is_awake(self) -> bool:
        """Up, and not stopped."""
        host = self.world.hosts[self.name]
        return host.is_up and host.stopped_until_s <= self.world.now_s

    # --- requests

    def request(
        self, source: str, request: Request, request_id: tuple[int, int], respond: Respond
    ) -> None:
        """A request has arrived; `respond` sends the answer back."""
        if request.mutates:
            known = self.replies.find(request_id)
            if isinstance(known, PendingReply):
                known.waiting.append(respond)
                return
            if known is not None:
                respond(_Kept.values[known])
                return
            self.replies.begin(request_id)
            respond = self._remembering(request, request_id, respond)
        call, self._next_call = self._next_call, self._next_call + 1
        self._responds[call] = respond
        if isinstance(request, p.Register):
            self._connected[source] = request.incarnation
        if type(request) in self.brain.queries:
            self.duties.ask(call, request, self.clock.now_s())
        else:
            self._event(Called(call, request, request_id if request.mutates else (0, 0)))

    def _remembering(
        self, request: Request, request_id: tuple[int, int], respond: Respond
    ) -> Respond:
        def answer(value: Any) -> None:
            if value is None or isinstance(value, int | str):
                first = self._said.setdefault(request_id, value)
                assert first == value, f"F5: {request} was answered {first!r}, now {value!r}"
            elif isinstance(value, UserError):
                assert request_id not in self._said, f"F5: {request} was done, now: {value!r}"
            if isinstance(value, ClusterError):
                waiting = self.replies.forget(request_id)
            else:
                waiting = self.replies.finish(request_id, _Kept.keep(value))
            for one in [respond, *waiting]:
                one(value)  # type: ignore[operator]

        return answer

    def _event(self, event: Event) -> None:
        before = self.oplog.seen
        self.duties.event(event, self.clock.now_s(), self.clock.wall_s())
        self.brain.check_invariants()
        if self.oplog.seen > before:
            pending = self.journal._pending
            self.history += [entry[1] for entry in pending if isinstance(entry, tuple)][
                -(self.oplog.seen - before) :
            ]
            assert len(self.history) == self.oplog.seen
        if self.oplog.seen > self.journal.durable and not self._commit_due:
            self._commit_due = True
            self.world.at_host(self.name, self.world.random.uniform(0.0005, 0.01), self._commit)

    def _commit(self) -> None:
        self._commit_due = False
        at = self.crash_at_record
        if at is not None and self.oplog.seen >= at:
            self.crash_at_record = None
            self._crash_in_commit(at)
            return
        self.journal.commit()
        self.durable = self.journal.durable
        self.gate.release()
        if self.oplog.seen > self.journal.durable:
            self._commit_due = True
            self.world.at_host(self.name, 0.001, self._commit)

    def _crash_in_commit(self, at: int) -> None:
        """The records up to `at` reach the disk; then the lights go out before anyone hears."""
        pending = self.journal._pending
        self.journal._pending = [e for e in pending if isinstance(e, tuple) and e[0] <= at]
        self.journal.commit()
        self.crash()
        self.world.after(1.0, self.start)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Reply(call, value):
                self._responds.pop(call)(value)
            case Refuse(call, error):
                self._responds.pop(call)(error)
            case Send(name, incarnation, message):
                server = self.servers[name]
                if self._connected.get(name) == incarnation:
                    self.world.send(self.name, name, lambda: server.pushed(message, self.name))
            case Outrun(epoch):
                raise AssertionError(f"nobody else leads, and {epoch} was met")
            case Halt(why):
                raise AssertionError(f"the log is whole, and the brain halts: {why}")
            case Log():
                raise AssertionError("logged before")

    def disconnected(self, name: str, incarnation: int) -> None:
        """The connection of a chunkserver ended."""
        if self._connected.get(name) == incarnation:
            del self._connected[name]
            self._event(ServerGone(ServerId(name), incarnation))

    def _tick_later(self) -> None:
        self._tick_due_s = self.clock.now_s() + TICK_S
        self.world.at_host(self.name, TICK_S, self._tick)

    def _tick(self) -> None:
        late_s = self.clock.now_s() - self._tick_due_s
        self._tick_later()
        heard_at_s = {server: server.heard_at_s for server in self.brain.tables.servers.up()}
        self._event(Tick(late_s=late_s))
        for server, before_s in heard_at_s.items():
            self._check_given_up(server, before_s)

    def _check_given_up(self, server: Server, heard_at_s: float) -> None:
        """Silence counts only while the master listens, and then all of it does."""
        deaf = [min(end_s - start_s, end_s - heard_at_s) for start_s, end_s in self._stalls]
        deaf_s = sum(seconds for seconds in deaf if seconds > 0)
        assert server.heard_at_s - heard_at_s <= deaf_s + 1e-6, f"{server.id}: too much forgiven"
        if not server.is_up:
            # How late a tick comes is known to a tick.
            silent_s = self.clock.now_s() - heard_at_s
            listened_s = silent_s - sum(max(0.0, seconds - TICK_S) for seconds in deaf)
            assert listened_s > self.settings.dead_after_s - 1e-6, (
                f"{server.id} was given up after {listened_s:.1f} s: {silent_s:.1f} s of silence, "
                f"in {deaf_s:.1f} s of which the master did not listen"
            )

    def checkpoint(self) -> None:
        """Write a checkpoint of the state as it is."""
        self.journal.commit()
        self.durable = self.journal.durable
        self.gate.release()
        sequence = self.journal.rotate()
        self.journal.commit()
        self.journal.write_checkpoint(sequence, pack_image(self.brain))
        self.world.note(f"checkpoint at {sequence}")


class _Kept:
    """Answers behind the opaque bytes that the reply cache holds."""

    values: ClassVar[dict[bytes, Any]] = {}

    @classmethod
    def keep(cls, value: Any) -> bytes:
        key = str(len(cls.values)).encode()
        cls.values[key] = value
        return key
