"""Hosts in words: both roles of each as one row, and what a page about one of them says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mrstream.cluster.leader.group_view import GroupView
from mrstream.mapreduce.snapshot import HostRow
from mrstream.view import groups as masters
from mrstream.view.cells import NOT_KNOWN, Cell, Column, passes, warning
from mrstream.view.palette import host_mark
from mrstream.view.picture import Picture, StorageRow
from mrstream.view.words import count, natural, size, span

COLUMNS = (
    Column("Host"),
    Column("State"),
    Column("Heard", right=True),
    Column("Slots", right=True),
    Column("Load", right=True),
    Column("Memory", right=True),
    Column("Disk"),
    Column("Chunks", right=True),
    Column("Rack"),
    Column("Why"),
)
SORTS = ("name", "load", "slots", "disk")
NO_HOSTS = "No host has registered yet."
SILENT_S = 3.0
"""A heartbeat older than this is shown as a warning; they come every second."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host by name, with the worker and the chunkserver that are on it."""

    name: str
    worker: HostRow | None
    server: StorageRow | None
    silent: tuple[str, ...] = ()
    """The groups whose master here does not answer."""

    def silence_s(self, now_s: float) -> float:
        """Return for how long neither of its roles was heard of."""
        worker_at_s = self.worker.heard_at_s if self.worker else 0.0
        server_at_s = self.server.heard_at_s if self.server else 0.0
        return max(0.0, now_s - max(worker_at_s, server_at_s))

    def weight(self, sort: str) -> float:
        """Return what hosts are sorted by, other than their names."""
        if sort == "disk":
            server = self.server
            return server.used_bytes / max(1, server.capacity_bytes) if server else 0.0
        if self.worker is None:
            return 0.0
        if sort == "load":
            return self.worker.load
        return self.worker.slots_used / max(1, self.worker.slots)


def listed(picture: Picture, *, sort: str = "name", wanted: str = "") -> list[Host]:
    """Return the hosts that the user wants to see, in an order of `SORTS`."""
    workers = {row.key: row for row in picture.hosts}
    servers = {row.host: row for row in picture.storage.servers}
    names = sorted(
        (
            name
            for name in {**workers, **servers}
            if passes(wanted, name, workers[name].state if name in workers else "")
        ),
        key=natural,
    )
    found = [
        Host(name, workers.get(name), servers.get(name), masters.silent_on(picture.groups, name))
        for name in names
    ]
    return found if sort == "name" else sorted(found, key=lambda host: -host.weight(sort))


def host_named(picture: Picture, name: str) -> Host:
    """Return one host; without roles if nothing is known of it."""
    server = next((row for row in picture.storage.servers if row.host == name), None)
    silent = masters.silent_on(picture.groups, name)
    return Host(name, picture.hosts.get(name), server, silent)


def host_cells(host: Host, now_s: float) -> tuple[Cell, ...]:
    """Return the cells of one host, its worker's and its chunkserver's, in the order of
    `COLUMNS`."""
    worker, server = host.worker, host.server
    roles = {"worker": worker.state} if worker else {}
    roles |= {"chunkserver": server.state} if server else {}
    roles |= {f"{name} master": "lost" for name in host.silent}
    age_s = host.silence_s(now_s)
    memory = NOT_KNOWN
    if worker and worker.memory_total_bytes:
        memory = f"{size(worker.memory_used_bytes)}/{size(worker.memory_total_bytes)}"
    disk = Cell(NOT_KNOWN)
    if server and server.capacity_bytes:
        figures = f"{size(server.used_bytes)}/{size(server.capacity_bytes)}"
        disk = Cell(figures, share=server.used_bytes / server.capacity_bytes)
    rack = worker.rack if worker else server.rack if server else ""
    return (
        Cell(host.name),
        Cell.of(host_mark(roles)),
        warning(span(age_s)) if age_s > SILENT_S else Cell(span(age_s)),
        Cell(f"{worker.slots_used}/{worker.slots}" if worker else NOT_KNOWN),
        Cell(f"{worker.load:.1f}" if worker else NOT_KNOWN),
        Cell(memory),
        disk,
        Cell(count(server.chunks) if server else NOT_KNOWN),
        Cell(rack or NOT_KNOWN),
        Cell(worker.reason if worker else ""),
    )


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known of a host; what it runs has a line each."""

    label: str
    text: str
    trouble: str = ""


def trouble(host: Host) -> str:
    """Return why its worker gets no work; nothing if all is well."""
    worker = host.worker
    return f"{worker.state}: {worker.reason}" if worker and worker.reason else ""


def facts(host: Host, groups: Mapping[str, GroupView]) -> list[Fact]:
    """Return the masters and the other roles of a host, its disks, and what it runs."""
    worker = host.worker
    leading = masters.of_host(groups, host.name)
    said = [Fact("master", leading)] if leading else []
    said.append(Fact("roles", _roles(host)))
    for disk in worker.disks if worker else ():
        used = f"{disk.path}  {size(disk.used_bytes)} of {size(disk.capacity_bytes)} used"
        said.append(Fact("disk", used, "" if disk.state == "up" else disk.state))
    if worker:
        said.append(Fact("runs", "\n".join(worker.running) or "nothing"))
    return said


def _roles(host: Host) -> str:
    worker, server = host.worker, host.server
    roles = [f"chunkserver {server.state}, {count(server.chunks)} chunks"] if server else []
    if worker:
        roles.append(f"worker {worker.state}, {worker.slots_used} of {worker.slots} slots")
    return "; ".join(roles)
