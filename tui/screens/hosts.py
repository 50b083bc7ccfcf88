"""The hosts: slots, load, memory, disks, and what each runs."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from mapreduce.snapshot import HostRow
from tui.screens.page import Page
from tui.widgets.bar import bar
from tui.widgets.table import Cell, Column, RowTable
from view.picture import StorageRow
from view.words import count, natural, size, span

SILENT_S = 3.0
"""A heartbeat older than this is shown as a warning; they come every second."""

_GONE = ("lost", "dead")


def host_state(host: HostRow | None, server: StorageRow | None) -> Text:
    """Give the state of a host: that of its worker and its chunkserver, the worse one first."""
    roles = [("worker", host.state)] if host else []
    roles += [("chunkserver", server.state)] if server else []
    ill = [(role, state) for role, state in roles if state != "up"]
    gone = bool(ill) and all(state in _GONE for _, state in ill)
    if not roles or (gone and len(ill) == len(roles)):
        return Text("✗ lost", "bold #d55e00")
    if not ill:
        return Text("■ up", "#56b4e9")
    role, state = ill[0]
    if gone:
        return Text(f"✗ no {role}", "bold #d55e00")
    return Text(f"◆ {state}", "bold #f0e442")


WIDE_COLUMNS = 100
WIDE = (
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
NARROW = WIDE[:-2]
"""Why is told below, of the host that is chosen."""


def host_cells(
    name: str, host: HostRow | None, server: StorageRow | None, now_s: float, *, wide: bool
) -> tuple[Cell, ...]:
    """Give the cells of one host, its worker's and its chunkserver's, for `WIDE` or `NARROW`."""
    heard_at_s = max(host.heard_at_s if host else 0.0, server.heard_at_s if server else 0.0)
    age_s = max(0.0, now_s - heard_at_s)
    memory = "–"
    if host and host.memory_total_bytes:
        memory = f"{size(host.memory_used_bytes)}/{size(host.memory_total_bytes)}"
    disk: Cell = "–"
    if server and server.capacity_bytes:
        used = server.used_bytes / server.capacity_bytes
        figures = f"{size(server.used_bytes)}/{size(server.capacity_bytes)}"
        disk = bar(used, 5).append(f" {figures}", "default") if wide else figures
    rack = (host.rack if host else server.rack if server else "") or "–"
    why = host.reason if host else ""
    return (
        name,
        host_state(host, server),
        Text(span(age_s), "bold #d55e00" if age_s > SILENT_S else ""),
        f"{host.slots_used}/{host.slots}" if host else "–",
        f"{host.load:.1f}" if host else "–",
        memory,
        disk,
        count(server.chunks) if server else "–",
        *((rack, why) if wide else ()),
    )


class HostsScreen(Page):
    """Every host with both its roles; below, what the chosen one runs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "Sort")]
    SORTS = ("name", "load", "slots", "disk")

    def __init__(self) -> None:
        super().__init__()
        self._sort = 0

    def body(self) -> ComposeResult:
        yield RowTable(NARROW, id="hosts")
        yield Static(id="nothing")
        yield Static(id="detail")

    def draw(self) -> None:
        now_s = self.monitor.source.now_s()
        workers = {row.key: row for row in self.picture.hosts}
        servers = {row.host: row for row in self.picture.storage.servers}
        names = sorted(
            (
                name
                for name in {**workers, **servers}
                if self.passes(name, workers[name].state if name in workers else "")
            ),
            key=natural,
        )
        order = self.SORTS[self._sort]
        if order != "name":
            names.sort(key=lambda name: -self._weight(order, workers.get(name), servers.get(name)))
        wide = self.size.width >= WIDE_COLUMNS
        rows = [
            (name, host_cells(name, workers.get(name), servers.get(name), now_s, wide=wide))
            for name in names
        ]
        table = self.query_one(RowTable)
        table.set_columns(WIDE if wide else NARROW)
        self.show_rows(table, rows, "No host has registered yet.")
        self.query_one("#detail").display = bool(rows)
        self._draw_detail()

    @staticmethod
    def _weight(order: str, host: HostRow | None, server: StorageRow | None) -> float:
        if order == "disk":
            return server.used_bytes / max(1, server.capacity_bytes) if server else 0.0
        if host is None:
            return 0.0
        return host.load if order == "load" else host.slots_used / max(1, host.slots)

    def _draw_detail(self) -> None:
        name = self.query_one(RowTable).selected_key or ""
        host = self.picture.hosts.get(name)
        servers = [row for row in self.picture.storage.servers if row.host == name]
        text = Text().append(name, "bold")
        if host:
            text.append(f" {host.address}", "bold")
            if host.reason:
                text.append(f"  {host.state}: {host.reason}", "bold #d55e00")
        text.append("\nroles  ", "dim").append(self._roles(name, host, servers))
        for disk in host.disks if host else ():
            text.append("\ndisk   ", "dim").append(f"{disk.path}  {size(disk.used_bytes)}")
            text.append(f" of {size(disk.capacity_bytes)} used")
            if disk.state != "up":
                text.append(f"  {disk.state}", "bold #d55e00")
        if host:
            text.append("\nruns   ", "dim")
            text.append("\n       ".join(host.running) or "nothing")
        self.query_one("#detail", Static).update(text)

    def _roles(self, name: str, host: HostRow | None, servers: list[StorageRow]) -> str:
        roles = ["both masters"] if name and name == self.monitor.source.master_host else []
        roles += [f"chunkserver {row.state}, {count(row.chunks)} chunks" for row in servers]
        roles += [f"worker {host.state}, {host.slots_used} of {host.slots} slots"] if host else []
        return "; ".join(roles)

    def on_data_table_row_highlighted(self) -> None:
        self._draw_detail()

    def on_resize(self) -> None:
        self.redraw()

    def focus_body(self) -> None:
        self.query_one(RowTable).focus()

    def action_sort(self) -> None:
        self._sort = (self._sort + 1) % len(self.SORTS)
        self.notify(f"sorted by {self.SORTS[self._sort]}", timeout=2)
        self.redraw()

    def tick(self) -> None:
        super().tick()
        if self._composed:
            self.draw()
