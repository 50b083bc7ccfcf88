"""What a local job tells its user, and what it leaves for later: lines, report, kept failures.

Takes the job's facts at its start, at a failure and at its end; gives lines on the console and
files in the job's directory. Never decides anything.
"""

from __future__ import annotations

import os
import time

from mrstream.cluster.terminal import in_one_line
from mrstream.mapreduce import history
from mrstream.mapreduce.attempt.attempt_report import Failure
from mrstream.mapreduce.console import Console
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.counters import Counters
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.progress import JobProgress
from mrstream.mapreduce.report import FailuresTold, JobFacts, closing_text
from mrstream.mapreduce.scheduler.commands import FinishJob, JobOutcome
from mrstream.mapreduce.scheduler.phases import JobTotals, JobView
from mrstream.mapreduce.tally import JobTally

SUCCEEDED, FAILED = 0, 1


class LocalTalk:
    """The lines of one job; quiet if it was told to run in the background."""

    def __init__(
        self,
        console: Console,
        spec: JobSpec,
        record: JobRecord,
        *,
        is_quiet: bool,
    ) -> None:
        self._console = console
        self._spec = spec
        self._conf = spec.conf()
        self._record = record
        self._is_quiet = is_quiet
        self._failures = FailuresTold(self._conf.client_output_filter)

    def announce(self, files: int, splits: int) -> None:
        if self._is_quiet:
            # The process stays, as Hadoop's does in local mode; only the watching is left out.
            self._console.job_in_background(self._spec.output)
            return
        self._console.input_found(files, splits)
        self._console.job_runs(self._spec.job_id)

    def progress(self, progress: JobProgress, *, force: bool = False) -> None:
        if not self._is_quiet:
            self._console.progress(progress, force=force)

    def failure(self, attempt_id: str, failure: Failure) -> None:
        """Tell why an attempt failed."""
        is_kept = os.path.isdir(self._record.kept_directory(attempt_id))
        if (told := self._failures.tell(attempt_id, failure, repeatable=is_kept)) is not None:
            self._console.info(told[0])
            self._console.plain(told[1])

    def end(self, finish: FinishJob, tally: JobTally, view: JobView, totals: JobTotals) -> int:
        """Tell how the job ended, keep what is to be kept, and return the exit status."""
        now_s = time.monotonic()
        counters, facts = tally.counters(totals), tally.facts(now_s)
        self._keep_report(finish, tally, counters, facts)
        self.progress(tally.progress(view, now_s), force=True)
        self._console.end_progress()
        if finish.outcome is JobOutcome.SUCCEEDED:
            if not self._is_quiet:
                spec, closing = self._spec, closing_text(facts)
                self._console.job_succeeded(spec.job_id, counters.dump(), closing, spec.output)
            return SUCCEEDED
        self._console.job_failed(self._spec.job_id, "FAILED", finish.reason)
        return FAILED

    def _keep_report(
        self, finish: FinishJob, tally: JobTally, counters: Counters, facts: JobFacts
    ) -> None:
        job_id = self._spec.job_id
        report = {
            "job_id": job_id,
            "name": in_one_line(self._conf.job_name),
            "state": finish.outcome.value,
            "elapsed_s": round(facts.elapsed_s, 3),
            "input_bytes": facts.input_bytes,
            "shuffled_bytes": facts.shuffled_bytes,
            "output_bytes": facts.output_bytes,
            "tasks": {
                task.name: {"seconds": round(task.seconds, 3), "records": task.records}
                for task in (*facts.maps, *facts.reduces)
            },
            "failures": [
                {"attempt_id": str(attempt_id), "message": message}
                for attempt_id, message in tally.failures
            ],
            "counters": counters.as_dict(),
        }
        try:
            self._record.write_report(report)
            if finish.outcome is JobOutcome.SUCCEEDED:
                self._record.drop_all_but_report()
                history.prune_if_due(time.time())
            else:
                self._record.write_spec(self._spec)
                history.prune(time.time(), running=job_id)
        except OSError as error:  # the job itself is not worse for it
            self._console.warn(f"the report of {job_id} cannot be kept: {error}")
