"""One job: how far, how fast, how long still; what is stuck, what failed and why."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import RichLog, Static, TabbedContent, TabPane

from mapreduce.snapshot import AttemptRow, JobBoard, JobRow
from tui.screens.attempt import AttemptScreen
from tui.screens.page import Page
from tui.screens.report import ReportScreen
from tui.widgets.bar import bar
from tui.widgets.curves import Curves
from tui.widgets.table import Cell, Column, RowTable
from tui.widgets.task_grid import TaskGrid
from view.grid import MAPS, REDUCES, task_states
from view.words import count, percent, rate, size, span

WIDE_COLUMNS = 120
ATTEMPTS_SHOWN_MAX = 500
_ATTEMPT_ORDER = {"running": 0, "failed": 1, "killed": 2, "succeeded": 3}
_SIGNS = {"running": "▸", "failed": "✗", "killed": "✗", "succeeded": "■"}


_STATE_STYLES = {"running": "bold #f0e442", "failed": "bold #d55e00", "killed": "bold #d55e00"}


def title_text(job: JobRow) -> Text:
    """Give the line that names the job, its state first."""
    sign, style = _SIGNS.get(job.state, "·"), _STATE_STYLES.get(job.state, "bold")
    text = Text().append(f"{sign} {job.state}", style).append(f"  {job.name}", "bold")
    priority = "" if job.priority == "NORMAL" else f"  priority {job.priority}"
    return text.append(f"  {job.key}{priority}  → {job.output or 'stdout'}", "dim")


def progress_text(job: JobRow, now_s: float, width: int) -> Text:
    """Give the three bars with their counts, and the line of figures below."""
    text = Text()
    bar_width = max(10, min(50, width - 52))
    rows = (
        ("map", job.map_fraction, job.maps, job.maps_done, job.maps_running),
        ("shuffle", job.shuffle_fraction, job.reduces, job.reduces_done, job.reduces_running),
        ("reduce", job.reduce_fraction, job.reduces, job.reduces_done, job.reduces_running),
    )
    for label, fraction, tasks, done, running in rows:
        if tasks == 0:
            continue
        text.append(f"{label:<8}", "bold")
        text.append_text(bar(fraction, bar_width))
        text.append(f" {percent(fraction)}  ")
        text.append(f"{count(done)} of {count(tasks)} done, {count(running)} running\n", "dim")
    elapsed = (job.finished_at_s or now_s) - job.submitted_at_s
    text.append(f"in {size(job.input_bytes)}  shuffled {size(job.shuffle_bytes)}")
    text.append(f"  out {size(job.output_bytes)}  {rate(job.input_bytes / max(elapsed, 0.1))}")
    text.append(f"  time {span(elapsed)}")
    if job.state == "running":
        text.append(f"  left {span(job.seconds_left)}", "bold")
    if job.attempts_failed:
        text.append(f"  ✗ {job.attempts_failed} failed attempts", "bold #d55e00")
    return text


def attempt_cells(row: AttemptRow, now_s: float) -> tuple[Cell, ...]:
    """Give the cells of one attempt."""
    failed = row.state in ("failed", "killed")
    elapsed = (row.finished_at_s or now_s) - row.started_at_s
    return (
        Text(f"{_SIGNS.get(row.state, '?')} {row.state}", "bold #d55e00" if failed else ""),
        "_".join(row.key.split("_")[3:]),
        row.host,
        row.locality or "–",
        row.phase or "–",
        percent(row.progress),
        span(elapsed),
        count(row.records),
        size(row.input_bytes),
        row.diagnosis.split("\n")[0] if failed else row.status,
    )


class JobScreen(Page):
    """Overview with the paper's curves, tasks, attempts, counters, events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", priority=True),
        Binding("e", "why", "Why"),
        Binding("k", "kill", "Kill"),
        Binding("f", "fail", "Fail"),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id
        self._events_shown = 0

    def body(self) -> ComposeResult:
        yield Static(id="where")
        yield Static(id="progress")
        yield Static(id="remarks")
        with TabbedContent(id="tabs"):
            with TabPane("Overview", id="overview"):
                with Horizontal(id="wide"):
                    yield Curves(id="curves")
                    with Vertical(id="grids"):
                        yield TaskGrid("maps", id="maps-small")
                        yield TaskGrid("reduces", id="reduces-small")
            with TabPane("Tasks", id="tasks"):
                yield TaskGrid("maps", id="maps")
                yield TaskGrid("reduces", id="reduces")
            with TabPane("Attempts", id="attempts"):
                yield RowTable(
                    [
                        Column("State", 11),
                        Column("Attempt"),
                        Column("Host"),
                        Column("Near"),
                        Column("Phase"),
                        Column("Done", right=True),
                        Column("Time", right=True),
                        Column("Records", right=True),
                        Column("Input", right=True),
                        Column("Status"),
                    ],
                    id="attempt-table",
                )
                yield Static(id="more")
            with TabPane("Counters", id="counters"):
                yield RowTable(
                    [Column("Group"), Column("Counter"), Column("Value", right=True)],
                    id="counter-table",
                )
            with TabPane("Events", id="events"):
                yield RichLog(id="event-log", max_lines=5000, wrap=True)

    def on_mount(self) -> None:
        self.monitor.watch_job(self.job_id)
        super().on_mount()

    def on_unmount(self) -> None:
        self.monitor.watch_job("")

    def on_resize(self) -> None:
        self.set_class(self.size.width < WIDE_COLUMNS, "narrow")

    def on_tabbed_content_tab_activated(self) -> None:
        self.redraw()

    def draw(self) -> None:
        board = self.picture.job
        if board is None or board.job.key != self.job_id:
            why = self.picture.job_refusal or f"{self.job_id}: asking the master…"
            self.query_one("#where", Static).update(Text(why))
            return
        job, now_s = board.job, self.monitor.source.now_s()
        self.query_one("#where", Static).update(title_text(job))
        self.query_one("#progress", Static).update(progress_text(job, now_s, self.size.width))
        said = list(self.picture.remarks)
        if job.diagnosis:
            said.insert(0, job.diagnosis.split("\n")[0])
        self.query_one("#remarks", Static).update(Text("\n".join(said)))
        self.query_one("#remarks").display = bool(said)
        match self.query_one("#tabs", TabbedContent).active:
            case "overview":
                self.query_one("#curves", Curves).show(board.rates)
                self._draw_grids(board, "-small")
            case "tasks":
                self._draw_grids(board, "")
            case "attempts":
                self._draw_attempts(board, now_s)
            case "counters":
                self._draw_counters(board)
            case "events":
                self._draw_events(board)

    def _draw_grids(self, board: JobBoard, suffix: str) -> None:
        job = board.job
        maps = self.query_one(f"#maps{suffix}", TaskGrid)
        reduces = self.query_one(f"#reduces{suffix}", TaskGrid)
        maps.show(task_states(board, MAPS, job.maps))
        reduces.show(task_states(board, REDUCES, job.reduces))
        reduces.display = job.reduces > 0

    def _draw_attempts(self, board: JobBoard, now_s: float) -> None:
        rows = [
            row
            for row in board.attempts
            if self.passes(row.key, row.host, row.state, row.locality, row.diagnosis)
        ]
        rows.sort(key=lambda row: (_ATTEMPT_ORDER.get(row.state, 9), -row.started_at_s, row.key))
        table = self.query_one("#attempt-table", RowTable)
        table.show([(row.key, attempt_cells(row, now_s)) for row in rows[:ATTEMPTS_SHOWN_MAX]])
        more = self.query_one("#more", Static)
        more.display = len(rows) > ATTEMPTS_SHOWN_MAX
        more.update(f"the first {ATTEMPTS_SHOWN_MAX} of {len(rows):,} attempts; / finds others")

    def _draw_counters(self, board: JobBoard) -> None:
        self.query_one("#counter-table", RowTable).show(
            [
                (f"{group}\0{name}", (group.strip(), name.strip(), f"{value:,}"))
                for group, counters in board.counters.items()
                for name, value in counters.items()
                if self.passes(group, name)
            ]
        )

    def _draw_events(self, board: JobBoard) -> None:
        log = self.query_one("#event-log", RichLog)
        if len(board.events) < self._events_shown:
            log.clear()
            self._events_shown = 0
        for event in board.events[self._events_shown :]:
            since = span(event.at_s - board.job.submitted_at_s)
            log.write(Text(f"{since:>8}  ", "dim").append(event.text, "default"))
        self._events_shown = len(board.events)

    def focus_body(self) -> None:
        self.query_one("#tabs", TabbedContent).query_one("ContentTabs").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.monitor.read_only and action in ("kill", "fail"))

    def _selected_attempt(self) -> str | None:
        if self.query_one("#tabs", TabbedContent).active != "attempts":
            return None
        return self.query_one("#attempt-table", RowTable).selected_key

    def action_open(self) -> None:
        if self.query_one("#filter").has_focus:
            self.query_one("#attempt-table").focus()
            return
        attempt = self._selected_attempt()
        if attempt:
            self.app.push_screen(AttemptScreen(attempt))
        else:
            self.query_one("#tabs", TabbedContent).active = "attempts"
            self.query_one("#attempt-table").focus()

    def action_why(self) -> None:
        job_id = self.job_id
        self.monitor.ask(
            lambda source: source.failure_report(job_id),
            lambda text: self.app.push_screen(ReportScreen(f"{job_id}: report", text)),
        )

    def action_kill(self) -> None:
        attempt, job_id = self._selected_attempt(), self.job_id
        if attempt:
            self.monitor.confirm(
                f"Kill {attempt}? It runs again and does not count as failed.",
                lambda source: source.kill_attempt(attempt, fail=False),
            )
        else:
            self.monitor.confirm(f"Kill {job_id}?", lambda source: source.kill_job(job_id))

    def action_fail(self) -> None:
        attempt = self._selected_attempt()
        if attempt:
            self.monitor.confirm(
                f"Fail {attempt}? It counts as a failed attempt.",
                lambda source: source.kill_attempt(attempt, fail=True),
            )
        else:
            self.notify("go to Attempts and choose one first", timeout=3)
