"""One simulated run with three masters from one seed: leaders die, stop, are cut off, hand over and
lose their disks.

    python -m tests.simulation.dfs.failover SEED [-v]

The clients, chunkservers and checks are those of `run`; the faults are those of masters.
"""

from __future__ import annotations

import logging
import random
import sys
from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.dfs import protocol as p
from tests.simulation.dfs.book import Book
from tests.simulation.dfs.client import SimClient
from tests.simulation.dfs.group import Group, Member
from tests.simulation.dfs.run import SETTINGS, Run
from tests.simulation.dfs.server import SimServer
from tests.simulation.world import Place, World

SECONDS = 25.0
SHADOWS_EVERY = 400


class Failover(Run):
    """One seed."""

    def __init__(self, seed: int, *, clients: int = 2, member_kind: type[Member] = Member) -> None:
        self.world = world = World(seed)
        for name in ["m1", "m2", "m3", "s1", "s2", "s3", *(f"c{n + 1}" for n in range(clients))]:
            world.hosts[name] = Place(name)
        kind = type("Seeded", (Group,), {"member_kind": member_kind})
        self.master: Any = kind(world, SETTINGS)
        self.group: Group = self.master
        self.servers: dict[str, SimServer] = {}
        for number in range(1, 4):
            name = f"s{number}"
            self.servers[name] = SimServer(world, name, self.master, f"r{number % 2}")
        for server in self.servers.values():
            server.peers = self.servers
        self.group.servers = self.servers
        self.book = Book()
        self.clients = [
            SimClient(world, number, self.master, self.servers, self.book)
            for number in range(1, clients + 1)
        ]
        self.chance = random.Random(f"{seed}-failover")
        world.after_each = self._after_each

    def _after_each(self) -> None:
        assert not self.book.wrong, self.book.wrong
        if self.world.events % SHADOWS_EVERY == 0:
            self.group.check_shadows()

    # --- faults

    def live(self, seconds: float) -> None:
        world = self.world
        world.run(5.0)
        self._make_shared()
        until_s = world.now_s + seconds
        for client in self.clients:
            client.run(client.program(until_s))
        world.loss, world.repeats, world.delays = 0.002, 0.01, 0.01
        while world.now_s < until_s:
            world.run(world.now_s + self.chance.uniform(0.5, 3.0))
            self._break_something()
            world.run(world.now_s + self.chance.uniform(0.1, 5.0))
            self._heal()
        leader = self.group.leader
        if leader is not None and len(self.group.oracle.leaders) == 1:
            leader.host.end(power=False)  # a run without a fail-over proves nothing
            world.run(world.now_s + 5.0)
            self._heal()
        world.loss = world.repeats = world.delays = 0.0

    def _ask(self, request: Any, number: int) -> Any:
        answers: list[Any] = []
        while not answers:
            leader = self.group.leader
            if leader is not None:
                leader.request("c1", request, (999, number), answers.append)
            self.world.run(self.world.now_s + 1.0)
            answers = [answer for answer in answers if not isinstance(answer, Exception)]
        return answers[0]

    def _break_something(self) -> None:
        chance, world = self.chance, self.world
        leader = self.group.leader
        name = leader.host.name if leader is not None and chance.random() < 0.7 else "m2"
        host = self.group.hosts[name]
        others = [other for other in self.group.names if other != name]
        server = self.servers[chance.choice(sorted(self.servers))]
        fault = chance.randrange(13)
        world.note(f"fault {fault} at {name}")
        if fault == 0:
            host.end(power=False)
        elif fault == 1:
            host.end(power=True)
        elif fault in (2, 3):
            host.stop(chance.uniform(0.5, 8.0))
        elif fault == 4:
            self._cut({(name, o) for o in others} | {(o, name) for o in others})
        elif fault == 5:
            other = chance.choice(others)
            self._cut({(name, other), (other, name)} if chance.random() < 0.5 else {(name, other)})
        elif fault == 6:
            for one in self.group.hosts.values():
                one.end(power=True)
        elif fault == 7:
            server.crash(power_cut=chance.random() < 0.5)
        elif fault == 8:
            world.hosts[server.name].stopped_until_s = world.now_s + chance.uniform(1.0, 6.0)
        elif fault == 9:
            host.slow_disk_until_s = world.now_s + chance.uniform(1.0, 6.0)
        elif fault == 10:
            if self.group.is_settled():
                world.note(f"{name} gets an empty disk")
                host.empty()
        elif leader is None:
            return
        elif fault == 11:
            heir = chance.choice([other for other in self.group.names if other != leader.host.name])
            self.group.wish(leader, e.Transfer, self.group.hosts[heir].member())
        else:
            if chance.random() < 0.5:
                leader.begin_checkpoint()
            self._cut({(server.name, name), (name, server.name)})

    def _heal(self) -> None:
        self.world.cut.clear()
        for host in self.group.hosts.values():
            if host.process is None:
                host.start_after(self.chance.uniform(0.0, 2.0))
        for server in self.servers.values():
            if not self.world.hosts[server.name].is_up:
                server.restart_later(self.chance.uniform(0, 2))

    def _report(self) -> Any:
        leader = self.group.leader
        assert leader is not None
        return leader.brain.query(p.Report(), leader.host.clock_s())

    def _is_whole(self) -> bool:
        leader = self.group.leader
        return leader is not None and leader.may_speak() and super()._is_whole()

    def check(self) -> None:
        super().check()
        self.group.check_shadows()
        assert len(self.group.members) == 3
        leader = self.group.leader
        assert leader is not None
        assert sorted(leader.replica.members.voters) == sorted(m.me for m in self.group.members)


def play(seed: int, member_kind: type[Member] = Member, seconds: float = SECONDS) -> Failover:
    """Live through one history; raise where a promise is broken."""
    run = Failover(seed, member_kind=member_kind)
    try:
        run.live(seconds)
        run.settle()
        run.check()
    except AssertionError as error:
        error.add_note(f"replay: {sys.executable} -m tests.simulation.dfs.failover {seed} -v")
        error.lines = run.world.trace  # type: ignore[attr-defined]
        raise
    return run


def main() -> None:
    """Replay one seed."""
    logging.disable(logging.CRITICAL)
    seed, verbose = int(sys.argv[1]), "-v" in sys.argv
    try:
        run = play(seed)
    except AssertionError as error:
        if verbose:
            print("\n".join(getattr(error, "lines", [])))
        raise
    if verbose:
        print("\n".join(run.world.trace))
    print(
        f"seed {seed}: {run.world.events} events, {len(run.group.oracle.leaders)} leaders, "
        f"{len(run.group.history)} records, {len(run.book.files)} files, all well"
    )


if __name__ == "__main__":
    main()
