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
from typing import Any, NamedTuple, Protocol

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.wire.messages import HealthReply
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.protocol import JobReport, ListJobs, ReportOfJob
from tests.cluster.local import CHUNKSERVER, MASTER, wait_for
from tests.cluster.preludes import STOPS
from tests.support.local_jobs import processes_with

JOB_MASTER = "mapreduce.master"
WORKER = "mapreduce.worker"
ROLES = (MASTER, CHUNKSERVER, JOB_MASTER, WORKER)
JOB_S_MAX = 240.0
REACHED_S_MAX = 120.0
CHUNK_BYTES = 256 * 1024
MAPS = 5
REDUCES = 3
SLOTS = 2
"""Of each host: all maps run at once on three of them."""
ROOM_DFS = {"chunk_size": f"{CHUNK_BYTES // 1024}KiB", "dead_after": "6s"}
NO_BACKUPS = ("-D", "mapreduce.map.speculative=false", "-D", "mapreduce.reduce.speculative=false")

# Nothing is fetched before the last map has ended.
REDUCES_LATE = ("-D", "mapreduce.job.reduce.slowstart.completedmaps=1.0")

# Programs that note where they run and wait, at a point of their work, while the test holds them.
GATED_MAP = (
    "note('map-' + attempt + '@' + host)\n"
    "lines = sys.stdin.readlines()\n"
    "hold('hold-map-' + task)\n"
    "sys.stdout.writelines(lines)\n"
)
GATED_REDUCE = (
    "note('reduce-' + attempt + '@' + host)\n"
    "first = sys.stdin.readline()\n"
    "hold('hold-reduce')\n"
    "sys.stdout.write(first)\n"
    "sys.stdout.writelines(sys.stdin)\n"
)


class Machines(Protocol):
    """What a room needs of a cluster, wherever its hosts are."""

    hosts: list[str]
    shared: str
    cluster: Cluster

    def hosts_of(self, role: str) -> list[str]: ...
    def is_up(self, role: str, host: str) -> bool: ...
    def launch(self, role: str, host: str, prelude: str = "") -> int: ...
    def start(self, role: str, host: str, prelude: str = "") -> int: ...
    def kill(self, role: str, host: str) -> None: ...
    def signal(self, role: str, host: str, number: signal.Signals) -> None: ...
    def wait_ready(self, role: str, host: str) -> HealthReply: ...
    def health(self, role: str, host: str) -> HealthReply: ...
    def client(self) -> DfsClient: ...
    def seen(self, host: str, path: str) -> Path: ...
    def mrstream(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]: ...


class Ended(NamedTuple):
    """How a job of the cluster ended, as its user saw it."""

    status: int
    stderr: str

    def count(self, counter: str) -> int:
        lines = [line for line in self.stderr.splitlines() if line.strip().startswith(counter)]
        return int(lines[-1].rpartition("=")[2]) if lines else 0


class RunningJob:
    """A job that runs while the test does something to it."""

    def __init__(
        self, cluster: Machines, mark: str, words: tuple[str, ...], s_max: float = JOB_S_MAX
    ) -> None:
        self.mark = mark
        self._ended: Ended | None = None
        self._thread = threading.Thread(target=self._run, args=(cluster, words, s_max), daemon=True)
        self._thread.start()

    def _run(self, cluster: Machines, words: tuple[str, ...], s_max: float) -> None:
        try:
            ran = cluster.mrstream(*words, timeout=s_max)
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


class Arrival(NamedTuple):
    """A process that has come to a stage and waits there."""

    host: str
    path: Path
    """While this is there, it waits."""

    def go_on(self) -> None:
        self.path.unlink(missing_ok=True)


class JobRoom:
    """A running cluster, the input in its dfs, and the output that jobs must give."""

    def __init__(self, cluster: Machines, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.preludes: dict[str, str] = {}
        """What each role runs first when it is started here."""
        self.job_s_max = JOB_S_MAX
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

    def start_daemon(self, role: str, host: str) -> None:
        """Start a daemon, with the prelude of its role; return when it serves."""
        self.cluster.start(role, host, self.preludes.get(role, ""))

    def restart_with(self, prelude: str, role: str, *hosts: str) -> None:
        """Start a role anew with a prelude; it is kept when it is started again."""
        self.preludes[role] = prelude
        for host in hosts or self.cluster.hosts_of(role):
            if self.cluster.is_up(role, host):
                self.cluster.kill(role, host)
            self.cluster.launch(role, host, prelude)
        for host in hosts or self.cluster.hosts_of(role):
            self.cluster.wait_ready(role, host)

    def heal(self) -> None:
        """Have everything up and nothing held, whatever a test before left."""
        self.clear()
        for role in ROLES:
            for host in self.cluster.hosts_of(role):
                if self.cluster.is_up(role, host):
                    # A test that failed may have left it stopped.
                    self.cluster.signal(role, host, signal.SIGCONT)
                else:
                    self.cluster.launch(role, host, self.preludes.get(role, ""))
        for role in ROLES:
            for host in self.cluster.hosts_of(role):
                self.cluster.wait_ready(role, host)

    # --- stages at which processes stop ----------------------------------------------------

    def stops(self, stages: Mapping[str, str]) -> str:
        """Give the prelude that lets a process be stopped at these stages."""
        lines = [code.format(repr(stage)) for stage, code in stages.items()]
        return STOPS.format(shared=self.cluster.shared) + "\n".join(lines)

    def stop_at(self, stage: str) -> None:
        """From now on, whoever comes to that stage waits there."""
        self.hold(f"stop at {stage}")

    def arrival(self, stage: str, job: RunningJob) -> Arrival:
        """Wait until some process is at the stage; a job that ends without it proves nothing."""
        end_s = time.monotonic() + REACHED_S_MAX
        while True:
            for host in self.cluster.hosts:
                for path in self._here(host).glob(f"{stage} reached *@{host}"):
                    return Arrival(host, path)
            assert job.is_running, f"the job ended before it came to {stage!r}: {job.wait()}"
            assert time.monotonic() < end_s, f"nobody came to {stage!r} in {REACHED_S_MAX:g} s"
            time.sleep(0.01)

    def send_on(self, stage: str) -> None:
        """Nobody stops at that stage any more, and who is there goes on."""
        self.release(f"stop at {stage}")
        for host in self.cluster.hosts:
            self.forget_arrivals(host)

    def forget_arrivals(self, host: str) -> None:
        """Let all on a host go on, or be forgotten if they are dead."""
        for path in self._here(host).glob(f"* reached *@{host}"):
            path.unlink(missing_ok=True)

    # --- jobs -----------------------------------------------------------------------------

    def start(self, *words: str, mapper: str = "cat", reducer: str = "cat") -> RunningJob:
        """Start the job; its processes carry a mark of their own in their environment."""
        self._count += 1
        mark = f"job-mark-{uuid.uuid4().hex}"
        return RunningJob(
            self.cluster,
            mark,
            (
                *words, "-D", f"mapreduce.job.name={mark}",
                "-D", f"mapreduce.job.reduces={REDUCES}", "-input", "/in", "-output", self.output,
                "-mapper", mapper, "-reducer", reducer, "-cmdenv", f"MARK={mark}",
                "-cmdenv", f"GATE={self.cluster.shared}",
            ),
            self.job_s_max,
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
        wait_for(lambda: not processes_with(job.mark), 60.0, "the job's processes to be gone")

    def report(self, job: RunningJob) -> JobReport | None:
        """What the master knows of a job; None until it has heard of it."""
        with JobClient(self.cluster.cluster) as client:
            for row in client.call_patiently(ListJobs(True)):
                if row.name == job.mark:
                    known: JobReport = client.call_patiently(ReportOfJob(row.key))
                    return known
        return None

    def wait_for_attempts(self, job: RunningJob, kind: str, state: str, count: int) -> list[str]:
        """Wait for so many attempts of a kind (m, r) in a state; give the host of each."""

        def found() -> list[str] | None:
            assert job.is_running, f"the job has ended: {job.wait()}"
            report = self.report(job)
            hosts = [
                each.host
                for each in (report.attempts if report else ())
                if f"_{kind}_" in each.attempt_id and each.state == state
            ]
            return hosts if len(hosts) >= count else None

        return wait_for(found, REACHED_S_MAX, f"{count} attempts of {kind} to be {state}")

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
            "task = attempt.split('_')[4]\n"
            "host = os.environ.get('MRSTREAM_HOST', '')\n" + code
        )
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def hold(self, name: str) -> None:
        for host in self.cluster.hosts:
            (self._here(host) / name).touch()

    def release(self, name: str) -> None:
        for host in self.cluster.hosts:
            (self._here(host) / name).unlink(missing_ok=True)

    def start_held_maps(
        self, *words: str, mapper: str = "", reducer: str = "cat"
    ) -> tuple[RunningJob, dict[str, str]]:
        """Start the job with maps that wait in the middle of their work; give the host of each.

        All run at once: no host has more of them than slots, so there are always several hosts.
        """
        tasks = [f"{number:06d}" for number in range(MAPS)]
        for task in tasks:
            self.hold(f"hold-map-{task}")
        mapper = mapper or self.program("held_map.py", GATED_MAP)
        job = self.start(*words, mapper=mapper, reducer=reducer)
        wait_for(lambda: len(self.noted("map-")) >= MAPS, REACHED_S_MAX, "all maps to have started")
        hosts = {name.split("_")[4]: host_of(name) for name in self.noted("map-")}
        assert sorted(hosts) == tasks, self.noted("map-")
        return job, hosts

    def release_maps(self, *tasks: str) -> None:
        """Let these maps go on."""
        for task in tasks:
            self.release(f"hold-map-{task}")

    def noted(self, prefix: str) -> list[str]:
        names = {path.name for host in self.cluster.hosts for path in self._here(host).iterdir()}
        return sorted(name for name in names if name.startswith(prefix))

    def clear(self) -> None:
        """Nothing is held, nobody stops anywhere, and nothing is noted."""
        for host in self.cluster.hosts:
            for path in self._here(host).iterdir():
                path.unlink(missing_ok=True)

    def _here(self, host: str) -> Path:
        return self.cluster.seen(host, self.cluster.shared)


def host_of(note: str) -> str:
    """Give the host of a note that ends with `@HOST`."""
    return note.rpartition("@")[2]
