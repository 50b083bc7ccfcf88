"""A world for replicas: true time, clocks that run at their own rate, and a network with faults."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mrstream.cluster.consensus.members import MemberId, host_of


@dataclass(slots=True)
class Clock:
    """A host's clock since its boot; runs on while its processes are stopped."""

    rate: float = 1.0
    booted_at_s: float = -1000.0

    def now_s(self, true_s: float) -> float:
        return (true_s - self.booted_at_s) * self.rate

    def true_s(self, local_s: float) -> float:
        return local_s / self.rate + self.booted_at_s


@dataclass(slots=True)
class Weather:
    """What the network does to messages."""

    loss: float = 0.0
    repeat: float = 0.0
    latency_s: tuple[float, float] = (0.001, 0.01)
    cuts: set[tuple[str, str]] = field(default_factory=set)
    """(from, to) hosts between which nothing passes."""


class World:
    """Events in the order of true time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.weather = Weather()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.steps = 0
        self.lines: list[str] = []
        self.receive: Callable[[MemberId, MemberId, Any], None] = lambda *_: None

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(when_s, self.now_s), self._count, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Let everything happen up to that moment."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._queue)
            self.steps += 1
            action()
        self.now_s = max(self.now_s, until_s)

    def send(self, sender: MemberId, to: MemberId, word: Any) -> None:
        """Carry a message, or lose it, or carry it twice; order is not kept."""
        weather = self.weather
        if (host_of(sender), host_of(to)) in weather.cuts:
            return
        copies = 2 if self.random.random() < weather.repeat else 1
        for _ in range(copies):
            if self.random.random() >= weather.loss:
                delay_s = self.random.uniform(*weather.latency_s)
                self.after(delay_s, lambda: self._arrive(sender, to, word))

    def _arrive(self, sender: MemberId, to: MemberId, word: Any) -> None:
        if (host_of(sender), host_of(to)) not in self.weather.cuts:
            self.receive(sender, to, word)

    def note(self, line: str) -> None:
        """Keep a line of the story, for whoever replays a seed."""
        self.lines.append(f"{self.now_s:9.4f} {line}")
