"""A member's process in the simulation: the real brain over the real files, and a state machine.

Does what the shell of `cluster/journal/replicated.py` does, in simulated time: commands in their
order, a sync that takes a while, a state machine that applies at once while it leads and is thrown
away with the process when it is deposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.members import MemberId, host_of, member_id
from mrstream.cluster.consensus.messages import AppendLog, Word
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.state import NOBODY, Remembered
from mrstream.cluster.journal.ballot_file import BallotFile, PromiseFile
from mrstream.cluster.journal.group_log import GroupLog
from tests.simulation.consensus.oracle import apply, image_of, state_of

if TYPE_CHECKING:
    from tests.simulation.consensus.host import Host

DIRECTORY = "/log"
CLUSTER = "simulated"


class Crashed(Exception):
    """The host lost its power in the middle of a command list."""


class Request:
    """A client's question: a value to be set for a key, or None to read it."""

    def __init__(
        self, number: int, key: str, value: str | None, answer: Callable[..., None]
    ) -> None:
        self.number, self.key, self.value, self.answer = number, key, value, answer


class Process:
    """One life of one member's daemon."""

    replica_kind: type[Replica] = Replica

    def __init__(self, host: Host, replica_kind: type[Replica] | None = None) -> None:
        self.host = host
        self.world, self.oracle = host.world, host.oracle
        self.is_alive = True
        self.state: dict[str, str] = {}
        self.applied = 0
        self.serving_epoch = 0
        self.is_parked = False
        self.waiting: list[tuple[int, Request, str]] = []
        """(sequence to be committed, request, its answer), in the order of the log."""
        self.part: tuple[int, int, bytes] | None = None
        self._tick_at_s = math.inf
        self._is_syncing = False
        self._committed = 0
        self._start(replica_kind or self.replica_kind)

    # --- beginning

    def _start(self, kind: type[Replica]) -> None:
        host, disk = self.host, self.host.disk
        self.log = GroupLog(DIRECTORY, CLUSTER, disk)
        found = self.log.open(host.new_journal())
        self.me = self.name_of(found.journal)
        self.oracle.recovered(self.me, self.oracle.logs.get(self.me), self.log)
        self.oracle.logs[self.me] = self.log
        self.ballot = BallotFile(disk, DIRECTORY)
        self.promise = PromiseFile(disk, DIRECTORY, host.boot_id)
        now_s = host.clock_s()
        held = self.log.read_checkpoint()
        if held is not None:
            self.applied, _, _, pieces = held
            self.load(b"".join(pieces))
        self._committed = self.applied
        self.replica = kind(
            self.me, self.remembered(now_s), host.timing, Random(host.random.random()), now_s
        )
        self._plan_tick()
        self.host.world.note(f"{self.me} starts, last={self.log.last} epoch={self.replica.epoch}")

    def begin(self) -> None:
        """What runs by a clock of its own begins."""

    def name_of(self, journal: bytes) -> MemberId:
        return member_id(self.host.name, journal.decode())

    def remembered(self, now_s: float) -> Remembered:
        """What the files say; as the shell puts it together."""
        shape, members = self.log.look_at_shape(), self.log.look_at_members()
        return Remembered(
            epoch=self.ballot.epoch,
            voted_for=self._known(self.ballot.voted_for),
            base=shape.base,
            base_epoch=shape.base_epoch,
            epochs=tuple(shape.rows),
            members=tuple(members.rows),
            last=shape.last,
            committed=max(self.applied, shape.base),
            promised_until_s=self.promised_until_s(now_s),
        )

    def promised_until_s(self, now_s: float) -> float:
        return self.promise.until_s(now_s, self.host.timing.promise_s)

    def _known(self, journal: bytes) -> MemberId:
        if not any(journal):
            return NOBODY
        name = journal.decode()
        everyone = [m for _, row in self.log.look_at_members().rows for m in row.everyone]
        return next((m for m in everyone if m.endswith(f"/{name}")), MemberId(f"?/{name}"))

    # --- events

    def handle(self, event: e.Event) -> None:
        """Give the brain an event and do what it says; a crash may come between two commands."""
        if not self.is_alive:
            return
        before = self.replica.epoch, self.replica.is_leading
        if isinstance(event, e.Received) and isinstance(event.word, AppendLog):
            self.oracle.heard(self.me, event.word.epoch, event.word.sent_at_s)
        commands = self.replica.handle(event, self.host.clock_s())
        self.replica.check_invariants()
        if self.replica.is_leading:
            self.oracle.led(self.me, self.replica.epoch, self.replica.members)
            if before != (self.replica.epoch, True):
                self.world.note(f"{self.me} leads epoch {self.replica.epoch}")
        for command in commands:
            if not self.is_alive:
                return
            self.host.maybe_crash(command)
            if not self.is_alive:
                return
            self._do(command)
        self._answer()
        self._plan_tick()

    def _plan_tick(self) -> None:
        """Tick when the brain wants to; never later than asked for, sometimes once more."""
        wake_s = self.replica.wake_at_s()
        if math.isinf(wake_s):
            return
        at_s = max(self.host.clock.true_s(wake_s), self.world.now_s) + 1e-6
        if at_s < self._tick_at_s - 1e-9 or self._tick_at_s <= self.world.now_s:
            self._tick_at_s = at_s
            self.world.at(at_s, self._tick)

    def _tick(self) -> None:
        self._tick_at_s = math.inf
        self.host.when_running(self, lambda: self.handle(e.Tick(alive=self.host.is_lively)))

    # --- commands

    def _do(self, command: c.Command) -> None:
        match command:
            case c.SaveBallot():
                self._save_ballot(command)
            case c.SavePromise():
                self.promise.save(command.until_s)
            case c.Write():
                self._write(command)
            case c.Cut():
                self.oracle.cut(self.me, self.log, command.after)
                self.log.cut(command.after)
            case c.Send():
                self._send(command.to, command.word)
            case c.SendLog():
                self._send_log(command)
            case c.SendCheckpoint():
                self._send_checkpoint(command.to)
            case c.Committed():
                self.commit(command.sequence)
            case c.Led():
                assert self.applied >= self.replica.committed
                self.lead(command.epoch)
            case c.Deposed():
                self._deposed(command.reason)
            case c.Park():
                self.is_parked = command.parked
                if command.parked:
                    self.world.after(0.001, lambda: self.handle(e.Parked()))
            case c.Accepted() | c.Refused():
                self.host.answers[command.ask] = command
            case _:
                raise AssertionError(command)

    def _save_ballot(self, command: c.SaveBallot) -> None:
        journal = command.voted_for.rpartition("/")[2].encode()
        self.ballot.save(command.epoch, journal.ljust(16, b"\0"))

    def _write(self, command: c.Write) -> None:
        self.log.write(command.first, command.records)
        self.oracle.wrote(self.me, self.log, command.first, len(command.records))
        if self.replica.is_leading:
            for at in range(command.first, command.first + len(command.records)):
                self.oracle.set_members(self.me, self.log, self.replica.committed, at)
        self._era = command.era
        if not self._is_syncing:
            self._is_syncing = True
            self.world.after(self.host.sync_s(), self._sync)

    def _sync(self) -> None:
        """The disk is done; the news of it takes another moment."""
        if not self.is_alive:
            return
        self._is_syncing = False
        synced, era = self.log.sync(), self._era
        event = e.Synced(synced, era)
        news_s = self.host.random.choice([0.0, 0.0, 0.005])
        self.world.after(news_s, lambda: self.host.when_running(self, lambda: self.handle(event)))

    def _send(self, to: MemberId, word: Word) -> None:
        self.oracle.sent(self.me, to, word)
        self.host.network(self.me, to, word)

    def _send_log(self, command: c.SendLog) -> None:
        """In as many messages as it takes."""
        previous, epoch = command.previous, command.previous_epoch
        while True:
            records = self.log.read(previous + 1, command.last, self.host.message_bytes_max)
            word = AppendLog(
                command.epoch, previous, epoch, command.committed, command.sent_at_s, records
            )
            self._send(command.to, word)
            previous += len(records)
            epoch = self.log.look_at_shape().at(previous)
            if previous >= command.last or not records:
                return

    def _send_checkpoint(self, to: MemberId) -> None:
        held = self.log.read_checkpoint()
        assert held is not None, "a log without its beginning has a checkpoint"
        sequence, epoch, rows, pieces = held
        image = b"".join(pieces)
        self.world.note(f"{self.me} sends its checkpoint of {sequence} to {to}")
        self.host.network(self.me, to, ("checkpoint", sequence, epoch, rows, image))
        done = e.CopyEnded(to)
        self.world.after(0.3, lambda: self.host.when_running(self, lambda: self.handle(done)))

    def commit(self, sequence: int) -> None:
        """Apply what a shadow has not applied yet; give a waiting checkpoint its name."""
        self.oracle.said_committed(self.me, self.log, self._committed, sequence)
        if self.replica.is_leading:
            self.oracle.counted(self.me, self.replica.members, sequence)
        self._committed = sequence
        for payload in self.log.read(self.applied + 1, sequence):
            self.apply_one(payload)
            self.applied += 1
        if self.part is not None and self.may_publish(self.part[0]):
            self._publish()

    # --- the state machine; others have another

    def load(self, image: bytes) -> None:
        self.state = state_of(image)

    def apply_one(self, payload: bytes) -> None:
        apply(self.state, payload)

    def image(self) -> bytes:
        return image_of(self.state)

    def lead(self, epoch: int) -> None:
        self.serving_epoch = epoch

    # --- checkpoints

    def begin_checkpoint(self) -> None:
        """Keep the state as it is at this moment; it gets its name when all of it is committed."""
        if not self.is_alive or self.part is not None or self.applied <= self.log.base:
            return
        image = self.image()
        epoch = self.log.look_at_shape().at(self.applied)
        self.log.write_checkpoint_part(self.applied, [image])
        self.part = (self.applied, epoch, image)
        self.log.rotate()
        if self.may_publish(self.applied):
            self._publish()

    def may_publish(self, sequence: int) -> bool:
        return sequence <= self._committed

    def _publish(self) -> None:
        assert self.part is not None
        sequence, epoch, image = self.part
        self.part = None
        self.oracle.checkpointed(self.me, sequence, epoch, image)
        base = self.log.publish_checkpoint(sequence)
        self.world.after(0.0, lambda: self.handle(e.Compacted(base)))

    def install(self, sequence: int, epoch: int, rows: Any, image: bytes) -> None:
        """Another member's checkpoint: in place at one stroke, then this process starts anew."""
        if sequence <= self._committed or self.log.look_at_shape().at(sequence) == epoch:
            return
        writer = self.log.begin_checkpoint(sequence, epoch, rows)
        writer.add(image)
        writer.finish()
        self.oracle.checkpointed(self.me, sequence, epoch, image)
        self.log.publish_checkpoint(sequence)
        self.host.restart(0.01)

    # --- clients

    def request(self, request: Request) -> None:
        """Decide at once, answer when what the answer rests on is committed (M1)."""
        if not self.is_alive:
            return
        if not self.may_serve() or self.is_parked:
            request.answer(request, "not leader", None)
            return
        if request.value is not None and f"?{request.number}" not in self.state:
            payload = f"{request.number}:{request.key}:{request.value}".encode()
            apply(self.state, payload)
            self.handle(e.Proposed((payload,)))
            self.applied = self.replica.last
        if self.is_alive:
            self.waiting.append((self.replica.last, request, self.state.get(request.key, "")))
            self._answer()

    def may_serve(self) -> bool:
        return self.serving_epoch == self.replica.epoch and self.replica.is_leading

    def may_answer(self) -> bool:
        return self.host.clock_s() < self.replica.lease_until_s()

    def _answer(self) -> None:
        if not self.host.is_lively:
            return
        while self.waiting and self.waiting[0][0] <= self._committed and self.is_alive:
            if not self.may_answer():
                return
            _, request, result = self.waiting.pop(0)
            self.oracle.answered(self.me, self.serving_epoch)
            request.answer(request, "done", result)

    def _deposed(self, reason: str) -> None:
        """Nobody who has a record in the log is answered; the state dies with the process."""
        self.world.note(f"{self.me} is deposed: {reason}")
        self.host.restart(0.05)


def host_name(member: MemberId) -> str:
    return host_of(member)
