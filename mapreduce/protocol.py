"""What clients, the job master and its workers say to each other.

Requests go to a master (or, `ReadLog` and `ReadKept`, to a worker); messages without a reply are
pushed down a worker's own connection. Ids travel as people know them from logs. Segments do not
come through here: reducers fetch them from each other's hosts. Plain data; never does any IO.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from mrstream.cluster.wire.messages import Count, Message, Request
from mrstream.mapreduce.attempt.attempt_report import AttemptName, AttemptNews, Done, Failure
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.job.environment import Platform
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.snapshot import (
    ClusterSnapshot,
    DiskRow,
    EventRow,
    JobRow,
    JobSeen,
    JobSnapshot,
)

# Numbers that count something, or the request is refused where it is read.
Slots = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
HostLabel = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]

# --- clients


class SubmitJob(Request, frozen=True):
    """Run this job. `spec` is a packed `JobSpec` with its splits; gives the job's id.

    `submission` is the client's own name for it: said again, after a restart of the master too,
    it gives the same job.
    """

    reply: ClassVar[Any] = str
    mutates: ClassVar[bool] = True
    submission: str
    spec: bytes
    file_count: Count
    is_output_temporary: bool = False


class NewsLine(Message, frozen=True):
    """A line for whoever waits for a job: `INFO`, `WARN`, or as it is (no level)."""

    level: str
    text: str


class JobEnd(Message, frozen=True):
    """How a job ended: `succeeded`, `failed` or `killed`, why, and what it took."""

    outcome: str
    reason: str = ""
    counters: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    closing: str = ""


class JobNews(Message, frozen=True):
    """How far a job is and what is new since `seen` lines; `end` once it is over."""

    seen: int
    lines: tuple[NewsLine, ...]
    progress: JobProgress
    end: JobEnd | None = None


class WaitForNews(Request, frozen=True):
    """Tell me of this job: at once if there are new lines or it is over, else after `wait_s`."""

    reply: ClassVar[Any] = JobNews
    diagnosed: ClassVar[bool] = False
    job_id: str
    seen: Count = 0
    wait_s: float = 1.0


class WatchCluster(Request, frozen=True):
    """What changed in the tables of hosts and jobs after these versions?"""

    reply: ClassVar[Any] = ClusterSnapshot
    diagnosed: ClassVar[bool] = False
    hosts_version: int = 0
    jobs_version: int = 0


class WatchJob(Request, frozen=True):
    """What changed in one job after what was seen?"""

    reply: ClassVar[Any] = JobSnapshot
    diagnosed: ClassVar[bool] = False
    job_id: str
    seen: JobSeen = JobSeen()


class ListJobs(Request, frozen=True):
    """Give the rows of jobs, newest last; ended ones too if `everything`."""

    reply: ClassVar[Any] = tuple[JobRow, ...]
    everything: bool = False


class KillJob(Request, frozen=True):
    """End a job; gives whether it was still running."""

    reply: ClassVar[Any] = bool
    mutates: ClassVar[bool] = True
    job_id: str
    reason: str = ""


class SetPriority(Request, frozen=True):
    """Order a job's idle tasks by another priority, 1 (very low) to 5 (very high)."""

    reply: ClassVar[Any] = bool
    mutates: ClassVar[bool] = True
    job_id: str
    priority: int


class StopAttempt(Request, frozen=True):
    """Kill a running attempt; with `fail`, count it as a failure of its task."""

    reply: ClassVar[Any] = bool
    mutates: ClassVar[bool] = True
    attempt_id: str
    fail: bool = False


class AttemptRecord(Message, frozen=True):
    """One attempt as a report shows it; times by the master's wall clock."""

    attempt_id: str
    host: str
    state: str
    started_at_s: float
    finished_at_s: float = 0.0
    locality: str = ""
    diagnosis: str = ""
    records: int = 0


class JobReport(Message, frozen=True):
    """All that is known of a job, running or ended: what history keeps of it."""

    job: JobRow
    counters: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    events: tuple[EventRow, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    failures: tuple[str, ...] = ()
    """The full reports of failed attempts, the first one first."""
    facts: dict[str, float] = msgspec.field(default_factory=dict)
    """The columns of the paper's Table 1, and more (MapReduce §6)."""
    closing: str = ""
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    said: dict[str, str] = msgspec.field(default_factory=dict)
    """By attempt: the beginning of what it said, for when its host is lost with its log."""


class ReportOfJob(Request, frozen=True):
    """Give the report of a job, of one that ended before the last restart too."""

    reply: ClassVar[Any] = JobReport
    job_id: str


class SpecOfJob(Request, frozen=True):
    """Give the packed `JobSpec` of a job, with its splits."""

    reply: ClassVar[Any] = bytes
    job_id: str


class LogPiece(Message, frozen=True):
    """Bytes of a log from where was asked; empty at its end."""

    data: bytes
    size: int


class ReadLog(Request, frozen=True):
    """Give bytes of an attempt's log (`stderr`); a master asks the worker that has it."""

    reply: ClassVar[Any] = LogPiece
    diagnosed: ClassVar[bool] = False
    attempt_id: str
    stream: str = "stderr"
    offset: Count = 0


class ReadKept(Request, frozen=True):
    """Give bytes of a file that was kept of a failed attempt, to repeat it elsewhere."""

    reply: ClassVar[Any] = LogPiece
    diagnosed: ClassVar[bool] = False
    attempt_id: str
    name: str
    offset: Count = 0


# --- workers to the master


class KeptSegment(Message, frozen=True):
    """A complete segment on a worker's disks, and how its attempt ended."""

    attempt_id: AttemptName
    done: Done


class WorkerSettings(Message, frozen=True):
    """What the master wants of a worker."""

    heartbeat_s: float
    silence_s_max: float
    epoch: int = 0
    """Of its lead: what it says, and pushed before this, is void for whoever met a later one."""


class Register(Request, frozen=True):
    """A worker offers its slots and says what it still has: attempts whose end the master has not
    acknowledged, and complete segments."""

    reply: ClassVar[Any] = WorkerSettings
    worker_id: HostLabel
    incarnation: int
    address: str
    bulk_address: str
    slots: Slots
    rack: str = ""
    running: tuple[AttemptName, ...] = ()
    segments: tuple[KeptSegment, ...] = ()
    platform: Platform = Platform()
    """What its host is, to a job's Python environment."""


class Heartbeat(Request, frozen=True):
    """A worker is alive; what its attempts told last, if that is new, and what its host is doing.

    Gives false if the master does not know the worker (any more): it must register.
    """

    reply: ClassVar[Any] = bool
    diagnosed: ClassVar[bool] = False
    worker_id: HostLabel
    incarnation: int
    attempts: tuple[AttemptNews, ...] = ()
    load: float = 0.0
    memory_used_bytes: Count = 0
    memory_total_bytes: Count = 0
    disks: tuple[DiskRow, ...] = ()
    is_full: bool = False
    """Its disks are too full for more map output."""


class AttemptEnded(Request, frozen=True):
    """An attempt is over: `done`, or `failure`, or (neither) it was killed."""

    mutates: ClassVar[bool] = True
    diagnosed: ClassVar[bool] = False
    worker_id: HostLabel
    attempt_id: AttemptName
    done: Done | None = None
    failure: Failure | None = None
    killed: str = ""


class AttemptWantsCommit(Request, frozen=True):
    """An attempt has written all its final output; `GrantCommit` or `StopRunning` follows."""

    worker_id: HostLabel
    attempt_id: AttemptName


class AttemptShuffled(Request, frozen=True):
    """A reduce attempt has its partition of every map."""

    worker_id: HostLabel
    attempt_id: AttemptName


class FetchTrouble(Request, frozen=True):
    """A reduce could not fetch from a map; `gone`: its segment is surely lost or corrupt."""

    reduce_attempt_id: AttemptName
    map_attempt_id: AttemptName
    reason: str
    gone: bool = False


class AttemptSaid(Request, frozen=True):
    """What the programs of an attempt say to people, a bounded part of it."""

    diagnosed: ClassVar[bool] = False
    attempt_id: AttemptName
    level: str
    """`INFO`, `WARN`; empty: standard error as it came."""
    text: str


# --- the master to workers (pushed)


class RunAttempt(Message, frozen=True):
    """Start this attempt now. `spec` is the packed job, given once a connection and job."""

    attempt_id: str
    maps: int
    spec: bytes = b""
    split: Split | None = None
    output_directory: str = ""
    keep_input: bool = False
    epoch: int = 0


class StopRunning(Message, frozen=True):
    """Kill this attempt, and drop what it left, its segment too; answer that it is killed."""

    attempt_id: str
    reason: str
    epoch: int = 0


class AllowCommit(Message, frozen=True):
    """This attempt may make its output visible; then say that it is done."""

    attempt_id: str
    epoch: int = 0


class SegmentNews(Message, frozen=True):
    """Where maps' output is, and what is lost: from the master to a worker, and, with addresses
    and paths filled in, from there to each reduce of the job."""

    job_id: str
    added: tuple[SegmentAt, ...] = ()
    withdrawn: tuple[str, ...] = ()
    abandoned: tuple[int, ...] = ()
    addresses: dict[str, str] = msgspec.field(default_factory=dict)
    """Where the workers named in `added` give segments."""
    epoch: int = 0


class ForgetJob(Message, frozen=True):
    """The job is over: drop its segments, its cache and what its attempts left; keep the logs."""

    job_id: str
    succeeded: bool
    epoch: int = 0


Order = RunAttempt | StopRunning | AllowCommit | SegmentNews | ForgetJob
"""Each carries the epoch of the leader that gave it; 0: there is one master, and never was another.
F2: a worker obeys none of an epoch below the highest that it met."""
PUSHED: tuple[type[Message], ...] = (
    RunAttempt,
    StopRunning,
    AllowCommit,
    SegmentNews,
    ForgetJob,
)
