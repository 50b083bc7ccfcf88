"""Programs that misbehave: a documented outcome each, bounded memory, and nothing left behind."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.support.local_jobs import Desk, processes_with

LINE_BYTES = 100_000_000


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("in", "one\ntwo\nthree\n")
    return desk


def nothing_is_left_of(desk: Desk, mark: str = "") -> bool:
    """Wait a moment for what is being killed, then look."""
    until = time.monotonic() + 5
    mark = mark or str(desk.home)
    while processes_with(mark) and time.monotonic() < until:
        time.sleep(0.05)
    return not processes_with(mark) and desk.left_behind() == []


def test_a_mapper_that_never_reads_is_fine_while_its_input_is_small(desk: Desk) -> None:
    """Spec 8.2: what fits into the buffers is lost without notice."""
    ran = desk.job("-mapper", "echo hello", "-reducer", "NONE")

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b"hello\t\n"


def test_a_mapper_that_never_reads_a_large_input_fails_with_a_broken_pipe(desk: Desk) -> None:
    desk.write("in", b"x" * 99 + b"\n" + b"y" * 1_000_000)

    ran = desk.job("-mapper", "true", "-reducer", "NONE")

    assert ran.status == 1
    assert "Broken pipe" in ran.line("why:")
    assert nothing_is_left_of(desk)


def test_a_mapper_that_neither_reads_nor_ends_is_timed_out(desk: Desk) -> None:
    desk.write("in", b"y" * 1_000_000)

    ran = desk.job("-D", "mapreduce.task.timeout=500", "-mapper", "sleep 1000", "-reducer", "NONE")

    assert ran.status == 1
    assert "task timeout set: 0.5s, taskTimedOut: true" in ran.line("why:")
    assert nothing_is_left_of(desk)


def test_a_line_on_stderr_keeps_a_slow_program_alive(desk: Desk) -> None:
    script = "for i in 1 2 3 4 5 6; do sleep 0.5; echo working >&2; done; cat"
    ran = desk.job(
        "-D", "mapreduce.task.timeout=2500", "-mapper", f"bash -c '{script}'", "-reducer", "NONE"
    )

    assert ran.status == 0


def test_output_before_stdout_is_closed_early_counts(desk: Desk) -> None:
    ran = desk.job(
        "-mapper", "bash -c 'echo first; exec >&-; cat >/dev/null; sleep 0.1'", "-reducer", "NONE"
    )

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b"first\t\n"


def test_a_gigabyte_of_stderr_costs_neither_memory_nor_disk(desk: Desk) -> None:
    ran = desk.job("-mapper", "bash -c 'cat; head -c 1000000000 /dev/zero >&2'", "-reducer", "NONE")

    assert ran.status == 0
    assert len(ran.stderr) < 200_000
    assert desk.parts()["part-00000"] == b"one\t\ntwo\t\nthree\t\n"
    assert nothing_is_left_of(desk)


def test_the_log_of_a_talkative_failure_is_bounded_and_keeps_both_ends(desk: Desk) -> None:
    ran = desk.job(
        "-mapper",
        "bash -c 'echo begin >&2; yes | head -c 100000000 >&2; echo the end >&2; exit 9'",
        "-reducer",
        "NONE",
    )

    assert ran.status == 1
    assert "| the end" in ran.stderr
    (log,) = desk.home.glob("jobs/*/logs/*/stderr")
    text = log.read_bytes()
    assert len(text) < 20_000_000
    assert text.startswith(b"begin\n") and text.endswith(b"the end\n")
    assert b"bytes are left out here" in text


def test_a_background_process_that_keeps_stdout_open_is_waited_for(desk: Desk) -> None:
    """As Hadoop does: what it prints is output of the task."""
    ran = desk.job("-mapper", "bash -c '(sleep 0.3; echo late) & exit 0'", "-reducer", "NONE")

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b"late\t\n"


def test_a_process_forked_into_the_background_does_not_outlive_its_task(desk: Desk) -> None:
    ran = desk.job("-mapper", "bash -c 'sleep 1234 >/dev/null 2>&1 & cat'", "-reducer", "NONE")

    assert ran.status == 0
    assert nothing_is_left_of(desk)


@pytest.mark.parametrize("way", ["setsid sleep 1235", "env -i setsid sleep 1235"])
def test_a_process_that_calls_setsid_does_not_outlive_its_task(desk: Desk, way: str) -> None:
    """Not even if it throws away the mark in its environment."""
    ran = desk.job("-mapper", f"bash -c '{way} >/dev/null 2>&1 & cat'", "-reducer", "NONE")

    assert ran.status == 0
    assert nothing_is_left_of(desk)
    assert nothing_is_left_of(desk, "sleep\x001235")


def test_a_stray_that_holds_stderr_does_not_hold_the_job(desk: Desk) -> None:
    ran = desk.job(
        "-mapper", "bash -c 'setsid sleep 1236 >/dev/null & cat'", "-reducer", "NONE", timeout_s=30
    )

    assert ran.status == 0
    assert nothing_is_left_of(desk)


def test_a_program_that_ignores_sigterm_is_killed_all_the_same(desk: Desk) -> None:
    ran = desk.job(
        "-D",
        "mapreduce.task.timeout=500",
        "-mapper",
        "bash -c 'trap \"\" TERM INT HUP; while :; do sleep 1000; done'",
        "-reducer",
        "NONE",
    )

    assert ran.status == 1
    assert nothing_is_left_of(desk)


def test_a_last_line_without_newline_is_a_line(desk: Desk) -> None:
    ran = desk.job("-mapper", "printf 'k\tv'", "-reducer", "cat")

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b"k\tv\n"


def test_one_line_of_many_megabytes_passes_in_bounded_memory(desk: Desk) -> None:
    """Fault gate 23: 100 MB through a sort buffer of one."""
    desk.write("in", b"z" * LINE_BYTES + b"\n")

    ran = desk.job("-D", "mapreduce.task.io.sort.mb=1", "-mapper", "cat", "-reducer", "cat")

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b"z" * LINE_BYTES + b"\t\n"
    for kind in ("Map", "Reduce"):
        (held,) = re.findall(rf"Peak {kind} Physical memory \(bytes\)=(\d+)", ran.stderr)
        assert int(held) < 3 * LINE_BYTES, f"{kind}: {held} bytes"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 126", "exit code 126: the program was found but could not be run"),
        ("no_such_program_at_all", "exit code 127: a program was not found"),
        ("kill -9 $$", "exit code 137: SIGKILL: killed from outside"),
        ("kill -11 $$", "exit code 139: SIGSEGV: a crash"),
        ("kill -13 $$", "exit code 141: SIGPIPE: it wrote into a pipe"),
        ("exit 42", "exit code 42: the program chose this number itself"),
    ],
)
def test_the_report_says_what_an_exit_code_means(desk: Desk, script: str, words: str) -> None:
    ran = desk.job("-mapper", f"bash -c '{script}'", "-reducer", "NONE")

    assert ran.status == 1
    assert words in ran.stderr


def test_a_program_that_is_not_there_is_named(desk: Desk) -> None:
    ran = desk.job("-mapper", "nosuchprogram -x", "-reducer", "NONE")

    assert ran.status == 1
    assert 'Cannot run program "nosuchprogram": error=2' in ran.line("why:")
