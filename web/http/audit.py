"""Who did what through the doors: one line of JSON a request, in a file that turns over.

No query strings and no secrets stand in it. Written by a thread of its own, which the doors never
wait for; what cannot be written in time is counted, and the count is written.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import queue
import threading
import time

from mrstream.cluster.logs import rotating
from mrstream.web.http.server import Outcome

QUEUE_MAX = 100_000


def audit_line(outcome: Outcome) -> str:
    note = outcome.note
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(outcome.at_s))
    fields = {
        "at": f"{stamp}.{int(outcome.at_s % 1 * 1000):03d}Z",
        "id": outcome.id,
        "from": outcome.peer,
        "face": note.face,
        "operation": note.operation or outcome.method,
        "key": note.key,
        "user": note.user,
        "paths": note.paths,
        "status": outcome.status,
        "in": outcome.bytes_in,
        "out": outcome.bytes_out,
        "seconds": round(outcome.seconds, 4),
        "agent": outcome.agent,
    }
    return json.dumps(fields, separators=(",", ":"))


class _Bare(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return str(record.msg)


class Audit:
    """The audit log of one gateway."""

    def __init__(self, path: str) -> None:
        self._handler = rotating(path)
        self._handler.setFormatter(_Bare())
        self._queue: queue.Queue[Outcome | None] = queue.Queue(QUEUE_MAX)
        self._lost_count = 0
        self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._thread.start()

    def note(self, outcome: Outcome) -> None:
        """A request is over."""
        try:
            self._queue.put_nowait(outcome)
        except queue.Full:
            self._lost_count += 1

    def close(self) -> None:
        """Write out what is queued."""
        self._queue.put(None)
        self._thread.join(5.0)
        self._handler.close()

    def _write_all(self) -> None:
        while (outcome := self._queue.get()) is not None:
            self._write(audit_line(outcome))
            if self._lost_count:
                lost, self._lost_count = self._lost_count, 0
                self._write(json.dumps({"lost": lost}))

    def _write(self, line: str) -> None:
        self._handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, line, None, None))
