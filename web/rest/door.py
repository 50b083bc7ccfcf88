"""The door of history, snapshots and metrics: a proof by key (or a trusted network), then JSON.

Cookies mean nothing here, so a page in a browser cannot ask in somebody's name. Only looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.version import version
from mrstream.mapreduce.protocol import JobReport
from mrstream.view.watch import Watch
from mrstream.web.http.figures import Figures
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, json_reply
from mrstream.web.http.request import Request
from mrstream.web.rest import api, history, metrics

HISTORY = "/ws/v1/history"
API = "/api/v1"
METRICS = "/metrics"
PREFIXES = (f"{HISTORY}/", HISTORY, f"{API}/", METRICS)
_JAVA = "org.apache.hadoop.yarn.webapp."


@dataclass(frozen=True, slots=True)
class Rest:
    """What can be asked about one cluster. `check` raises `Refused` if who asks may not."""

    watch: Watch
    check: Callable[[Request], Awaitable[object]]
    figures: Figures | None = None
    started_at_s: float = field(default_factory=time.time)

    async def __call__(self, request: Request) -> Reply:
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, f"{request.method} changes nothing here", [("Allow", "GET, HEAD")])
        await self.check(request)
        query = dict(request.query.pairs)
        request.note.operation = request.path.strip("/").split("/")[0] or "none"
        return await asyncio.to_thread(self._answer, request.path, query)

    def _answer(self, path: str, query: dict[str, str]) -> Reply:
        if path == METRICS:
            return self._metrics()
        try:
            if path.startswith(f"{API}/"):
                return json_reply(self._api(path.removeprefix(API).strip("/").split("/")))
            words = path.removeprefix(HISTORY).strip("/").split("/")
            return json_reply(self._history(words, query))
        except history.NotFound as error:
            return _refusal(404, "NotFoundException", str(error))
        except history.BadQuery as error:
            return _refusal(400, "BadRequestException", str(error))
        except Unavailable as error:
            return _refusal(503, "WebApplicationException", str(error))
        except UserError as error:
            return _refusal(404, "NotFoundException", str(error))

    def _metrics(self) -> Reply:
        source = self.watch.source
        with self.watch.picture():
            pass  # so that the masters are asked before it is locked for the drawing
        try:
            masters = source.figures()
        except ClusterError:
            masters = []
        with self.watch.picture() as picture:
            body = metrics.text(picture, source.masters, masters, self.figures)
        return Reply(200, body, (("Content-Type", metrics.CONTENT_TYPE),), pack=True)

    def _api(self, words: list[str]) -> dict[str, Any]:
        if words[0] == "jobs" and len(words) == 2:
            with self.watch.job(words[1]) as (board, remarks):
                return api.job(board, remarks)
        told = {"jobs": api.jobs, "hosts": api.hosts, "storage": api.storage}
        if len(words) != 1 or words[0] not in told:
            raise history.NotFound(f"there is no {'/'.join(words)}; jobs, hosts or storage")
        with self.watch.picture() as picture:
            return told[words[0]](picture)

    def _history(self, words: list[str], query: dict[str, str]) -> dict[str, Any]:
        match words:
            case [""] | ["info"]:
                return history.info(version(), self.started_at_s)
            case ["mapreduce", "jobs"]:
                return history.jobs(self.watch.source.all_jobs(), query)
            case ["mapreduce", "jobs", job_id, *rest]:
                return _of_job(self.watch.source.report(job_id), rest, query)
        raise history.NotFound(f"there is nothing under {HISTORY}/{'/'.join(words)}")


def _of_job(report: JobReport, words: list[str], query: dict[str, str]) -> dict[str, Any]:
    match words:
        case []:
            return history.job(report)
        case ["conf"]:
            return history.conf(report)
        case ["counters"]:
            return history.counters(report)
        case ["jobattempts"]:
            return history.job_attempts(report)
        case ["tasks"]:
            return history.tasks(report, query)
        case ["tasks", task_id]:
            return history.task(report, task_id)
        case ["tasks", task_id, "counters"]:
            return history.task_counters(report, task_id)
        case ["tasks", task_id, "attempts"]:
            return history.attempts(report, task_id)
        case ["tasks", task_id, "attempts", attempt_id]:
            return history.attempt(report, task_id, attempt_id)
        case ["tasks", task_id, "attempts", attempt_id, "counters"]:
            return history.attempt_counters(report, task_id, attempt_id)
    raise history.NotFound(f"a job has no {'/'.join(words)}")


def _refusal(status: int, name: str, message: str) -> Reply:
    """As Hadoop says it."""
    told = {"exception": name, "message": message, "javaClassName": f"{_JAVA}{name}"}
    return json_reply({"RemoteException": told}, status)
