"""The jobs: running, waiting and finished."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from mrstream.tui.screens.job import JobScreen
from mrstream.tui.screens.page import Page
from mrstream.tui.widgets.table import Column, RowTable, columns
from mrstream.view import actions, jobs
from mrstream.view.cells import Cell

WIDE_COLUMNS = 120
BAR_CELLS = 10
NAME_CELLS = 20
_BARS = ("Map", "Shuffle", "Reduce")
WIDE = columns(
    jobs.COLUMNS,
    {"State": 11} | dict.fromkeys(_BARS, BAR_CELLS + 5),
    dict.fromkeys(_BARS, BAR_CELLS),
)
# For 80 columns: the last word of the id, no bars, and of a long name the beginning.
NARROW = [
    Column("State", 11),
    Column("Job", 4),
    Column("Map", 4, right=True),
    Column("Shuf", 4, right=True),
    Column("Red", 4, right=True),
    Column("Left", 5, right=True),
    Column("Input", 6, right=True),
    Column("✗", 2, right=True),
    Column("Name", NAME_CELLS),
]


def narrow(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Return the cells of a job for `NARROW`."""
    state, job, *phases, left, _, speed, failed, name = cells
    if len(name.text) > NAME_CELLS:
        name = Cell(f"{name.text[: NAME_CELLS - 1]}…")
    return (state, Cell(job.text.rpartition("_")[2]), *phases, left, speed, failed, name)


class JobsScreen(Page):
    """All jobs, the running ones first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", priority=True),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn", "Reverse", show=False),
        Binding("k", "kill", "Kill"),
        Binding("p", "priority", "Priority"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sort = 0
        self._reverse = False

    def body(self) -> ComposeResult:
        yield RowTable(NARROW, id="jobs")
        yield Static(id="nothing")

    def draw(self) -> None:
        now_s = self.monitor.source.now_s()
        wide = self.size.width >= WIDE_COLUMNS
        found = jobs.listed(self.picture.jobs, sort=jobs.SORTS[self._sort], wanted=self.filter_text)
        if self._reverse:
            found.reverse()
        rows = [(job.key, jobs.job_cells(job, now_s)) for job in found]
        table = self.query_one(RowTable)
        table.set_columns(WIDE if wide else NARROW)
        shown = rows if wide else [(key, narrow(cells)) for key, cells in rows]
        self.show_rows(table, shown, jobs.NO_JOBS)

    def on_resize(self) -> None:
        self.redraw()

    def focus_body(self) -> None:
        self.query_one(RowTable).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.monitor.read_only and action in ("kill", "priority"))

    def action_open(self) -> None:
        if self.query_one("#filter").has_focus:
            self.focus_body()
            return
        key = self.query_one(RowTable).selected_key
        if key:
            self.app.push_screen(JobScreen(key))

    def action_sort(self) -> None:
        self._sort = (self._sort + 1) % len(jobs.SORTS)
        self.notify(f"sorted by {jobs.SORTS[self._sort]}", timeout=2)
        self.redraw()

    def action_turn(self) -> None:
        self._reverse = not self._reverse
        self.redraw()

    def action_kill(self) -> None:
        key = self.query_one(RowTable).selected_key
        if key:
            self.monitor.confirm(actions.kill_job(key))

    def action_priority(self) -> None:
        key = self.query_one(RowTable).selected_key
        if key:
            self.ask(
                f"Priority of {key} ({', '.join(actions.PRIORITIES)}):",
                "NORMAL",
                lambda value: self.monitor.act(actions.set_priority(key, value)),
            )
