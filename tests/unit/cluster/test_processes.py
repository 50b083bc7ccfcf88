"""An agent finds the daemons of its place while they start, and while they start anew."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mrstream.cluster.agent.daemons import Daemons
from mrstream.cluster.agent.processes import Processes, command_line
from tests.cluster.local import wait_for

ROLE = "dfs.master"
WORDLESS = """
import sys
words = open("/proc/self/stat").read().rpartition(")")[2].split()
first, last = int(words[45]), int(words[46])  # arg_start, arg_end
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(first)
    kept = memory.read(last - first)
    memory.seek(first)
    memory.write(bytes(last - first))
    print("without words", flush=True)
    sys.stdin.readline()
    memory.seek(first)
    memory.write(kept)
print("with words", flush=True)
sys.stdin.readline()
"""
"""A process that has no command line, as between two programs, until it is told to have one."""


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path)


def test_what_was_just_started_is_alive_before_it_has_its_words(place: str, tmp_path: Path) -> None:
    """`up` said that a master had ended right after its start, when it had hardly begun."""
    python = tmp_path / "python"  # becomes `cat`, which waits, and has other words than a daemon
    python.write_text(f"#!/bin/sh\nexec cat {tmp_path / 'nobody-writes'}\n")
    python.chmod(0o755)
    os.mkfifo(tmp_path / "nobody-writes")
    processes = Processes(place)
    daemons = Daemons(place, "h1", processes)

    pid = daemons.start(ROLE, str(python), {})["pid"]
    wait_for(lambda: "nobody-writes" in command_line(pid), 60, "another program")

    assert daemons.alive(ROLE) == {"alive": True, "said": ""}
    assert daemons.start(ROLE, str(python), {}) == {"pid": pid, "already": True}
    assert daemons.stop([ROLE], 5.0)["left"] == []
    assert not daemons.alive(ROLE)["alive"]


def test_a_daemon_that_starts_anew_is_found_meanwhile(place: str) -> None:
    """A leader that has handed over starts anew; one that `up` wanted to replace just then ran on
    as it was."""
    argv = [sys.executable, "-c", WORDLESS, "-m", f"mrstream.{ROLE}", "--dir", place]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None and it.stdout is not None
        assert it.stdout.readline() == "without words\n"
        assert Path(f"/proc/{it.pid}/cmdline").read_bytes().strip(b"\0") == b""
        soon = threading.Timer(0.05, lambda: print(file=it.stdin, flush=True))
        soon.start()

        assert Processes(place).of_role(ROLE) == [it.pid]

        soon.join()
        it.kill()
