"""Simulated time, places and wires: one heap of events, one seeded generator, no threads.

A message may be lost, delayed, repeated or cut off by a partition; a place may be dead or stopped
(then its messages wait, as in a socket's buffer). Everything follows from the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial


@dataclass
class Place:
    """Something that messages go to: a daemon, or a program, on a machine."""

    name: str
    is_up: bool = True
    stopped_until_s: float = 0.0
    life: int = 0
    """Raised at each death: what was meant for an earlier life is dropped."""


def machine_of(place: str) -> str:
    """Where a place is: `lock@m1` on `m1`, which is the place of its first daemon, too."""
    return place.rpartition("@")[2]


@dataclass
class Clock:
    """A machine's steady clock: it may run a little fast or slow, and never jumps. It runs on while
    processes are stopped."""

    world: World
    rate: float = 1.0
    offset_s: float = 0.0
    wall_jump_s: float = 0.0
    booted_at_s: float = 0.0

    def now_s(self) -> float:
        return (self.world.now_s - self.booted_at_s) * self.rate + self.offset_s

    def true_s(self, local_s: float) -> float:
        """When it shows that."""
        return (local_s - self.offset_s) / self.rate + self.booted_at_s

    def wall_s(self) -> float:
        return 1_000_000_000.0 + self.world.now_s + self.wall_jump_s


@dataclass
class World:
    """Time, wires and chance."""

    seed: int
    now_s: float = 0.0
    loss: float = 0.0
    repeats: float = 0.0
    delays: float = 0.0
    cut: dict[tuple[str, str], None] = field(default_factory=dict)
    """(from, to) machines between which nothing passes."""
    hosts: dict[str, Place] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last_s: dict[tuple[str, str, int], float] = {}
        self.events = 0
        self.after_each: Callable[[], None] = lambda: None

    def note(self, text: str) -> None:
        """Keep a line of the story, for whoever replays a seed."""
        self.trace.append(f"{self.now_s:9.4f} {text}")

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(when_s, self.now_s), next(self._order), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now_s + seconds, action)

    def run(self, until_s: float) -> None:
        """Let everything happen up to that moment."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._heap)
            self.events += 1
            action()
            self.after_each()
        self.now_s = max(self.now_s, until_s)

    def is_cut(self, source: str, target: str) -> bool:
        return (machine_of(source), machine_of(target)) in self.cut

    def can_reach(self, source: str, target: str) -> bool:
        return not self.is_cut(source, target) and self.hosts[target].is_up

    def send(
        self, source: str, target: str, action: Callable[[], None], connection: int = 0
    ) -> None:
        """Have `action` happen at the target, if the message gets there. What goes over a numbered
        connection comes once, and in order with what else goes over that one only."""
        if self.is_cut(source, target) or self.random.random() < self.loss:
            return
        times = 2 if self.random.random() < self.repeats and not connection else 1
        line = (source, target, connection)
        host = self.hosts[target]
        for _ in range(times):
            delay_s = self.random.uniform(0.0002, 0.004)
            if self.random.random() < self.delays:
                delay_s += self.random.expovariate(1.0)
            # A connection keeps the order.
            arrives_at_s = max(self.now_s + delay_s, self._last_s.get(line, 0.0))
            self._last_s[line] = arrives_at_s
            delay_s = arrives_at_s - self.now_s
            self.after(delay_s, partial(self._arrive, host, host.life, action))

    def _arrive(self, host: Place, life: int, action: Callable[[], None]) -> None:
        if not host.is_up or host.life != life:
            return
        if host.stopped_until_s > self.now_s:
            wait_s = host.stopped_until_s - self.now_s
            self.after(wait_s, lambda: self._arrive(host, life, action))
            return
        action()

    def at_host(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """A timer of a place: it goes off late if the place is stopped, never if it dies."""
        host = self.hosts[name]
        life = host.life
        self.after(seconds, lambda: self._arrive(host, life, action))
