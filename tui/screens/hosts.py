"""The hosts: which masters lead and follow, slots, load, memory, disks, and what each runs."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from mrstream.tui.screens.page import Page
from mrstream.tui.widgets.ink import BAD, PlainText, ink
from mrstream.tui.widgets.table import RowTable, columns
from mrstream.view import groups, hosts

WIDE_COLUMNS = 100
BAR_CELLS = 5
WIDE = columns(hosts.COLUMNS, {}, {"Disk": BAR_CELLS})
NARROW = columns(hosts.COLUMNS[:-2], {})
"""Why is told below, of the host that is chosen."""


class HostsScreen(Page):
    """The masters, every host with its other roles; below, what the chosen one runs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "Sort")]

    def __init__(self) -> None:
        super().__init__()
        self._sort = 0

    def body(self) -> ComposeResult:
        yield Static(id="masters")
        yield RowTable(NARROW, id="hosts")
        yield Static(id="nothing")
        yield Static(id="detail")

    def draw(self) -> None:
        now_s = self.monitor.source.now_s()
        found = hosts.listed(self.picture, sort=hosts.SORTS[self._sort], wanted=self.filter_text)
        shown = WIDE if self.size.width >= WIDE_COLUMNS else NARROW
        rows = [(host.name, hosts.host_cells(host, now_s)[: len(shown)]) for host in found]
        table = self.query_one(RowTable)
        table.set_columns(shown)
        self.show_rows(table, rows, hosts.NO_HOSTS)
        self.query_one("#detail").display = bool(rows)
        self._draw_masters(now_s)
        self._draw_detail()

    def _draw_masters(self, now_s: float) -> None:
        lines = groups.lines(self.picture.groups, now_s)
        width = max((len(line.name) for line in lines), default=0)
        text = PlainText()
        for line in lines:
            text.append(f"{line.name:<{width}}", "dim")
            at = width
            for badge in line.badges:
                at += 2 + len(badge.text)
                if at > self.size.width - 2:  # a badge is never torn
                    text.append("\n" + " " * width)
                    at = width + 2 + len(badge.text)
                text.append("  ").append(badge.text, ink(badge.colour, loud=badge.loud))
            if line.led_for and at + 2 + len(line.led_for) <= self.size.width - 2:
                text.append(f"  {line.led_for}", "dim")
            text.append("\n")
        text.append(groups.last_event(self.picture, now_s), "dim")
        shown = self.query_one("#masters", Static)
        shown.display = bool(lines)
        shown.update(text)

    def _draw_detail(self) -> None:
        host = hosts.host_named(self.picture, self.query_one(RowTable).selected_key or "")
        text = PlainText().append(host.name, "bold")
        if host.worker:
            text.append(f" {host.worker.address}", "bold")
        if hosts.trouble(host):
            text.append(f"  {hosts.trouble(host)}", BAD)
        for fact in hosts.facts(host, self.picture.groups):
            text.append(f"\n{fact.label:<7}", "dim")
            text.append(fact.text.replace("\n", "\n" + " " * 7))
            if fact.trouble:
                text.append(f"  {fact.trouble}", BAD)
        self.query_one("#detail", Static).update(text)

    def on_data_table_row_highlighted(self) -> None:
        self._draw_detail()

    def on_resize(self) -> None:
        self.redraw()

    def focus_body(self) -> None:
        self.query_one(RowTable).focus()

    def action_sort(self) -> None:
        self._sort = (self._sort + 1) % len(hosts.SORTS)
        self.notify(f"sorted by {hosts.SORTS[self._sort]}", timeout=2)
        self.redraw()

    def tick(self) -> None:
        super().tick()
        if self._composed:
            self.draw()
