"""What a client of the dfs was doing, and for how long: why somebody went on later than others.

A diary stands between a client and whoever it asks: the master, wherever that is, and chunkservers.
Steps that took a while, or failed, are kept with their times and errors.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.dfs.client.client import DfsClient

WORTH_S = 0.5
"""A step that took less, and went well, is not worth a line."""
LINES_MAX = 200


@dataclass(slots=True)
class Step:
    """One question and what came of it."""

    what: str
    began_s: float
    ended_s: float = 0.0
    """0: it goes on."""
    error: str = ""

    def words(self, since_s: float) -> str:
        """A line, with times from that moment on."""
        end = f"{self.ended_s - since_s:.1f} s" if self.ended_s else "now"
        said = f" ({self.error})" if self.error else ""
        return f"{self.what} {self.began_s - since_s:.1f} to {end}{said}"


class Diary:
    """The steps of one client; several threads may write in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: list[Step] = []
        self._kept: deque[Step] = deque(maxlen=LINES_MAX)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        step = Step(what, time.monotonic())
        with self._lock:
            self._under_way.append(step)
        try:
            yield
        except ClusterError as error:
            step.error = f"{type(error).__name__}: {str(error)[:200]}"
            raise
        finally:
            step.ended_s = time.monotonic()
            with self._lock:
                self._under_way.remove(step)
                if step.error or step.ended_s - step.began_s >= WORTH_S:
                    self._kept.append(step)

    def since(self, began_s: float, until_s: float) -> list[str]:
        """What was worth a line and went on in that time, in the order of beginning."""
        with self._lock:
            steps = [*self._kept, *self._under_way]
        seen = [s for s in steps if s.began_s < until_s and not 0.0 < s.ended_s < began_s]
        return [step.words(began_s) for step in sorted(seen, key=lambda step: step.began_s)]


def keep_diary(client: DfsClient) -> Diary:
    """Have a client write down what it asks from now on."""
    diary = Diary()

    def kept(ask: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def asked(*words: Any, **named: Any) -> Any:
            with diary.step(name(*words)):
                return ask(*words, **named)

        return asked

    connection, pool = client._connection, client.pool
    connection.call = kept(  # type: ignore[method-assign]
        connection.call, lambda request, *rest: type(request).__name__
    )
    pool.call = kept(  # type: ignore[method-assign]
        pool.call, lambda address, request: f"{type(request).__name__} at {address}"
    )
    pool.connect = kept(  # type: ignore[method-assign]
        pool.connect, lambda address: f"connect to {address}"
    )
    return diary
