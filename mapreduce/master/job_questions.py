"""What people and monitors ask the job master: rows, news, reports, logs. Changes nothing.

Answers from the notice board, the ledgers and the history; a log is fetched from the worker that
has it, over a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mrstream.cluster.config.config import WORKER
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import UserError
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Channel, Handler, Peer
from mrstream.mapreduce.job.errors import NoSuchJob
from mrstream.mapreduce.master.job_history import JobHistory
from mrstream.mapreduce.master.job_ledger import JobLedger
from mrstream.mapreduce.master.master_shell import MasterShell
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.protocol import (
    JobEnd,
    JobNews,
    JobReport,
    ListJobs,
    LogPiece,
    ReadKept,
    ReadLog,
    ReportOfJob,
    SpecOfJob,
    WaitForNews,
    WatchCluster,
    WatchJob,
)
from mrstream.mapreduce.scheduler.ids import JobId, job_order, parse_attempt_id
from mrstream.mapreduce.snapshot import ClusterSnapshot, JobRow, JobSeen, JobSnapshot

WAIT_S_MAX = 20.0
LISTED_JOBS_MAX = 200
ASK_WORKER_S_MAX = 10.0


class JobQuestions:
    def __init__(
        self,
        daemon: Daemon,
        shell: MasterShell,
        history: JobHistory,
    ) -> None:
        self._daemon = daemon
        self._books = shell.books
        self._notices = shell.books.notices
        self._history = history
        self._in_thread = shell.in_thread
        self._find = shell.books.ledger
        self._running: Mapping[JobId, JobLedger] = shell.books.jobs
        self.handlers: Mapping[type[Any], Handler] = {
            WaitForNews: self._wait_for_news,
            WatchCluster: self._watch_cluster,
            WatchJob: self._watch_job,
            ListJobs: self._list_jobs,
            ReportOfJob: self._report_of_job,
            SpecOfJob: self._spec_of_job,
            ReadLog: self._ask_worker,
            ReadKept: self._ask_worker,
        }

    def _now_s(self) -> float:
        return self._daemon.clock.wall_s()

    async def _wait_for_news(self, request: WaitForNews, peer: Peer) -> JobNews:
        ledger = self._find(request.job_id)
        if ledger is None:
            return await self._old_news(request.job_id)
        if ledger.job_id in self._running and len(ledger.lines) <= request.seen:
            news = asyncio.get_running_loop().create_future()
            ledger.waiters.append(news)
            await asyncio.wait([news], timeout=min(max(0.0, request.wait_s), WAIT_S_MAX))
        is_over = ledger.job_id not in self._running
        # Who has seen more than there is has seen the lines of a life before.
        seen = request.seen if request.seen <= len(ledger.lines) else 0
        return JobNews(
            len(ledger.lines),
            tuple(ledger.lines[seen:]),
            ledger.tally.progress(self._books.view_of(ledger.job_id), self._now_s()),
            ledger.end if is_over else None,
        )

    async def _old_news(self, job_id: str) -> JobNews:
        """Answer for a job that ended before this master started, or long ago."""
        report = await self._report(job_id)
        job = report.job
        progress = JobProgress(
            job.map_fraction, job.reduce_fraction, job.maps_done, job.maps, job.reduces_done,
            job.reduces,
        )  # fmt: skip
        end = JobEnd(job.state, job.diagnosis, report.counters, report.closing)
        return JobNews(0, (), progress, end)

    def _watch_cluster(self, request: WatchCluster, peer: Peer) -> ClusterSnapshot:
        return self._notices.snapshot(request.hosts_version, request.jobs_version, self._now_s())

    def _watch_job(self, request: WatchJob, peer: Peer) -> JobSnapshot:
        found = self._notices.job(JobId(request.job_id), request.seen, self._now_s())
        if found is None:
            raise NoSuchJob(f"{request.job_id} is not shown: it never was, or it ended long ago")
        return found

    async def _list_jobs(self, request: ListJobs, peer: Peer) -> tuple[JobRow, ...]:
        rows = {
            row.key: row
            for row in self._notices.jobs
            if request.everything or JobId(row.key) in self._running
        }
        if request.everything:
            for row in await self._in_thread(self._history.rows, LISTED_JOBS_MAX):
                rows.setdefault(row.key, row)
        return tuple(sorted(rows.values(), key=lambda row: job_order(row.key)))

    async def _report_of_job(self, request: ReportOfJob, peer: Peer) -> JobReport:
        return await self._report(request.job_id)

    async def _report(self, job_id: str) -> JobReport:
        ledger = self._running.get(JobId(job_id))
        if ledger is None:
            report: JobReport | None = await self._in_thread(self._history.read, job_id)
            if report is None:
                raise NoSuchJob(f"there is no job {job_id}")
            return report
        now_s = self._now_s()
        row = self._notices.jobs.get(job_id)
        snapshot = self._notices.job(ledger.job_id, JobSeen(), now_s)
        assert row is not None, "a running job has a row"
        return ledger.report(row, snapshot, self._books.totals(ledger.job_id), now_s)

    async def _spec_of_job(self, request: SpecOfJob, peer: Peer) -> bytes:
        spec: bytes | None = await self._in_thread(self._history.read_spec, request.job_id)
        if spec is None:
            raise NoSuchJob(f"{request.job_id} is not kept: only jobs that failed are")
        return spec

    async def _ask_worker(self, request: ReadLog | ReadKept, peer: Peer) -> LogPiece:
        """Pass a question on to the worker that ran the attempt."""
        host = await self._host_of(request.attempt_id)
        address = self._daemon.config.address(host, WORKER)
        piece: LogPiece = await self._ask(address, request)
        return piece

    async def _ask(self, address: str, request: Request) -> Any:
        channel = await Channel.connect(address, self._daemon.identity, role=WORKER)
        try:
            return await channel.call(request, ASK_WORKER_S_MAX)
        finally:
            channel.close()

    async def _host_of(self, attempt_id: str) -> str:
        try:
            job_id = parse_attempt_id(attempt_id).task_id.job_id
        except ValueError as error:
            raise UserError(str(error)) from None
        for attempt in (await self._report(job_id)).attempts:
            if attempt.attempt_id == attempt_id:
                return attempt.host
        raise UserError(f"{job_id} has no attempt {attempt_id}")
