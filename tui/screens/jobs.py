"""The jobs: running, waiting and finished."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from mapreduce.snapshot import JobRow
from tui.screens.confirm import Ask
from tui.screens.job import JobScreen
from tui.screens.page import Page
from tui.widgets.bar import bar
from tui.widgets.table import Cell, Column, RowTable
from view.words import percent, rate, span

STATE_SIGNS = {
    "running": ("▸", "#f0e442"),
    "waiting": ("·", "dim"),
    "succeeded": ("■", "#56b4e9"),
    "failed": ("✗", "bold #d55e00"),
    "killed": ("✗", "#d55e00"),
}
_ORDER = ("running", "waiting", "failed", "killed", "succeeded")
PRIORITIES = ("VERY_HIGH", "HIGH", "NORMAL", "LOW", "VERY_LOW")
NO_JOBS = """\
No job has been submitted yet. For example:

    mrstream -input /in -mapper m.py -reducer r.py"""
SORTS = ("state", "name", "started", "time left", "failed attempts")


WIDE_COLUMNS = 120
BAR_CELLS = 10
NAME_CELLS = 20
WIDE = (
    Column("State", 11),
    Column("Job"),
    Column("Map", 15),
    Column("Shuffle", 15),
    Column("Reduce", 15),
    Column("Left", right=True),
    Column("Time", right=True),
    Column("Input", right=True),
    Column("Failed", right=True),
    Column("Name"),
)
# For 80 columns: the last word of the id, no bars, and of a long name the beginning.
NARROW = (
    Column("State", 11),
    Column("Job", 4),
    Column("Map", 4, right=True),
    Column("Shuf", 4, right=True),
    Column("Red", 4, right=True),
    Column("Left", 5, right=True),
    Column("Input", 6, right=True),
    Column("✗", 2, right=True),
    Column("Name", NAME_CELLS),
)


def phase(fraction: float, tasks: int, *, with_bar: bool) -> Cell:
    """Give a bar and a percentage; a dash for a phase that the job does not have."""
    if tasks == 0:
        return "–"
    share = percent(fraction)
    return bar(fraction, BAR_CELLS).append(f" {share}", "default") if with_bar else share


def job_cells(job: JobRow, now_s: float, *, wide: bool) -> tuple[Cell, ...]:
    """Give the cells of one job, for `WIDE` or `NARROW`."""
    sign, style = STATE_SIGNS.get(job.state, ("?", ""))
    elapsed = max(0.0, (job.finished_at_s or now_s) - job.submitted_at_s)
    state = Text(f"{sign} {job.state}", style)
    name = job.key.removeprefix("job_")
    phases = (
        phase(job.map_fraction, job.maps, with_bar=wide),
        phase(job.shuffle_fraction, job.reduces, with_bar=wide),
        phase(job.reduce_fraction, job.reduces, with_bar=wide),
    )
    left = span(job.seconds_left) if job.state == "running" else "–"
    speed = rate(job.input_bytes / elapsed) if elapsed and job.state != "waiting" else "–"
    failed = Text(str(job.attempts_failed), "bold #d55e00" if job.attempts_failed else "dim")
    if wide:
        return (state, name, *phases, left, span(elapsed), speed, failed, job.name)
    shown = job.name if len(job.name) <= NAME_CELLS else f"{job.name[: NAME_CELLS - 1]}…"
    return (state, name.rpartition("_")[2], *phases, left, speed, failed, shown)


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
        jobs = [job for job in self.picture.jobs if self.passes(job.key, job.name, job.state)]
        jobs.sort(key=self._sort_key)
        if self._reverse:
            jobs.reverse()
        table = self.query_one(RowTable)
        table.set_columns(WIDE if wide else NARROW)
        rows = [(job.key, job_cells(job, now_s, wide=wide)) for job in jobs]
        self.show_rows(table, rows, NO_JOBS)

    def on_resize(self) -> None:
        self.redraw()

    def _sort_key(self, job: JobRow) -> tuple[float | str, ...]:
        order = _ORDER.index(job.state) if job.state in _ORDER else len(_ORDER)
        by = SORTS[self._sort]
        if by == "name":
            return (job.name, job.key)
        if by == "started":
            return (-job.submitted_at_s, job.key)
        if by == "time left":
            return (-job.seconds_left, job.key)
        if by == "failed attempts":
            return (-float(job.attempts_failed), job.key)
        return (float(order), -job.submitted_at_s, job.key)

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
        self._sort = (self._sort + 1) % len(SORTS)
        self.notify(f"sorted by {SORTS[self._sort]}", timeout=2)
        self.redraw()

    def action_turn(self) -> None:
        self._reverse = not self._reverse
        self.redraw()

    def action_kill(self) -> None:
        key = self.query_one(RowTable).selected_key
        if key:
            self.monitor.confirm(f"Kill {key}?", lambda source: source.kill_job(key))

    def action_priority(self) -> None:
        key = self.query_one(RowTable).selected_key
        if not key:
            return

        def given(value: str | None) -> None:
            if value is None:
                return
            priority = value.upper()
            if priority not in PRIORITIES:
                self.notify(
                    f"{value!r} is no priority; one of {', '.join(PRIORITIES)}", severity="error"
                )
                return
            self.monitor.act(lambda source: source.set_priority(key, priority))

        self.app.push_screen(Ask(f"Priority of {key} ({', '.join(PRIORITIES)}):", "NORMAL"), given)
