"""A map gives its tables away before they grow too large (SZ-12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_jobs import Desk


def test_a_map_that_may_hold_little_sends_often_and_gives_the_same(tmp_path: Path) -> None:
    """§8: intermediate results are sent at a memory threshold, or when the input ends."""
    desk = Desk(tmp_path)
    desk.write("in", "".join(f"word {n % 5000} {'x' * 900}\n" for n in range(15_000)))
    desk.write("p.szl", 'n: table sum[string] of int; emit n[split(string(input), " ")[1]] <- 1;')
    desk.write(
        "sitecustomize.py",
        "from mrstream.mapreduce.attempt import saw_stage\nsaw_stage.HELD_BYTES_MAX = 100_000\n",
    )
    words = ("saw", "--program", "p.szl", "--input_files", "in", "--destination")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(desk, "environment", lambda: with_path(Desk.environment(desk), desk.cwd))
        often = desk.run(*words, "often@2")
    once = desk.run(*words, "once@2")

    assert often.status == once.status == 0, often.stderr
    assert "Map output records=5000\n" in once.stderr
    assert "Map output records=15000\n" in often.stderr
    results = [desk.run("dump", "--source", f"{name}@2").stdout for name in ("often", "once")]
    assert results[0] == results[1] and results[0].count(b",3\n") == 5000


def with_path(environment: dict[str, str], first: Path) -> dict[str, str]:
    """Let Python find modules in a directory first."""
    return {**environment, "PYTHONPATH": f"{first}:{environment['PYTHONPATH']}"}
