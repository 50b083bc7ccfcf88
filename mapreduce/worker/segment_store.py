"""The segments that a worker holds on its disks, from one life of the worker to the next.

    DISK/segments/JOB/ATTEMPT.part      being written by an attempt
    DISK/segments/JOB/ATTEMPT.done      how the attempt ended: counters and sizes
    DISK/segments/JOB/ATTEMPT.segment   complete; only then may anyone ask for it

A worker that starts again offers what is complete and clears away the rest, so that a finished map
is not repeated for a crash of the worker alone. Safe to ask from any thread. Never verifies bytes:
whoever fetches a segment does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Sequence

import msgspec

from mrstream.cluster.wire.messages import unpack
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.scheduler.ids import parse_attempt_id


class SegmentStore:
    """Complete segments by attempt id, spread over disks by free space."""

    def __init__(self, disks: Sequence[str]) -> None:
        self._roots = [os.path.join(disk, "segments") for disk in disks]
        self._lock = threading.Lock()
        self._held: dict[str, tuple[str, Done]] = {}
        for root in self._roots:
            os.makedirs(root, mode=0o700, exist_ok=True)
            os.chmod(root, 0o700)  # users' data
            self._recover(root)

    def new_path(self, attempt_id: str) -> str:
        """Return the path at which an attempt may write its segment."""
        root = max(self._roots, key=free_bytes)
        directory = os.path.join(root, parse_attempt_id(attempt_id).task_id.job_id)
        os.makedirs(directory, exist_ok=True)
        return os.path.join(directory, f"{attempt_id}.part")

    def keep(self, attempt_id: str, written: str, done: Done) -> None:
        """An attempt is done: its segment counts from now on."""
        path = written.removesuffix(".part")
        # Sizes of partitions are in the segment's own index.
        short = msgspec.structs.replace(done, partitions=())
        with open(f"{path}.done", "wb") as file:
            file.write(msgspec.msgpack.encode(short))
        os.rename(written, f"{path}.segment")
        with self._lock:
            self._held[attempt_id] = (f"{path}.segment", short)

    def find(self, attempt_id: str) -> str | None:
        with self._lock:
            found = self._held.get(attempt_id)
        return found[0] if found else None

    def held(self) -> list[tuple[str, Done]]:
        """Return every complete segment, and how its attempt ended."""
        with self._lock:
            return [(attempt_id, done) for attempt_id, (_, done) in sorted(self._held.items())]

    def drop(self, attempt_id: str) -> None:
        """Delete one segment, if it is here."""
        with self._lock:
            found = self._held.pop(attempt_id, None)
        if found is not None:
            for path in (found[0], found[0].removesuffix(".segment") + ".done"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def drop_job(self, job_id: str) -> list[str]:
        """Delete all segments of a job; return whose they were."""
        with self._lock:
            gone = [
                attempt_id
                for attempt_id in self._held
                if parse_attempt_id(attempt_id).task_id.job_id == job_id
            ]
            for attempt_id in gone:
                del self._held[attempt_id]
        for root in self._roots:
            shutil.rmtree(os.path.join(root, job_id), ignore_errors=True)
        return gone

    def _recover(self, root: str) -> None:
        for job_id in sorted(os.listdir(root)):
            directory = os.path.join(root, job_id)
            names = set(os.listdir(directory))
            for name in sorted(names):
                attempt_id, _, kind = name.rpartition(".")
                path = os.path.join(directory, name)
                if kind == "segment" and f"{attempt_id}.done" in names:
                    self._offer(attempt_id, path)
                elif kind != "done" or f"{attempt_id}.segment" not in names:
                    os.unlink(path)

    def _offer(self, attempt_id: str, path: str) -> None:
        try:
            with open(f"{path.removesuffix('.segment')}.done", "rb") as file:
                done = unpack(file.read(), Done)
        except msgspec.DecodeError:
            os.unlink(path)  # the host went down before this reached the disk
            return
        self._held[attempt_id] = (path, done)


def free_bytes(path: str) -> int:
    """Return the space that is left where a path is."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
