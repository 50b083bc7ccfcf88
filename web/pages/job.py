"""One job: how far, how fast, how long still; what is stuck, what failed and why."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.mapreduce.client.job_text import table_lines
from mrstream.mapreduce.snapshot import EventRow, JobBoard, JobRow
from mrstream.view import attempts, jobs
from mrstream.view.actions import PRIORITIES
from mrstream.view.cells import Cell, Column, Row
from mrstream.view.grid import MAPS, REDUCES, task_states
from mrstream.view.palette import TASK_MARKS
from mrstream.view.words import percent, span
from mrstream.web.pages import curves_svg, grid_svg
from mrstream.web.pages.markup import Child, element, joined, url
from mrstream.web.pages.parts import (
    Part,
    bar,
    button,
    cell_words,
    choice,
    facts,
    finder,
    link,
    nothing,
    page_slice,
    pager,
    table,
)
from mrstream.web.pages.visit import Page, Visit

TABS = (
    ("Overview", ""),
    ("Tasks", "/tasks"),
    ("Attempts", "/attempts"),
    ("Counters", "/counters"),
    ("Events", "/events"),
    ("Why", "/failure"),
)
TASK_COLUMNS = (
    Column("State"),
    Column("Task"),
    Column("Host"),
    Column("Done", right=True),
    Column("Time", right=True),
)
TASK_WORDS = {mark.word: state for state, mark in TASK_MARKS.items()}
KINDS = {"all": "", "maps": MAPS, "reduces": REDUCES, MAPS: MAPS, REDUCES: REDUCES}
EVENTS_AT_ONCE = 8
FAILED_AT_ONCE = 10


def overview(visit: Visit, job_id: str) -> Page:
    """Return the job at a glance: curves, grids, what failed, what happened last."""
    watch = visit.watch
    with watch.job(job_id) as (board, _):
        job, tasks, rates = board.job, board.tasks.version, len(board.rates)

    def curves() -> Markup:
        with watch.job(job_id) as (board, _):
            return joined(element("h2", "Bytes a second"), curves_svg.drawn(board.rates))

    def grids() -> Markup:
        with watch.job(job_id) as (board, _):
            return joined(element("h2", "Tasks"), _grids(board))

    def failed() -> Markup:
        with watch.job(job_id) as (board, _):
            return _failed(board, visit.now_s)

    def events() -> Markup:
        with watch.job(job_id) as (board, _):
            last = board.events[-EVENTS_AT_ONCE:]
            listed = _events(board.job, last[::-1])
        return joined(element("h2", "What happened last"), listed)

    body = (
        Part("curves", curves, f"{rates}"),
        Part("grids", grids, f"{tasks}.{job.maps}.{job.reduces}"),
        Part("failed", failed, f"{job.attempts_failed}"),
        Part("happened", events, f"{len(board.events)}"),
    )
    return _page(visit, job_id, "", *body)


def tasks(visit: Visit, job_id: str) -> Page:
    kind, state = visit.one_of("kind", list(KINDS)), visit.one_of("state", ["all", *TASK_WORDS])
    path = f"/jobs/{job_id}/tasks"

    def draw() -> Markup:
        with visit.watch.job(job_id) as (board, _):
            found = sorted(
                (
                    row
                    for row in board.tasks
                    if row.key.startswith(KINDS[kind])
                    and state in ("all", TASK_MARKS[row.state].word)
                    and int(row.key[1:]) >= visit.number("first", 0)
                ),
                key=lambda row: row.key,
            )
        rows: list[Row] = [
            (
                row.key,
                (
                    Cell.of(TASK_MARKS[row.state]),
                    Cell(row.key),
                    Cell(row.host),
                    Cell(percent(row.progress)),
                    Cell(span(visit.now_s - row.started_at_s) if row.host else "–"),
                ),
            )
            for row in found[page_slice(visit.page)]
        ]
        if not rows:
            return nothing("No task is in this state.")
        listed = table(
            "Tasks",
            TASK_COLUMNS,
            rows,
            link=lambda key: url(f"/jobs/{job_id}/attempts", find=f"_{key[0]}_{key[1:]}"),
            head=1,
        )
        first = visit.number("first", 0)
        ways = pager(path, visit.page, len(found), kind=kind, state=state, first=first or "")
        return joined(listed, ways)

    chosen = {MAPS: "maps", REDUCES: "reduces"}.get(kind, kind)
    form = element(
        "form",
        choice("kind", "Tasks", ("all", "maps", "reduces"), chosen),
        choice("state", "State", ("all", *TASK_WORDS), state),
        element("button", "Show"),
        action=url(path),
        method="get",
        cls="finder",
    )
    return _page(visit, job_id, "/tasks", form, Part("tasks", draw))


def attempts_of(visit: Visit, job_id: str) -> Page:
    """Return the attempts: running ones first, then what went wrong."""
    path = f"/jobs/{job_id}/attempts"

    def draw() -> Markup:
        with visit.watch.job(job_id) as (board, _):
            found = attempts.listed(board, wanted=visit.wanted)
        rows = [
            (row.key, attempts.attempt_cells(row, visit.now_s))
            for row in found[page_slice(visit.page)]
        ]
        if not rows:
            return nothing("No attempt has started yet.", visit.wanted)
        return joined(
            _attempt_table(job_id, "Attempts", rows),
            pager(path, visit.page, len(found), find=visit.wanted),
        )

    return _page(visit, job_id, "/attempts", finder(path, visit.wanted), Part("attempts", draw))


def counters(visit: Visit, job_id: str) -> Page:
    def draw() -> Markup:
        with visit.watch.job(job_id) as (board, _):
            rows = jobs.counter_rows(board, visit.wanted)
        if not rows:
            return nothing("Nothing has been counted yet.", visit.wanted)
        return table("Counters", jobs.COUNTER_COLUMNS, rows, head=1)

    form = finder(f"/jobs/{job_id}/counters", visit.wanted)
    return _page(visit, job_id, "/counters", form, Part("counters", draw), _facts(visit, job_id))


def _facts(visit: Visit, job_id: str) -> Markup:
    """The columns of the paper's Table 1 for this job, as `mrstream job -history` tells them."""
    told = visit.source.report(job_id).facts
    if not told:
        return joined()
    pairs = [line.partition(": ")[::2] for line in table_lines(told)]
    return joined(element("h2", "As in the paper's Table 1"), facts(pairs))


def events(visit: Visit, job_id: str) -> Page:
    """Return what happened, the last first."""
    path = f"/jobs/{job_id}/events"

    def draw() -> Markup:
        with visit.watch.job(job_id) as (board, _):
            found = [event for event in board.events if visit.wanted.lower() in event.text.lower()]
            job = board.job
        if not found:
            return nothing("Nothing has happened yet.", visit.wanted)
        return joined(
            _events(job, found[::-1][page_slice(visit.page)]),
            pager(path, visit.page, len(found), find=visit.wanted),
        )

    return _page(visit, job_id, "/events", finder(path, visit.wanted), Part("events", draw))


def failure(visit: Visit, job_id: str) -> Page:
    """Return the report on what failed, in full."""
    report = element("pre", visit.source.failure_report(job_id), tabindex=0)
    as_text = element("p", link("The same as plain text", f"/jobs/{job_id}/failure.txt"))
    return _page(visit, job_id, "/failure", report, as_text)


# --- what these pages share


def _page(visit: Visit, job_id: str, tab: str, *body: Part | Markup) -> Page:
    with visit.watch.job(job_id) as (board, _):
        title, has_ended = board.job.name or job_id, bool(board.job.finished_at_s)

    def head() -> Markup:
        with visit.watch.job(job_id) as (board, remarks):
            return _head(board.job, remarks, visit.now_s)

    names = [
        element(
            "li",
            element(
                "a", word, href=url(f"/jobs/{job_id}{end}"), aria_current=end == tab and "page"
            ),
        )
        for word, end in TABS
    ]
    tabs = element("nav", element("ul", names), cls="tabs", aria_label="About this job")
    acts = _acts(job_id) if visit.visitor.may_change and not has_ended else joined()
    parts = (Part("head", head), acts, tabs, *body)
    return Page(title, parts, here="Jobs", every_s=2, back=(("Jobs", "/jobs"),))


def _head(job: JobRow, remarks: tuple[str, ...], now_s: float) -> Markup:
    state, _, about = jobs.title(job)
    phases = [
        element(
            "tr",
            element("th", phase.label, scope="row"),
            element("td", bar(phase.fraction), percent(phase.fraction).strip(), cls="bars"),
            element("td", phase.tasks),
        )
        for phase in jobs.phases(job)
    ]
    figures = [element("li", cell_words(cell)) for cell in jobs.figures(job, now_s)]
    notes = [element("li", note) for note in jobs.notes(job, remarks)]
    return joined(
        element("p", cell_words(state), " ", cell_words(about), cls="state"),
        element(
            "table",
            element("caption", "How far", cls="unseen"),
            element("tbody", phases),
            cls="plain phases",
        ),
        element("ul", figures, cls="figures", aria_label="Figures"),
        element("ul", notes, cls="notes", aria_label="Remarks") if notes else None,
    )


def _acts(job_id: str) -> Markup:
    priority = element(
        "form",
        element("input", type="hidden", name="job", value=job_id),
        choice("value", "Priority", PRIORITIES, "NORMAL"),
        element("button", "Change…"),
        action="/act/priority",
        method="get",
        cls="inline",
    )
    return element(
        "div", button("Kill…", "/act/kill-job", cls="danger", job=job_id), priority, cls="acts"
    )


def _grids(board: JobBoard) -> Markup:
    job, path = board.job, f"/jobs/{board.job.key}/tasks"
    kinds = (("maps", MAPS, job.maps), ("reduces", REDUCES, job.reduces))
    return joined(
        grid_svg.drawn(label, kind, task_states(board, kind, count), path)
        for label, kind, count in kinds
        if count
    )


def _failed(board: JobBoard, now_s: float) -> Markup:
    found = [row for row in board.attempts if row.state == "failed"]
    if not found:
        return joined()
    found.sort(key=lambda row: (-row.finished_at_s, row.key))
    rows = [(row.key, attempts.attempt_cells(row, now_s)) for row in found[:FAILED_AT_ONCE]]
    more: Child = None
    if len(found) > FAILED_AT_ONCE:
        path = f"/jobs/{board.job.key}/attempts"
        more = element("p", link(f"All {len(found):,} that failed", path, find="failed"))
    listed = _attempt_table(board.job.key, "Attempts that failed", rows)
    return joined(element("h2", "What failed"), listed, more)


def _attempt_table(job_id: str, caption: str, rows: list[Row]) -> Markup:
    def there(key: str) -> str:
        return url(f"/jobs/{job_id}/attempts/{key}")

    return table(caption, attempts.COLUMNS, rows, link=there, head=1)


def _events(job: JobRow, found: list[EventRow]) -> Markup:
    told = [
        element("li", element("span", jobs.event_age(job, event), cls="age"), " ", event.text)
        for event in found
    ]
    return element("ul", told, cls="events")
