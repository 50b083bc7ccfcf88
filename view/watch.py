"""One picture of a cluster for any number of lookers, who cost the masters what one would cost.

A look asks the source if the last answer is older than `ASK_S`, and only then: while nobody looks,
nobody is asked. One thread asks at a time; the others are given what is known. Remembers the
boards of the jobs that were looked at last. A job that the master shows no more is looked up in its
history.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mrstream.cluster.errors import ClusterError, UserError
from mrstream.mapreduce.snapshot import JobBoard, JobSeen
from mrstream.view.past import board_of
from mrstream.view.picture import Picture
from mrstream.view.source import Source

ASK_S = 0.5
STORAGE_S = 2.0
"""The chunk table changes slowly, and is asked for less often."""
BOARDS_MAX = 32


@dataclass(slots=True)
class WatchedJob:
    board: JobBoard | None = None
    seen: JobSeen = field(default_factory=JobSeen)
    remarks: tuple[str, ...] = ()
    asked_at_s: float = float("-inf")
    is_past: bool = False
    """Out of its report, which changes no more."""
    asking: threading.Lock = field(default_factory=threading.Lock)


class Watch:
    """A source, and what it said last."""

    def __init__(self, source: Source, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.source = source
        self._clock_s = clock_s
        self._picture = Picture(cluster=source.cluster)
        self._lock = threading.RLock()
        self._asking = threading.Lock()
        self._asked_at_s = self._stored_at_s = float("-inf")
        self._jobs: OrderedDict[str, WatchedJob] = OrderedDict()

    @contextmanager
    def picture(self) -> Iterator[Picture]:
        """Yield the picture, at most `ASK_S` old or marked as lost; it stands still meanwhile."""
        self._ask_cluster()
        with self._lock:
            yield self._picture

    @contextmanager
    def job(self, job_id: str) -> Iterator[tuple[JobBoard, tuple[str, ...]]]:
        """Yield the board of a job and the remarks on it, out of its report if it ended long ago;
        raises what the master says of a job that never was, and `Unavailable` if nothing is known
        of the job yet."""
        watched = self._watched(job_id)
        self._ask_job(job_id, watched)
        with self._lock:
            assert watched.board is not None
            yield watched.board, watched.remarks

    def hurry(self) -> None:
        """Ask again at the next look: something was done."""
        with self._lock:
            self._asked_at_s = self._stored_at_s = float("-inf")
            for watched in self._jobs.values():
                watched.asked_at_s = float("-inf")

    # --- asking

    def _ask_cluster(self) -> None:
        if self._clock_s() - self._asked_at_s < ASK_S:
            return
        # Whoever finds another asking is content with what is known, unless that is nothing.
        if not self._asking.acquire(blocking=self._asked_at_s == float("-inf")):
            return
        try:
            if self._clock_s() - self._asked_at_s >= ASK_S:
                self._ask_cluster_now()
        finally:
            self._asking.release()

    def _ask_cluster_now(self) -> None:
        picture, source = self._picture, self.source
        wants_storage = self._clock_s() - self._stored_at_s >= STORAGE_S
        try:
            news = source.snapshot(picture.hosts.version, picture.jobs.version)
            storage = source.storage() if wants_storage else picture.storage
        except ClusterError as error:
            with self._lock:
                if not picture.lost_reason:
                    picture.lost_at_s = source.now_s()
                picture.lost_reason = str(error)
                self._asked_at_s = self._clock_s()
            return
        with self._lock:
            picture.see_cluster(news)
            picture.storage, picture.lost_reason = storage, ""
            self._asked_at_s = self._clock_s()
            if wants_storage:
                self._stored_at_s = self._asked_at_s

    def _watched(self, job_id: str) -> WatchedJob:
        with self._lock:
            watched = self._jobs.setdefault(job_id, WatchedJob())
            self._jobs.move_to_end(job_id)
            while len(self._jobs) > BOARDS_MAX:
                self._jobs.popitem(last=False)
            return watched

    def _ask_job(self, job_id: str, watched: WatchedJob) -> None:
        is_fresh = watched.is_past or self._clock_s() - watched.asked_at_s < ASK_S
        if watched.board is not None and is_fresh:
            return
        if not watched.asking.acquire(blocking=watched.board is None):
            return
        try:
            if watched.board is None or self._clock_s() - watched.asked_at_s >= ASK_S:
                self._ask_job_now(job_id, watched)
        finally:
            watched.asking.release()

    def _ask_job_now(self, job_id: str, watched: WatchedJob) -> None:
        try:
            news = self.source.job(job_id, watched.seen)
        except UserError:
            self._look_back(job_id, watched)
            return
        except ClusterError:
            if watched.board is None:
                raise
            watched.asked_at_s = self._clock_s()  # the picture says that nobody answers
            return
        with self._lock:
            if watched.board is None:
                watched.board = JobBoard(news.job)
            watched.board.apply(news, watched.seen)
            watched.seen, watched.remarks = news.seen, news.remarks
            watched.asked_at_s = self._clock_s()

    def _look_back(self, job_id: str, watched: WatchedJob) -> None:
        """The master shows it no more: history may."""
        try:
            board = board_of(self.source.report(job_id))
        except UserError:
            with self._lock:
                self._jobs.pop(job_id, None)
            raise
        with self._lock:
            watched.board, watched.is_past = board, True
