"""Where pictures come from: the only module of the monitor that does IO.

A `Source` is asked from a thread of the application, never from a screen. `ClusterSource` asks the
two masters of a running cluster; the demonstration and the tests have their own. `Unavailable`
means: keep the last picture, say so, and try again.
"""

from __future__ import annotations

from typing import Protocol

from mapreduce.snapshot import ClusterSnapshot, JobSeen, JobSnapshot
from tui.snapshot import ChunkPlace, FileEntry, Storage


class Source(Protocol):
    """Questions that screens have, and the few things that users may ask to be done."""

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
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
