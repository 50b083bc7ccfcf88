"""Start-up is lean: a command loads only what it needs (decision: lean start-up)."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["paramiko", "textual", "rich", "fsspec", "docker", "yaml", "uvloop", "numpy", "pytest"]


def loaded_by(code: str) -> list[str]:
    script = f"import sys; {code}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("streaming.cli", []),
        ("mapreduce.local", []),
        ("mapreduce.attempt", []),
        ("dfs.client", ["uvloop", "yaml"]),
        ("dfs.cli", ["uvloop", "yaml"]),
        ("cluster.network", ["uvloop"]),
        ("dfs.master", ["uvloop", "yaml"]),
        ("dfs.chunkserver", ["uvloop", "yaml"]),
        ("mapreduce.master", ["uvloop", "yaml"]),
        ("mapreduce.worker", ["uvloop", "yaml"]),
        ("view.source", ["uvloop", "yaml"]),
        ("view.demo", []),
    ],
)
def test_a_module_loads_no_heavy_library(module: str, allowed: list[str]) -> None:
    assert [name for name in loaded_by(f"import {module}") if name not in allowed] == []


@pytest.mark.parametrize("module", ["mapreduce.protocol", "mapreduce.master", "mapreduce.worker"])
def test_a_daemon_loads_nothing_of_the_terminal(module: str) -> None:
    """Who prints is the submitter: the wire and the daemons know numbers, not lines and colours."""
    script = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    terminal = {"mapreduce.console", "mapreduce.client", "mapreduce.local_talk", "curses", "tui"}

    assert sorted(terminal & set(done.stdout.split())) == []
