"""What a host is doing, for heartbeats: load, memory, disks. Reads /proc and statvfs, no more."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mrstream.mapreduce.snapshot import DiskRow


def memory_bytes() -> tuple[int, int]:
    """Return (used, total) memory of this host."""
    figures: dict[str, int] = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            figures[name] = int(rest.split()[0]) * 1024
    total = figures.get("MemTotal", 0)
    return total - figures.get("MemAvailable", total), total


def memory_limit_bytes(cgroup: str = "/sys/fs/cgroup/memory.max") -> int:
    """Return what processes here may use together: this host's memory, or what a container has."""
    _, total = memory_bytes()
    try:
        with open(cgroup, encoding="ascii") as file:
            limit = file.read().strip()
    except OSError:
        return total  # the outermost group, or an older kernel: no limit that we could know
    return min(total, int(limit)) if limit.isdigit() else total


def load() -> float:
    """Return the load of the last minute."""
    return os.getloadavg()[0]


def disk_rows(paths: Sequence[str]) -> tuple[DiskRow, ...]:
    rows = []
    for path in paths:
        status = os.statvfs(path)
        total = status.f_blocks * status.f_frsize
        rows.append(DiskRow(path, total - status.f_bfree * status.f_frsize, total))
    return tuple(rows)
