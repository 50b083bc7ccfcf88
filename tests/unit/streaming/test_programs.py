"""What cannot run is said before the job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.streaming.command.command import command_of
from mrstream.streaming.command.options import parse
from mrstream.streaming.command.programs import NoSuchProgram, check_programs


def warned(*words: str, on_cluster: bool = False) -> list[str]:
    command = command_of(parse(["-input", "x", *words]))
    return list(check_programs(command, on_cluster=on_cluster))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "command", ["m.py", "./m.py -x", "python3 m.py", "bash job.sh", "lib/m.pl", "/no/such/m.py"]
)
def test_a_script_that_is_nowhere_is_refused(command: str) -> None:
    with pytest.raises(NoSuchProgram, match=r"^-mapper .*: (it is not here|there is no such file)"):
        warned("-mapper", command)


def test_reducers_and_combiners_are_looked_at_too() -> None:
    for option in ("-reducer", "-combiner"):
        with pytest.raises(NoSuchProgram, match=f"^{option} 'r.py'"):
            warned("-mapper", "cat", option, "r.py")


def test_a_host_may_have_what_this_machine_has_not() -> None:
    """An absolute path is the hosts' business; a bare name may be on their PATH."""
    assert warned("-mapper", "/opt/tools/m.py", on_cluster=True) == []
    (line,) = warned("-mapper", "m.py", on_cluster=True)
    assert "every host needs it on its PATH" in line
    with pytest.raises(NoSuchProgram):
        warned("-mapper", "lib/m.py", on_cluster=True)


def test_scripts_that_travel_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by the command, linked under another name, in a directory, in an archive, on PATH."""
    (tmp_path / "m.py").write_text("")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "n.py").write_text("")
    (tmp_path / "a.zip").write_bytes(b"")
    tool = tmp_path / "bin" / "tool.sh"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))

    assert warned("-mapper", "m.py") == []
    assert warned("-files", "m.py#other.py", "-mapper", "python3 other.py") == []
    assert warned("-files", "code", "-mapper", "code/n.py") == []
    assert warned("-archives", "a.zip#lib", "-mapper", "python3 lib/deep/x.py") == []
    assert warned("-mapper", "tool.sh") == []


def test_a_command_without_words_is_left_to_its_task() -> None:
    assert warned("-mapper", "''") == warned("-mapper", " ") == []


def test_signs_of_a_shell_bring_the_hint_that_there_is_none() -> None:
    (line,) = warned("-mapper", "cat | sort")
    assert line == (
        "-mapper 'cat | sort': no shell is at work, so | and what follows are words for cat; "
        "write -mapper \"bash -c 'cat | sort'\""
    )


@pytest.mark.parametrize(
    "command", ["grep '|'", "bash -c 'cat | sort'", 'awk "a > b ; c"', "tr | _"]
)
def test_quoted_signs_are_words(command: str) -> None:
    """`tr | _` is odd, but a sign that stands alone is what the hint is for."""
    assert bool(warned("-mapper", command)) == (command == "tr | _")


def test_scripts_with_windows_line_ends_are_named(tmp_path: Path) -> None:
    (tmp_path / "w.sh").write_bytes(b"#!/bin/sh\r\ncat\r\n")
    (tmp_path / "u.sh").write_bytes(b"#!/bin/sh\ncat\n")

    (line,) = warned("-mapper", "w.sh", "-reducer", "u.sh")
    assert line.startswith("w.sh has Windows line ends (CRLF)")


@pytest.mark.parametrize("words", [("-file", "w.sh"), ("-files", "w.sh"), ("-files", "w.sh#m.sh")])
def test_so_are_those_that_were_asked_to_travel(words: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "w.sh").write_bytes(b"#!/bin/sh\r\ncat\r\n")
    name = "m.sh" if "#" in words[1] else "w.sh"

    (line,) = warned(*words, "-mapper", name)
    assert "w.sh has Windows line ends (CRLF)" in line and line.endswith("w.sh` mends it")
