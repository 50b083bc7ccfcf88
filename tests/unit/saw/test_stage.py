"""A map gives its tables away before they grow too large (SZ-12)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mrstream.saw.program import compiled
from mrstream.saw.tables.table import NUMBER_BYTES, VALUE_BYTES
from tests.support.local_jobs import Desk


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


@pytest.mark.parametrize("kind", ["unique(100000)", "quantile(100000)", "set", "top(100000)"])
def test_one_index_that_grows_is_sent_in_time(kind: str) -> None:
    """A state may hold as many values as there are records: not the number of indexes counts."""
    run = compiled(f"t: table {kind} of string; emit t <- string(input);").run(random.Random(0))
    small = run.held_bytes(10)
    for block in range(20):
        run.feed([b"%d.%d" % (block, number) for number in range(1000)])

    held = run.held_bytes(10)

    assert small == 0 and held > 20_000 * NUMBER_BYTES
    assert len(list(run.drain())) == 1 and run.held_bytes(10) == 0


def test_a_state_of_fixed_size_is_not_taken_for_a_large_one() -> None:
    """Else maps would send a sum as often as they read a block."""
    run = compiled("t: table sum of int; emit t <- 1;").run(random.Random(0))

    run.feed([b"x"] * 100_000)

    assert run.held_bytes(100) == VALUE_BYTES + 100


def with_path(environment: dict[str, str], first: Path) -> dict[str, str]:
    """Let Python find modules in a directory first."""
    return {**environment, "PYTHONPATH": f"{first}:{environment['PYTHONPATH']}"}
