"""A worker: runs attempts, keeps the segments of its maps, gives them to reducers (MapReduce §3.1).

A shell without decisions: the master says what to run, kill and commit; the worker says how it
went. It beats once a second, and what the master must know of an attempt's end it repeats until
that is acknowledged. While the master is away attempts go on; if it stays away for long they are
killed. The zygote that forks attempts is made before any thread or loop; when the worker dies, so
does everything that it started.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, assert_never

import msgspec

from mrstream.cluster.agent.processes import module_of
from mrstream.cluster.config.config import WORKER, WORKER_BULK, Cluster, load
from mrstream.cluster.config.state import read_identity
from mrstream.cluster.daemon import Daemon, Service, run
from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.tasks import Tasks
from mrstream.cluster.wire.network import BulkServer, Handler
from mrstream.mapreduce.attempt.attempt_report import (
    AttemptNews,
    Done,
    Failed,
    Failure,
    Message,
    Noted,
    Ready,
    Said,
    Shuffled,
    Unfetched,
    death_text,
)
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.attempt.zygote import Ended, Zygote
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.dataflow.segment_server import SegmentServer
from mrstream.mapreduce.job.environment import this_platform
from mrstream.mapreduce.protocol import (
    AllowCommit,
    AttemptEnded,
    AttemptSaid,
    AttemptShuffled,
    AttemptWantsCommit,
    FetchTrouble,
    ForgetJob,
    Heartbeat,
    KeptSegment,
    Order,
    ReadKept,
    ReadLog,
    Register,
    RunAttempt,
    SegmentNews,
    StopRunning,
)
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.worker import host_figures
from mrstream.mapreduce.worker.attempt_pool import AttemptPool, RunningAttempt
from mrstream.mapreduce.worker.attempt_process import AttemptProcess, WorkOrder
from mrstream.mapreduce.worker.host_cache import HostCache
from mrstream.mapreduce.worker.job_here import Fenced, JobHere
from mrstream.mapreduce.worker.logs import WorkerLogs
from mrstream.mapreduce.worker.master_link import MasterLink
from mrstream.mapreduce.worker.segment_store import SegmentStore
from mrstream.mapreduce.worker.shuffle import packed

log = logging.getLogger(WORKER)

MASTER_GONE_S = 300.0
"""Attempts of a master that stays away for longer are killed."""
CACHE_BYTES_MAX = 10 * 10**9
FREE_BYTES_MIN = 256 << 20
"""A worker none of whose disks has so much free gets no more attempts, until one has twice that."""
THREADS = 32
"""For what blocks: fetching shipped files, commits. Many may wait for the dfs at once."""
SAID_BYTES_MAX = 8 << 10
"""What one attempt's programs say is shown to whoever waits up to here; its log has the rest."""


class Worker(Service):
    """The service of the `mapreduce.worker` daemon."""

    def __init__(self, daemon: Daemon, zygote: Zygote) -> None:
        self._daemon = daemon
        self._loop = daemon.loop
        self._name = daemon.host.name
        self._incarnation = time.time_ns()
        self._filesystem = f"dfs://{daemon.config.name}/"
        state = daemon.state_directory
        self._disks = [
            os.path.join(disk, "mapreduce", daemon.config.name, daemon.host.name)
            for disk in daemon.host.disks
        ] or [state]
        self._store = SegmentStore(self._disks)
        self._logs = WorkerLogs(state)
        self._cache = HostCache(os.path.join(state, "cache"), CACHE_BYTES_MAX)
        self._zygote = zygote
        self._pool = AttemptPool(zygote, daemon.loop, daemon.fail)
        self._segments = SegmentServer(self._store.find)
        self._bulk = BulkServer(self._segments.serve, daemon.identity, on_bug=daemon.fail)
        self._bulk_address = daemon.config.address(self._name, WORKER_BULK)
        self._jobs: dict[str, JobHere] = {}
        self._attempts: dict[str, RunningAttempt] = {}
        self._tasks = Tasks(daemon.loop, lambda bug: daemon.fail(bug, "worker"))
        self._link = MasterLink(daemon, self)
        self._is_full = False
        self.handlers: Mapping[type[Any], Handler] = {
            ReadLog: lambda request, peer: self._logs.read_log(request),
            ReadKept: lambda request, peer: self._logs.read_kept(request),
        }

    # --- life

    async def start(self) -> None:
        """Clear what a life before left, listen for reducers, and turn to the master."""
        for disk in self._disks:
            room = os.path.join(disk, "attempts")
            shutil.rmtree(room, ignore_errors=True)
            os.makedirs(room, mode=0o700)
            self._zygote.remove_at_end(room)
        self._logs.prune(time.time())
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, "dfs"))
        dfs_files.serve(self._daemon.cluster)
        self._pool.open()
        self._bulk.start(self._bulk_address)
        self._tasks.start(self._link.talk())

    async def stop(self) -> None:
        """Kill what runs and let go of everything; segments stay for the next life."""
        self._tasks.cancel()
        await self._tasks.over()
        await self._loop.run_in_executor(None, self._bulk.close)
        self._pool.close()

    def ready(self) -> tuple[bool, str]:
        words = f"{len(self._attempts)} attempts, {len(self._store.held())} segments"
        if not self._link.is_registered:
            return False, f"{words}, waiting for the master at {self._link.address}"
        return True, words

    def metrics(self) -> dict[str, float]:
        return {
            "attempts": float(len(self._attempts)),
            "segments": float(len(self._store.held())),
            "segment_bytes_sent": float(self._segments.bytes_sent),
            "ends_unacknowledged": float(len(self._link.unacknowledged)),
        }

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return self._loop.run_in_executor(None, work, *arguments)

    # --- what the master hears (the link asks for it)

    def introduction(self, unacknowledged: list[str]) -> Register:
        """Say who we are, what runs and what is complete."""
        for job in self._jobs.values():
            job.forget_places()
        held = self._store.held()
        complete = {attempt_id for attempt_id, _ in held}
        # What has a complete segment is over, whether its end was heard of or not.
        running = [a for a in [*self._attempts, *unacknowledged] if a not in complete]
        return Register(
            self._name,
            self._incarnation,
            self._daemon.address,
            self._bulk_address,
            self._daemon.host.slots or os.cpu_count() or 1,
            self._daemon.host.rack,
            tuple(dict.fromkeys(running)),
            tuple(KeptSegment(attempt_id, done) for attempt_id, done in held),
            this_platform(),
        )

    def registered(self) -> None:
        """Say what a master that has just met us must know of running attempts."""
        for attempt in self._attempts.values():
            if attempt.has_shuffled:
                self._link.call(AttemptShuffled(self._name, attempt.attempt_id))
            if attempt.commit is not None and not attempt.commit.done():
                self._link.call(AttemptWantsCommit(self._name, attempt.attempt_id))

    def master_away(self, seconds: float) -> None:
        """Kill attempts whose master does not come back."""
        if self._attempts and seconds > MASTER_GONE_S:
            log.warning("the master is away for %g s: attempts are killed", seconds)
            for attempt in list(self._attempts.values()):
                self._kill(attempt, f"the master was away for more than {MASTER_GONE_S:g} s")

    def heartbeat(self) -> Heartbeat:
        """Say what attempts did, and how the host is."""
        news = []
        for attempt in self._attempts.values():
            if attempt.news is not None:
                news.append(attempt.news)
                attempt.news = None
        used, total = host_figures.memory_bytes()
        disks = host_figures.disk_rows(self._disks)
        free_bytes = max(disk.capacity_bytes - disk.used_bytes for disk in disks)
        self._is_full = free_bytes < FREE_BYTES_MIN * (2 if self._is_full else 1)
        return Heartbeat(
            self._name,
            self._incarnation,
            tuple(news),
            host_figures.load(),
            used,
            total,
            disks,
            self._is_full,
        )

    # --- what the master says

    def pushed(self, order: Order) -> None:
        match order:
            case RunAttempt():
                self._begin(order)
            case StopRunning(attempt_id=attempt_id, reason=reason):
                self._stop(attempt_id, reason)
            case AllowCommit(attempt_id=attempt_id, epoch=epoch):
                attempt = self._attempts.get(attempt_id)
                if attempt is not None and attempt.commit is not None:
                    _settle(attempt.commit, epoch)
            case SegmentNews():
                self._hear_of_segments(order)
            case ForgetJob():
                self._tasks.start(self._forget(order))
            case _:
                assert_never(order)

    def _begin(self, order: RunAttempt) -> None:
        if order.attempt_id in self._attempts:
            return
        attempt = RunningAttempt(order.attempt_id, self._heard)
        self._attempts[order.attempt_id] = attempt
        if order.spec:
            self._jobs.setdefault(attempt.job_id, JobHere(order.spec, self._filesystem))
        self._tasks.start(self._run(attempt, order))

    def _stop(self, attempt_id: str, reason: str) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is not None:
            self._kill(attempt, reason)
            return
        self._tasks.start(self._drop_segment(attempt_id))
        self._link.end(AttemptEnded(self._name, attempt_id, killed=reason))

    def _kill(self, attempt: RunningAttempt, reason: str) -> None:
        attempt.kill_reason = attempt.kill_reason or reason
        self._pool.kill(attempt)
        if attempt.commit is not None:
            _settle(attempt.commit, None)

    async def _drop_segment(self, attempt_id: str) -> None:
        self._segments.forget(attempt_id)
        await self._in_thread(self._store.drop, attempt_id)

    def _hear_of_segments(self, news: SegmentNews) -> None:
        job = self._jobs.get(news.job_id)
        if job is None:
            return
        data = packed(job.hear(news, self._name, self._store.find))
        for attempt in self._attempts.values():
            if attempt.job_id == job.job_id and not attempt.is_map:
                attempt.write(data)

    async def _forget(self, order: ForgetJob) -> None:
        job = self._jobs.pop(order.job_id, None)
        self._pool.forget(JobId(order.job_id))
        if job is not None:
            await self._in_thread(self._cache.release, order.job_id)
        for attempt_id in await self._in_thread(self._store.drop_job, order.job_id):
            self._segments.forget(attempt_id)
        path = os.path.join(self._daemon.state_directory, "jobs", order.job_id)
        await self._in_thread(shutil.rmtree, path, True)

    # --- attempts

    async def _run(self, attempt: RunningAttempt, order: RunAttempt) -> None:
        """Be with an attempt from its order to its end."""
        job = self._jobs.get(attempt.job_id)
        directory = os.path.join(self._disk(), "attempts", attempt.attempt_id)
        try:
            if job is None:
                raise Unavailable(f"{attempt.job_id} is not known here any more")
            if job.localised is None:
                job.localised = self._in_thread(job.localise, self._cache, dfs_files.new_client)
            spec = await job.localised
            if attempt.kill_reason is None:
                work = self._work_order(attempt, order, job, spec, directory)
                if not attempt.is_map:
                    attempt.greeting = lambda: packed(job.all_news())
                ended = await self._pool.run(attempt, work)
                report = await self._conclude(attempt, job, ended)
            else:
                report = self._killed(attempt)
        except (ClusterError, OSError) as error:
            if job is not None and job.localised is not None and job.localised.done():
                job.localised = None  # the next attempt may be luckier
            message = f"{self._name} could not run it: {error}"
            report = AttemptEnded(self._name, attempt.attempt_id, failure=Failure(message))
        del self._attempts[attempt.attempt_id]
        self._link.end(report)
        await self._in_thread(shutil.rmtree, directory, True)

    def _disk(self) -> str:
        return max(self._disks, key=lambda disk: os.statvfs(disk).f_bavail)

    def _work_order(
        self, attempt: RunningAttempt, order: RunAttempt, job: JobHere, spec: bytes, directory: str
    ) -> bytes:
        name = attempt.attempt_id
        attempt.output_directory = order.output_directory
        if attempt.is_map and job.spec.reduces:
            attempt.segment_path = self._store.new_path(name)
        os.makedirs(directory, exist_ok=True)
        return msgspec.msgpack.encode(
            WorkOrder(
                spec,
                AttemptOrder(
                    attempt_id=name,
                    maps=order.maps,
                    directory=directory,
                    cache=os.path.join(self._daemon.state_directory, "jobs", job.job_id),
                    log_directory=self._logs.log_directory(name),
                    filesystem=self._filesystem,
                    split=order.split,
                    segment_path=attempt.segment_path,
                    output_directory=order.output_directory,
                    keep_directory=self._logs.kept_directory(name) if order.keep_input else "",
                ),
            )
        )

    def _heard(self, attempt: RunningAttempt, message: Message) -> None:
        name = attempt.attempt_id
        match message:
            case AttemptNews():
                attempt.news = message
            case Done() | Failed():
                attempt.outcome = message
            case Shuffled():
                attempt.has_shuffled = True
                self._link.call(AttemptShuffled(self._name, name))
            case Unfetched(map_attempt_id=source, reason=reason, gone=gone):
                log.info("fetch failed reduce=%s map=%s gone=%s: %s", name, source, gone, reason)
                self._link.call(FetchTrouble(name, source, reason, gone))
            case Said(text=text):
                self._said(attempt, "", text.decode("utf-8", "replace"))
            case Noted(level=level, text=text):
                self._said(attempt, level, text)
            case Ready():
                pass  # the pool has heard it
            case _:
                assert_never(message)

    def _said(self, attempt: RunningAttempt, level: str, text: str) -> None:
        room = SAID_BYTES_MAX - attempt.said_bytes
        if room > 0:
            attempt.said_bytes += len(text)
            self._link.call(AttemptSaid(attempt.attempt_id, level, text[:room]))

    async def _conclude(
        self, attempt: RunningAttempt, job: JobHere, ended: Ended | None
    ) -> AttemptEnded:
        """Make of an attempt's end what the master must know, and of its output what it may be."""
        name, outcome = attempt.attempt_id, attempt.outcome
        if isinstance(outcome, Done) and attempt.kill_reason is None:
            short = msgspec.structs.replace(outcome, partitions=())
            # A segment that is known stands for files that are committed: those come first.
            if not attempt.output_directory or await self._commit(attempt, job):
                if attempt.segment_path:
                    await self._in_thread(self._store.keep, name, attempt.segment_path, outcome)
                return AttemptEnded(self._name, name, done=short)
        await self._clear(attempt, job)
        if attempt.kill_reason is not None:
            return self._killed(attempt)
        if isinstance(outcome, Failed):
            return AttemptEnded(self._name, name, failure=outcome.failure)
        assert ended is not None, "a process goes on only after an attempt that is done"
        return AttemptEnded(self._name, name, failure=Failure(death_text(ended.status)))

    async def _commit(self, attempt: RunningAttempt, job: JobHere) -> bool:
        """Wait for the right to commit, then commit; false if the attempt was killed instead. The
        right is void if another master leads before it is used: then it is asked for again."""
        has_committed = False
        while not has_committed:
            attempt.commit = self._loop.create_future()
            self._link.call(AttemptWantsCommit(self._name, attempt.attempt_id))
            epoch = await attempt.commit
            if epoch is None:
                return False
            is_allowed = partial(self._link.allegiance.holds, epoch)
            try:
                has_committed = await self._in_thread(job.commit, attempt.attempt_id, is_allowed)
            except Fenced as error:
                attempt.kill_reason = str(error)
                return False
        return True

    async def _clear(self, attempt: RunningAttempt, job: JobHere) -> None:
        if attempt.segment_path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(attempt.segment_path)
        if attempt.output_directory:
            try:
                await self._in_thread(job.drop_output, attempt.attempt_id)
            except ClusterError as error:
                # The end of the job clears its whole temporary directory.
                log.warning("output of %s is not cleared: %s", attempt.attempt_id, error)

    def _killed(self, attempt: RunningAttempt) -> AttemptEnded:
        return AttemptEnded(self._name, attempt.attempt_id, killed=attempt.kill_reason or "killed")


def _settle(future: asyncio.Future[int | None], value: int | None) -> None:
    if not future.done():
        future.set_result(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Be the worker of a host; the zygote is forked before anything else is made."""
    parser = argparse.ArgumentParser(prog=f"python -m {module_of(WORKER)}")
    parser.add_argument("--host", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--config")
    options, _ = parser.parse_known_args(argv)
    os.environ["MRSTREAM_HOST"] = options.host
    directory = os.path.abspath(os.path.expanduser(options.dir))
    os.environ["MRSTREAM_HOST_DIRECTORY"] = directory  # a detached flow finds the cluster by it
    try:
        config = load(options.config or os.path.join(directory, "cluster.yaml"))
        cluster = Cluster(config, read_identity(os.path.join(directory, "identity.json")))
    except (ClusterError, OSError) as error:
        print(f"{WORKER}: {error}", file=sys.stderr, flush=True)
        return 1
    zygote = Zygote(AttemptProcess(cluster, options.host))
    return run(WORKER, lambda daemon: Worker(daemon, zygote), argv)
