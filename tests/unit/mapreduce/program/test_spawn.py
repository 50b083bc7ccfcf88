"""`mapreduce.program.spawn`: a program gets its pipes, directory and variables, and no more."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mrstream.mapreduce.program.errors import CommandFailed
from mrstream.mapreduce.program.spawn import spawn


def said_by(words: list[str], directory: str = "/") -> str:
    """Run a program without input; give what it writes."""
    program = spawn(words, directory, {"PATH": os.defpath, "NAME": "vålue\udcff"})
    os.close(program.stdin)
    with open(program.stdout, "rb") as out, open(program.stderr, "rb"):
        text = out.read()
    assert os.waitpid(program.pid, 0)[1] == 0
    return text.decode("utf-8", "surrogateescape")


def test_a_program_begins_in_its_directory_and_we_stay_where_we_are(tmp_path: Path) -> None:
    here = os.getcwd()

    assert said_by(["/bin/sh", "-c", "pwd"], str(tmp_path)) == f"{tmp_path}\n"
    assert os.getcwd() == here


def test_variables_arrive_byte_for_byte() -> None:
    assert said_by(["/bin/sh", "-c", 'printf %s "$NAME"']) == "vålue\udcff"


def test_a_program_gets_no_descriptor_but_its_three(tmp_path: Path) -> None:
    with open(tmp_path / "ours", "w"):
        listing = said_by(["/bin/sh", "-c", "ls /proc/$$/fd"])

    assert listing.split() == ["0", "1", "2"]


def test_a_program_hears_the_signals_that_we_ignore() -> None:
    """A program's own `timeout` ends what it runs by SIGTERM, which the zygote ignores."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert said_by(["/bin/sh", "-c", "sh -c 'kill -TERM $$; echo deaf'; echo $?"]) == "143\n"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_program_leads_a_group_of_its_own() -> None:
    program = spawn(["/bin/sh", "-c", "exec sleep 60"], "/", {})

    assert os.getpgid(program.pid) == program.pid

    os.kill(program.pid, signal.SIGKILL)
    os.waitpid(program.pid, 0)
    for pipe in (program.stdin, program.stdout, program.stderr):
        os.close(pipe)


def test_a_text_file_without_an_interpreter_is_run_by_the_shell(tmp_path: Path) -> None:
    """spec 7.2: as Java does it."""
    text = tmp_path / "text"
    text.write_text("echo run by a shell\n")
    text.chmod(0o755)

    assert said_by([str(text)]) == "run by a shell\n"


@pytest.mark.parametrize(("name", "code"), [("absent", 127), ("forbidden", 126)])
def test_what_cannot_run_is_told_as_hadoop_tells_it(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "forbidden").write_text("echo\n")
    open_before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(CommandFailed, match="Cannot run program") as failure:
        spawn([str(tmp_path / name)], str(tmp_path), {})

    assert failure.value.details["exit_code"] == code
    assert len(os.listdir("/proc/self/fd")) == open_before
