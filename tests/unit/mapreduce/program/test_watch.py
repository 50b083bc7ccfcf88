"""mapreduce.program.watch: programs without a sign of life are ended, others are not (spec 8.3)."""

from __future__ import annotations

import os
import threading
from typing import NoReturn

import pytest

from mrstream.mapreduce.attempt.skipping import Silence
from mrstream.mapreduce.program.errors import TaskTimedOut
from mrstream.mapreduce.program.pump import RunningCommand
from mrstream.mapreduce.program.watch import AttemptWatch


def nobody_to_blame(error: TaskTimedOut) -> NoReturn:
    raise AssertionError("a program is to blame") from error


def run(watch: AttemptWatch, script: str) -> RunningCommand:
    return RunningCommand(
        ["bash", "-c", script], "/", dict(os.environ), [], stderr=Silence(), watch=watch
    )


def test_a_silent_program_is_killed_and_blamed() -> None:
    watch = AttemptWatch("attempt_x", 0.2, None)
    watch.start(lambda: None, nobody_to_blame)
    command = run(watch, "sleep 30")

    assert b"".join(map(bytes, command.output())) == b""
    with pytest.raises(TaskTimedOut, match=r"AttemptID:attempt_x task timeout set: 0.2s"):
        command.finish()
    watch.stop()


def test_a_program_that_says_something_now_and_then_lives() -> None:
    watch = AttemptWatch("attempt_x", 1.5, None)
    watch.start(lambda: None, nobody_to_blame)
    command = run(watch, "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; echo .; done")

    assert b"".join(map(bytes, command.output())).count(b".") == 10
    assert command.finish() == 0
    watch.stop()


def test_signs_of_life_are_reported() -> None:
    reported = threading.Event()
    watch = AttemptWatch("attempt_x", 0.2, None)
    watch.start(reported.set, nobody_to_blame)

    watch.touch()

    assert reported.wait(60)
    watch.stop()


def test_no_limit_means_no_limit() -> None:
    watch = AttemptWatch("attempt_x", 0.0, None)
    watch.start(lambda: None, nobody_to_blame)
    command = run(watch, "sleep 0.7; echo done")

    assert b"".join(map(bytes, command.output())) == b"done\n"
    assert command.finish() == 0
    watch.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_silence_without_a_program_is_told_too() -> None:
    """The attempt itself hangs: on a file system, say."""
    told = threading.Event()

    def on_expiry(error: TaskTimedOut) -> NoReturn:
        told.set()
        raise SystemExit

    watch = AttemptWatch("attempt_x", 0.2, None)
    watch.start(lambda: None, on_expiry)

    assert told.wait(60)
    watch.stop()
