"""Logs of a daemon: what happened, in a file that turns over, written beside the service.

`ROLE.log` has the news (the stdlib's logging, formatted and written by a thread of its own);
`ROLE.rpc.log` has every request without its payload (GFS §5.3), singly while there are few and
summed up by kind when there are many. Neither ever holds up the service: what cannot be written
in time is counted and dropped, and the count is written.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import queue
import threading
import time
from collections import deque
from typing import Any

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request

LOG_BYTES_MAX = 16 * 1024 * 1024
LOG_FILES_KEPT = 4
RPC_INTERVAL_S = 1.0
RPC_SINGLE_MAX = 500
"""Requests that are logged singly in an interval; those beyond are summed up."""
RPC_QUEUE_MAX = 200_000
_FIELD_CHARS_MAX = 120


class _Lines(logging.Formatter):
    """`2026-11-16T05:24:54.123Z INFO dfs.master: words`, in UTC."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        # A daemon is a module that is run: its own name for itself says nothing.
        name = self._role if record.name == "__main__" else record.name.removeprefix("mrstream.")
        head = f"{stamp}.{int(record.msecs):03d}Z {record.levelname} {name}"
        text = f"{head}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def rotating(path: str) -> logging.Handler:
    """Return a handler that writes to the file and turns it over when it is full."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES_KEPT, encoding="utf-8"
    )
    handler.setFormatter(_Lines(os.path.basename(path).removesuffix(".log")))
    return handler


class DaemonLog:
    """The news of one daemon: takes over the root logger until `close`."""

    def __init__(self, path: str, level: int = logging.INFO) -> None:
        self._queue: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        self._handler = rotating(path)
        self._listener = logging.handlers.QueueListener(self._queue, self._handler)
        self._sender = logging.handlers.QueueHandler(self._queue)
        root = logging.getLogger()
        root.setLevel(level)
        root.addHandler(self._sender)
        logging.getLogger("asyncio").setLevel(max(level, logging.WARNING))
        self._listener.start()

    def close(self) -> None:
        """Write out what is queued."""
        logging.getLogger().removeHandler(self._sender)
        self._listener.stop()
        self._handler.close()


class RpcLog:
    """The requests of one daemon; `observe` is a `Server`'s observer."""

    def __init__(self, path: str) -> None:
        self._handler = rotating(path)
        self._calls: deque[tuple[float, Any, Request, float, ClusterError | None]] = deque()
        self._dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rpc-log", daemon=True)
        self._thread.start()

    def observe(
        self, peer: Any, request: Request, seconds: float, error: ClusterError | None
    ) -> None:
        """Note a call; it is written later."""
        if not request.diagnosed:
            return
        if len(self._calls) >= RPC_QUEUE_MAX:
            self._dropped += 1
            return
        self._calls.append((time.time(), peer, request, seconds, error))

    def close(self) -> None:
        """Write out what is queued."""
        self._closing.set()
        self._thread.join(5.0)
        self._handler.close()

    def _run(self) -> None:
        while not self._closing.wait(RPC_INTERVAL_S):
            self._write_out()
        self._write_out()

    def _write_out(self) -> None:
        sums: dict[str, tuple[int, float]] = {}
        for index in range(len(self._calls)):
            at_s, peer, request, seconds, error = self._calls.popleft()
            if index < RPC_SINGLE_MAX or error is not None:
                self._write(at_s, describe_call(peer, request, seconds, error))
            else:
                name = type(request).__name__
                count, total_s = sums.get(name, (0, 0.0))
                sums[name] = (count + 1, total_s + seconds)
        for name, (count, total_s) in sums.items():
            mean_us = total_s / count * 1e6
            self._write(time.time(), f"{name} and {count:,} more of them mean_us={mean_us:.0f}")
        if self._dropped:
            self._write(time.time(), f"{self._dropped:,} requests were not logged: too many")
            self._dropped = 0

    def _write(self, at_s: float, text: str) -> None:
        record = logging.LogRecord("rpc", logging.INFO, "", 0, text, None, None)
        record.created, record.msecs = at_s, (at_s % 1) * 1000
        self._handler.handle(record)


def describe_call(peer: Any, request: Request, seconds: float, error: ClusterError | None) -> str:
    """Return one line for a call: who asked what, how long it took, how it ended."""
    fields = " ".join(
        f"{name}={_shown(getattr(request, name))}" for name in request.__struct_fields__
    )
    client_id, number = peer.request_id
    ended = "ok" if error is None else f"{type(error).__name__}: {error}"
    return (
        f"{type(request).__name__} {fields} from={peer.role}@{peer.host or peer.address} "
        f"id={client_id:x}.{number} us={seconds * 1e6:.0f} {ended}"
    )


def _shown(value: Any) -> str:
    """Bytes are payload: only their number is told. Long values are cut."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, list | tuple | dict) and len(value) > 8:
        return f"<{len(value)} items>"
    if isinstance(value, msgspec.Struct):
        inner = ",".join(_shown(getattr(value, name)) for name in value.__struct_fields__)
        text = f"{type(value).__name__}({inner})"
    else:
        text = repr(value)
    return text if len(text) <= _FIELD_CHARS_MAX else text[:_FIELD_CHARS_MAX] + "…"
