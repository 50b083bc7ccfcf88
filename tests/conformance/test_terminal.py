"""A terminal shows what came from outside and obeys none of it; a pipe gets it as it is."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from mrstream.cluster.terminal import masked

ESCAPE = "\x1b]0;owned\x07\u202etxt.exe"
SHOWN = "\\x1b]0;owned\\x07\\u202etxt.exe"


def environment(cwd: Path) -> dict[str, str]:
    tree = str(Path(__file__).parents[2])
    return {**os.environ, "MRSTREAM_HOME": str(cwd / "home"), "PYTHONPATH": tree}


MRSTREAM = "mrstream.streaming.cli"
HADOOP = "mrstream.mapreduce.hadoop_commands"


def on_terminal(words: list[str], cwd: Path, module: str = MRSTREAM) -> tuple[int, str]:
    """Run mrstream with a terminal for its output; give its exit status and what it wrote."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**environment(cwd), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the last writer has closed it
            break
        said += piece
    os.close(ours)
    return child.wait(), said.decode()


def piped(words: list[str], cwd: Path) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", "mrstream.streaming.cli", *words],
        cwd=cwd, capture_output=True, check=False,
        env=environment(cwd),
    ).stdout  # fmt: skip


def test_names_of_files_are_shown(tmp_path: Path) -> None:
    (tmp_path / f"a{ESCAPE}").touch()
    words = ["dfs", "-fs", "file:///", "-ls", str(tmp_path)]

    status, said = on_terminal(words, tmp_path)

    assert status == 0
    assert f"a{SHOWN}" in said and "\x1b" not in said
    assert f"a{ESCAPE}".encode() in piped(words, tmp_path)


def test_an_error_that_quotes_a_name_is_shown(tmp_path: Path) -> None:
    status, said = on_terminal(["dfs", "-fs", "file:///", "-cat", f"/none{ESCAPE}"], tmp_path)

    assert status == 1
    assert SHOWN in said and "\x1b" not in said


def test_what_a_program_says_is_shown_and_what_we_draw_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x\n")
    mapper = f"printf '{ESCAPE}\\n' >&2; cat"
    (tmp_path / "m.sh").write_text(f"#!/bin/sh\n{mapper}\n")
    (tmp_path / "m.sh").chmod(0o755)
    words = ["-D", f"mapreduce.job.name={ESCAPE}",
             "-input", "in", "-output", "out", "-mapper", "m.sh", "-file", "m.sh"]  # fmt: skip

    status, said = on_terminal(words, tmp_path)

    assert status == 0
    assert SHOWN in said
    assert "\r\x1b[K" in said  # the live line is ours
    assert "\x1b]" not in said and "\x07" not in said and "\u202e" not in said


def test_names_are_shown_by_hadoops_commands_too(tmp_path: Path) -> None:
    name = f"a{ESCAPE}"
    files = tmp_path / "home" / "hdfs" / "d"
    files.mkdir(parents=True)
    (files / name).touch()

    for words in (["hadoop", "fs", "-ls", "hdfs:///d"], ["hadoop", "fs", "-cat", f"/none{ESCAPE}"]):
        _, said = on_terminal(words, tmp_path, HADOOP)

        assert SHOWN in said and "\x1b" not in said


def test_what_hadoops_own_client_says_is_shown(tmp_path: Path) -> None:
    client = tmp_path / "hadoop" / "bin" / "mapred"
    client.parent.mkdir(parents=True)
    client.write_text(f"#!/bin/sh\nprintf '{ESCAPE}\\n' >&2\nexit 3\n")
    client.chmod(0o755)
    words = ["-engine", "hadoop:hadoop", "-input", "i", "-output", "o", "-mapper", "cat"]

    status, said = on_terminal(words, tmp_path)

    assert status == 3
    assert SHOWN in said and "\x1b" not in said


@pytest.mark.parametrize("text", ["plain", "tab\tand\nline", "ünï ✓", "\udcff"])
def test_ordinary_text_is_as_it_was(text: str) -> None:
    assert masked(text) == text


def test_the_answer_is_not_buried_under_counters(tmp_path: Path) -> None:
    """On one screen the results come last but for the closing line; a pipe gets all of Hadoop's."""
    (tmp_path / "in").write_text("b\na\n")
    words = ["-input", "in", "-mapper", "cat", "-reducer", "cat"]

    status, said = on_terminal(words, tmp_path)
    log = subprocess.run(
        [sys.executable, "-m", "mrstream.streaming.cli", *words],
        cwd=tmp_path, capture_output=True, check=True, env=environment(tmp_path),
    ).stderr  # fmt: skip

    assert status == 0
    shown = [
        line.rpartition("\x1b[K")[2].rstrip() for line in said.replace("\r\n", "\n").split("\n")
    ]
    assert shown[-5:-3] == ["a", "b"], shown  # then two lines, and the end of the last one
    assert "Counters:" not in said
    assert b"Counters: " in log and b"Map input records=2" in log
