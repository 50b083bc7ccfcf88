"""How members of a group hear of each other: by connections, or by messages in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from mrstream.cluster.consensus.members import MemberId, host_of
from tests.simulation.world import World


class Network:
    """Carries messages as the world carries all others: what breaks there breaks here."""

    def __init__(self, world: World, chance: random.Random | None = None) -> None:
        self.world = world
        self.random = chance or world.random
        self.receive: Callable[[MemberId, MemberId, Any], None] = lambda *_: None

    def send(self, sender: MemberId, to: MemberId, word: Any) -> None:
        receive = partial(self.receive, sender, to, word)
        self.world.send(host_of(sender), host_of(to), receive)


class Datagrams(Network):
    """Carries a message, or loses it, or carries it twice; order is not kept."""

    def __init__(self, world: World, chance: random.Random | None = None) -> None:
        super().__init__(world, chance)
        self.loss = 0.0
        self.repeat = 0.0
        self.latency_s: tuple[float, float] = (0.001, 0.01)
        self.cuts: set[tuple[str, str]] = set()
        """(from, to) hosts between which nothing passes."""

    def send(self, sender: MemberId, to: MemberId, word: Any) -> None:
        if (host_of(sender), host_of(to)) in self.cuts:
            return
        copies = 2 if self.random.random() < self.repeat else 1
        for _ in range(copies):
            if self.random.random() >= self.loss:
                delay_s = self.random.uniform(*self.latency_s)
                self.world.after(delay_s, lambda: self._arrive(sender, to, word))

    def _arrive(self, sender: MemberId, to: MemberId, word: Any) -> None:
        if (host_of(sender), host_of(to)) not in self.cuts:
            self.receive(sender, to, word)
