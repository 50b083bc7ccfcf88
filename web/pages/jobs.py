"""The jobs: running, waiting and ended."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.view import jobs
from mrstream.view.summary import NO_ANSWER_YET
from mrstream.web.pages.markup import joined, url
from mrstream.web.pages.parts import (
    Part,
    choice,
    finder,
    nothing,
    page_slice,
    pager,
    table,
)
from mrstream.web.pages.visit import Page, Visit


def page(visit: Visit) -> Page:
    sort = visit.one_of("sort", jobs.SORTS)

    def draw() -> Markup:
        with visit.watch.picture() as picture:
            found = jobs.listed(picture.jobs, sort=sort, wanted=visit.wanted)
            if not found:
                unheard = picture.lost_reason and not picture.at_s
                return nothing(NO_ANSWER_YET if unheard else jobs.NO_JOBS, visit.wanted)
            rows = [
                (job.key, jobs.job_cells(job, visit.now_s)) for job in found[page_slice(visit.page)]
            ]
        listed = table("Jobs", jobs.COLUMNS, rows, link=lambda key: url(f"/jobs/{key}"), head=1)
        ways = pager("/jobs", visit.page, len(found), find=visit.wanted, sort=sort)
        return joined(listed, ways)

    form = finder("/jobs", visit.wanted, choice("sort", "Sort by", jobs.SORTS, sort))
    return Page("Jobs", (form, Part("jobs", draw)), here="Jobs", every_s=2)
