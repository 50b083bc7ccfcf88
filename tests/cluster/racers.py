"""Clients that make, remove and look at the same names, through faults; their history is kept.

What one was told must fit what the others were told, in one order that keeps real time: a change
that was lost or done twice, and a read that goes back in time, have no place in such an order.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable

from mrstream.cluster.errors import Unavailable
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import FileExists, NoSuchFile
from tests.support.linear import Operation, is_linearizable, name

NAMES = ("a", "b", "c")
PAUSE_S = 0.05
"""Some time in a history's minute is enough; without it the check takes longer than the test."""


class Racer(threading.Thread):
    """One client; `history` holds its operations by name."""

    def __init__(
        self,
        client: DfsClient,
        number: int,
        stopped: threading.Event,
        pause_s: float = PAUSE_S,
    ) -> None:
        super().__init__(name=f"racer-{number}", daemon=True)
        self._pause_s = pause_s
        self.history: dict[str, list[Operation]] = {one: [] for one in NAMES}
        self.wrong = "it never began"
        """Why it does not race any more, if that is not because it was stopped."""
        self._client, self._stopped = client, stopped
        self._random = random.Random(number)

    def run(self) -> None:
        try:
            self._race()
        except BaseException as error:
            self.wrong = f"{type(error).__name__}: {error}"
            raise
        self.wrong = ""

    def _race(self) -> None:
        self._client.make_directory("/race", parents=True)
        while not self._stopped.wait(self._pause_s):
            one, asked = self._random.choice(NAMES), self._random.choice(["make", "remove", "look"])
            called_at = time.monotonic()
            try:
                answer = self._ask(asked, f"/race/{one}")
            except Unavailable:
                self.history[one].append(Operation(called_at, math.inf, asked))
            else:
                self.history[one].append(Operation(called_at, time.monotonic(), asked, answer))

    def _ask(self, asked: str, path: str) -> bool:
        """Whether it was done; for a look, whether the name is there."""
        do: dict[str, Callable[[], object]] = {
            "make": lambda: self._client.make_directory(path),
            "remove": lambda: self._client.delete(path, recursive=True, skip_trash=True),
            "look": lambda: self._client.stat(path),
        }
        try:
            do[asked]()
        except (FileExists, NoSuchFile):
            return False
        return True


def check_races(racers: list[Racer]) -> int:
    """Assert that all histories together are linearizable, name by name; return their length."""
    length = 0
    for racer in racers:
        assert not racer.wrong, f"{racer.name}: {racer.wrong}"
    for one in NAMES:
        history = [operation for racer in racers for operation in racer.history[one]]
        assert is_linearizable(history, False, name), f"/race/{one}: {history}"
        length += len(history)
    return length
