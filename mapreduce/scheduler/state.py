"""What the scheduler knows while it handles one event; shared by the modules of the brain.

Holds jobs, workers and live attempts, and collects the commands of the event at hand.
Never decides anything.
"""

from __future__ import annotations

from mrstream.mapreduce.scheduler.commands import Command
from mrstream.mapreduce.scheduler.ids import AttemptId, HostName, JobId, WorkerId
from mrstream.mapreduce.scheduler.limits import SchedulerLimits
from mrstream.mapreduce.scheduler.phases import Job, JobTotals, JobView
from mrstream.mapreduce.scheduler.task import Attempt
from mrstream.mapreduce.scheduler.workers import Worker, Workers


class State:
    """The whole of the scheduler's memory."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.now_s = 0.0
        self.ticked_at_s = 0.0
        self.workers = Workers()
        self.jobs: dict[JobId, Job] = {}
        self.queue: list[Job] = []
        """The same jobs, in the order in which they get free slots."""
        self.ended: dict[JobId, tuple[JobView, JobTotals]] = {}
        """How far the jobs were that ended last, and what was started for them."""
        self.attempts: dict[AttemptId, Attempt] = {}
        """Every attempt that holds a slot, dying ones too."""
        self.timeouts: list[tuple[float, int, Attempt]] = []
        """A heap of the earliest moment at which each attempt could have timed out."""
        self.started_count = 0
        self.commands: list[Command] = []
        self.freed: dict[WorkerId, Worker] = {}
        """Workers that got room during this event."""
        self.has_new_work = False
        """Whether this event made tasks idle, so that all workers with room are asked."""
        self.has_opened_gate = False
        """Whether the last idle map of a job was started, so that its reduces may use all slots."""
        self.wanted_hosts: list[HostName] = []
        """Hosts that hold the data of maps that this event made idle."""

    def forget_event(self) -> list[Command]:
        """Return the commands of this event and be ready for the next."""
        commands = self.commands
        self.commands = []
        self.has_new_work = False
        self.has_opened_gate = False
        if self.freed:
            self.freed = {}
        if self.wanted_hosts:
            self.wanted_hosts = []
        return commands
