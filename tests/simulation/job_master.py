"""The job master in the simulator: real brain, duties, fold and journal over a disk that forgets.

Checked here: after every crash the journal gives exactly the records that were called durable, or
more of the same, and folds to the same state, checkpoints or not. What was carried out, and must
rest on them, is judged by the referee of `scheduler_history`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from mrstream.cluster.journal.journal import Journal
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.master.duties import Duties
from mrstream.mapreduce.master.job_journal import AnyRecord, JobAccepted, Journaled
from mrstream.mapreduce.scheduler.commands import Command
from mrstream.mapreduce.scheduler.events import Event, JobSubmitted
from mrstream.mapreduce.scheduler.ids import AttemptId, JobId
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from tests.support.forgetful_disk import ForgetfulDisk

LIMITS = SchedulerLimits(silence_s_max=10.0)


class Log:
    """The journal, and beside it every record that it was ever given and kept."""

    def __init__(self, disk: ForgetfulDisk, history: list[bytes]) -> None:
        self.journal = Journal("/journal", "cluster", disk=disk)
        self.history = history

    @property
    def seen(self) -> int:
        return self.journal.sequence

    @property
    def durable(self) -> int:
        return self.journal.durable

    def append(self, payload: bytes) -> int:
        self.history.append(payload)
        sequence = self.journal.append(payload)
        assert sequence == len(self.history)
        return sequence


class SimJobMaster:
    """One job master over its lives."""

    def __init__(
        self,
        seed: int,
        chance: random.Random,
        carry_out: Callable[[Command], None],
        duties: type[Duties] = Duties,
    ) -> None:
        self.disk = ForgetfulDisk(seed)
        self.chance = chance
        self.lives = 0
        self.log: list[tuple[int, float, Event, list[Command]]] = []
        """Every event of every life, and what was decided on it."""
        self._carry_out = carry_out
        self._duties_kind = duties
        self._history: list[bytes] = []
        self._durable = 0
        self.start()

    # --- lives

    def start(self) -> None:
        """Begin a life with what the disk gives; `restore` goes on with its jobs."""
        self.lives += 1
        log = Log(self.disk, self._history)
        found = log.journal.recover()
        last = found.last_sequence
        assert last >= self._durable, f"records {last + 1} to {self._durable} are lost (M1)"
        del self._history[last:]
        for sequence, payload in found.records:
            assert self._history[sequence - 1] == payload, f"record {sequence} was not written so"
        self.journaled = Journaled()
        self.journaled.restore(found.checkpoint, found.records)
        whole = Journaled()
        whole.restore((), enumerate(self._history, 1))
        assert list(whole.pieces()) == list(self.journaled.pieces()), "the fold is not the log's"
        self.brain = Scheduler(LIMITS)
        self.journal = log
        self.duties = self._duties_kind(self.brain, log, self.journaled, self, self._carry_out)
        self._durable = log.durable
        self._now_s = 0.0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.duties.begin_life(self.lives)

    def restore(self, now_s: float) -> None:
        """Go on with the jobs that no life before has closed."""
        self._now_s = now_s
        for known in list(self.journaled.jobs.values()):
            self.duties.restore(known, asked(known.accepted), now_s, now_s)

    def crash(self) -> None:
        """Cut the power: of what was not durable, any part may have come to the disk unheard."""
        journal = self.journal.journal
        kept = self.chance.randint(0, len(journal._pending))
        del journal._pending[kept:]
        journal.commit()
        self.disk.crash()

    # --- the order of duties

    def event(self, event: Event, now_s: float) -> None:
        self._now_s = now_s
        self.duties.event(event, now_s, now_s)
        self.brain.check_invariants()

    def append(self, record: AnyRecord) -> None:
        self.duties.append(record)

    @property
    def is_durable(self) -> bool:
        return self.journal.durable >= self.journal.seen

    def when_durable(self, action: Callable[[], None]) -> None:
        """Act once all that was said so far survives a crash."""
        if self.is_durable:
            action()
        else:
            self._waiting.append((self.journal.seen, action))

    def commit(self) -> None:
        """A flush: carry out, and answer, what waited for it."""
        self.journal.journal.commit()
        self._durable = self.journal.durable
        self.duties.gate.release()
        while self._waiting and self._waiting[0][0] <= self._durable:
            self._waiting.pop(0)[1]()

    def checkpoint(self) -> None:
        """Write a checkpoint of the state as it is."""
        self.commit()
        while not self.is_durable:
            self.commit()
        sequence = self.journal.journal.rotate()
        self.journal.journal.commit()
        self.journal.journal.write_checkpoint(sequence, self.journaled.pieces())

    # --- the books of `duties`

    def take_down(self, event: Event, commands: Sequence[Command], wall_s: float) -> None:
        self.log.append((self.lives, self._now_s, event, list(commands)))

    def result(self, attempt_id: AttemptId) -> tuple[Done, float]:
        return done_of(str(attempt_id)), 1.0


def done_of(attempt_id: str) -> Done:
    """What an attempt counts, known by its name: the record must hold just that."""
    return Done({"sim": {attempt_id: 1}})


def accepted(submitted: JobSubmitted, now_s: float) -> JobAccepted:
    """The record of a submission; what the client wants is in it."""
    packed = msgspec.msgpack.encode(submitted)
    return JobAccepted(submitted.job_id, f"token of {submitted.job_id}", packed, 1, False, now_s)


def asked(record: JobAccepted) -> JobSubmitted:
    """What the client wants, read back from the journal."""
    submitted = msgspec.msgpack.decode(record.spec, type=JobSubmitted)
    assert submitted.job_id == JobId(record.job_id)
    return submitted
