"""Start-up is lean: a command loads only what it needs (decision: lean start-up)."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "paramiko", "textual", "rich", "fsspec", "docker", "yaml", "uvloop", "numpy", "pytest",
    "cloudpickle", "IPython",
    "ray", "pyspark",
    "aiohttp", "markupsafe", "prometheus_client", "awscrt",
]  # fmt: skip


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
        ("mapreduce.local.run", []),
        ("mapreduce.attempt.attempt", []),
        ("dfs.client.client", ["uvloop", "yaml"]),
        ("dfs.cli", ["uvloop", "yaml"]),
        ("cluster.wire.network", ["uvloop"]),
        ("dfs.master", ["uvloop", "yaml"]),
        ("dfs.chunkserver", ["uvloop", "yaml"]),
        ("mapreduce.master.master", ["uvloop", "yaml"]),
        ("mapreduce.worker.worker", ["uvloop", "yaml"]),
        ("lock.master", ["uvloop", "yaml"]),
        ("lock.cli", ["uvloop", "yaml"]),
        ("view.source", ["uvloop", "yaml"]),
        ("view.demo", []),
        ("mapreduce.engine.run", []),
        ("mapreduce.engine.ray", []),
        ("mapreduce.engine.spark", []),
        ("mapreduce.engine.nest", []),
        ("api.job", []),
        ("api.result", []),
        ("api.child", []),
        ("web.cli", ["uvloop", "yaml"]),
        ("web.key_cli", ["uvloop", "yaml"]),
    ],
)
def test_a_module_loads_no_heavy_library(module: str, allowed: list[str]) -> None:
    assert [name for name in loaded_by(f"import mrstream.{module}") if name not in allowed] == []


@pytest.mark.parametrize(
    "module", ["mapreduce.protocol", "mapreduce.master.master", "mapreduce.worker.worker"]
)
def test_a_daemon_loads_nothing_of_the_terminal(module: str) -> None:
    """Who prints is the submitter: the wire and the daemons know numbers, not lines and colours."""
    script = f"import sys, mrstream.{module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    terminal = {
        "mrstream.mapreduce.console",
        "mrstream.mapreduce.client.client",
        "mrstream.mapreduce.local.talk",
        "curses",
        "mrstream.tui",
    }

    assert sorted(terminal & set(done.stdout.split())) == []


def test_the_name_itself_loads_nothing() -> None:
    """`import mrstream` is what every module of ours begins with."""
    code = (
        "import sys; before = set(sys.modules); import mrstream; print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    ours = [name for name in done.stdout.split() if name.startswith(("mrstream", "msgspec"))]
    assert ours == ["mrstream"]


@pytest.mark.parametrize(
    "module",
    [
        "streaming.cli",
        "mapreduce.local.run",
        "mapreduce.attempt.attempt",
        "mapreduce.worker.worker",
    ],
)
def test_nothing_of_sawzall_loads_for_ordinary_jobs(module: str) -> None:
    """Its compiler and tables are for those who run programs of it."""
    script = f"import sys, mrstream.{module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )

    assert [name for name in done.stdout.split() if name.startswith("mrstream.saw")] == []


def test_help_loads_the_words_of_options_and_nothing_of_jobs() -> None:
    """What a job is made of costs a fifth of the time that help takes."""
    script = (
        "import sys; from mrstream.streaming import cli; cli.main(['-help']); "
        "print(*(m for m in sys.modules if m.count('.') > 1 and m.startswith('mrstream.')))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )

    assert set(done.stdout.splitlines()[-1].split()) == {
        "mrstream.cluster.errors", "mrstream.cluster.terminal", "mrstream.streaming.cli",
        "mrstream.streaming.command", "mrstream.streaming.command.options",
        "mrstream.streaming.command.usage",
    }  # fmt: skip
