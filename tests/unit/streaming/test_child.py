"""streaming/task/child.py: words, program and environment of a command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.task.child import (
    EmptyCommand,
    ProgramNotFound,
    find_program,
    parse_cmdenv,
    parse_command,
    resolve_words,
    task_environment,
)
from mrstream.streaming.task.shipping import Shipped

PATH = os.environ["PATH"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a'b c'd", ["a", "b c", "d"]),
        ("\"x 'y' z\" '' \"\" e\\ f", ["x 'y' z", "e\\", "f"]),
        ("$HOME * 'it''s'  end", ["$HOME", "*", "it", "s", "end"]),
        ("a\tb c\nd 'open quote x", ["a\tb", "c\nd", "open quote x"]),
        ("   ", []),
    ],
)
def test_a_command_is_cut_as_hadoop_cuts_it(command: str, words: list[str]) -> None:
    """Spec 7.1; cases cmd_quotes, cmd_tab_newline."""
    assert parse_command(command) == words


def script(path: Path, text: str, mode: int = 0o644) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_in_the_working_directory_shadows_a_command(tmp_path: Path) -> None:
    script(tmp_path / "cat", "#!/bin/sh\n")

    assert find_program(["cat"], str(tmp_path), PATH) == [str(tmp_path / "cat")]
    assert find_program(["ls", "-l"], str(tmp_path), PATH)[0].endswith("/ls")


def test_a_program_without_run_bit_is_made_executable_in_the_working_directory(
    tmp_path: Path,
) -> None:
    """Case files_noexec; the user's own file keeps its mode."""
    mine = script(tmp_path / "mine.sh", "#!/bin/sh\necho ran\n")
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    (cwd / "m.sh").symlink_to(mine)

    argv = find_program(["m.sh"], str(cwd), PATH)

    assert subprocess.check_output(argv) == b"ran\n"
    assert not os.access(mine, os.X_OK) and mine.stat().st_mode & 0o777 == 0o644


def test_text_without_an_interpreter_line_is_run_by_the_shell(tmp_path: Path) -> None:
    """Case cmd_no_shebang."""
    script(tmp_path / "n.sh", "echo $((1+1))\n")

    argv = find_program(["n.sh"], str(tmp_path), PATH)

    assert subprocess.check_output(argv) == b"2\n"


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_python_file_without_interpreter_line_is_run_by_python(tmp_path: Path, mode: int) -> None:
    script(tmp_path / "m.py", "print(1 + 1)\n", mode)

    argv = find_program(["./m.py"], str(tmp_path), PATH)

    assert subprocess.check_output(argv) == b"2\n"


def test_python_is_the_one_on_the_path_not_ours(tmp_path: Path) -> None:
    script(tmp_path / "m.py", "print(1)\n")
    script(tmp_path / "python3", "#!/bin/sh\n", 0o755)

    argv = find_program(["m.py"], str(tmp_path), str(tmp_path))

    assert argv == [str(tmp_path / "python3"), str(tmp_path / "m.py")]


def test_a_program_that_is_nowhere_is_named_in_hadoops_words(tmp_path: Path) -> None:
    """Spec 7.2."""
    with pytest.raises(ProgramNotFound) as lost:
        find_program(["no-such"], str(tmp_path), PATH)

    assert str(lost.value) == (
        "Error in configuring object: "
        'Cannot run program "no-such": error=2, No such file or directory'
    )


def test_an_empty_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptyCommand):
        find_program([], str(tmp_path), PATH)


def test_a_path_that_this_host_lacks_means_the_shipped_file() -> None:
    shipped = [Shipped("/client/m.py", "m.py", word="/client/m.py"), Shipped("/x", "x")]

    assert resolve_words(["python3", "/client/m.py", "/x"], shipped) == ["python3", "m.py", "/x"]


def test_a_path_that_works_here_is_used_as_it_is(tmp_path: Path) -> None:
    path = str(script(tmp_path / "m.sh", "#!/bin/sh\n", 0o755))

    assert resolve_words([path], [Shipped(path, "m.sh", word=path)]) == [path]


# ---- environment ---------------------------------------------------------------------------


def environment(given: dict[str, str], **kwargs: object) -> dict[str, str]:
    arguments: dict[str, object] = {
        "base": {},
        "task_properties": {},
        "tmpdir": "/t",
    } | kwargs
    return task_environment(JobConf(given), **arguments)  # type: ignore[arg-type]


def test_every_property_is_in_the_environment() -> None:
    """Spec 7.4."""
    variables = environment({"my.own-key": "v", "mapred.reduce.tasks": "2"}, base={"HOME": "/h"})

    assert variables["my_own_key"] == "v"
    assert variables["mapreduce_job_reduces"] == "2"
    assert "mapred_reduce_tasks" not in variables
    assert variables["fs_defaultFS"] == "file:///"
    assert (variables["HOME"], variables["TMPDIR"]) == ("/h", "/t")
    assert len(variables) > 1000


def test_what_the_task_sets_is_there_under_old_names_too() -> None:
    """Case env_ids."""
    variables = environment({}, task_properties={"mapreduce.task.attempt.id": "attempt_x"})

    assert variables["mapreduce_task_attempt_id"] == variables["mapred_task_id"] == "attempt_x"


def test_long_values_are_cut_if_the_job_says_so() -> None:
    """Case env_truncate."""
    variables = environment({"stream.jobconf.truncate.limit": "5", "my.long": "123456789"})

    assert variables["my_long"] == "12345"


def test_no_variable_is_longer_than_the_kernel_allows() -> None:
    variables = environment({"my.long": "é" * 100_000})

    subprocess.run(["true"], env=variables, check=True)


def test_words_of_cmdenv_beat_properties_and_end_at_blanks() -> None:
    """Case env_cmdenv."""
    variables = environment({"a": "property", "stream.addenvironment": "a=1 b=2 c=x y d"})

    assert (variables["a"], variables["b"], variables["c"]) == ("1", "2", "x")
    assert "d" not in variables
    assert parse_cmdenv("A=b=c") == {"A": "b=c"}


def test_unbuffered_python_is_not_inherited_but_may_be_asked_for() -> None:
    base = {"PYTHONUNBUFFERED": "1"}

    assert "PYTHONUNBUFFERED" not in environment({}, base=base)
    asked = environment({"stream.addenvironment": "PYTHONUNBUFFERED=1"}, base=base)
    assert asked["PYTHONUNBUFFERED"] == "1"
