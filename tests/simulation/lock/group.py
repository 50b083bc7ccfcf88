"""The lock cell on a group: `python -m tests.simulation.lock.group SEED [-v]`.

Real cell brains, duties and gates in members that run the real consensus over the forgetful disk;
real sessions, caches and the finding of the leader in the clients. Members are killed, stopped,
hung, cut off, lose their power, hand over; L1 to L7 and C1 to C7 are looked at after every event,
and what clients read and wrote of one file is linearizable.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.records import MARK
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.standing import NotLeader, Standing
from mrstream.cluster.errors import UserError
from mrstream.cluster.leader.connection import ASK_S_MAX, OTHERS_S_MAX
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.cluster.wire.messages import Request
from mrstream.lock import protocol as p
from mrstream.lock.cell import records as r
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.events import Called, Event, LeadershipBegan, Refuse, Reply, Tick
from mrstream.lock.cell.image import load_image, pack_image
from mrstream.lock.cell.records import decode_record
from mrstream.lock.cell.settings import Settings
from mrstream.lock.client.link import LOOK_SHARE, PATIENT_SHARE
from mrstream.lock.duties import Duties
from mrstream.lock.paths import ROOT
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import Process
from tests.simulation.consensus.run import Run
from tests.simulation.consensus.world import World as MembersWorld
from tests.simulation.dfs.world import Host as Place
from tests.simulation.dfs.world import World
from tests.simulation.lock.book import Book
from tests.simulation.lock.client import SimClient
from tests.simulation.lock.run import SETTINGS
from tests.support.linear import Operation, is_linearizable, register

SECONDS = 40.0
TICK_S = 0.25
REGISTER = f"{ROOT}/register"
Respond = Callable[[Any], None]


def cell_of(records: list[tuple[int, bytes]]) -> Cell:
    """A fold of the log by itself."""
    cell = Cell(SETTINGS, b"secret")
    for _, payload in records:
        if payload[0] != MARK:
            cell.apply(decode_record(payload))
    return cell


def image_of(cell: Cell) -> bytes:
    return b"".join(pack_image(cell))


class SharedWorld(MembersWorld):
    """The members' world, in the time of the clients'."""

    def __init__(self, clients: World) -> None:
        self._clients = clients
        super().__init__(clients.seed)

    @property
    def now_s(self) -> float:
        return self._clients.now_s

    @now_s.setter
    def now_s(self, value: float) -> None:
        assert value <= self._clients.now_s

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        self._clients.after(max(0.0, when_s - self.now_s), action)

    def run(self, until_s: float) -> None:
        self._clients.run(until_s)

    def note(self, line: str) -> None:
        self._clients.note(line)


class GroupBook(Book):
    """The truth is what is committed; what was decided when is kept for what rests on time."""

    def __init__(self) -> None:
        super().__init__()
        self.born: dict[tuple[int, int], tuple[float, float]] = {}
        """(sequence, epoch) to the moment of the decision, and to what the client whose session it
        ends then believed to have left of its lease."""
        self.forgotten: dict[tuple[int, int], None] = {}
        """Calls of which a member has said that it did nothing, and nobody sent them again."""
        self._left_s = 0.0

    def decided(self, sequence: int, epoch: int, payload: bytes, now_s: float) -> None:
        record = decode_record(payload)
        left_s = 0.0
        if isinstance(record, r.SessionEnded):
            for client in self.clients:
                if client.session_id == record.session:
                    left_s = client.believed_lease_left_s()
        self.born[sequence, epoch] = (now_s, left_s)

    def committed(self, sequence: int, epoch: int, payload: bytes) -> None:
        record = decode_record(payload)
        at_s, self._left_s = self.born[sequence, epoch]
        call = (getattr(record, "session", 0), getattr(record, "number", 0))
        assert call not in self.forgotten, f"F5: {record} was refused with NotLeader"
        self.append(record, at_s)

    def _check_lease(self, session: int) -> None:
        assert self._left_s <= 0.0, f"L5: session {session} had {self._left_s:.3f} s more"


class LockOracle(Oracle):
    """C1 to C7, and the book of what is committed."""

    book: GroupBook

    def said_committed(self, member: MemberId, log: Any, before: int, now: int) -> None:
        known = len(self.committed)
        super().said_committed(member, log, before, now)
        for at, (epoch, payload) in enumerate(self.committed[known:], known + 1):
            if payload[0] != MARK:
                self.book.committed(at, epoch, payload)


class _Journal:
    """What the cell's log sees of its process; see `RecordLog`."""

    def __init__(self, process: LockProcess) -> None:
        self._process = process

    @property
    def sequence(self) -> int:
        return self._process.replica.last

    @property
    def durable(self) -> int:
        return self._process._committed

    def append(self, payload: bytes) -> int:
        return self._process.propose(payload)

    def fork_checkpoint(self, produce: Any) -> Any:
        raise AssertionError("the run makes checkpoints")


class LockProcess(Process):
    """One life of one member of the cell."""

    host: LockHost
    settings = SETTINGS

    def _start(self, kind: type[Replica]) -> None:
        self.brain = Cell(self.settings, b"secret")
        self.records = RecordLog(_Journal(self), 1 << 60)  # type: ignore[arg-type]
        self.gate: Gate[Reply | Refuse] = Gate(self.records, self._carry_out, self.may_speak)
        self.duties = Duties(self.brain, self.records, self.gate)
        self.calls: dict[int, Respond] = {}
        self.numbers = itertools.count(1)
        self.tick_due_s = 0.0
        super()._start(kind)

    # --- the state machine

    def load(self, image: bytes) -> None:
        load_image(self.brain, iter([image]))

    def apply_one(self, payload: bytes) -> None:
        if payload[0] != MARK:
            self.brain.apply(decode_record(payload))

    def image(self) -> bytes:
        return image_of(self.brain)

    def lead(self, epoch: int) -> None:
        self.serving_epoch = epoch
        other = Cell(SETTINGS, b"secret")
        other.state = self.host.book.state
        assert self.image() == image_of(other), f"L7: {self.me} leads with another state"
        self.tick_due_s = self.host.clock_s() + TICK_S
        self.event(LeadershipBegan(epoch))
        self.world.after(TICK_S, self._tick_cell)

    def propose(self, payload: bytes) -> int:
        if not self.is_alive:
            return self.replica.last + 1  # this life is over: nobody will be told
        sequence, epoch = self.replica.last + 1, self.replica.epoch
        self.host.book.decided(sequence, epoch, payload, self.world.now_s)
        self.handle(e.Proposed((payload,)))
        if self.is_alive:
            self.applied = self.replica.last
        return sequence

    def event(self, event: Event) -> None:
        wall_s = 1_000_000_000.0 + self.world.now_s
        self.duties.event(event, self.host.clock_s(), wall_s)
        if self.is_alive:
            self.brain.check_invariants()
            self._answer()

    def _tick_cell(self) -> None:
        def tick() -> None:
            self.world.after(TICK_S, self._tick_cell)
            if self.host.is_lively and self.takes_calls():
                now_s = self.host.clock_s()
                late_s, self.tick_due_s = max(0.0, now_s - self.tick_due_s), now_s + TICK_S
                self.event(Tick(late_s))

        self.host.when_running(self, tick)

    # --- clients

    def takes_calls(self) -> bool:
        return self.may_serve() and self.may_speak()

    def may_speak(self) -> bool:
        return self.may_answer() and not self.is_parked and self.is_alive and self.host.is_lively

    def call(self, request: Request, respond: Respond) -> None:
        """A request has arrived."""
        if not self.is_alive:
            return
        if not self.host.is_lively:
            self.world.after(
                0.3, lambda: self.host.when_running(self, lambda: self.call(request, respond))
            )
            return
        if not self.takes_calls():
            respond(self.not_leader())
            return
        number = next(self.numbers)
        self.calls[number] = respond
        self.event(Called(number, request))

    def not_leader(self) -> NotLeader:
        leader = self.replica.leader if self.replica.leader != self.me else MemberId("")
        host = host_of(leader) if leader else ""
        return NotLeader("no", leader=host, address=host, epoch=self.replica.epoch)

    def standing(self) -> Standing:
        replica = self.replica
        host = host_of(replica.leader) if replica.leader else ""
        return Standing(
            self.me, replica.leader, replica.epoch, replica.committed, replica.last,
            is_serving=self.takes_calls(), address=host,
        )  # fmt: skip

    def _answer(self) -> None:
        if self.is_alive:
            self.gate.release()

    def _carry_out(self, command: Reply | Refuse) -> None:
        respond = self.calls.pop(command.call, None)
        if respond is not None:
            self.oracle.answered(self.me, self.serving_epoch)
            respond(command.value if isinstance(command, Reply) else command.error)


class LockHost(Host):
    """A member's machine."""

    book: GroupBook
    process: LockProcess | None


class GroupClient(SimClient):
    """A program; it finds the leader as the library does."""

    others_s_max = OTHERS_S_MAX

    @property
    def lease_s(self) -> float:
        """By which it measures its patience."""
        return self.run.settings.lease_s if self.session is None else self.session.lease_s

    def __init__(self, world: World, name: str, run: GroupRun, rate: float) -> None:
        self.run = run
        self.finding = Finding({host.name: host.name for host in run.hosts})
        self.sent: dict[tuple[int, int], int] = {}
        super().__init__(world, name, run, run.book, rate)  # type: ignore[arg-type]

    def _send(self, request: Any, answer: Callable[[Any], None]) -> None:
        world, asked = self.world, self.finding.address
        host = world.hosts[self.name]
        life, state = host.life, {"answered": False}
        call = (getattr(request, "session", 0), getattr(request, "number", 0))
        self.sent[call] = self.sent.get(call, 0) + 1

        def heard(value: Any) -> None:
            if host.life != life:
                return
            first, state["answered"] = not state["answered"], True
            if isinstance(value, NotLeader):
                if first and not self._forgets(request, call, answer):
                    if self.finding.refused(asked, value):
                        self._send(request, answer)
                    else:
                        answer(value)
                return
            self.finding.answered(asked)
            answer(value)

        def back(value: Any) -> None:
            self._transmit(asked, self.name, lambda: heard(value))

        def silent() -> None:
            if not state["answered"]:
                self.finding.lost(asked)

        self._transmit(self.name, asked, lambda: self.run.deliver(asked, request, back))
        if isinstance(request, p.KeepAlive):

            def moved() -> None:
                if host.life == life and not state["answered"]:
                    state["answered"] = True
                    self._send(request, answer)

            Looking(self, asked, lambda: bool(state["answered"]), moved).begin()
        else:
            world.at_host(self.name, 1.2, silent)

    def _forgets(self, request: Any, call: tuple[int, int], answer: Callable[[Any], None]) -> bool:
        """A member that says NotLeader has done nothing: a call that was sent once may be forgotten
        as if it had never been sent."""
        is_once = self.sent[call] == 1 and not self.world.repeats and not self.run.is_settling
        if not isinstance(request, p.SetContents) or not is_once or self.chance.random() > 0.5:
            return False
        self.book.forgotten[call] = None  # type: ignore[attr-defined]
        answer(UserError("not sent again"))
        return True


class Looking:
    """A KeepAlive that is held back: now and then the library looks whether its leader lives and
    leads (`LeaderConnection._look_round`), with the limits that it has there."""

    def __init__(
        self, client: GroupClient, asked: str, is_over: Callable[[], bool],
        moved: Callable[[], None],
    ) -> None:  # fmt: skip
        self._client, self._asked, self._is_over, self._moved = client, asked, is_over, moved
        lease_s = client.lease_s
        self._not_before_s = client.world.now_s + PATIENT_SHARE * lease_s
        self._every_s = LOOK_SHARE * lease_s

    def begin(self) -> None:
        self._client.world.at_host(self._client.name, self._every_s, self._look)

    def _look(self) -> None:
        client = self._client
        if self._is_over():
            return
        if client.finding.address != self._asked:
            self._moved()
        elif client.world.now_s < self._not_before_s:
            self.begin()
        else:
            self._ask([self._asked, *client.finding.others(self._asked)])

    def _ask(self, places: list[str]) -> None:
        client = self._client
        if self._is_over():
            return
        if not places:
            self.begin()
            return
        place, rest = places[0], places[1:]
        state = {"done": False}

        def once(do: Callable[[], None]) -> None:
            if not state["done"]:
                state["done"] = True
                do()

        def heard(seen: Standing) -> None:
            if place == self._asked and seen.is_serving:
                self.begin()
            elif client.finding.heard(seen, self._asked):
                self._moved()
            else:
                self._ask(rest)

        def back(seen: Standing) -> None:
            client._transmit(place, client.name, lambda: once(lambda: heard(seen)))

        client._transmit(client.name, place, lambda: client.run.describe(place, back))
        limit_s = ASK_S_MAX if place == self._asked else client.others_s_max
        client.world.at_host(client.name, limit_s, lambda: once(lambda: self._ask(rest)))


class RegisterClient(GroupClient):
    """Reads and writes one file, past its cache, for the checker of linearizability."""

    def begin(self) -> None:
        self.operations: list[Operation] = getattr(self, "operations", [])
        self._open_ops: dict[int, tuple[float, Any]] = {}
        self._numbers = itertools.count()
        self._handle: p.Handle | None = None
        super().begin()

    def _act(self) -> None:
        assert self.session is not None
        if self._handle is None:
            self.number += 1
            request = p.OpenNode(
                self.session.id, 0, self.number, REGISTER, 7, 0, create=p.MAY_CREATE
            )
            self._call(request, self._opened_register)
            return
        op = next(self._numbers)
        if self.chance.random() < 0.5:
            contents = f"{self.name}-{self.number}-{self.world.now_s:.4f}".encode()
            self._open_ops[op] = (self.world.now_s, ("write", contents))
            self._on(p.SetContents, self._handle, partial(self._wrote, op), contents=contents)
        else:
            self._open_ops[op] = (self.world.now_s, ("read",))
            self._call(p.Look(self.session.id, 0, REGISTER), partial(self._looked, op))

    def _opened_register(self, value: Any) -> None:
        if isinstance(value, p.Opened):
            self._handle = value.handle
        self._act_later()

    def _wrote(self, op: int, value: Any) -> None:
        if isinstance(value, UserError) and str(value) == "not sent again":
            self._open_ops.pop(op, None)  # it never happened
        else:
            is_done = not isinstance(value, Exception)
            self._note(op, self.world.now_s if is_done else float("inf"), None)
        self._act_later()

    def _looked(self, op: int, value: Any) -> None:
        if isinstance(value, p.Seen) and value.stat is not None:
            self._note(op, self.world.now_s, value.contents)
        self._open_ops.pop(op, None)
        self._act_later()

    def _note(self, op: int, returned_at_s: float, answer: Any) -> None:
        if op in self._open_ops:
            called_at_s, asked = self._open_ops.pop(op)
            self.operations.append(Operation(called_at_s, returned_at_s, asked, answer))

    def _give_up(self) -> None:
        """A write without an answer may have happened or not; a read without one says nothing."""
        for op, (_, asked) in list(self._open_ops.items()):
            if asked[0] == "write":
                self._note(op, float("inf"), None)
        self._open_ops.clear()

    def _news(self, news: list[Any]) -> None:
        before = self.session
        super()._news(news)
        if self.session is not before:
            self._give_up()
            self._handle = None


class GroupRun(Run):
    """One seed: three members, some programs, an operator, and bad luck."""

    settings = SETTINGS

    def __init__(
        self, seed: int, process_kind: type[LockProcess] = LockProcess, lease_s: float = 0.0
    ) -> None:
        self.seed = seed
        self.clients_world = clients_world = World(seed)
        self.world = world = SharedWorld(clients_world)
        self.random = world.random
        lease_s = lease_s or self.random.choice([3.0, 1.0, 0.6])
        self.timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
        self.book = GroupBook()
        self.oracle = oracle = LockOracle(
            self.timing, lambda: world.now_s, lambda records: image_of(cell_of(records))
        )
        oracle.book = self.book
        names = ["h1", "h2", "h3"]
        self.hosts: list[Host] = []
        for name in names:
            host = LockHost(name, world, oracle, self.timing, process_kind)
            host.book = self.book
            host.clock.rate = self.random.choice([0.99, 1.0, 1.01])
            host.message_bytes_max = self.random.choice([200, 10_000])
            self.hosts.append(host)
            clients_world.hosts[name] = Place(name)
        self.by_name = {host.name: host for host in self.hosts}
        world.receive = self._receive
        oracle.ballot_of = lambda member: self.by_name[host_of(member)].durable_ballot()
        self._asks = itertools.count(1)
        self.wanted = set(names)
        self.faults = 0
        self.is_settling = False
        self.chance = random.Random(f"{seed}-nemesis")
        self.programs: list[GroupClient] = []
        clients_world.after_each = self.book.check_beliefs

    def deliver(self, name: str, request: Any, respond: Respond) -> None:
        host = self.by_name[name]
        process = host.process
        if process is not None:
            assert isinstance(process, LockProcess)
            host.when_running(process, lambda: process.call(request, respond))

    def describe(self, name: str, respond: Callable[[Standing], None]) -> None:
        """Somebody asks a member who leads."""
        host = self.by_name[name]
        process = host.process
        if process is not None:
            assert isinstance(process, LockProcess)
            host.when_running(process, lambda: respond(process.standing()))

    def populate(self) -> None:
        """Programs begin when the group is founded."""
        for at, kind in enumerate([GroupClient, GroupClient, RegisterClient, RegisterClient]):
            name = f"c{at}"
            self.clients_world.hosts[name] = Place(name)
            rate = self.random.choice([0.99, 1.0, 1.01])
            self.programs.append(kind(self.clients_world, name, self, rate))
        self.book.clients += self.programs

    def live(self, seconds: float) -> None:
        self.world.run(self.world.now_s + 3.0)
        self.populate()
        self.until_s = self.world.now_s + seconds
        weather = self.clients_world
        weather.loss = self.random.choice([0.0, 0.0, 0.03])
        weather.repeats = self.random.choice([0.0, 0.0, 0.05])
        self.world.weather.loss = self.random.choice([0.0, 0.0, 0.03])
        self._pace_s = self.random.choice([1.0, 2.0, 4.0])
        self._plan_fault()
        self.world.run(self.until_s)

    def _fault(self) -> None:
        if self.world.now_s >= self.until_s:
            return
        self.faults += 1
        leader = self.leader()
        host = self.random.choice(self.hosts)
        if leader is not None and self.random.random() < 0.6:
            host = leader.host
        fault = self.random.choice(FAULTS)
        self.world.note(f"fault {fault.__name__} {host.name}")
        fault(self, host)
        self._plan_fault()

    def cut_answers(self, host: Host) -> None:
        """The others hear it, and it does not hear them: what it sends is taken by a majority, and
        its successor commits it."""
        self._cut([(other.name, host.name) for other in self.hosts if other is not host])

    def cut_clients(self, host: Host) -> None:
        """Nobody but the other members reaches it; or it can hear and not answer."""
        names = [client.name for client in self.programs]
        ways = [(name, host.name) for name in names] + [(host.name, name) for name in names]
        for way in self.random.choice([ways, ways[: len(names)], ways[len(names) :]]):
            self.clients_world.cut[way] = None
            self.clients_world.after(
                self.random.uniform(0.5, 8.0), lambda way=way: self.clients_world.cut.pop(way, None)
            )

    def stop_client(self, _: Host) -> None:
        client = self.random.choice(self.programs)
        place = self.clients_world.hosts[client.name]
        place.stopped_until_s = self.world.now_s + self.random.uniform(0.0, 12.0)

    def settle(self) -> None:
        """Heal everything; then everybody gets on with it."""
        self.is_settling = True
        weather = self.world.weather
        weather.loss = weather.repeat = 0.0
        weather.cuts.clear()
        self.wanted = set(self.by_name)
        world = self.clients_world
        world.cut.clear()
        world.loss = world.repeats = 0.0
        for place in world.hosts.values():
            place.stopped_until_s = 0.0
        for host in self.hosts:
            host.crash_chance, host.is_lively = 0.0, True
            host.stopped_until_s = min(host.stopped_until_s, world.now_s)
            host.slow_disk_until_s = 0.0
            host.start_after(0.1)
        for client in self.programs:
            client.is_calm = True
        world.run(world.now_s + 20.0)
        self._before = [client.done_count for client in self.programs]
        world.run(world.now_s + 25.0)  # longer than anybody waits for a lock

    def check(self) -> None:
        leader = self.leader()
        assert isinstance(leader, LockProcess), "nobody leads after everything was healed"
        assert leader.brain.step >= 7, "the fail-over does not end"
        for client, count in zip(self.programs, self._before, strict=True):
            assert client.session is not None, f"{client.name} has no session in calm weather"
            assert client.done_count > count, f"{client.name} does not get on in calm weather"
        history: list[Operation] = []
        for client in self.programs:
            if isinstance(client, RegisterClient):
                client._give_up()
                history += client.operations
        assert is_linearizable(history, b"", register), "the register is not linearizable"
        self.reads_and_writes = len(history)


FAULTS: list[Callable[[GroupRun, Host], None]] = [
    Run.kill, Run.kill, Run.power_cut, Run.power_cut_midway, Run.stop, Run.stop, Run.hang,
    Run.cut_alone, Run.cut_alone, Run.cut_one_way, Run.cut_partly, Run.slow_disk, Run.checkpoint,
    Run.transfer, Run.transfer, GroupRun.cut_answers, GroupRun.cut_answers, GroupRun.cut_clients,
    GroupRun.stop_client, Run.empty, Run.change_members,
]  # fmt: skip


def play(
    seed: int, process_kind: type[LockProcess] = LockProcess, seconds: float = SECONDS
) -> GroupRun:
    """Live through one history; raise `AssertionError` where a promise is broken."""
    run = GroupRun(seed, process_kind)
    try:
        run.found()
        run.live(seconds)
        run.settle()
        run.check()
    except AssertionError as error:
        error.add_note(f"replay: {sys.executable} -m tests.simulation.lock.group {seed} -v")
        error.lines = run.clients_world.trace  # type: ignore[attr-defined]
        raise
    return run


def play_unheard_leaders(process_kind: type[LockProcess] = LockProcess) -> GroupRun:
    """A directed history: again and again a leader does not hear that a majority has its records;
    its successor commits them."""
    run = GroupRun(1, process_kind, lease_s=0.6)
    run.found()
    run.world.run(run.world.now_s + 3.0)
    run.populate()
    for _ in range(12):
        run.world.run(run.world.now_s + 4.0)
        leader = run.leader()
        if leader is not None:
            pairs = [(o.name, leader.host.name) for o in run.hosts if o is not leader.host]
            run.world.weather.cuts.update(pairs)
            run.world.run(run.world.now_s + 1.5)
            run.world.weather.cuts.difference_update(pairs)
    run.settle()
    run.check()
    return run


class Holder(GroupClient):
    """Takes a lock and does nothing more, on a crowded machine: whatever goes to it or comes from
    it is late."""

    slow_s = 0.0

    def _transmit(self, source: str, target: str, action: Callable[[], Any]) -> None:
        self.world.at_host(self.name, self.slow_s, lambda: self.world.send(source, target, action))

    def _act(self) -> None:
        if not self.handles:
            self.number += 1
            request = p.OpenNode(
                self.session_id, 0, self.number, f"{ROOT}/held", 7, 0, create=p.MAY_CREATE
            )
            self._call(request, self._lock_it)

    def _lock_it(self, opened: Any) -> None:
        if not isinstance(opened, p.Opened):
            return
        handle = opened.handle
        key = (handle.epoch, handle.number)
        self.handles[key] = handle

        def taken(value: Any) -> None:
            if isinstance(value, p.Taken):
                self.holding[key] = (handle.path, False)

        self._on(p.AcquireLock, handle, taken)


class RealTimes(LockProcess):
    """With the leases that a cell has where nobody says otherwise."""

    settings = Settings()


def play_idle_holder(idle_s: float, slow_s: float, kind: type[Holder] = Holder) -> bool:
    """A directed history: somebody holds a lock and has been idle for so long when the leader is
    cut off from everybody; the machine is crowded. Return whether it has its session later."""
    run = GroupRun(3, RealTimes, lease_s=3.0)
    run.settings = RealTimes.settings
    run.found()
    run.world.run(run.world.now_s + 3.0)
    world = run.clients_world
    world.hosts["c0"] = Place("c0")
    client = kind(world, "c0", run, 1.0)
    run.programs.append(client)
    run.book.clients.append(client)
    world.run(world.now_s + 20.0 + idle_s)
    assert client.holding, "it has its lock"
    session = client.session
    leader = run.leader()
    assert leader is not None
    client.slow_s, gone = slow_s, leader.host.name
    others = [host.name for host in run.hosts if host.name != gone]
    run.world.weather.cuts.update([way for o in others for way in ((gone, o), (o, gone))])
    world.cut.update({(gone, "c0"): None, ("c0", gone): None})
    world.run(world.now_s + 60.0)
    assert len(run.oracle.leaders) > 1, "another leads"
    return client.session is session and session.id in run.book.state.held


def main() -> None:
    logging.disable(logging.CRITICAL)
    try:
        run = play(int(sys.argv[1]))
    except AssertionError as error:
        if "-v" in sys.argv:
            print("\n".join(getattr(error, "lines", [])))
        raise
    if "-v" in sys.argv:
        print("\n".join(run.clients_world.trace))
    print(
        f"seed {run.seed}: {run.faults} faults, {len(run.oracle.leaders)} leaders, "
        f"{len(run.book.records)} records, {len(run.book.forgotten)} forgotten, "
        f"{sum(c.done_count for c in run.programs)} answers, {run.reads_and_writes} in the register"
    )


if __name__ == "__main__":
    main()
