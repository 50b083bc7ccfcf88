"""Ours with ours, ours with foreign masters and workers, mixed: real processes, only M1 … M10."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.p4.course import (
    NET_S,
    Course,
    free_port,
    listens,
    recorded,
    wait_for,
)

REDUCES = range(1, 11)
EXAMPLE = Path(__file__).parents[3] / "examples" / "p4"


def test_ten_jobs_of_one_to_ten_reduces_give_what_a_pipe_gives(tmp_path: Path) -> None:
    """P4-08, P4-13, P4-18, P4-20, P4-26, R11: submitted at once, one runs after the other."""
    with Course(tmp_path / "course") as course:
        course.our_master()
        course.our_worker()
        course.our_worker()
        for reducers in REDUCES:
            course.submit(f"out{reducers}", reducers)

        truth = course.truth()
        for reducers in REDUCES:
            assert course.results(f"out{reducers}", reducers) == truth
            job = course.place / f"var/job-{reducers - 1}"
            assert sorted(os.listdir(job)) == ["grouper-output", "mapper-output", "reducer-output"]
            names = sorted(f"input_{n}" for n in range(reducers))
            assert sorted(os.listdir(job / "reducer-output")) == names  # they stay there
            assert sorted(os.listdir(course.place / f"out{reducers}")) == names
            check_inputs(job, reducers)
        assert course.shut_down() == [0, 0, 0]


def check_inputs(job: Path, reducers: int) -> None:
    """P4-17, P4-18: each is sorted, and a key is in one of them."""
    seen: dict[bytes, int] = {}
    for number in range(reducers):
        lines = (job / "grouper-output" / f"input_{number}").read_bytes().splitlines()
        assert lines == sorted(lines)
        for line in lines:
            assert seen.setdefault(line.split(b"\t")[0], number) == number


def test_our_worker_passes_under_a_foreign_master(tmp_path: Path) -> None:
    """P4-27, P4-14, P4-15, R2, R3, R4, R5: an unforgiving one; beside a foreign worker."""
    with Course(tmp_path / "course") as course:
        course.foreign_master()
        course.our_worker()
        course.foreign_worker()
        for reducers in (1, 4, 7):
            course.submit(f"out{reducers}", reducers)

        for reducers in (1, 4, 7):
            course.results(f"out{reducers}", reducers)
        assert course.shut_down() == [0, 0, 0]  # it ends when its last copy is made
        for reducers in (1, 4, 7):
            assert course.results(f"out{reducers}", reducers) == course.truth()


@pytest.mark.parametrize(
    ("options", "crew"),
    [
        ((), [("register-first", "literal"), ("unsorted", "absolute"), ("parallel",)]),
        (("--outstanding-per-worker", "1"), [("single-slot",), ("single-slot", "literal")]),
    ],
    ids=["many-habits", "single-slot"],
)
def test_our_master_passes_with_foreign_workers(
    tmp_path: Path, options: tuple[str, ...], crew: list[tuple[str, ...]]
) -> None:
    """P4-27, R1 (either key), R3, R6 (one task at a time), R8 (their order is not trusted)."""
    with Course(tmp_path / "course", files=7) as course:
        course.our_master(*options)
        for habits in crew:
            course.foreign_worker(*habits)
        course.our_worker()
        for reducers in (2, 5):
            course.submit(f"out{reducers}", reducers)

        for reducers in (2, 5):
            assert course.results(f"out{reducers}", reducers) == course.truth()
        assert set(course.shut_down()) == {0}


def test_keys_in_turn_and_the_names_of_a_later_edition(tmp_path: Path) -> None:
    """R9 (`round_robin_by_key`: key n of all goes to reduce n mod R) and R12."""
    with Course(tmp_path / "course") as course:
        course.our_master("--edition", "2019", "--round-robin-by-key")
        course.our_worker()
        course.submit("out", 3)

        names = [f"outputfile0{number}" for number in (1, 2, 3)]
        truth = course.truth()
        assert course.lines_of("out", names) == truth
        keys = [line.split(b"\t")[0] for line in truth.splitlines()]
        for number in range(3):
            path = course.place / "tmp/job-0/grouper-output" / f"reduce0{number + 1}"
            found = dict.fromkeys(line.split(b"\t")[0] for line in path.read_bytes().splitlines())
            assert list(found) == keys[number::3]
        assert course.shut_down() == [0, 0]


def test_the_scripts_of_the_assignment(tmp_path: Path) -> None:
    """P4-01: `master.py`, `worker.py` and `send_job.py`, in a directory with an older `var`."""
    with Course(tmp_path / "course") as course:
        shutil.copytree(EXAMPLE, course.place, dirs_exist_ok=True)
        (course.place / "var").mkdir()
        (course.place / "var" / "stale").touch()
        course.start([sys.executable, "master.py", str(course.port)])
        wait_for(lambda: listens(course.port), "the master", course.logs)
        course.start([sys.executable, "worker.py", str(course.port), str(free_port())])
        assert course.start([sys.executable, "send_job.py", str(course.port)]).wait(NET_S) == 0

        programs = [f"exec/word_count/{name}.py" for name in ("map", "reduce")]
        assert course.results("output", 4) == course.truth(*programs, files="input/sample1")
        assert not (course.place / "var" / "stale").exists()
        assert course.shut_down() == [0, 0, 0]


RECORDED = Path(__file__).parent / "recorded.jsonl"
CLIENTS = {"new_master_job", "shutdown"}


def conversation(path: Path) -> dict[str, list[Any]]:
    """What the worker said and what it was told, in order, the numbers of one run made equal.

    Heartbeats are apart, and so is what a client says to the master.
    """
    said: dict[str, list[Any]] = {"to master": [], "from master": []}
    for direction, message in recorded(path):
        direction = direction.replace("to worker", "from master")
        by_client = direction == "to master" and message["message_type"] in CLIENTS
        if direction == "heartbeat" or by_client:
            continue
        for name, value in (("worker_pid", 101), ("worker_port", 6001)):
            if name in message:
                message[name] = value
        if "output_directory" in message:
            message["output_directory"] = message["output_directory"].rstrip("/")
        # The specification leaves the names of sorted files to the master.
        said[direction].append(json.loads(json.dumps(message).replace("/sorted_", "/sorted")))
    return said


@pytest.mark.parametrize("ours", ["worker", "master", "neither"])
def test_what_is_said_is_what_was_recorded_between_foreign_peers(tmp_path: Path, ours: str) -> None:
    """M1 … M9, P4-03, P4-11, P4-15, P4-19: message by message, field by field.

    `recorded.jsonl` was kept by the foreign worker under the foreign master; "neither" checks that
    it still is what they say.
    """
    with Course(tmp_path / "course", files=3) as course:
        record = str(tmp_path / "record")
        if ours == "master":
            course.our_master()
            course.foreign_worker(record=record)
        elif ours == "worker":
            course.foreign_master(record)
            course.our_worker()
        else:
            course.foreign_master()
            course.foreign_worker(record=record)
        course.submit("out", 2, 2)

        course.results("out", 2)
        assert course.shut_down() == [0, 0]
        assert course.results("out", 2) == course.truth()
        assert conversation(Path(record)) == conversation(RECORDED)
