"""The picture that a screen or a page draws: what is known of the cluster, and how old that is.

Takes answers of a `Source`; gives rows to whatever draws. Never does IO and never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mrstream.mapreduce.snapshot import (
    Board,
    ClusterSnapshot,
    HostRow,
    JobBoard,
    JobRow,
    JobSeen,
    JobSnapshot,
)


class Masters(NamedTuple):
    """The hosts of the masters that lead; empty where there is none."""

    dfs: str = ""
    jobs: str = ""


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """How the chunks of the dfs are."""

    total: int = 0
    under_replicated: int = 0
    missing: int = 0
    corrupt: int = 0
    repairing: int = 0
    files: int = 0

    @property
    def healthy(self) -> bool:
        """Whether every chunk has all its replicas."""
        return not (self.under_replicated or self.missing or self.corrupt)


@dataclass(frozen=True, slots=True)
class StorageRow:
    host: str
    rack: str
    state: str
    used_bytes: int
    capacity_bytes: int
    chunks: int
    heard_at_s: float


@dataclass(frozen=True, slots=True)
class Storage:
    """The dfs as its master shows it."""

    at_s: float = 0.0
    servers: tuple[StorageRow, ...] = ()
    counts: ChunkCounts = ChunkCounts()
    log_copies: tuple[int, int] = (0, 0)
    """Copies of the master's log: how many are in step, and how many should be."""

    @property
    def lacks_log_copies(self) -> bool:
        """Whether what is acknowledged now is on fewer hosts than it should be."""
        return self.log_copies[0] < self.log_copies[1]


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key of the doors, without anything to come in with."""

    name: str
    user: str
    paths: tuple[str, ...]
    rights: str
    """r | rw"""
    made_at_s: float
    expires_at_s: float = 0.0
    """0: never."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    path: str
    is_directory: bool
    length_bytes: int
    replication: int
    owner: str
    group: str
    mode: int
    modified_at_s: float

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where the replicas of one chunk of a file are, and how they are."""

    index: int
    handle: int
    version: int
    length_bytes: int
    hosts: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class Download:
    """A file on its way out: its length, and its bytes in pieces of bounded size."""

    length_bytes: int
    pieces: Iterator[bytes]


class Upload(Protocol):
    """A file on its way in: hidden until `close`, gone without a trace after `abandon`."""

    def write(self, data: bytes, /) -> int: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


@dataclass(slots=True)
class Picture:
    """All that a watcher knows at this moment."""

    cluster: str = ""
    at_s: float = 0.0
    hosts: Board[HostRow] = field(default_factory=Board)
    jobs: Board[JobRow] = field(default_factory=Board)
    storage: Storage = field(default_factory=Storage)
    job: JobBoard | None = None
    job_seen: JobSeen = field(default_factory=JobSeen)
    remarks: tuple[str, ...] = ()
    job_refusal: str = ""
    """Why the master does not tell of the job being watched."""
    lost_reason: str = ""
    lost_at_s: float = 0.0

    def see_cluster(self, news: ClusterSnapshot) -> bool:
        """Take what the job master said; tells whether any row differs."""
        self.at_s = news.at_s
        changed_hosts = self.hosts.apply(news.hosts)
        changed_jobs = self.jobs.apply(news.jobs)
        return bool(changed_hosts or changed_jobs)

    def see_job(self, news: JobSnapshot) -> None:
        """Take what the job master said of the job being watched."""
        if self.job is None or self.job.job.key != news.job.key:
            self.job = JobBoard(news.job)
            self.job_seen = JobSeen()
        self.job.apply(news, self.job_seen)
        self.job_seen = news.seen
        self.remarks = news.remarks

    def forget_job(self) -> None:
        self.job = None
        self.job_seen = JobSeen()
        self.remarks = ()
        self.job_refusal = ""
