"""Where pictures come from: the only module that asks a cluster on behalf of a monitor or a page.

A `Source` is asked from a thread of the application, never from a screen. `ClusterSource` asks the
two masters of a running cluster; the demonstration and the tests have their own. `Unavailable`
means: keep the last picture, say so, and try again.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from mrstream.cluster.config.config import MAPREDUCE_MASTER, Cluster, current_cluster
from mrstream.cluster.errors import UserError
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.client.client import client_of
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.retry import RetryPolicy
from mrstream.dfs.protocol import FileStatus, LocatedChunk, ServerStatus
from mrstream.mapreduce.protocol import (
    JobReport,
    KillJob,
    LogPiece,
    ReadLog,
    ReportOfJob,
    SetPriority,
    StopAttempt,
    WatchCluster,
    WatchJob,
)
from mrstream.mapreduce.snapshot import PRIORITY_NAMES, ClusterSnapshot, JobSeen, JobSnapshot
from mrstream.streaming.formats.codec import CodecCorrupt, codec_by_suffix
from mrstream.view.picture import ChunkCounts, ChunkPlace, FileEntry, Storage, StorageRow


class Source(Protocol):
    """Questions that screens have, and the few things that users may ask to be done."""

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        ...

    @property
    def master_host(self) -> str:
        """The host of both masters; empty if there is none."""
        ...

    def now_s(self) -> float:
        """The time by the masters' clock, so that ages are right on any machine."""
        ...

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        """What changed in the tables of hosts and jobs."""
        ...

    def storage(self) -> Storage:
        """Chunkservers and the health of the chunks."""
        ...

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        """What changed in one job."""
        ...

    def log(self, attempt_id: str, stream: str, offset: int) -> bytes:
        """The bytes of an attempt's `stderr` or `stdout` from `offset` on, as far as there are."""
        ...

    def failure_report(self, job_id: str) -> str:
        """Why a job failed, in full."""
        ...

    def list_directory(self, path: str) -> list[FileEntry]:
        """The entries of a directory, by name."""
        ...

    def usage(self, path: str) -> list[tuple[str, int]]:
        """Bytes below each entry of a directory, most first."""
        ...

    def preview(self, path: str) -> str:
        """The first lines of a file, decompressed if its name says so."""
        ...

    def chunks(self, path: str) -> list[ChunkPlace]:
        """The chunks of a file and the hosts of their replicas."""
        ...

    def trash(self) -> list[FileEntry]:
        """Deleted files that can still be brought back."""
        ...

    def kill_job(self, job_id: str) -> str: ...

    def kill_attempt(self, attempt_id: str, *, fail: bool) -> str: ...

    def set_priority(self, job_id: str, priority: str) -> str: ...

    def set_replication(self, path: str, replication: int) -> str: ...

    def undelete(self, path: str) -> str: ...

    def close(self) -> None:
        """Give up all connections."""
        ...


ANSWER_S_MAX = 3.0
PREVIEW_BYTES = 64 * 1024
PREVIEW_LINES = 200
LOCATE_CHUNKS = 64


class ClusterSource:
    """The two masters of a running cluster.

    Asks each once and never waits long: the monitor asks again by itself.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dfs = client_of(cluster, retry=RetryPolicy(total_s=0.0))
        self._jobs = Connection(
            cluster.config.master_address(MAPREDUCE_MASTER),
            cluster.identity(),
            role=MAPREDUCE_MASTER,
            connect_s_max=ANSWER_S_MAX,
        )
        self._ahead_s = time.time() - time.monotonic()

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
    def master_host(self) -> str:
        return self._cluster.config.master

    def now_s(self) -> float:
        return time.monotonic() + self._ahead_s

    def close(self) -> None:
        self._jobs.close()
        self._dfs.close()

    # Jobs -----------------------------------------------------------------------------

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

    def failure_report(self, job_id: str) -> str:
        report: JobReport = self._ask(ReportOfJob(job_id))
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
        return self._jobs.call(request, ANSWER_S_MAX)

    # Files ----------------------------------------------------------------------------

    def storage(self) -> Storage:
        report, now_s = self._dfs.report(), self.now_s()
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
        )

    def list_directory(self, path: str) -> list[FileEntry]:
        return [_entry(status) for status in self._dfs.list(path)]

    def usage(self, path: str) -> list[tuple[str, int]]:
        sums = self._dfs.summarise(path, children=True)
        return sorted(((each.path, each.length_bytes) for each in sums), key=lambda pair: -pair[1])

    def preview(self, path: str) -> str:
        with DfsReader(self._dfs, path) as reader:
            data = reader.pread(0, PREVIEW_BYTES)
        codec = codec_by_suffix(path)
        if codec is not None:
            try:
                data = b"".join(codec.decompressor().feed(data))
            except CodecCorrupt as error:
                return f"{path} cannot be decompressed: {error}"
        lines = data[:PREVIEW_BYTES].split(b"\n")[:PREVIEW_LINES]
        return b"\n".join(lines).decode("utf-8", "replace")

    def chunks(self, path: str) -> list[ChunkPlace]:
        located = self._dfs.locate(path, 0, LOCATE_CHUNKS)
        goal, found = located.status.replication, list(located.chunks)
        while found and len(found) < located.status.chunk_count:
            more = self._dfs.locate(path, found[-1].index + 1, LOCATE_CHUNKS).chunks
            if not more:
                break
            found += more
        return [_place(chunk, goal) for chunk in found]

    def trash(self) -> list[FileEntry]:
        return [
            FileEntry(entry.original_path, False, 0, 0, "", "", 0, entry.deleted_at_s)
            for entry in self._dfs.trash()
        ]

    def set_replication(self, path: str, replication: int) -> str:
        self._dfs.set_replication(path, replication)
        return f"{path}: {replication} copies wanted"

    def undelete(self, path: str) -> str:
        return f"{self._dfs.undelete(path)} is back"


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
