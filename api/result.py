"""`Result`: a job that runs or has run, its records and counters; `JobFailed`, if it did not end
well.

Takes the words of a job and starts the command. Shows how far it is on a terminal or in a notebook
while somebody waits. Never decides anything about the job.
"""

from __future__ import annotations

import atexit
import html
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from mrstream.api.child import RECORD_MARK
from mrstream.api.codecs import LINE_END, Codec
from mrstream.api.display import display_for
from mrstream.mapreduce.launch import FailureText, Launch, complaint_in, failure_in

LOOK_EVERY_S = 0.2
_SUCCEEDED = 0
_live: weakref.WeakSet[Result]


class JobFailed(RuntimeError):
    """A job failed, was killed or could not start; the text is its failure report.

    `job_id`, `status` (the command's exit status), `attempt_id`, `exit_code` and `stderr` of the
    program that failed, `record` at which a Python function failed, and `repeat`, the command that
    runs the failed attempt again here.
    """

    def __init__(self, text: str, status: int, job_id: str, failure: FailureText | None) -> None:
        super().__init__(text)
        self.status = status
        self.job_id = job_id
        self.attempt_id = failure.attempt_id if failure else ""
        self.exit_code = failure.exit_code if failure else None
        self.stderr = failure.stderr if failure else ""
        self.repeat = failure.repeat if failure else ""
        marked = [x for x in self.stderr.splitlines() if x.startswith(RECORD_MARK)]
        self.record = marked[-1].removeprefix(RECORD_MARK) if marked else ""


class Result:
    """A job that runs or has run.

    Iterate over it for its records, once for each `for`; `counters`, `report`, `output` and `log`
    tell more. All of these wait for the job's end first.
    """

    def __init__(
        self,
        words: Sequence[str],
        codec: Codec,
        *,
        cluster: str | None = None,
        output: str | None = None,
        is_here: bool = True,
        engine: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`is_here` says that an output without a scheme is one of this machine's disk; `engine` is
        the one that the words name; `environment` is the command's, if not ours."""
        self.words = list(words)
        self.codec = codec
        self._cluster = cluster
        self._output = output
        self._is_here = is_here
        self._engine = engine
        self._printed: IO[bytes] | None = None
        if output is None:
            self._printed = tempfile.TemporaryFile(prefix="mrstream-result-")  # noqa: SIM115 - as long as we live
        self._is_killed = False
        self._report: dict[str, Any] | None = None
        self._launch = Launch(
            words, results=self._printed, environment=environment, ends_with_us=True
        )
        _live.add(self)

    # --- the job

    @property
    def job_id(self) -> str:
        """The job's id; empty until it has one."""
        return self._launch.job_id

    @property
    def state(self) -> str:
        """`running`, `succeeded`, `failed` or `killed`."""
        status = self._launch.status
        if status is None:
            return "running"
        if status == _SUCCEEDED:
            return "succeeded"
        return "killed" if self._is_killed else "failed"

    @property
    def percents(self) -> tuple[int, int]:
        """How much of the maps and of the reduces is done."""
        return (100, 100) if self.state == "succeeded" else self._launch.percents

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> Result:
        """Wait for the end, at most `timeout` seconds (then `TimeoutError`); `JobFailed` if the
        job failed. An interrupt kills the job."""
        display = display_for(self, progress)
        waited_s = 0.0
        try:
            while not self._launch.wait(LOOK_EVERY_S):
                display.update()
                waited_s += LOOK_EVERY_S
                if timeout is not None and waited_s >= timeout:
                    raise TimeoutError(f"{self.job_id or 'the job'} still runs after {timeout} s")
        except KeyboardInterrupt:
            self.kill()
            raise
        finally:
            display.close()
        self._raise_failure()
        return self

    def kill(self) -> None:
        """End the job, if it still runs."""
        if self._launch.status is None:
            self._is_killed = True
        self._launch.kill()

    def _raise_failure(self) -> None:
        status = self._launch.status
        assert status is not None, "only called when it is over"
        if status == _SUCCEEDED:
            return
        lines = list(self._launch.lines)
        failure = failure_in(lines)
        text = failure.text if failure else complaint_in(lines)
        if self._is_killed:
            text = f"{self.job_id or 'the job'} was killed"
        elif failure and (said := complaint_in(lines)):
            text = f"{said}\n{text}"
        raise JobFailed(text, status, self.job_id, failure)

    # --- what came of it

    @property
    def output(self) -> str | None:
        """The output directory; None if the job has none, and its records are here alone."""
        return self._output

    @property
    def log(self) -> str:
        """What the command and the programs said so far."""
        return "\n".join(self._launch.lines)

    @property
    def report(self) -> dict[str, Any]:
        """How the job went: its state, seconds, counters, tasks and failures."""
        if self._report is None:
            self._report = self._launch.report(self._cluster)
        return self._report

    @property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """The counters of the job, by group and name."""
        counters: dict[str, dict[str, int]] = self.report.get("counters", {})
        return counters

    def counter(self, group: str, name: str) -> int:
        """Return one counter; 0 if nothing counted it."""
        return self.counters.get(group, {}).get(name, 0)

    def __iter__(self) -> Iterator[Any]:
        return map(self.codec.record, self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the results, part after part, as bytes without their ends."""
        self.wait(progress=False)
        if self._printed is None:
            from mrstream.api.files import hadoop_lines, output_lines

            output = str(self._output)
            if self._launch.is_hadoops:
                yield from hadoop_lines(output, self._engine, self._cluster)
            else:
                yield from output_lines(output, self._cluster, is_local=self._is_here)
            return
        # A file of its own, so that two loops do not disturb each other.
        with open(f"/proc/self/fd/{self._printed.fileno()}", "rb") as file:
            for line in file:
                yield line.removesuffix(LINE_END)

    # --- for people

    def __repr__(self) -> str:
        maps, reduces = self.percents
        job = self.job_id or "not yet started"
        return f"<Result of {job}: {self.state}, map {maps}% reduce {reduces}%>"

    def _repr_html_(self) -> str:
        maps, reduces = self.percents
        rows = "".join(
            f"<tr><td>{html.escape(group)}</td><td>{html.escape(name)}</td><td>{amount}</td></tr>"
            for group, counters in (self.counters if self.state != "running" else {}).items()
            for name, amount in counters.items()
        )
        table = f"<details><summary>counters</summary><table>{rows}</table></details>"
        return (
            f"<div><code>{html.escape(self.job_id)}</code> {self.state} "
            f'map <progress max="100" value="{maps}"></progress> {maps}% '
            f'reduce <progress max="100" value="{reduces}"></progress> {reduces}%'
            f"{table if rows else ''}</div>"
        )


_live = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End what still runs: its output would go nowhere."""
    for result in list(_live):
        if result.state == "running":
            print(
                f"mrstream: {result.job_id or 'a job'} is killed: this Python ends", file=sys.stderr
            )
            result.kill()
