"""The same word count by local mode, on Ray and on Spark, on the same cores: what engines cost."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, words, workplace
from tests.support.ray_here import running_ray

_JOB = ("-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c", "-numReduceTasks", "4")


def bench(size_bytes: int = 200_000_000, repeats: int = 3) -> list[Row]:
    """Give the rows of the table; Spark's if it is installed."""
    with workplace() as place, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as room:
        source = place / "words.txt"
        words(source, size_bytes)
        with running_ray(Path(room)) as found:

            def job(*engine: str, **environment: str) -> Run:
                run(["rm", "-rf", "out"], place)
                given = ["-input", str(source), "-output", str(place / "out"), *engine]
                return run([MRSTREAM, *given, *_JOB], place, {**os.environ, **environment})

            contenders = {
                "own": lambda: job("-jt", "local"),
                "Ray": lambda: job("-engine", "ray", **found),
                "Ray with its start": lambda: job("-engine", "ray"),
            }
            if importlib.util.find_spec("pyspark") is not None:
                contenders["Spark with its start"] = lambda: job("-engine", "spark")
            ran = interleaved(contenders, repeats)
    return [
        Row(f"word count of {size_bytes // 10**6} MB on {name}, against local mode",
            each.wall_s, ran["own"].wall_s, "s", "")
        for name, each in ran.items()
        if name != "own"
    ]  # fmt: skip
