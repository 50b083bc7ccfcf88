"""Jobs on a warm cluster of three hosts on this machine: start-up, tasks a second, slots, CPU time.

The peer is the local engine, or what the row says. Decisions a second are those of the scheduler
alone, at the size of the MapReduce paper's cluster.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mrstream.mapreduce.scheduler.commands import Command
from mrstream.mapreduce.scheduler.events import Event
from mrstream.mapreduce.scheduler.scheduler import Scheduler
from mrstream.mapreduce.simulation import ClusterPlan, SimulatedCluster, Workload
from tests.benchmarks.bench_local import MAPPER, REDUCER
from tests.benchmarks.common import (
    MRSTREAM,
    Row,
    Run,
    daemons_cpu_s,
    interleaved,
    records,
    run,
    script,
    words,
    workplace,
)
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster

INPUT_BYTES = 200_000_000
LONG_BYTES = 1_000_000_000
TASKS = 1_000
TASKS_PER_S_WANTED = 150
SLOT_MS_WANTED = 20
DECISIONS_PER_S_WANTED = 20_000
BASE = [sys.executable, "-c", "import asyncio, msgspec"]
# A map that notes when its program ended. Its attempt began when its log directory was made: what
# lies between an end and the next beginning on the same host is how long a slot was idle.
CLOCKED = """#!/bin/bash
cat > /dev/null
sleep 0.2
echo "$MRSTREAM_HOST $mapreduce_task_attempt_id $EPOCHREALTIME" >> "$NOTES"
"""


def bench() -> Iterator[Row]:
    """Give the rows of the table."""
    yield _decisions()
    with workplace() as place, tempfile.TemporaryDirectory() as home:
        settings = {"chunk_size": "64MiB"}
        with LocalCluster(Path(home), 3, roles=ROLES, dfs=settings) as cluster:
            bench = _Bench(cluster, place)
            yield bench.trivial_job()
            yield bench.tasks_per_second()
            yield bench.idle_slot()
            yield from bench.word_count_and_sort()
            yield bench.long_sort()


class _Bench:
    """A cluster that is up, and a place for files."""

    def __init__(self, cluster: LocalCluster, place: Path) -> None:
        self._cluster = cluster
        self._place = place
        self._env = {**cluster.environment}
        self._count = 0

    def trivial_job(self) -> Row:
        """One small file, one map, one reduce."""
        small = self._place / "small"
        small.write_text("a few words\n" * 80)
        self._put(small)
        job = self._job("-input", "/small", "-mapper", "cat", "-reducer", "cat")
        job()
        runs = interleaved({"job": job, "base": lambda: run(BASE, self._place)}, repeats=5)
        return Row(
            "a job over 1 KB, warm cluster: wall (peer: python -c 'import asyncio, msgspec')",
            runs["job"].wall_s, runs["base"].wall_s, "s", "≤ 8",
        )  # fmt: skip

    def tasks_per_second(self) -> Row:
        """Many maps of `-mapper cat`, a line each."""
        many = self._place / "many"
        many.write_text("".join(f"line {number}\n" for number in range(TASKS)))
        self._put(many)
        job = self._job(
            "-inputformat", "org.apache.hadoop.mapred.lib.NLineInputFormat",
            "-input", "/many", "-mapper", "cat", "-reducer", "cat",
        )  # fmt: skip
        return Row(
            f"{TASKS} maps of `cat`: tasks a second (peer: the goal)",
            TASKS / job().wall_s, TASKS_PER_S_WANTED, "/s", "≥ 1",
        )  # fmt: skip

    def idle_slot(self) -> Row:
        """How long a slot stays empty between two maps of a job that has more than slots."""
        notes = self._place / "notes"
        program = script(self._place / "clocked.sh", CLOCKED)
        few = self._place / "few"
        few.write_text("".join(f"line {number}\n" for number in range(60)))
        self._put(few)
        self._job(
            "-inputformat", "org.apache.hadoop.mapred.lib.NLineInputFormat",
            "-D", "mapreduce.map.speculative=false", "-cmdenv", f"NOTES={notes}",
            "-D", "mapreduce.job.reduce.slowstart.completedmaps=1.0",
            "-input", "/few", "-mapper", str(program), "-reducer", "cat",
        )()  # fmt: skip
        return Row(
            "from the end of a map's program to the next attempt in its slot: median"
            " (peer: the goal)",
            1000 * self._median_gap_s(notes.read_text()), SLOT_MS_WANTED, "ms", "≤ 1",
        )  # fmt: skip

    def word_count_and_sort(self) -> Iterator[Row]:
        """CPU time of all processes, daemons included, against the local engine's."""
        mapper = str(script(self._place / "m.py", MAPPER))
        reducer = str(script(self._place / "r.py", REDUCER))
        for what, make, programs in (
            ("word count", words, (mapper, reducer)),
            ("sort", records, ("cat", "cat")),
        ):
            source = self._place / what.replace(" ", "-")
            make(source, INPUT_BYTES)
            self._put(source)
            options: tuple[str, ...] = ("-D", "mapreduce.job.reduces=2", "-mapper", programs[0])
            options += ("-reducer", programs[1])
            words_of_job = ("-input", f"/{source.name}", *options)
            once = ("-D", "dfs.replication=1", *words_of_job)
            runs = interleaved(
                {
                    "three replicas": self._with_daemons(self._job(*words_of_job)),
                    "one replica": self._with_daemons(self._job(*once)),
                    "local": lambda source=source, options=options: self._local(source, options),  # type: ignore[misc]
                }
            )
            for name in ("three replicas", "one replica"):
                ours, peer = runs[name], runs["local"]
                title = f"{what} of 200 MB in the dfs, output with {name} (peer: the local engine)"
                yield Row(f"{title}: CPU", ours.cpu_s, peer.cpu_s, "s", "≤ 1.3")
                yield Row(f"{title}: wall", ours.wall_s, peer.wall_s, "s", "")

    def long_sort(self) -> Row:
        """1 GB, where the start of a job weighs nothing.

        What a run wrote is deleted before the next: a virtual machine pays for memory that it has
        not touched lately, and the side with less of it free would pay for both."""
        source = self._place / "long"
        records(source, LONG_BYTES)
        self._put(source)
        options = ("-D", "mapreduce.job.reduces=2", "-mapper", "cat", "-reducer", "cat")
        once = ("-D", "dfs.replication=1", "-input", "/long", *options)
        runs = interleaved(
            {
                "cluster": self._forgotten(self._job(*once)),
                "local": self._forgotten(lambda: self._local(source, options)),
            },
            repeats=5,
        )
        return Row(
            "sort of 1 GB in the dfs, output with one replica: wall (peer: the local engine)",
            runs["cluster"].wall_s, runs["local"].wall_s, "s", "≤ 1.3",
        )  # fmt: skip

    # --- running --------------------------------------------------------------------------

    def _put(self, path: Path) -> None:
        run([MRSTREAM, "dfs", "-put", str(path), f"/{path.name}"], self._place, self._env)

    def _job(self, *options: str) -> Callable[[], Run]:
        def job() -> Run:
            self._count += 1
            output = f"/out{self._count}"
            return run([MRSTREAM, *options, "-output", output], self._place, self._env)

        return job

    def _local(self, source: Path, options: tuple[str, ...]) -> Run:
        self._count += 1
        output = self._place / f"local-out{self._count}"
        words = ["-jt", "local", "-fs", "local", "-input", str(source), "-output", str(output)]
        return run([MRSTREAM, *words, *options], self._place, self._env)

    def _forgotten(self, job: Callable[[], Run]) -> Callable[[], Run]:
        """Delete what a job wrote once it is done."""

        def cleaned() -> Run:
            ran = job()
            local = self._place / f"local-out{self._count}"
            if local.exists():
                shutil.rmtree(local)
            else:
                words = ("dfs", "-rm", "-r", "-skipTrash", f"/out{self._count}")
                run([MRSTREAM, *words], self._place, self._env)
            return ran

        return cleaned

    def _with_daemons(self, job: Callable[[], Run]) -> Callable[[], Run]:
        def counted() -> Run:
            before_s = daemons_cpu_s(self._cluster)
            ran = job()
            return Run(ran.wall_s, ran.cpu_s + daemons_cpu_s(self._cluster) - before_s)

        return counted

    def _median_gap_s(self, notes: str) -> float:
        """The median time from a map's end to the next beginning on its host."""
        by_host: dict[str, list[tuple[float, float]]] = {}
        for line in notes.splitlines():
            host, attempt_id, ended = line.split()
            (logs,) = self._cluster.host_directory(host).glob(f"**/logs/*/{attempt_id}")
            by_host.setdefault(host, []).append((logs.stat().st_mtime, float(ended)))
        gaps: list[float] = []
        for spans in by_host.values():
            begins = sorted(began for began, _ in spans)
            for end_s in sorted(end_s for _, end_s in spans):
                after_s = next((began_s for began_s in begins if began_s >= end_s), None)
                if after_s is not None:
                    begins.remove(after_s)
                    gaps.append(after_s - end_s)
        return statistics.median(gaps)


class _Clocked(Scheduler):
    """Measures the time inside the scheduler."""

    taken_s = 0.0

    def handle(self, event: Event, now_s: float) -> list[Command]:
        began_s = time.process_time()
        commands = super().handle(event, now_s)
        self.taken_s += time.process_time() - began_s
        return commands


def _decisions() -> Row:
    cluster = SimulatedCluster(ClusterPlan(hosts=1746), Workload(15_000, 4_000), seed=2)
    cluster.scheduler = scheduler = _Clocked()
    gc.collect()
    cluster.run()
    return Row(
        "the master's decisions, 1,746 workers, M = 15,000, R = 4,000 (peer: the goal)",
        cluster.events / scheduler.taken_s, DECISIONS_PER_S_WANTED, "/s", "≥ 1",
    )  # fmt: skip
