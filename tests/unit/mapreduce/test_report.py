"""mapreduce.report: words for people when a job ends."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.attempt.attempt_report import Failure
from mrstream.mapreduce.program.flow import InputRange
from mrstream.mapreduce.report import (
    FailuresTold,
    JobFacts,
    TaskTime,
    closing_text,
    exit_code_means,
    failure_text,
)

FAILURE = Failure(
    "PipeMapRed.waitOutputThreads(): subprocess failed with code 139",
    stage="map",
    command="./m",
    exit_code=139,
    stderr_tail=("last words",),
    input=InputRange("file:/in", 100, 150, 180, 200),
    log_directory="/logs/a",
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (126, "could not be run"),
        (127, "not found"),
        (137, "SIGKILL"),
        (139, "SIGSEGV"),
        (141, "SIGPIPE"),
        (143, "SIGTERM"),
        (3, "chose this number itself"),
        (250, "chose this number itself"),
    ],
)
def test_exit_codes_have_meanings(code: int, words: str) -> None:
    assert words in exit_code_means(code)


def test_a_failure_report_has_all_that_a_person_needs() -> None:
    text = failure_text("attempt_1", FAILURE, repeatable=True)

    for words in (
        "attempt_1 failed",
        "subprocess failed with code 139",
        "exit code 139: SIGSEGV",
        "map command:",
        "./m",
        "| last words",
        "file:/in, bytes 100 to 200",
        "surely read up to byte 150; was given up to byte 180",
        "/logs/a",
        "mrstream -repeat attempt_1",
        "mrstream -bisect attempt_1",
    ):
        assert words in text


def test_the_meaning_of_the_exit_code_stands_below_the_reason_not_below_the_host() -> None:
    lines = failure_text("attempt_1", FAILURE, repeatable=True, host="h7").splitlines()

    assert (
        "why:" in lines[1] and "exit code 139" in lines[2] and lines[3].split() == ["host:", "h7"]
    )


def test_what_was_not_kept_is_not_offered() -> None:
    assert "-repeat" not in failure_text("attempt_1", FAILURE, repeatable=False)


def facts(*reduces: TaskTime) -> JobFacts:
    maps = [TaskTime("map 0", 3.0, 100, 1000), TaskTime("map 1", 1.0, 100, 1000)]
    return JobFacts(10.0, 2_000_000, 1_000, 500, maps, reduces)


def test_the_first_failure_and_the_first_to_repeat_are_told_in_full_and_others_in_a_line() -> None:
    """On a cluster the same as on one machine: a host and the way to repeat it, where there are."""
    told = FailuresTold("failed")

    first = told.tell("a_0", FAILURE, repeatable=False)
    again = told.tell("a_1", FAILURE, repeatable=False, host="h2")
    last = told.tell("a_3", FAILURE, repeatable=True)
    other = told.tell("b_3", FAILURE, repeatable=True, host="h2")

    assert first == (
        "Task Id : a_0, Status : FAILED",
        failure_text("a_0", FAILURE, repeatable=False),
    )
    assert again is not None and again[1] == f"a_1 failed on h2: {FAILURE.message}"
    assert last is not None and last[1] == failure_text("a_3", FAILURE, repeatable=True)
    assert other is not None
    assert other[1] == f"b_3 failed on h2: {FAILURE.message} (mrstream -repeat b_3)"
    assert FailuresTold("NONE").tell("a_0", FAILURE, repeatable=True) is None


def test_the_closing_report_names_sizes_and_the_slowest_task() -> None:
    text = closing_text(facts(TaskTime("reduce 0", 2.0, 200, 10)))

    assert "Took 10 s: read 2.0 MB (200.0 kB/s), shuffled 1.0 kB, wrote 500 B." in text
    assert "Slowest task: map 0, 3.0 s for 100 records." in text
    assert "skewed" not in text


def test_a_reduce_with_far_more_than_its_share_is_named_with_the_key_to_blame() -> None:
    skewed = TaskTime("reduce 1", 2.0, 90_000, 10, b"the", 80_000)

    text = closing_text(facts(TaskTime("reduce 0", 1.0, 10_000, 10, b"a", 9), skewed))
    text_of_three = closing_text(
        facts(skewed, *(TaskTime(f"reduce {n}", 1.0, 5_000, 10) for n in (2, 3)))
    )

    assert "Most skewed" not in text  # 1.8 times its share is not worth a word
    assert "Most skewed: reduce 1 got 90,000 records, 2.7 times its share" in text_of_three
    assert "key 'the' alone has 80,000" in text_of_three
