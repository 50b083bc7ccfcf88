"""Which page is under which address."""

from __future__ import annotations

from mrstream.web.pages import about, attempt, events, files, forms, hosts, job, jobs, keys, trash
from mrstream.web.pages.visit import NoSuchPage, OutOfBounds, Page, Visit

_OF_A_JOB = {
    "tasks": job.tasks,
    "attempts": job.attempts_of,
    "counters": job.counters,
    "events": job.events,
    "failure": job.failure,
}


def page(visit: Visit, path: str) -> Page:
    if path == "/files" or path.startswith("/files/"):
        below = path.removeprefix("/files").rstrip("/")
        return files.page(visit, below or "/")
    words = path.strip("/").split("/")
    if words[0] in ("jobs", "events", "hosts", "keys") and not visit.visitor.sees_all:
        raise OutOfBounds("this tells of all of the cluster; your key reaches only some paths")
    match words:
        case ["jobs"]:
            return jobs.page(visit)
        case ["jobs", job_id]:
            return job.overview(visit, job_id)
        case ["jobs", job_id, tab] if tab in _OF_A_JOB:
            return _OF_A_JOB[tab](visit, job_id)
        case ["jobs", job_id, "attempts", attempt_id]:
            return attempt.page(visit, job_id, attempt_id)
        case ["hosts"]:
            return hosts.page(visit)
        case ["hosts", name]:
            return hosts.one(visit, name)
        case ["trash"]:
            return trash.page(visit)
        case ["events"]:
            return events.page(visit)
        case ["keys"]:
            return keys.page(visit)
        case ["about"]:
            return about.page(visit)
        case ["act", "upload"]:
            return forms.upload_form(visit)
        case ["act", name]:
            return forms.asked(visit, name)
    raise NoSuchPage(f"there is nothing under {path}")
