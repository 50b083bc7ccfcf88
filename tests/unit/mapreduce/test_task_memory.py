"""Memory of a process tree, against the limit of a job (MapReduce, appendix A)."""

from __future__ import annotations

import os
import subprocess
import sys

from mrstream.mapreduce.attempt.task_memory import MemoryLimit, tree_memory

HOLD = (
    "x = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(flush=True)\ninput()"
)


def test_what_a_grandchild_holds_is_found_and_named() -> None:
    parent = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -c '{HOLD}'; true"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None
        parent.stdout.readline()

        largest = tree_memory(parent.pid)[0]
        error = MemoryLimit(parent.pid, 50 << 20, "mapreduce.map.memory.mb").check()

        assert largest.memory_bytes > 80 << 20
        assert "bytearray" in largest.command
        assert error is not None
        assert "more than the 50 MiB that mapreduce.map.memory.mb allows" in str(error)
        assert str(largest.pid) in str(error)
    finally:
        parent.communicate(b"\n")


def test_a_tree_within_its_limit_is_left_alone() -> None:
    assert MemoryLimit(os.getpid(), 1 << 40, "mapreduce.map.memory.mb").check() is None
