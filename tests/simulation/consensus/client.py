"""A client of the simulated group: one question at a time, repeated until somebody answers it."""

from __future__ import annotations

import itertools
import math
from random import Random

from tests.simulation.consensus.host import Host
from tests.simulation.consensus.process import Request
from tests.simulation.world import World
from tests.support.linear import Operation

PATIENCE_S = 1.0


class Client:
    """Asks whoever it believes to lead; keeps a history for the checker of linearizability."""

    numbers = itertools.count(1)

    def __init__(self, name: int, world: World, hosts: list[Host], keys: int) -> None:
        self._random = Random(world.random.random())
        self._world, self._hosts = world, hosts
        self._name, self._keys = name, keys
        self._believes = self._random.randrange(len(hosts))
        self._number = 0
        self._tries = self._first_try = 0
        self._called_at_s = 0.0
        self._request: tuple[str, str | None] | None = None
        self.history: dict[str, list[Operation]] = {}
        self.done = 0
        self.until_s = 0.0

    @property
    def is_waiting(self) -> bool:
        return self._request is not None

    def begin(self, until_s: float) -> None:
        self.until_s = until_s
        self._world.after(self._random.uniform(0.0, 0.3), self._ask)

    def _ask(self) -> None:
        if self._world.now_s >= self.until_s:
            return
        self._number += 1
        key = f"k{self._random.randrange(self._keys)}"
        value = f"{self._name}.{self._number}" if self._random.random() < 0.5 else None
        self._request = (key, value)
        self._called_at_s = self._world.now_s
        self._first_try = self._tries + 1
        self._try()

    def _try(self) -> None:
        if self._request is None:
            return
        self._tries += 1
        host, this_try = self._hosts[self._believes], self._tries
        number = self._name * 1_000_000 + self._number
        key, value = self._request

        def answer(request: Request, outcome: str, result: str | None) -> None:
            delay_s = self._random.uniform(0.0005, 0.003)
            self._world.after(delay_s, lambda: self._answered(this_try, number, outcome, result))

        request = Request(number, key, value, answer)
        self._world.after(self._random.uniform(0.0005, 0.003), lambda: _deliver(host, request))
        self._world.after(PATIENCE_S, lambda: self._try_another(this_try))

    def _try_another(self, this_try: int) -> None:
        if self._request is not None and this_try == self._tries:
            self._believes = self._random.randrange(len(self._hosts))
            self._try()

    def _answered(self, this_try: int, number: int, outcome: str, result: str | None) -> None:
        current = self._name * 1_000_000 + self._number
        if self._request is None or number != current:
            return
        if outcome == "not leader":
            if this_try == self._tries:
                self._refused(this_try)
            return
        self._note(self._world.now_s, result)
        self._request = None
        self.done += 1
        self._world.after(self._random.uniform(0.01, 0.4), self._ask)

    def _refused(self, this_try: int) -> None:
        """Whoever says that it does not lead has done nothing: asked only once, we may forget it
        as if it had never been asked."""
        if this_try == self._first_try and self._random.random() < 0.3:
            self._request = None
            self._world.after(0.1, self._ask)
            return
        self._believes = self._random.randrange(len(self._hosts))
        self._world.after(0.05, lambda: self._try() if this_try == self._tries else None)

    def _note(self, returned_at_s: float, result: str | None) -> None:
        assert self._request is not None
        key, value = self._request
        asked = ("read",) if value is None else ("write", value)
        answer = result if value is None else None
        operation = Operation(self._called_at_s, returned_at_s, asked, answer)
        self.history.setdefault(key, []).append(operation)

    def give_up(self) -> None:
        """What was not answered to the end may have happened or not."""
        if self._request is not None:
            self._note(math.inf, None)
            self._request = None


def _deliver(host: Host, request: Request) -> None:
    process = host.process
    if process is not None:
        host.when_running(process, lambda: process.request(request))
