"""Where pictures come from: the only module that asks a cluster on behalf of a monitor or a page.

A `Source` is asked from a thread of the application, never from a screen. `ClusterSource` asks the
two masters of a running cluster; the demonstration and the tests have their own. `Unavailable`
means: keep the last picture, say so, and try again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

from mrstream.cluster.config import state
from mrstream.cluster.config.config import (
    DFS_MASTER,
    MAPREDUCE_MASTER,
    Cluster,
    current_cluster,
    load,
)
from mrstream.cluster.errors import ClusterError, HostUnreachable, UserError
from mrstream.cluster.leader.connection import connect_to_leader
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.messages import Metrics, Request
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import create_hidden
from mrstream.dfs.errors import FileExists, NoSuchFile
from mrstream.dfs.protocol import (
    FileStatus,
    KeysSince,
    KeyTable,
    LocatedChunk,
    ServerStatus,
)
from mrstream.mapreduce.protocol import (
    JobReport,
    KillJob,
    ListJobs,
    LogPiece,
    ReadLog,
    ReportOfJob,
    SetPriority,
    StopAttempt,
    WatchCluster,
    WatchJob,
)
from mrstream.mapreduce.snapshot import (
    PRIORITY_NAMES,
    ClusterSnapshot,
    JobRow,
    JobSeen,
    JobSnapshot,
)
from mrstream.view.picture import (
    ChunkCounts,
    ChunkPlace,
    Download,
    FileEntry,
    KeyEntry,
    Masters,
    Storage,
    StorageRow,
    Upload,
)
from mrstream.view.preview import PREVIEW_BYTES, plain_head, preview_text


class Source(Protocol):
    """Questions that screens have, and the few things that users may ask to be done."""

    @property
    def cluster(self) -> str:
        """The name of the cluster."""

    @property
    def masters(self) -> Masters:
        """Where the masters that lead are."""

    def now_s(self) -> float:
        """The time by the masters' clock, so that ages are right on any machine."""

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        """What changed in the tables of hosts and jobs."""

    def storage(self) -> Storage:
        """Chunkservers and the health of the chunks."""

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        """What changed in one job."""

    def log(self, attempt_id: str, stream: str, offset: int) -> bytes:
        """The bytes of an attempt's `stderr` or `stdout` from `offset` on, as far as there are."""

    def log_bytes(self, attempt_id: str, stream: str) -> int:
        """How long it is so far."""

    def failure_report(self, job_id: str) -> str:
        """Why a job failed, in full."""

    def all_jobs(self) -> tuple[JobRow, ...]:
        """Every job that is remembered, newest last."""

    def figures(self) -> list[tuple[str, str, dict[str, float]]]:
        """What the masters count: role, host, and numbers by name."""

    def report(self, job_id: str) -> JobReport:
        """All that is known of a job, running or ended long ago."""

    def stat(self, path: str) -> FileEntry:
        """One file or directory."""

    def list_directory(self, path: str) -> list[FileEntry]:
        """The entries of a directory, by name."""

    def usage(self, path: str) -> list[tuple[str, int]]:
        """Bytes below each entry of a directory, most first."""

    def preview(self, path: str) -> str:
        """The first lines of a file, decompressed if its name says so."""

    def head(self, path: str) -> bytes:
        """The first bytes of a file, decompressed if its name says so."""

    def chunks(self, path: str) -> list[ChunkPlace]:
        """The chunks of a file and the hosts of their replicas."""

    def story(self, path: str) -> list[tuple[float, str]]:
        """What happened to a file, and when."""

    def trash(self) -> list[FileEntry]:
        """Deleted files that can still be brought back."""

    def keys(self) -> list[KeyEntry]:
        """With which programs come in through a gateway."""

    def kill_job(self, job_id: str) -> str: ...

    def kill_attempt(self, attempt_id: str, *, fail: bool) -> str: ...

    def set_priority(self, job_id: str, priority: str) -> str: ...

    def set_replication(self, path: str, replication: int) -> str: ...

    def undelete(self, path: str) -> str: ...

    def make_directory(self, path: str) -> str: ...

    def rename(self, path: str, target: str) -> str: ...

    def delete(self, path: str) -> str: ...

    def download(self, path: str) -> Download:
        """The whole file, in pieces."""

    def upload(self, path: str, *, replace: bool = False) -> Upload:
        """A file to write that nobody sees until it is closed."""

    def close(self) -> None:
        """Give up all connections."""


ANSWER_S_MAX = 3.0
BEYOND_LOGS = 1 << 40
"""Where no log has bytes: whoever asks there is told its length alone."""


class ClusterSource:
    """The two masters of a running cluster.

    Asks each once and never waits long: the monitor asks again by itself.
    """

    def __init__(self, cluster: Cluster, *, user: str = "") -> None:
        self._user = user
        self._carrier: DfsClient | None = None
        self._connect(cluster)
        self._ahead_s = time.time() - time.monotonic()

    def _connect(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dfs = client_of(cluster, user=self._user, retry=RetryPolicy(total_s=0.0))
        self._jobs = connect_to_leader(cluster, MAPREDUCE_MASTER, connect_s_max=ANSWER_S_MAX)

    @staticmethod
    def of_current(explicit: str | None) -> ClusterSource:
        """The cluster of this file or name, or the current one."""
        found = current_cluster(explicit)
        if found is None:
            raise UserError(
                "there is no current cluster to watch: `mrstream cluster up` makes one; "
                "`mrstream top --demo` needs none"
            )
        return ClusterSource(found)

    @property
    def cluster(self) -> str:
        return self._cluster.config.name

    @property
    def masters(self) -> Masters:
        return Masters(self._dfs.leader_host, self._jobs.finding.host)

    def now_s(self) -> float:
        return time.monotonic() + self._ahead_s

    def close(self) -> None:
        self._jobs.close()
        self._dfs.close()
        if self._carrier is not None:
            self._carrier.close()

    # --- jobs

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        news: ClusterSnapshot = self._ask(WatchCluster(hosts_version, jobs_version))
        self._ahead_s = news.at_s - time.monotonic()
        return news

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        news: JobSnapshot = self._ask(WatchJob(job_id, seen))
        return news

    def log(self, attempt_id: str, stream: str, offset: int) -> bytes:
        piece: LogPiece = self._ask(ReadLog(attempt_id, stream, offset))
        return piece.data

    def log_bytes(self, attempt_id: str, stream: str) -> int:
        piece: LogPiece = self._ask(ReadLog(attempt_id, stream, BEYOND_LOGS))
        return piece.size

    def all_jobs(self) -> tuple[JobRow, ...]:
        rows: tuple[JobRow, ...] = self._ask(ListJobs(everything=True))
        return rows

    def figures(self) -> list[tuple[str, str, dict[str, float]]]:
        jobs, files = self._ask(Metrics()), self._dfs.call_once(Metrics())
        return [
            (MAPREDUCE_MASTER, self.masters.jobs, jobs),
            (DFS_MASTER, self.masters.dfs, files),
        ]

    def report(self, job_id: str) -> JobReport:
        report: JobReport = self._ask(ReportOfJob(job_id))
        return report

    def failure_report(self, job_id: str) -> str:
        report = self.report(job_id)
        return "\n\n".join(report.failures) or report.closing or "nothing failed so far"

    def kill_job(self, job_id: str) -> str:
        was_running = self._ask(KillJob(job_id, "killed from the monitor"))
        return f"killed {job_id}" if was_running else f"{job_id} had ended before"

    def kill_attempt(self, attempt_id: str, *, fail: bool) -> str:
        was_running = self._ask(StopAttempt(attempt_id, fail))
        done = "failed" if fail else "killed"
        return f"{done} {attempt_id}" if was_running else f"{attempt_id} had ended before"

    def set_priority(self, job_id: str, priority: str) -> str:
        number = next(n for n, name in PRIORITY_NAMES.items() if name == priority)
        was_running = self._ask(SetPriority(job_id, number))
        return f"{job_id} is now {priority}" if was_running else f"{job_id} had ended before"

    def _ask(self, request: Request) -> Any:
        try:
            return self._jobs.call(request, ANSWER_S_MAX)
        except HostUnreachable:
            if not self._follow():
                raise
        return self._jobs.call(request, ANSWER_S_MAX)

    def _follow(self) -> bool:
        """Turn to where the masters are now, if `cluster restore` has moved them since; say whether
        it has."""
        try:
            config = load(state.cluster_file(self._cluster.config.name))
        except (ClusterError, OSError):
            return False  # a cluster that another machine looks after, or a file half edited
        if config.master == self._cluster.config.master:
            return False
        self.close()
        self._carrier = None
        self._connect(Cluster(config, self._cluster.secret))
        return True

    # --- files

    def storage(self) -> Storage:
        report, now_s = self._dfs.report(), self.now_s()
        figures = self._dfs.call_once(Metrics())
        return Storage(
            now_s,
            tuple(_storage_row(server, now_s) for server in report.servers),
            ChunkCounts(
                report.chunk_count,
                report.under_replicated,
                report.missing,
                report.corrupt,
                report.clones_active,
                report.file_count,
            ),
            (
                int(figures.get("log_copies_in_step", 0)),
                int(figures.get("log_copies_wanted", 0)),
            ),
        )

    def list_directory(self, path: str) -> list[FileEntry]:
        return [_entry(status) for status in self._dfs.list(path)]

    def usage(self, path: str) -> list[tuple[str, int]]:
        sums = self._dfs.summarise(path, children=True)
        return sorted(((each.path, each.length_bytes) for each in sums), key=lambda pair: -pair[1])

    def stat(self, path: str) -> FileEntry:
        return _entry(self._dfs.stat(path))

    def preview(self, path: str) -> str:
        return preview_text(path, self._first_bytes(path))

    def head(self, path: str) -> bytes:
        return plain_head(path, self._first_bytes(path))

    def _first_bytes(self, path: str) -> bytes:
        with DfsReader(self._dfs, path) as reader:
            return reader.pread(0, PREVIEW_BYTES)

    def story(self, path: str) -> list[tuple[float, str]]:
        return [(line.at_s, line.text) for line in self._dfs.story(path)]

    def chunks(self, path: str) -> list[ChunkPlace]:
        goal = self._dfs.stat(path).replication
        return [_place(chunk, goal) for chunk in self._dfs.chunks(path)]

    def trash(self) -> list[FileEntry]:
        return [
            FileEntry(entry.original_path, False, 0, 0, "", "", 0, entry.deleted_at_s)
            for entry in self._dfs.trash()
        ]

    def keys(self) -> list[KeyEntry]:
        table: KeyTable = self._dfs.call(KeysSince())
        return [
            KeyEntry(key.name, key.user, key.paths, key.rights, key.made_at_s, key.expires_at_s)
            for key in table.keys
        ]

    def set_replication(self, path: str, replication: int) -> str:
        self._dfs.set_replication(path, replication)
        return f"{path}: {replication} copies wanted"

    def undelete(self, path: str) -> str:
        return f"{self._dfs.undelete(path)} is back"

    def make_directory(self, path: str) -> str:
        self._dfs.make_directory(path)
        return f"made {path}"

    def rename(self, path: str, target: str) -> str:
        self._dfs.rename(path, target)
        return f"{path} is now {target}"

    def delete(self, path: str) -> str:
        kept = self._dfs.delete(path, recursive=True)
        return f"{path} is in the trash" if kept else f"{path} is deleted"

    def download(self, path: str) -> Download:
        reader = DfsReader(self._patient(), path)

        def pieces() -> Iterator[bytes]:
            # A piece is good until the next one; whoever sends may still hold it then.
            with reader:
                for piece in reader.pieces():
                    yield bytes(piece)

        return Download(reader.size, pieces())

    def upload(self, path: str, *, replace: bool = False) -> Upload:
        if not replace and self._is_there(path):  # told now, and not after all bytes were sent
            raise FileExists(f"{path}: it is there already")
        # One run waits at most: a gateway counts what each upload holds.
        return create_hidden(self._patient(), path, overwrite=replace, queue_runs=1)

    def _is_there(self, path: str) -> bool:
        try:
            self._dfs.stat(path)
        except NoSuchFile:
            return False
        return True

    def _patient(self) -> DfsClient:
        """A client that waits for a master to come back: bytes on their way are worth that."""
        if self._carrier is None:
            self._carrier = client_of(self._cluster, user=self._user)
        return self._carrier


def _storage_row(server: ServerStatus, now_s: float) -> StorageRow:
    return StorageRow(
        server.address.server,
        server.address.rack,
        "lost" if server.state == "dead" else server.state,
        sum(disk.used_bytes for disk in server.disks),
        sum(disk.capacity_bytes for disk in server.disks),
        server.chunk_count,
        now_s - server.last_heard_s_ago,
    )


def _entry(status: FileStatus) -> FileEntry:
    return FileEntry(
        status.path,
        status.is_directory,
        status.length_bytes,
        status.replication,
        status.owner,
        status.group,
        status.mode,
        status.modified_at_s,
    )


def _place(chunk: LocatedChunk, goal: int) -> ChunkPlace:
    hosts = tuple(server.server for server in chunk.replicas)
    if not hosts:
        state = "missing"
    elif chunk.corrupt_replicas:
        state = "corrupt replica, being replaced"
    elif len(hosts) < goal:
        state = "under-replicated"
    else:
        state = "good"
    return ChunkPlace(chunk.index, chunk.handle, chunk.version, chunk.length_bytes, hosts, state)
