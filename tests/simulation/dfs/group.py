"""Three masters in the simulator: the real brain over real consensus brains and the real group log
on disks that forget; one leads, the others are its shadows.

Checked as things happen: C1 to C8 by the oracle of the consensus; every answer is of the latest
epoch that answered (C4), and a change is answered in one way over all leaders (F5); a shadow says
nothing but answers, and its state is the fold of what is committed (F4).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.records import MARK
from mrstream.cluster.consensus.standing import NotLeader
from mrstream.cluster.errors import UserError
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.wire.messages import Request
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
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.metadata import WATCHED, Metadata
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import decode_record
from tests.simulation.consensus.host import PlacedHost
from tests.simulation.consensus.network import Network
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import Process
from tests.simulation.world import Clock, World

TICK_S = 0.5
OPERATE_S = 0.3
Respond = Callable[[Any], None]


class MemberHost(PlacedHost):
    """A host that a master runs on."""

    group: Group


class MemberLog:
    """The group's log as the duties use it."""

    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def seen(self) -> int:
        return self._member.replica.last

    @property
    def durable(self) -> int:
        return self._member.replica.committed

    def append(self, payload: bytes) -> int:
        """As `ReplicatedJournal.append`: the state machine has applied it already."""
        member = self._member
        member.handle(e.Proposed((payload,)))
        member.applied = member.replica.last
        member.records_seen += 1
        return member.replica.last


class Member(Process):
    """One life of one master."""

    host: MemberHost

    def __init__(self, host: MemberHost) -> None:
        self.group = host.group
        self.brain = self.group.new_brain()
        self.records_seen = 0
        self._responds: dict[int, Respond] = {}
        self._pending: dict[tuple[int, int], list[Respond]] = {}
        self._next_call = 1
        self._connected: dict[str, int] = {}
        super().__init__(host)
        log: Any = MemberLog(self)
        self.gate: Gate[Command] = Gate(log, self._carry_out, self.may_speak)
        self.duties = Duties(self.brain, log, self.gate, self._carry_out)

    def begin(self) -> None:
        self._tick_due_s = self.host.clock_s() + TICK_S
        self.group.world.at_host(self.host.name, TICK_S, self._tick_brain)

    # --- the state machine

    def load(self, image: bytes) -> None:
        load_image(self.brain, [image])
        self.records_seen = self.group.records_in(self.applied)

    def apply_one(self, payload: bytes) -> None:
        if payload[0] != MARK:
            self.brain.apply(decode_record(payload))
            self.records_seen += 1

    def image(self) -> bytes:
        return b"".join(pack_image(self.brain))

    def lead(self, epoch: int) -> None:
        super().lead(epoch)
        self._tick_due_s = self.host.clock_s() + TICK_S
        self.event(LeadershipBegan(epoch))
        if self.records_seen == 0:
            self.event(Founded("me", "us"))

    def may_speak(self) -> bool:
        is_first = self.serving_epoch == self.replica.epoch and self.replica.is_leading
        return self.is_alive and is_first and not self.is_parked and self.may_answer()

    def _answer(self) -> None:
        if self.is_alive and self.host.is_lively:
            self.gate.release()

    # --- requests

    @property
    def seen(self) -> int:
        return self.records_seen

    def request(  # type: ignore[override]  # of the dfs, not of the consensus' own little machine
        self, source: str, request: Request, request_id: tuple[int, int], respond: Respond
    ) -> None:
        if not self.is_alive:
            return
        if self.serving_epoch == 0:
            respond(self._watched(request) if type(request) in WATCHED else NotLeader("follows"))
            return
        if not self.may_speak():
            respond(NotLeader("no lease"))
            return
        if request.mutates:
            waiting = self._pending.get(request_id)
            if waiting is not None:
                waiting.append(respond)
                return
            self._pending[request_id] = [respond]
            respond = partial(self._settled, request, request_id)
        call, self._next_call = self._next_call, self._next_call + 1
        self._responds[call] = respond
        if isinstance(request, p.Register):
            self._connected[source] = request.incarnation
        if type(request) in self.brain.queries:
            self.duties.ask(call, request, self.host.clock_s())
        else:
            self.event(Called(call, request, request_id if request.mutates else (0, 0)))

    def _watched(self, request: Request) -> Any:
        """F4: whatever a chunkserver tells a shadow, one answer comes of it, and nothing else."""
        now_s, wall_s = self.host.clock_s(), self.group.wall_s()
        said = self.brain.handle(Called(0, request), now_s, wall_s)
        assert len(said) == 1 and isinstance(said[0], Reply | Refuse), f"F4: {said}"
        if isinstance(said[0], Refuse):
            return said[0].error
        value = said[0].value
        if isinstance(value, p.HeartbeatReply):
            assert value == p.HeartbeatReply(), f"F4: a shadow says {value}"
        if isinstance(value, p.ServerSettings):
            assert not value.leads and not value.void, f"F4: a shadow says {value}"
        return value

    def _settled(self, request: Request, request_id: tuple[int, int], value: Any) -> None:
        self.group.answered(request, request_id, value)
        for respond in self._pending.pop(request_id):
            respond(value)

    def event(self, event: Event) -> None:
        if self.is_alive:
            self.duties.event(event, self.host.clock_s(), self.group.wall_s())
            self.brain.check_invariants()

    def _carry_out(self, command: Command) -> None:
        if not self.is_alive:
            return
        self.oracle.answered(self.me, self.serving_epoch)
        match command:
            case Reply(call, value):
                self._responds.pop(call)(value)
            case Refuse(call, error):
                self._responds.pop(call)(error)
            case Send(name, incarnation, message):
                if self._connected.get(name) == incarnation:
                    server = self.group.servers[name]
                    act = partial(server.pushed, message, self.host.name)
                    self.group.world.send(self.host.name, name, act)
            case Halt(why):
                raise AssertionError(f"the log is whole, and the brain halts: {why}")
            case Outrun():
                pass  # a successor leads, and we shall know soon
            case Log():
                raise AssertionError("logged before")

    def disconnected(self, name: str, incarnation: int) -> None:
        if self._connected.get(name) == incarnation:
            del self._connected[name]
            self.event(ServerGone(ServerId(name), incarnation))

    def _tick_brain(self) -> None:
        if not self.is_alive:
            return
        self.group.world.at_host(self.host.name, TICK_S, self._tick_brain)
        if self.serving_epoch == 0 or self.may_speak():
            late_s = max(0.0, self.host.clock_s() - self._tick_due_s)
            self._tick_due_s = self.host.clock_s() + TICK_S
            if self.serving_epoch:
                self.event(Tick(late_s))
            else:
                said = self.brain.handle(Tick(late_s), self.host.clock_s(), self.group.wall_s())
                assert said == [], f"F4: {said}"


class Away:
    """A master that is not there."""

    seen = 0

    def request(self, *_: Any) -> None:
        """Nobody hears it."""

    def disconnected(self, *_: Any) -> None:
        """Nobody hears of it."""


class Group:
    """All masters, in the place of one."""

    member_kind: type[Member] = Member

    def __init__(self, world: World, settings: Settings, lease_s: float = 1.0) -> None:
        self.world, self.settings = world, settings
        self.names = ["m1", "m2", "m3"]
        self.clock = Clock(world)
        self.servers: dict[str, Any] = {}
        self.said: dict[tuple[int, int], Any] = {}
        timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
        self.oracle = Oracle(timing, lambda: world.now_s, self._fold)
        self.network = Network(world)
        self.network.receive = self._receive
        self._brains = 0
        self._asks = 0
        self.hosts: dict[str, MemberHost] = {}
        for name in self.names:
            host = MemberHost(name, self.network, self.oracle, timing, self.member_kind)
            host.group = self
            host.clock.rate = world.random.choice([0.99, 1.0, 1.01])
            host.message_bytes_max = 10_000
            self.hosts[name] = host
        self.oracle.ballot_of = lambda member: self.hosts[host_of(member)].durable_ballot()
        for host in self.hosts.values():
            host.start()
        first = self.hosts["m1"].process
        assert first is not None
        first.handle(e.Found())
        self._operate()

    # --- what members need

    def new_brain(self) -> Metadata:
        self._brains += 1
        return Metadata(self.settings, random.Random(f"{self.world.seed}-{self._brains}"))

    def wall_s(self) -> float:
        return self.clock.wall_s()

    def _receive(self, sender: MemberId, to: MemberId, word: Any) -> None:
        self.hosts[host_of(to)].receive(sender, to, word)

    def answered(self, request: Request, request_id: tuple[int, int], value: Any) -> None:
        """F5: one answer to a change, whoever leads."""
        if value is None or isinstance(value, int | str):
            first = self.said.setdefault(request_id, value)
            assert first == value, f"F5: {request} was answered {first!r}, now {value!r}"
        elif isinstance(value, UserError):
            assert request_id not in self.said, f"F5: {request} was done, now: {value!r}"

    def records_in(self, sequence: int) -> int:
        """How many of the first records of the log are the file system's."""
        return sum(1 for _, payload in self.oracle.committed[:sequence] if payload[0] != MARK)

    def _fold(self, records: list[tuple[int, bytes]]) -> bytes:
        brain = Metadata(self.settings, random.Random(0))
        for _, payload in records:
            if payload[0] != MARK:
                brain.apply(decode_record(payload))
        return b"".join(pack_image(brain))

    # --- the operator

    def _operate(self) -> None:
        """As `cluster up`: who is no member yet listens, catches up and votes. Whose disk was
        emptied asks by itself to be let in, in the place of the journal that is gone."""
        self.world.after(OPERATE_S, self._operate)
        for host in self.hosts.values():
            if host.process is not None and not host.process.replica.members.everyone:
                for other in self.hosts.values():
                    self.network.send(host.member(), other.member(), e.JoinAsked(host.member()))
        leader = self.leader
        if leader is None or not leader.may_speak():
            return
        members = leader.replica.members
        known = {host_of(member) for member in members.everyone}
        for host in self.hosts.values():
            if host.process is not None and host.name not in known:
                self.wish(leader, e.AddLearner, host.member())
                return
        for member in members.learners:
            self.wish(leader, e.Promote, member)
            return

    def wish(
        self, leader: Member, kind: Callable[[int, MemberId], e.Event], member: MemberId
    ) -> None:
        """Ask the leader for a change."""
        self._asks += 1
        leader.host.when_running(leader, partial(leader.handle, kind(self._asks, member)))

    def is_settled(self) -> bool:
        """Three voters have all that is committed: one of three disks may go."""
        leader = self.leader
        if leader is None or not all(host.process for host in self.hosts.values()):
            return False
        members, committed = leader.replica.members, len(self.oracle.committed)
        logs = [self.oracle.logs[voter] for voter in members.voters]
        is_whole = len(members.voters) == 3 and not members.learners
        return is_whole and all(log.synced >= committed for log in logs)

    # --- the face of a master

    def at(self, name: str) -> Any:
        process = self.hosts[name].process
        return process if isinstance(process, Member) else Away()

    @property
    def members(self) -> list[Member]:
        return [h.process for h in self.hosts.values() if isinstance(h.process, Member)]

    @property
    def leader(self) -> Member | None:
        found = [m for m in self.members if m.may_serve()]
        return max(found, key=lambda member: member.serving_epoch, default=None)

    @property
    def history(self) -> list[bytes]:
        """What is committed, without what is the consensus' own."""
        return [payload for _, payload in self.oracle.committed if payload[0] != MARK]

    @property
    def brain(self) -> Metadata:
        leader = self.leader
        assert leader is not None, "nobody leads"
        return leader.brain

    def check_shadows(self) -> None:
        """F4: a shadow's state is the fold of what it has applied."""
        for member in self.members:
            if member.serving_epoch == 0 and member.applied:
                expected = self._fold(self.oracle.committed[: member.applied])
                assert member.image() == expected, f"F4: {member.me} has another state"
