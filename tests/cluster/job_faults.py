"""Jobs to be disturbed: a cluster with job daemons, a job with a known result, faults by name.

The job cuts its input into several maps and sorts lines by key, values in the order of the input:
its output shows a record that was lost, doubled or moved. What it must be is what local mode gives
for the same splits.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dfs.reader import DfsReader
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for
from tests.local_jobs import processes_with

JOB_MASTER = "mapreduce.master"
WORKER = "mapreduce.worker"
ROLES = (MASTER, CHUNKSERVER, JOB_MASTER, WORKER)
JOB_S_MAX = 240.0
CHUNK_BYTES = 256 * 1024
MAPS = 5
REDUCES = 3

# Runs in a daemon before it starts: `strike()` kills that daemon, once, for good.
FAULT = """
import os, sys, time
_daemon = os.getpid()
def strike():
    try:
        os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(_daemon, 9)
    time.sleep(3600)
def before(owner, name):
    whole = getattr(owner, name)
    def struck(*words, **more):
        strike()
        return whole(*words, **more)
    setattr(owner, name, struck)
def after(owner, name):
    whole = getattr(owner, name)
    def struck(*words, **more):
        result = whole(*words, **more)
        strike()
        return result
    setattr(owner, name, struck)
"""

STAGES: Mapping[str, str] = {
    "map": "from mapreduce.dataflow.spill import MapOutput; before(MapOutput, 'feed')",
    "spill": "from mapreduce.dataflow.spill import MapOutput; before(MapOutput, '_finish')",
    "segment complete": (
        "from mapreduce.segment_store import SegmentStore; after(SegmentStore, 'keep')"
    ),
    "shuffle": "from mapreduce.dataflow.fetcher import Fetcher; before(Fetcher, '_have')",
    "merge": "from mapreduce.reduce_task import ReduceTask; after(ReduceTask, '_gather')",
    "reduce": "from mapreduce.final_output import CommandOutput; before(CommandOutput, 'feed')",
    "output complete": (
        "from mapreduce.final_output import CommandOutput; after(CommandOutput, 'finish')"
    ),
    "before commit": "from mapreduce.job_here import JobHere; before(JobHere, 'commit')",
    "after commit": "from mapreduce.job_here import JobHere; after(JobHere, 'commit')",
}


class Ended(NamedTuple):
    """How a job of the cluster ended, as its user saw it."""

    status: int
    stderr: str

    def count(self, counter: str) -> int:
        lines = [line for line in self.stderr.splitlines() if line.strip().startswith(counter)]
        return int(lines[-1].rpartition("=")[2]) if lines else 0


class RunningJob:
    """A job that runs while the test does something to it."""

    def __init__(self, cluster: LocalCluster, mark: str, words: tuple[str, ...]) -> None:
        self.mark = mark
        self._ended: Ended | None = None
        self._thread = threading.Thread(target=self._run, args=(cluster, words), daemon=True)
        self._thread.start()

    def _run(self, cluster: LocalCluster, words: tuple[str, ...]) -> None:
        try:
            ran = cluster.mrstream(*words, timeout=JOB_S_MAX)
            self._ended = Ended(ran.returncode, ran.stderr.decode("utf-8", "replace"))
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode("utf-8", "replace")
            self._ended = Ended(-1, f"still running after {error.timeout} s:\n{said}")

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> Ended:
        self._thread.join()
        assert self._ended is not None
        return self._ended


class JobRoom:
    """A running cluster, the input in its dfs, and the output that jobs must give."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.gate = directory / "gate"
        self.gate.mkdir()
        self._count = 0
        lines = [f"k{number * 7919 % 1009:04d}\tline {number}" for number in range(70_000)]
        self._input = directory / "in"
        self._input.write_text("\n".join(lines) + "\n")
        put = cluster.mrstream("dfs", "-put", str(self._input), "/in")
        assert put.returncode == 0, put.stderr
        self.expected = self._local()

    def _local(self) -> dict[str, bytes]:
        out = self.directory / "local-out"
        ran = self.cluster.mrstream(
            "-jt", "local", "-fs", "local", "-D", f"fs.local.block.size={CHUNK_BYTES}",
            "-D", f"mapreduce.job.reduces={REDUCES}", "-input", str(self._input),
            "-output", str(out), "-mapper", "cat", "-reducer", "cat",
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}

    # --- the cluster ----------------------------------------------------------------------

    def heal(self) -> None:
        """Have everything up, without faults, whatever a test before left."""
        for role in ROLES:
            for host in self.cluster.hosts_of(role):
                if self._is_up(role, host):
                    # A test that failed may have left it stopped.
                    self.cluster.signal(role, host, signal.SIGCONT)
                else:
                    self.cluster.start(role, host)

    def _is_up(self, role: str, host: str) -> bool:
        process = self.cluster._processes.get((role, host))
        return process is not None and process.poll() is None

    def restart_with(self, fault: str, role: str, host: str) -> Path:
        """Start a daemon again with a fault in it; give the file that says that it has struck."""
        mark = self.directory / f"struck-{uuid.uuid4().hex}"
        if self._is_up(role, host):
            self.cluster.kill(role, host)
        self.cluster.start(role, host, FAULT.format(mark=str(mark)) + fault)
        if role == WORKER:
            wait_for(lambda: self.cluster.health(role, host).ready, 20.0, f"{host} to register")
        return mark

    # --- jobs -----------------------------------------------------------------------------

    def start(self, *words: str, mapper: str = "cat", reducer: str = "cat") -> RunningJob:
        """Start the job; its processes carry a mark of their own in their environment."""
        self._count += 1
        mark = f"job-mark-{uuid.uuid4().hex}"
        return RunningJob(
            self.cluster,
            mark,
            (
                *words, "-D", f"mapreduce.job.reduces={REDUCES}", "-input", "/in",
                "-output", self.output, "-mapper", mapper, "-reducer", reducer,
                "-cmdenv", f"MARK={mark}", "-cmdenv", f"GATE={self.gate}",
            ),
        )  # fmt: skip

    @property
    def output(self) -> str:
        return f"/out{self._count}"

    def check(self, job: RunningJob, output: str = "") -> Ended:
        """The job succeeded with local mode's bytes, and left nothing behind."""
        ended = job.wait()
        assert ended.status == 0, ended.stderr
        found = self.parts(output or self.output)
        assert list(found) == list(self.expected), ended.stderr
        for name, data in found.items():
            is_same = data == self.expected[name]
            assert is_same, f"{name}: {len(data)} bytes, expected {len(self.expected[name])}"
        self.check_nothing_runs(job)
        return ended

    def check_nothing_runs(self, job: RunningJob) -> None:
        wait_for(lambda: not processes_with(job.mark), 10.0, "the job's processes to be gone")

    def parts(self, output: str) -> dict[str, bytes]:
        client = self.cluster.client()
        found = {}
        for entry in client.list(output):
            with DfsReader(client, entry.path) as file:
                found[entry.path.rpartition("/")[2]] = file.pread(0, 1 << 30)
        return dict(sorted(found.items()))

    # --- gates: programs that wait for the test --------------------------------------------

    def program(self, name: str, code: str) -> str:
        """Write a program to be shipped; `hold(name)` in it waits while the test holds that."""
        text = (
            "import os, sys, time\n"
            "def hold(name):\n"
            "    path = os.path.join(os.environ['GATE'], name)\n"
            "    while os.path.exists(path): time.sleep(0.02)\n"
            "def note(name):\n"
            "    open(os.path.join(os.environ['GATE'], name), 'a').close()\n"
            "attempt = os.environ['mapreduce_task_attempt_id']\n"
            "host = os.environ.get('MRSTREAM_HOST', '')\n" + code
        )
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def hold(self, name: str) -> None:
        (self.gate / name).touch()

    def release(self, name: str) -> None:
        (self.gate / name).unlink(missing_ok=True)

    def noted(self, prefix: str) -> list[str]:
        return sorted(path.name for path in self.gate.iterdir() if path.name.startswith(prefix))

    def clear_gate(self) -> None:
        for path in self.gate.iterdir():
            path.unlink()


def wait_for_strike(mark: Path, job: RunningJob, seconds: float = 60.0) -> None:
    """Wait until the fault has struck; a job that ends without it proves nothing."""
    end_s = time.monotonic() + seconds
    while not mark.exists():
        assert job.is_running, f"the job ended before the fault struck: {job.wait()}"
        assert time.monotonic() < end_s, "the fault did not strike"
        time.sleep(0.02)
