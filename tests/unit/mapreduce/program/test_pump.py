"""mapreduce.program.pump: bytes to and from programs, well and badly behaved (spec 8.2)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable

import pytest

from mrstream.mapreduce.program.errors import CommandFailed
from mrstream.mapreduce.program.flow import UNREAD_BYTES_MAX
from mrstream.mapreduce.program.pump import Blob, RunningCommand


class Ear:
    """Keeps what a program says; fails on demand."""

    def __init__(self) -> None:
        self.heard = b""
        self.closed = False

    def feed(self, data: bytes) -> None:
        self.heard += data
        if b"stop!" in self.heard:
            raise ValueError("heard enough")

    def close(self) -> None:
        self.closed = True


class Patience:
    """A watch without a clock."""

    def __init__(self) -> None:
        self.touches = 0

    def touch(self) -> None:
        self.touches += 1

    def guard(self, running: RunningCommand) -> None:
        self.running: RunningCommand | None = running

    def release(self, running: RunningCommand) -> None:
        self.running = None


def run(script: str, feed: Iterable[Blob] = (), **options: object) -> RunningCommand:
    environment = dict(os.environ)
    return RunningCommand(
        ["bash", "-c", script],
        "/",
        environment,
        feed,
        stderr=options.pop("stderr", Ear()),  # type: ignore[arg-type]
        watch=Patience(),
        **options,  # type: ignore[arg-type]
    )


def test_what_goes_in_comes_out_and_errors_are_heard() -> None:
    ear = Ear()
    command = run("cat; echo done >&2", [b"a" * 3_000_000, b"b\n"], stderr=ear)

    assert b"".join(map(bytes, command.output())) == b"a" * 3_000_000 + b"b\n"
    assert command.finish() == 0
    assert (ear.heard, ear.closed) == (b"done\n", True)
    assert command.flow.given_bytes == 3_000_002


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_exit_codes_are_as_a_shell_shows_them(script: str, code: int) -> None:
    command = run(script)

    assert b"".join(map(bytes, command.output())) == b""
    assert command.finish() == code


def test_a_missing_program_is_named_in_hadoops_words() -> None:
    with pytest.raises(CommandFailed, match='Cannot run program "/no/such": error=2, No such file'):
        RunningCommand(["/no/such"], "/", {}, [], stderr=Ear(), watch=Patience())


def test_a_little_unread_input_is_overlooked() -> None:
    """Spec 8.2: what fits into the buffers is lost without notice."""
    command = run("exec <&-; exit 0", [b"x" * 1000] * 100)

    list(command.output())

    assert command.finish() == 0
    assert not command.flow.breaks_the_pipe


def test_much_unread_input_breaks_the_pipe_wherever_it_is() -> None:
    """The same answer whether the bytes were in the pipe or still with us."""
    for size in (UNREAD_BYTES_MAX + 1000, 5_000_000):
        command = run("head -c 10 >/dev/null", [b"x" * size])

        list(command.output())

        assert command.finish() == 0
        assert command.flow.breaks_the_pipe
        assert command.flow.read_bytes < 200_000


def test_input_beyond_a_broken_pipe_is_still_taken_in_if_asked() -> None:
    """stream.minRecWrittenToEnableSkip_: all input records are counted (case unread_big_minrec)."""
    taken: list[int] = []

    def feed() -> Iterable[bytes]:
        for number in range(20):
            taken.append(number)
            yield b"x" * 100_000

    command = run("true", feed(), drain=True)
    list(command.output())
    command.finish()

    assert len(taken) == 20


def test_an_error_while_reading_the_input_ends_the_program_and_is_raised() -> None:
    def feed() -> Iterable[bytes]:
        yield b"x"
        raise OSError("the disk is gone")

    command = run("cat; sleep 1000", feed())
    list(command.output())

    with pytest.raises(OSError, match="the disk is gone"):
        command.finish()


def test_an_error_while_listening_ends_the_program_and_is_raised() -> None:
    command = run("echo stop! >&2; sleep 1000")
    list(command.output())

    with pytest.raises(ValueError, match="heard enough"):
        command.finish()


def test_what_a_program_leaves_behind_in_its_group_is_ended() -> None:
    command = run("sleep 1000 >/dev/null 2>&1 </dev/null & echo $!")
    pid = int(b"".join(map(bytes, command.output())))

    assert command.finish() == 0

    until = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.01)
        with open(f"/proc/{pid}/stat") as stat:
            if " Z " in stat.read():
                break
    assert time.monotonic() < until


def test_output_of_a_background_process_counts_although_its_parent_has_ended() -> None:
    """Hadoop waits for the end of standard output, not for the exit of the command."""
    command = run("(sleep 0.2; echo late) & exit 0")

    assert b"".join(map(bytes, command.output())) == b"late\n"
    assert command.finish() == 0


def test_the_wait_for_background_processes_can_be_limited() -> None:
    """stream.joindelay.milli."""
    command = run("echo now; sleep 1000 & exit 0", join_delay_s=0.05)

    assert b"".join(map(bytes, command.output())) == b"now\n"
    assert command.finish() == 0


def test_a_killed_program_lets_go_of_everything() -> None:
    command = run("trap '' TERM; sleep 1000", [b"x" * 10_000_000])
    threading.Timer(0.1, command.kill).start()

    assert b"".join(map(bytes, command.output())) == b""
    assert command.finish() == 137


def test_a_text_file_without_an_interpreter_line_is_run_by_the_shell(tmp_path: object) -> None:
    path = f"{tmp_path}/script"
    with open(path, "w") as script:
        script.write("echo from sh\n")
    os.chmod(path, 0o755)

    command = RunningCommand([path], "/", dict(os.environ), [], stderr=Ear(), watch=Patience())

    assert b"".join(map(bytes, command.output())) == b"from sh\n"
    assert command.finish() == 0


def test_what_was_surely_read_is_known_to_the_byte() -> None:
    """Also when everything was given: the report of a failure names the range."""
    command = run("exec 3<&0; dd bs=1 count=7 of=/dev/null status=none <&3; exit 1", [b"x" * 100])
    list(command.output())

    assert command.finish() == 1
    assert (command.flow.given_bytes, command.flow.read_bytes) == (100, 7)
