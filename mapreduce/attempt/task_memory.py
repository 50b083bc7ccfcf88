"""The memory of an attempt's process tree, and the limit on it (MapReduce, appendix A).

Takes a process id; gives what that process and all that came from it hold, each page once however
many share it. Reads /proc; never kills.
"""

from __future__ import annotations

import os

import msgspec

from mrstream.mapreduce.program.children import children_of
from mrstream.mapreduce.program.errors import TaskOutOfMemory


class ProcessMemory(msgspec.Struct, frozen=True):
    """What one process holds, and its command."""

    pid: int
    memory_bytes: int
    command: str


def tree_memory(pid: int) -> list[ProcessMemory]:
    """Return a process and its descendants with what they hold, largest first."""
    found: list[ProcessMemory] = []
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        waiting += children_of(each)
        try:
            found.append(ProcessMemory(each, _memory_bytes(each), _command(each)))
        except OSError:
            continue  # it has just ended
    found.sort(key=lambda process: -process.memory_bytes)
    return found


class MemoryLimit:
    """A limit on an attempt's whole process tree."""

    def __init__(self, pid: int, limit_bytes: int, setting: str) -> None:
        self._pid = pid
        self._limit_bytes = limit_bytes
        self._setting = setting

    def check(self) -> TaskOutOfMemory | None:
        """Return the error to fail with if the tree holds more than it may."""
        processes = tree_memory(self._pid)
        held_bytes = sum(process.memory_bytes for process in processes)
        if held_bytes <= self._limit_bytes:
            return None
        largest = processes[0]
        return TaskOutOfMemory(
            f"the attempt's {len(processes)} processes hold {held_bytes >> 20} MiB, more than the "
            f"{self._limit_bytes >> 20} MiB that {self._setting} allows; the largest is "
            f"{largest.command!r} (pid {largest.pid}) with {largest.memory_bytes >> 20} MiB"
        )


def _memory_bytes(pid: int) -> int:
    """Return the process's share of the pages that it uses; where that is secret, all of them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no such file in an old kernel, or not ours to read
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().rstrip(b"\0").split(b"\0")
    return b" ".join(words).decode("utf-8", "replace")[:100]
