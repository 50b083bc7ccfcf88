"""A disk without room: tasks wait for some, and what is reported as finished is whole."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.p4.brain.messages import NewSortJob
from mrstream.mapreduce.p4.execution import Execution
from mrstream.mapreduce.p4.room import Stopped
from tests.conformance.p4.course import NET_S, Course, wait_for

HELD = """#!/bin/sh
touch {began}
while [ ! -e {go} ]; do sleep 0.05; done
exec exec/map.sh
"""


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A directory on a disk of 1 MiB."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small") as place:
        yield place


def fill(place: Path) -> Path:
    """Leave no byte free; give the file that takes them."""
    filler = place / ".filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(place).f_bavail == 0
    return filler


def test_a_full_disk_makes_a_job_wait_and_never_cuts_its_results(
    small: Path, tmp_path: Path
) -> None:
    """R10 is for programs that fail: one whose output found no room is run again when there is.

    The disk of the project is full when the maps write, the one of the results when they come.
    """
    with small_disk(tmp_path / "out") as out, Course(small) as course:
        master, worker = course.our_master(), course.our_worker()
        began, go = tmp_path / "began", tmp_path / "go"
        held = course.executable("held.sh", HELD.format(began=began, go=go))
        course.submit(str(out), 2, 2, mapper=held)
        wait_for(began.exists, "a map", course.logs)
        fillers = [fill(small), fill(out)]
        go.touch()

        said = "exec/held.sh on input/file_000.txt: No space left on device; it is tried again"
        wait_for(lambda: said in course.log_of(worker), "a map without room", course.logs)
        assert os.listdir(small / "var/job-0/mapper-output") == []
        fillers[0].unlink()
        said = "job 0, results: No space left on device; it is tried again"
        wait_for(lambda: said in course.log_of(master), "results without room", course.logs)
        assert os.listdir(out) == [".filler"]
        fillers[1].unlink()

        assert course.results(str(out), 2) == course.truth()
        assert "ended with status" not in course.log_of(worker)
        assert course.shut_down() == [0, 0]


def test_a_sort_waits_for_room_too_but_ends_with_its_worker(
    small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing lies under the name of the output meanwhile."""
    source = tmp_path / "lines"
    source.write_bytes(b"b\na\n" * 1000)
    order = NewSortJob([str(source)], str(small / "sorted"), 1)
    filler = fill(small)
    waits, stopped = Execution(), Execution()
    ends: list[Execution] = []

    def run(one: Execution) -> None:
        with contextlib.suppress(Stopped):
            one.run(order, [order.output_file])
            return
        ends.append(one)

    threads = [threading.Thread(target=run, args=(one,)) for one in (waits, stopped)]
    for thread in threads:
        thread.start()
    wait_for(lambda: caplog.text.count("; it is tried again") >= 2, "both without room")
    stopped.stop()
    threads[1].join(NET_S)
    assert ends == [stopped]
    assert threads[0].is_alive() and os.listdir(small) == [".filler"]
    filler.unlink()
    threads[0].join(NET_S)
    assert ends == [stopped]
    assert (small / "sorted").read_bytes() == b"a\n" * 1000 + b"b\n" * 1000
