"""The same word count on our own cluster, on Ray and on Spark: what engines cost.

All read and write the same dfs and have the same two cores: a cluster of two hosts with a slot
each, a Ray of two. Local mode, over the same bytes on the disk, is there for the scale.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, words, workplace
from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster
from tests.support.ray_here import running_ray

_JOB = ("-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c", "-numReduceTasks", "4")


def bench(size_bytes: int = 200_000_000, repeats: int = 3) -> list[Row]:
    """Give the rows of the table; Spark's if it is installed."""
    with workplace() as place, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as room:
        source, line = place / "words.txt", place / "line.txt"
        words(source, size_bytes)
        line.write_text("one line of words\n")
        settings = {"chunk_size": "64MiB", "dead_after": "60s"}
        with (
            tempfile.TemporaryDirectory() as home,
            LocalCluster(Path(home), 2, roles=ROLES, dfs=settings, slots=1) as cluster,
            running_ray(Path(room), cluster.environment) as found,
        ):
            for path in (source, line):
                run([MRSTREAM, "dfs", "-put", str(path), "/"], place, cluster.environment)

            def job(name: str, *engine: str, **environment: str) -> Run:
                given = ["-overwrite", "-input", f"/{name}", "-output", "/out", *engine]
                own = {**cluster.environment, **environment}
                return run([MRSTREAM, *given, *_JOB], place, own)

            def local() -> Run:
                given = ["-jt", "local", "-fs", "local", "-overwrite", "-input", str(source)]
                given += ["-output", str(place / "out")]
                return run([MRSTREAM, *given, *_JOB], place, cluster.environment)

            ran = interleaved(
                {
                    "own": lambda: job(source.name),
                    "own, one line": lambda: job(line.name),
                    "Ray": lambda: job(source.name, "-engine", "ray", **found),
                    "Ray, one line": lambda: job(line.name, "-engine", "ray", **found),
                    "local mode": local,
                    **(
                        {"Spark with its start": lambda: job(source.name, "-engine", "spark")}
                        if importlib.util.find_spec("pyspark") is not None
                        else {}
                    ),
                },
                repeats,
            )
    size = f"{size_bytes // 10**6} MB"
    return [
        Row(f"word count of {'one line' if is_small else size} on {name.partition(',')[0]}, "
            "against our cluster", each.wall_s,
            ran["own, one line" if is_small else "own"].wall_s, "s", "")
        for name, each in ran.items()
        for is_small in (name.endswith("one line"),)
        if not name.startswith("own")
    ]  # fmt: skip
