"""The hosts: slots, load, memory, disks, and what each runs."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from mapreduce.snapshot import HostRow
from tui.screens.page import Page
from tui.snapshot import StorageRow
from tui.widgets.table import Cell, Column, RowTable
from tui.words import bar, count, natural, size, span

SILENT_S = 3.0
"""A heartbeat older than this is shown as a warning; they come every second."""

_SIGNS = {"up": ("■ up", "#56b4e9"), "lost": ("✗ lost", "bold #d55e00")}


def host_cells(
    name: str, host: HostRow | None, server: StorageRow | None, now_s: float
) -> tuple[Cell, ...]:
    """Give the cells of one host: its worker's and its chunkserver's."""
    state = host.state if host else server.state if server else "lost"
    sign, style = _SIGNS.get(state, (f"◆ {state}", "bold #f0e442"))
    heard_at_s = max(host.heard_at_s if host else 0.0, server.heard_at_s if server else 0.0)
    age_s = max(0.0, now_s - heard_at_s)
    memory = "–"
    if host and host.memory_total_bytes:
        memory = f"{size(host.memory_used_bytes)}/{size(host.memory_total_bytes)}"
    disk = "–"
    if server and server.capacity_bytes:
        used = server.used_bytes / server.capacity_bytes
        disk = f"{bar(used, 5)} {size(server.used_bytes)}/{size(server.capacity_bytes)}"
    return (
        name,
        Text(sign, style),
        Text(span(age_s), "bold #d55e00" if age_s > SILENT_S else ""),
        f"{host.slots_used}/{host.slots}" if host else "–",
        f"{host.load:.1f}" if host else "–",
        memory,
        disk,
        count(server.chunks) if server else "–",
        (host.rack if host else server.rack if server else "") or "–",
        (host.reason if host and host.reason else ""),
    )


class HostsScreen(Page):
    """Every host with both its roles; below, what the chosen one runs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "Sort")]
    SORTS = ("name", "load", "slots", "disk")

    def __init__(self) -> None:
        super().__init__()
        self._sort = 0

    def body(self) -> ComposeResult:
        yield RowTable(
            [
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
            ],
            id="hosts",
        )
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
        self.query_one(RowTable).show(
            [
                (name, host_cells(name, workers.get(name), servers.get(name), now_s))
                for name in names
            ]
        )
        self._draw_detail(workers)

    @staticmethod
    def _weight(order: str, host: HostRow | None, server: StorageRow | None) -> float:
        if order == "disk":
            return server.used_bytes / max(1, server.capacity_bytes) if server else 0.0
        if host is None:
            return 0.0
        return host.load if order == "load" else host.slots_used / max(1, host.slots)

    def _draw_detail(self, workers: dict[str, HostRow]) -> None:
        host = workers.get(self.query_one(RowTable).selected_key or "")
        text = Text()
        if host:
            text.append(f"{host.key} {host.address}", "bold")
            if host.reason:
                text.append(f"  {host.state}: {host.reason}", "bold #d55e00")
            for disk in host.disks:
                text.append(f"\n  {disk.path}  {size(disk.used_bytes)}")
                text.append(f" of {size(disk.capacity_bytes)} used  {disk.state}")
            text.append("\nruns " + ("nothing" if not host.running else ""))
            for attempt in host.running:
                text.append(f"\n  {attempt}")
        self.query_one("#detail", Static).update(text)

    def on_data_table_row_highlighted(self) -> None:
        self._draw_detail({row.key: row for row in self.picture.hosts})

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
