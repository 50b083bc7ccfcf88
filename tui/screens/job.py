"""One job: how far, how fast, how long still; what is stuck, what failed and why."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import RichLog, Static, TabbedContent, TabPane

from mrstream.mapreduce.snapshot import JobBoard, JobRow
from mrstream.tui.screens.attempt import AttemptScreen
from mrstream.tui.screens.page import Page
from mrstream.tui.screens.report import ReportScreen
from mrstream.tui.widgets.bar import bar
from mrstream.tui.widgets.curves import Curves
from mrstream.tui.widgets.ink import PlainText, joined
from mrstream.tui.widgets.table import RowTable, columns
from mrstream.tui.widgets.task_grid import TaskGrid
from mrstream.view import actions, attempts, jobs
from mrstream.view.grid import MAPS, REDUCES, task_states
from mrstream.view.words import percent

WIDE_COLUMNS = 120
ATTEMPTS_SHOWN_MAX = 500


def progress_text(job: JobRow, now_s: float, width: int) -> PlainText:
    """Return the three bars with their counts, and the line of figures below."""
    text = PlainText()
    bar_width = max(10, min(50, width - 52))
    for phase in jobs.phases(job):
        text.append(f"{phase.label:<8}", "bold")
        text.append_text(bar(phase.fraction, bar_width))
        text.append(f" {percent(phase.fraction)}  ")
        text.append(f"{phase.tasks}\n", "dim")
    text.append_text(joined(jobs.figures(job, now_s)))
    return text


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
                yield RowTable(columns(attempts.COLUMNS, {"State": 11}), id="attempt-table")
                yield Static(id="more")
            with TabPane("Counters", id="counters"):
                yield RowTable(columns(jobs.COUNTER_COLUMNS, {}), id="counter-table")
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
            self.query_one("#where", Static).update(PlainText(why))
            return
        job, now_s = board.job, self.monitor.source.now_s()
        self.query_one("#where", Static).update(joined(jobs.title(job)))
        self.query_one("#progress", Static).update(progress_text(job, now_s, self.size.width))
        said = jobs.notes(job, self.picture.remarks)
        self.query_one("#remarks", Static).update(PlainText("\n".join(said)))
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
                rows = jobs.counter_rows(board, self.filter_text)
                self.query_one("#counter-table", RowTable).show(rows)
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
        found = attempts.listed(board, wanted=self.filter_text)
        self.query_one("#attempt-table", RowTable).show(
            [(row.key, attempts.attempt_cells(row, now_s)) for row in found[:ATTEMPTS_SHOWN_MAX]]
        )
        more = self.query_one("#more", Static)
        more.display = len(found) > ATTEMPTS_SHOWN_MAX
        more.update(f"the first {ATTEMPTS_SHOWN_MAX} of {len(found):,} attempts; / finds others")

    def _draw_events(self, board: JobBoard) -> None:
        log = self.query_one("#event-log", RichLog)
        if len(board.events) < self._events_shown:
            log.clear()
            self._events_shown = 0
        for event in board.events[self._events_shown :]:
            since = jobs.event_age(board.job, event)
            log.write(PlainText(f"{since:>8}  ", "dim").append(event.text, "default"))
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
        self.monitor.confirm(actions.kill_attempt(attempt) if attempt else actions.kill_job(job_id))

    def action_fail(self) -> None:
        attempt = self._selected_attempt()
        if attempt:
            self.monitor.confirm(actions.fail_attempt(attempt))
        else:
            self.notify("go to Attempts and choose one first", timeout=3)
