"""Members of a lock cell: real cell brains, duties and gates over the real consensus and the
forgetful disk, and the book of what they commit, in which L1 to L7 are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.records import MARK
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.standing import NotLeader, Standing
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.cluster.wire.messages import Request
from mrstream.lock.cell import records as r
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.events import Called, Event, LeadershipBegan, Refuse, Reply, Tick
from mrstream.lock.cell.image import load_image, pack_image
from mrstream.lock.cell.records import decode_record
from mrstream.lock.duties import Duties
from tests.simulation.consensus.group import Members
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import Process
from tests.simulation.lock.book import Book
from tests.simulation.lock.run import SETTINGS
from tests.simulation.world import Place

TICK_S = 0.25
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


class LockCell(Members):
    """The members of a cell, and what clients need of it."""

    settings = SETTINGS

    def gather(
        self, names: list[str], process_kind: type[LockProcess], lease_s: float = 0.0
    ) -> None:
        """With a world, its chance and a network: the members, and nothing known yet."""
        world = self.world
        lease_s = lease_s or self.random.choice([3.0, 1.0, 0.6])
        self.timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
        self.book = GroupBook()
        self.oracle = oracle = LockOracle(
            self.timing, lambda: world.now_s, lambda records: image_of(cell_of(records))
        )
        oracle.book = self.book
        self.hosts = []
        for name in names:
            host = LockHost(name, self.network, oracle, self.timing, process_kind)
            host.book = self.book
            host.clock.rate = self.random.choice([0.99, 1.0, 1.01])
            host.message_bytes_max = self.random.choice([200, 10_000])
            self.hosts.append(host)
            world.hosts[name] = Place(name)
        self.by_name = {host.name: host for host in self.hosts}
        self.network.receive = self._receive
        oracle.ballot_of = lambda member: self.by_name[host_of(member)].durable_ballot()
        self._asks = itertools.count(1)
        self.wanted = set(names)
        self.is_settling = False

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
