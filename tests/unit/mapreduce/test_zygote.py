"""mapreduce.attempt.zygote: attempts are forked, reported and, whatever happens, ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.attempt.zygote import Zygote


def attempt(order: bytes, report: int, lifeline: int) -> int:
    """What the tests' attempts do, by the word in their order."""
    word, _, rest = order.decode().partition(" ")
    if word == "exit":
        return int(rest)
    if word == "echo":
        os.write(report, rest.encode())
        return 0
    if word == "raise":
        raise RuntimeError(rest)
    if word == "stray":  # leaves a process in a session of its own behind
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        os.write(report, str(child.pid).encode())
        return 0
    if word == "family":  # a program in a group of its own, whose children left it as well
        script = "setsid sleep 1000 & first=$!; sleep 1000 & echo $first $!; wait"
        program = subprocess.Popen(
            ["sh", "-c", script], process_group=0, stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        os.write(report, f"{program.pid} {program.stdout.readline()}".encode())
        signal.pause()
    if word == "hang":
        child = subprocess.Popen(["sleep", "1000"], start_new_session=bool(rest))
        os.write(report, f"{child.pid} {os.getpid()}".encode())
        signal.pause()
    raise AssertionError(order)


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    zygote = Zygote(attempt)
    yield zygote
    zygote.close()


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while, it was read
        return False


def wait_until_gone(pids: list[int], seconds_max: float = 60.0) -> list[int]:
    """Give the processes that are still there after a while; polls, since they are not ours."""
    until = time.monotonic() + seconds_max
    while time.monotonic() < until and any(map(is_running, pids)):
        time.sleep(0.01)
    return [pid for pid in pids if is_running(pid)]


def read_report(descriptor: int) -> str:
    select.select([descriptor], [], [], 60)
    return os.read(descriptor, 1000).decode()


def test_an_attempt_reports_through_its_pipe_and_its_exit_is_told(zygote: Zygote) -> None:
    token, report = zygote.start(b"echo hello", "a1")

    assert read_report(report) == "hello"
    ended = zygote.ended()
    assert (ended.token, ended.status) == (token, 0)


def test_an_order_may_be_larger_than_any_datagram(zygote: Zygote) -> None:
    _, report = zygote.start(b"echo " + b"x" * 5_000_000, "a1")

    data = b""
    while piece := os.read(report, 1 << 20):
        data += piece
    assert len(data) == 5_000_000


def test_exit_status_and_signals_are_told_apart(zygote: Zygote) -> None:
    zygote.start(b"exit 3", "a1")
    assert zygote.ended().status == 3

    token, report = zygote.start(b"hang", "a2")
    pids = [int(word) for word in read_report(report).split()]
    zygote.kill(token)

    assert zygote.ended().status == -signal.SIGKILL
    assert wait_until_gone(pids) == []


def test_a_bug_in_an_attempt_is_an_exit_status_not_silence(
    zygote: Zygote, capfd: pytest.CaptureFixture[str]
) -> None:
    zygote.start(b"raise oh dear", "a1")

    assert zygote.ended().status == 70


def test_a_process_that_called_setsid_goes_with_its_attempt(zygote: Zygote) -> None:
    _, report = zygote.start(b"stray", "a1")
    pid = int(read_report(report))

    zygote.ended()

    assert wait_until_gone([pid]) == []


def test_all_generations_of_a_killed_attempt_are_gone_when_its_end_is_told(
    zygote: Zygote,
) -> None:
    """A program is in a group of its own: its children come to the zygote only when it is dead."""
    token, report = zygote.start(b"family", "a1")
    pids = [int(word) for word in read_report(report).split()]
    assert len(pids) == 3

    zygote.kill(token)
    zygote.ended()

    assert [pid for pid in pids if is_running(pid)] == []


def test_closing_ends_every_attempt_and_removes_what_was_named(tmp_path: Path) -> None:
    zygote = Zygote(attempt)
    doomed, kept = tmp_path / "doomed", tmp_path / "kept"
    doomed.mkdir()
    kept.mkdir()
    zygote.remove_at_end(str(doomed))
    zygote.remove_at_end(str(kept))
    zygote.keep(str(kept))
    pids = []
    for rest in (b"", b" apart"):
        _, report = zygote.start(b"hang" + rest, "a1")
        pids += [int(word) for word in read_report(report).split()]

    zygote.close()

    assert wait_until_gone(pids) == []
    assert not doomed.exists() and kept.exists()


def test_what_shall_be_held_is_held_until_all_is_cleared_up(tmp_path: Path) -> None:
    """The lock of a killed job's output: another job comes in only when nothing of it is left."""
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    ours, theirs = os.pipe()
    zygote = Zygote(attempt)
    zygote.hold(theirs)
    os.close(theirs)
    zygote.remove_at_end(str(doomed))

    zygote._socket.close()  # as the kernel does when we are killed

    assert os.read(ours, 1) == b""  # nobody has the other end any more
    assert not doomed.exists()
    os.close(ours)
    os.waitpid(zygote.pid, 0)


def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """A kill -9 of mrstream cannot be caught; the zygote sees its pipe close instead."""
    room = tmp_path / "room"
    room.mkdir()
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_zygote import attempt, read_report
from mrstream.mapreduce.attempt.zygote import Zygote
zygote = Zygote(attempt)
zygote.remove_at_end({str(room)!r})
for order in (b"hang", b"hang apart"):
    _, report = zygote.start(order, "a1")
    print(read_report(report), flush=True)
print(zygote.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdin is not None
    pids = [int(word) for _ in range(3) for word in parent.stdout.readline().split()]

    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()

    assert len(pids) == 5
    assert wait_until_gone(pids) == []
    assert not room.exists()
