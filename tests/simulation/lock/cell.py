"""The cell in the simulator: the real brain, duties, log and journal over a disk that forgets.

A crash and a start are a fail-over: the next leader has the next epoch and nothing but the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.cluster.wire.messages import Request
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.events import Called, Event, LeadershipBegan, Refuse, Reply, Tick
from mrstream.lock.cell.image import load_image, pack_image
from mrstream.lock.cell.records import decode_record
from mrstream.lock.cell.settings import Settings
from mrstream.lock.duties import Duties
from tests.simulation.lock.book import Book
from tests.simulation.world import Clock, World
from tests.support.forgetful_disk import ForgetfulDisk

NAME = "cell"
TICK_S = 0.25
Respond = Callable[[Any], None]


class SimCell:
    """One cell over the lives of its leaders."""

    def __init__(self, world: World, settings: Settings, book: Book) -> None:
        self.world = world
        self.settings = settings
        self.book = book
        self.clock = Clock(world)
        self.disk = ForgetfulDisk(world.seed)
        self.durable = 0
        self.epoch = 0
        self.crashes_at_commit: Callable[[], None] | None = None
        """Instead of the next commit the lights go out, and this is done."""
        self.start()

    def start(self) -> None:
        """A leader of the next epoch takes over."""
        self.epoch += 1
        self.world.hosts[NAME].is_up = True
        self.journal = Journal("/journal", "cluster", disk=self.disk)
        found = self.journal.recover()
        assert found.last_sequence >= self.durable, "M1: durable records are lost"
        self.brain = Cell(self.settings, b"secret")
        if found.checkpoint_sequence:
            load_image(self.brain, found.checkpoint)
        for _, payload in found.records:
            self.brain.apply(decode_record(payload))
        self.book.truncate(found.last_sequence)
        assert b"".join(pack_image(self.brain)) == self._image_of_the_book(), "L7: two folds differ"
        self.oplog = RecordLog(self.journal, 1 << 60)
        self.gate = Gate(self.oplog, self._carry_out)
        self.duties = Duties(self.brain, self.oplog, self.gate)
        self.durable = self.journal.durable
        self._responds: dict[int, Respond] = {}
        self._next_call = 1
        self._commit_due = False
        self.world.note(f"cell: epoch {self.epoch} begins at record {found.last_sequence}")
        self._tick_due_s = self.clock.now_s() + TICK_S
        self.event(LeadershipBegan(self.epoch))
        self.world.at_host(NAME, TICK_S, self._tick)

    def _image_of_the_book(self) -> bytes:
        other = Cell(self.settings, b"secret")
        other.state = self.book.state
        return b"".join(pack_image(other))

    def crash(self) -> None:
        """Power off."""
        self.world.note("cell crashes")
        host = self.world.hosts[NAME]
        host.is_up = False
        host.life += 1
        host.stopped_until_s = 0.0
        self.crashes_at_commit = None
        self.disk.crash()

    @property
    def is_up(self) -> bool:
        return self.world.hosts[NAME].is_up

    def request(self, request: Request, respond: Respond) -> None:
        """A request has arrived."""
        call, self._next_call = self._next_call, self._next_call + 1
        self._responds[call] = respond
        self.event(Called(call, request))

    def event(self, event: Event) -> None:
        before = self.oplog.seen
        self.duties.event(event, self.clock.now_s(), self.clock.wall_s())
        if self.oplog.seen > before:
            pending = [entry for entry in self.journal._pending if isinstance(entry, tuple)]
            for _, payload in pending[-(self.oplog.seen - before) :]:
                self.book.append(decode_record(payload), self.world.now_s)
        self.brain.check_invariants()
        self.book.check_sessions(self.brain.sessions.live)
        if self.oplog.seen > self.journal.durable and not self._commit_due:
            self._commit_due = True
            self.world.at_host(NAME, self.world.random.uniform(0.0005, 0.02), self._commit)

    def _commit(self) -> None:
        self._commit_due = False
        if self.crashes_at_commit is not None:
            then, self.crashes_at_commit = self.crashes_at_commit, None
            self.crash()
            then()
            return
        self.journal.commit()
        self.durable = self.journal.durable
        self.gate.release()

    def checkpoint(self) -> None:
        """Write a checkpoint of the state as it is."""
        self._commit()
        if not self.is_up:
            return
        sequence = self.journal.rotate()
        self.journal.commit()
        self.journal.write_checkpoint(sequence, pack_image(self.brain))
        self.world.note(f"checkpoint at {sequence}")

    def _carry_out(self, command: Reply | Refuse) -> None:
        value: Any = command.value if isinstance(command, Reply) else command.error
        assert isinstance(command, Reply) or isinstance(value, ClusterError)
        self._responds.pop(command.call)(value)

    def _tick(self) -> None:
        late_s = self.clock.now_s() - self._tick_due_s
        self._tick_due_s = self.clock.now_s() + TICK_S
        self.world.at_host(NAME, TICK_S, self._tick)
        self.event(Tick(late_s=late_s))
