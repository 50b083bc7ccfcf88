"""The judge of rounds of faults is judged: what it calls late, wrong, and good (tests/cluster)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.promise import CROWDED_LOAD, check_in_time, is_crowded, lateness
from tests.cluster.rounds import HELPED, NOT_JUDGED, Round, add_to_ledger, by_commit, read_ledger

QUIET = CROWDED_LOAD / 2
CROWDED = CROWDED_LOAD + 1


def test_a_round_is_late_above_what_is_promised_of_its_fault() -> None:
    assert lateness("kill", {"dfs": 10.0, "lock": 4.0}, QUIET) == ""
    assert lateness("kill", {"dfs": 10.1, "lock": 4.0}, QUIET).startswith("late: dfs 10.1 s")
    assert lateness("cut", {"dfs": 19.9}, QUIET) == ""
    assert lateness("cut", {"dfs": 9.9, "lock": 20.1}, QUIET).startswith("late: lock 20.1 s")


def test_lateness_in_a_crowd_is_told_apart() -> None:
    late = lateness("cut", {"dfs": 30.0}, CROWDED)

    assert late.startswith(f"late (load {CROWDED:.0f}): dfs 30.0 s") and is_crowded(late)
    assert not is_crowded(lateness("cut", {"dfs": 30.0}, QUIET))


def test_a_test_that_is_late_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (QUIET, QUIET, QUIET))
    check_in_time("freeze", 19.0)

    with pytest.raises(AssertionError, match=r"kill: late: users 10\.5 s"):
        check_in_time("kill", 10.5)


@pytest.mark.parametrize(
    ("verdict", "is_good", "is_wrong"),
    [
        ("ok", True, False),
        ("late (load 99): dfs 30.0 s, 20 s are promised", True, False),
        ("late: dfs 30.0 s, 20 s are promised", False, False),
        (f"{HELPED}: dfs.master of nobody", False, False),
        (f"{NOT_JUDGED}: its clients stood still for 13 s", False, False),
        ("acknowledged and lost: ['/work/1/file-2']", False, True),
    ],
)
def test_only_what_nobody_has_to_look_at_is_good(
    verdict: str, is_good: bool, is_wrong: bool
) -> None:
    one = Round("2026-11-18", "abc", "kill", 1.0, {}, verdict)

    assert (one.is_good, one.is_wrong) == (is_good, is_wrong)


def test_the_ledger_gives_back_what_was_written_also_before_it_said_who_was_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rounds.csv"
    new = Round("2026-11-18", "abc", "kill", 3.0, {"dfs": 11.4}, "late: dfs 11.4 s", "worker-0")
    add_to_ledger(path, [new])
    with open(path, "a") as file:
        file.write("2026-11-18,old,cut,40,21.0,5.0,8.0,ok\n")

    old = Round("2026-11-18", "old", "cut", 40.0, {"dfs": 21.0, "jobs": 5.0, "lock": 8.0}, "ok")
    assert read_ledger(path) == [new, old]
    crowd = (0, 1) if CROWDED_LOAD < 40.0 else (1, 0)
    assert by_commit([new, old])[2:] == [
        "| abc | 1 | 0 | 0 | 1 | 0 | 3, 3 |",
        f"| old | 1 | 0 | 0 | {crowd[0]} | {crowd[1]} | 40, 40 |",
    ]
