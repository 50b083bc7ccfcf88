"""One simulated run with two cells: two masters, their clients, and the same chunkservers.

    python -m tests.simulation.dfs.cells SEED [-v]

Each cell is a `Run` of its own (its log, its clients' book, its checks) over servers that both
share; whatever breaks, breaks for both.
"""

from __future__ import annotations

import random
from dataclasses import replace

from mrstream.dfs.chunk import cell_of
from mrstream.dfs.metadata.settings import Settings
from tests.simulation.dfs.master import NAME as ROOT
from tests.simulation.dfs.master import SimMaster
from tests.simulation.dfs.run import CALM_S, SETTINGS, Run, replay
from tests.simulation.dfs.server import SimServer
from tests.simulation.world import Place, World

LOGS = "logs"
SECONDS = 40.0
"""Simulated time in which things break."""
NUMBERS = {LOGS: 5}
"""The cell of each master that is not the root's."""


class Masters:
    """All masters of all cells, as a chunkserver knows them."""

    def __init__(self, masters: list[SimMaster]) -> None:
        self._by_name = {master.name: master for master in masters}
        self.names = list(self._by_name)

    def at(self, name: str) -> SimMaster:
        return self._by_name[name]


class Half(Run):
    """One cell of a run."""

    def __init__(
        self, world: World, master: SimMaster, servers: dict[str, SimServer], clients: range
    ) -> None:
        self.world, self.master, self.servers = world, master, servers
        self._begin(clients, f"{world.seed}-nemesis-{master.name}")


class CellsRun:
    """One seed. `settings` are those of the second cell's master, which may be a wrong one."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.world = world = World(seed)
        names = [f"s{number}" for number in range(1, 4 + seed % 3)]
        count = 2
        for name in [ROOT, LOGS, *names, *(f"c{n}" for n in range(1, 2 * count + 1))]:
            world.hosts[name] = Place(name)
        right = replace(SETTINGS, cell=NUMBERS[LOGS])
        root, logs = SimMaster(world, SETTINGS), SimMaster(world, settings or right, LOGS)
        masters = Masters([root, logs])
        servers = {
            name: SimServer(world, name, masters, f"r{number % 2}", NUMBERS)
            for number, name in enumerate(names)
        }
        for server in servers.values():
            server.peers = servers
        root.servers = logs.servers = servers
        self.root = Half(world, root, servers, range(1, count + 1))
        self.logs = Half(world, logs, servers, range(count + 1, 2 * count + 1))
        self.halves = (self.root, self.logs)
        self.chance = random.Random(f"{seed}-cells")
        world.after_each = self._after_each

    def _after_each(self) -> None:
        for half in self.halves:
            half._after_each()

    def live(self, seconds: float) -> None:
        """Clients at work and faults, for so long."""
        world = self.world
        world.run(2.0)
        for half in self.halves:
            half._make_shared()
        until_s = world.now_s + seconds
        for half in self.halves:
            for client in half.clients:
                client.run(client.program(until_s))
        world.loss, world.repeats, world.delays = 0.002, 0.01, 0.02
        while world.now_s < until_s:
            world.run(world.now_s + self.chance.uniform(1.0, 6.0))
            self.chance.choice(self.halves)._break_something()
            world.run(world.now_s + self.chance.uniform(0.1, 8.0))
            for half in self.halves:
                half._heal()
            if self.chance.random() < 0.3:
                world.run(world.now_s + CALM_S)
        world.loss = world.repeats = world.delays = 0.0

    def settle(self) -> None:
        """Heal everything and wait until both cells are whole again."""
        for half in self.halves:
            half._heal()
        for half in self.halves:
            half.settle()

    @property
    def file_count(self) -> int:
        """How many files were ever made, in all cells."""
        return sum(half.file_count for half in self.halves)

    def check(self) -> None:
        """What must hold of each cell by itself; and no server has a chunk that is nobody's."""
        for half in self.halves:
            half.check()
        known = {half.master.settings.cell for half in self.halves}
        for server in self.root.servers.values():
            for handle in server.store.handles():
                assert cell_of(handle) in known, f"{server.name} has {handle:x}, which no cell made"


if __name__ == "__main__":
    replay(CellsRun, SECONDS)
