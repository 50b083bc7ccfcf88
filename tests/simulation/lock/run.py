"""One simulated life of a lock cell from one seed: build, break, heal, check.

    python -m tests.simulation.lock.run SEED [-v]

replays a seed and, with -v, prints what happened.
"""

from __future__ import annotations

import logging
import random
import sys

from mrstream.lock.cell.settings import Settings
from tests.simulation.lock.book import Book
from tests.simulation.lock.cell import NAME as CELL
from tests.simulation.lock.cell import SimCell
from tests.simulation.lock.client import SimClient
from tests.simulation.world import Place, World

SETTINGS = Settings(
    lease_s=4.0,
    lease_under_load_s=8.0,
    load_sessions=40,
    grace_s=12.0,
    idle_s=15.0,
    orphan_s=6.0,
    cached_max=50,
)
SECONDS = 90.0


class Run:
    """One seed."""

    def __init__(self, seed: int, clients: int = 0) -> None:
        self.world = world = World(seed)
        world.loss = world.random.choice([0.0, 0.0, 0.01, 0.05])
        world.repeats = world.random.choice([0.0, 0.02, 0.1])
        world.delays = world.random.choice([0.0, 0.01, 0.03])
        count = clients or 2 + seed % 3
        for name in [CELL, *(f"c{n}" for n in range(1, count + 1))]:
            world.hosts[name] = Place(name)
        self.book = Book()
        self.cell = SimCell(world, SETTINGS, self.book)
        self.cell.clock.rate = world.random.choice([0.99, 1.0, 1.01])
        self.clients = [
            SimClient(world, f"c{n}", self.cell, self.book, world.random.choice([0.99, 1.0, 1.01]))
            for n in range(1, count + 1)
        ]
        self.book.clients += self.clients
        self.chance = random.Random(f"{seed}-nemesis")
        world.after_each = self.book.check_beliefs

    def live(self, seconds: float = SECONDS) -> None:
        """Let things break now and then."""
        end_s = self.world.now_s + seconds
        while self.world.now_s < end_s:
            self.world.run(self.world.now_s + self.chance.expovariate(0.25))
            self._break()

    def _break(self) -> None:
        chance, world = self.chance, self.world
        client = chance.choice(self.clients)
        host = world.hosts[client.name]
        match chance.randrange(7):
            case 0:
                if self.cell.is_up:
                    self.cell.crash()
                    self._start_cell_later()
            case 1:
                if self.cell.is_up:
                    self.cell.crashes_at_commit = self._start_cell_later
            case 2:
                world.note("cell stands still")
                world.hosts[CELL].stopped_until_s = world.now_s + chance.uniform(0.0, 8.0)
            case 3:
                if host.is_up:
                    client.crash()
                    world.after(chance.uniform(0.1, 8.0), lambda: self._start(client))
            case 4:
                world.note(f"{client.name} stands still")
                host.stopped_until_s = world.now_s + chance.uniform(0.0, 15.0)
            case 5:
                ways = [(client.name, CELL), (CELL, client.name)]
                for way in chance.choice([ways, ways[:1], ways[1:]]):
                    world.note(f"{way} is cut")
                    world.cut[way] = None
                    world.after(chance.uniform(0.5, 15.0), lambda way=way: world.cut.pop(way, None))
            case _:
                if self.cell.is_up and world.hosts[CELL].stopped_until_s <= world.now_s:
                    self.cell.checkpoint()

    def _start_cell_later(self) -> None:
        self.world.after(self.chance.choice([0.01, 1.0, 5.0, 14.0]), self._start_cell)

    def _start_cell(self) -> None:
        if not self.cell.is_up:
            self.cell.start()

    def _start(self, client: SimClient) -> None:
        host = self.world.hosts[client.name]
        if not host.is_up:
            host.is_up = True
            client.begin()

    def settle(self) -> None:
        """Heal everything; then everybody gets on with it."""
        world = self.world
        world.cut.clear()
        self.cell.crashes_at_commit = None
        world.loss = world.repeats = world.delays = 0.0
        for host in world.hosts.values():
            host.stopped_until_s = 0.0
        self._start_cell()
        for client in self.clients:
            client.is_calm = True
            self._start(client)
        world.run(world.now_s + 45.0)
        before = [client.done_count for client in self.clients]
        world.run(world.now_s + 25.0)
        assert self.cell.brain.step >= 7, "the fail-over does not end"
        for client, count in zip(self.clients, before, strict=True):
            assert client.session is not None, f"{client.name} has no session in calm weather"
            assert client.done_count > count, f"{client.name} does not get on in calm weather"

    def all(self) -> Run:
        self.live()
        self.settle()
        return self


def main() -> None:
    logging.disable(logging.CRITICAL)
    run = Run(int(sys.argv[1]))
    try:
        run.all()
    finally:
        if "-v" in sys.argv:
            print("\n".join(run.world.trace))
    reads = sum(client.reads for client in run.clients)
    cached = sum(client.cached_reads for client in run.clients)
    print(f"records={len(run.book.records)} epochs={run.cell.epoch} reads={reads} cached={cached}")


if __name__ == "__main__":
    main()
