"""What Tab completes, by bash itself; and the manual page."""

from __future__ import annotations

import subprocess

import pytest

from mrstream.mapreduce.completion_cli import bash, main, manual
from mrstream.streaming.cli import _SUBCOMMANDS
from mrstream.streaming.command.options import KNOWN_OPTIONS


def completed(*words: str) -> list[str]:
    """Give what bash offers for the last of these words."""
    script = f"""{bash()}
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_mrstream
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ran = subprocess.run(
        ["bash", "-c", script, "bash", "mrstream", *words],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return ran.stdout.split()


def test_commands_verbs_and_options_are_completed() -> None:
    assert completed("clu") == ["cluster"]
    assert completed("-ma") == ["-mapper", "-mapdebug"]
    assert completed("dfs", "-fs") == ["-fsck"]
    assert completed("cluster", "re") == ["remove", "restore"]
    assert completed("job", "-li") == ["-list", "-list-attempt-ids"]
    assert completed("-input", "x", "-red") == ["-reducer", "-reducedebug"]


def test_every_command_is_offered() -> None:
    assert set(_SUBCOMMANDS) - {"dump"} <= set(completed(""))


def test_the_manual_names_every_option_and_command() -> None:
    page = manual()
    for name in KNOWN_OPTIONS:
        assert f"\\fB\\-{name}" in page
    assert "\\fBcluster …\\fR" in page
    assert all(
        line.startswith((".", "\\fB")) or not line.startswith("'") for line in page.split("\n")
    )


def test_other_words_bring_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fish"]) == 2
    assert "usage: mrstream completion" in capsys.readouterr().err
