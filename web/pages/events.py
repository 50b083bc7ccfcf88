"""What happened in the jobs that run now or ended last, and who took over the lead of a group of
masters; the last first."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.cluster.errors import ClusterError
from mrstream.view import jobs
from mrstream.view.cells import Cell, Column, Row
from mrstream.view.words import span
from mrstream.web.pages.markup import joined, url
from mrstream.web.pages.parts import Part, finder, nothing, page_slice, pager, table
from mrstream.web.pages.visit import Page, Visit

COLUMNS = (Column("Ago", right=True), Column("Job"), Column("What happened"))
JOBS_MAX = 12
MASTERS = "masters"
"""What events of masters have in the place of a job."""


def page(visit: Visit) -> Page:
    """Return the events of the jobs at the top of the table of jobs, and of the masters."""

    def draw() -> Markup:
        found = _happened(visit)
        if not found:
            return nothing("Nothing has happened yet.", visit.wanted)
        found.sort(key=lambda event: -event[0])
        rows: list[Row] = [
            (job_id, (Cell(span(visit.now_s - at_s)), Cell(name), Cell(text)))
            for at_s, job_id, name, text in found[page_slice(visit.page)]
        ]
        listed = table("Events", COLUMNS, rows, link=_about, head=1)
        return joined(listed, pager("/events", visit.page, len(found), find=visit.wanted))

    body = (finder("/events", visit.wanted), Part("events", draw))
    return Page("Events", body, here="Events", every_s=2)


def _about(key: str) -> str:
    """The page that tells more of what an event is about."""
    return url("/hosts") if key == MASTERS else url(f"/jobs/{key}")


def _happened(visit: Visit) -> list[tuple[float, str, str, str]]:
    with visit.watch.picture() as picture:
        shown = [job.key for job in jobs.listed(picture.jobs, sort="state")[:JOBS_MAX]]
        masters = list(picture.events)
    wanted = visit.wanted.lower()
    found = [
        (event.at_s, MASTERS, MASTERS, event.text)
        for event in masters
        if wanted in event.text.lower() or wanted in MASTERS
    ]
    for job_id in shown:
        try:
            with visit.watch.job(job_id) as (board, _):
                name = board.job.name or job_id
                found += [
                    (event.at_s, job_id, name, event.text)
                    for event in board.events
                    if wanted in event.text.lower() or wanted in name.lower()
                ]
        except ClusterError:  # of a job that ended before the master's last start nothing is told
            continue
    return found
