"""One simulated history of a group: `python -m tests.simulation.consensus.run SEED [--pair] [-v]`.

Founds a group of 3 or 5 (`--pair`: one that decides, and one that listens) as an operator would,
lets clients read and write, and meanwhile does to it what the seed says: loss, repeats, one-way and
partial cuts, stops, hung loops, kills, power cuts in the middle of a command list, emptied disks,
slow disks, changes of members, hand-overs, checkpoints. The oracle looks at everything; at the end
all is healed, and everybody must agree.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable

from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import host_of
from mrstream.cluster.consensus.replica import Replica
from tests.simulation.consensus.client import Client
from tests.simulation.consensus.group import Members
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.network import Datagrams
from tests.simulation.consensus.oracle import Oracle, fold, image_of
from tests.simulation.consensus.process import Process
from tests.simulation.world import World
from tests.support.linear import Operation, is_linearizable, register

SECONDS = 25.0
SETTLE_S = 20.0


class Run(Members):
    """A group, its clients, its operator and its bad luck."""

    network: Datagrams
    sizes = (3, 3, 3, 5)
    stops_s = (0.3, 2.0, 4.0, 8.0, 30.0)

    def __init__(
        self,
        seed: int,
        replica_kind: type[Replica] = Replica,
        process_kind: type[Process] = Process,
        host_kind: type[Host] = Host,
    ) -> None:
        self.seed = seed
        self.world = World(seed)
        self.network = Datagrams(self.world)
        self.random = self.world.random
        lease_s = self.random.choice([3.0, 1.0, 0.6])
        self.timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
        self.oracle = Oracle(self.timing, lambda: self.world.now_s)
        size = self.random.choice(self.sizes)
        kind = type("Seeded", (process_kind,), {"replica_kind": replica_kind})
        names = [f"h{at}" for at in range(1, size + 1)]
        self.hosts = [host_kind(n, self.network, self.oracle, self.timing, kind) for n in names]
        for host in self.hosts:
            host.clock.rate = self.random.choice([0.99, 1.0, 1.01, self.random.uniform(0.99, 1.01)])
            host.message_bytes_max = self.random.choice([40, 200, 10_000])
        self.by_name = {host.name: host for host in self.hosts}
        self.network.receive = self._receive
        self.oracle.ballot_of = lambda member: self.by_name[host_of(member)].durable_ballot()
        self.clients = [Client(at, self.world, self.hosts, 4) for at in range(1, 5)]
        self._asks = itertools.count(1)
        self.wanted = set(names)
        self.faults = 0

    # --- bad luck

    def live(self, seconds: float) -> None:
        """Some seconds with clients and faults."""
        self.world.run(self.world.now_s + 3.0)
        self.until_s = self.world.now_s + seconds
        for client in self.clients:
            client.begin(self.until_s + SETTLE_S / 2)
        self.network.loss = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self.network.repeat = self.random.choice([0.0, 0.05])
        slow_s = self.timing.lease_s / 10
        self.network.latency_s = self.random.choice([(0.001, 0.01), (0.001, slow_s)])
        self._pace_s = self.random.choice([0.3, 0.7, 1.5, 3.0])
        self._plan_fault()
        self.world.run(self.until_s)

    def _plan_fault(self) -> None:
        self.world.after(self.random.expovariate(1 / self._pace_s), self._fault)

    def _fault(self) -> None:
        if self.world.now_s >= self.until_s:
            return
        self.faults += 1
        fault = self.random.choice(FAULTS)
        host = self.random.choice(self.hosts)
        leader = self.leader()
        if leader is not None and self.random.random() < 0.4:
            host = leader.host
        self.world.note(f"fault {fault.__name__} {host.name}")
        fault(self, host)
        self._plan_fault()

    def kill(self, host: Host) -> None:
        host.end(power=False)
        host.start_after(self.random.choice([0.02, 0.5, 4.0]))

    def power_cut(self, host: Host) -> None:
        host.end(power=True)
        host.start_after(self.random.uniform(0.1, 5.0))

    def power_cut_all(self, _: Host) -> None:
        for host in self.hosts:
            self.power_cut(host)

    def power_cut_midway(self, host: Host) -> None:
        host.crash_chance = 0.05
        self.world.after(2.0, lambda: setattr(host, "crash_chance", 0.0))

    def stop(self, host: Host) -> None:
        host.stop(self.random.choice(self.stops_s))

    def hang(self, host: Host) -> None:
        host.is_lively = False
        self.world.after(self.random.uniform(1.0, 8.0), lambda: setattr(host, "is_lively", True))

    def cut_alone(self, host: Host) -> None:
        others = [other.name for other in self.hosts if other is not host]
        self._cut([(host.name, o) for o in others] + [(o, host.name) for o in others])

    def cut_one_way(self, host: Host) -> None:
        other = self.random.choice([o for o in self.hosts if o is not host])
        self._cut([(host.name, other.name)])

    def cut_partly(self, host: Host) -> None:
        """a–b cut, both reach c."""
        other = self.random.choice([o for o in self.hosts if o is not host])
        self._cut([(host.name, other.name), (other.name, host.name)])

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        self.network.cuts.update(pairs)
        heal_s = self.random.choice([0.5, 3.0, 6.0, 12.0])
        self.world.after(heal_s, lambda: self.network.cuts.difference_update(pairs))

    def empty(self, host: Host) -> None:
        """A new disk, only where the others can do without the old one."""
        if all(other.process is not None for other in self.hosts) and self.is_settled():
            host.empty()
            host.start_after(self.random.uniform(0.1, 2.0))

    def slow_disk(self, host: Host) -> None:
        host.slow_disk_until_s = self.world.now_s + self.random.uniform(1.0, 6.0)

    # --- the end

    def settle(self) -> None:
        """Heal everything; then there is a leader, everybody agrees, and clients are answered."""
        network = self.network
        network.loss = network.repeat = 0.0
        network.latency_s = (0.001, 0.01)
        network.cuts.clear()
        self.wanted = {host.name for host in self.hosts}
        for host in self.hosts:
            host.crash_chance, host.is_lively = 0.0, True
            host.stopped_until_s = min(host.stopped_until_s, self.world.now_s)
            host.slow_disk_until_s = 0.0
            host.start_after(0.1)
        self.world.run(self.world.now_s + SETTLE_S / 2)
        self.world.run(self.world.now_s + SETTLE_S / 2)

    def check(self) -> None:
        """Everybody has everything, and no client saw what cannot be."""
        leader = self.leader()
        assert leader is not None, "nobody leads after everything was healed"
        members = leader.replica.members
        voters = set(self.by_name) - {self.listens}
        assert {host_of(v) for v in members.voters} == voters, f"members: {members}"
        image = fold(self.oracle.committed)
        for host in self.hosts:
            process = host.process
            assert process is not None and process.replica.committed == len(self.oracle.committed)
            assert image_of(process.state) == image, f"{host.name} has another state"
        for client in self.clients:
            assert not client.is_waiting, "a client waits for ever"
            client.give_up()
        histories: dict[str, list[Operation]] = {}
        for client in self.clients:
            for key, operations in client.history.items():
                histories.setdefault(key, []).extend(operations)
        for key, operations in sorted(histories.items()):
            assert is_linearizable(operations, "", register), f"{key} is not linearizable"


class Pair(Run):
    """Two hosts: no majority guards what the first one acknowledges (C8)."""

    sizes = (2,)
    listens = "h2"
    stops_s = (0.3, 2.0, 4.0, 8.0)  # nobody takes over: it must be back when all is looked at


Fault = Callable[[Run, Host], None]
FAULTS: list[Fault] = [
    Run.kill, Run.kill, Run.power_cut, Run.power_cut_all, Run.power_cut_midway, Run.stop, Run.stop,
    Run.hang, Run.cut_alone, Run.cut_one_way, Run.cut_partly, Run.cut_partly, Run.empty,
    Run.slow_disk, Run.checkpoint, Run.checkpoint, Run.checkpoint, Run.transfer, Run.transfer,
    Run.change_members,
]  # fmt: skip


def play(
    seed: int,
    replica_kind: type[Replica] = Replica,
    process_kind: type[Process] = Process,
    host_kind: type[Host] = Host,
    kind: type[Run] = Run,
) -> Run:
    """Live through one history; raise `AssertionError` where a promise is broken."""
    run = kind(seed, replica_kind, process_kind, host_kind)
    try:
        run.found()
        run.live(SECONDS)
        run.settle()
        run.check()
    except AssertionError as error:
        pair = " --pair" if kind is Pair else ""
        error.add_note(
            f"replay: {sys.executable} -m tests.simulation.consensus.run {seed}{pair} -v"
        )
        error.lines = run.world.trace  # type: ignore[attr-defined]
        raise
    return run


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.consensus.run", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--pair", action="store_true", help="one that decides, one that listens")
    parser.add_argument("-v", action="store_true", help="tell the story")
    chosen = parser.parse_args()
    try:
        run = play(chosen.seed, kind=Pair if chosen.pair else Run)
    except AssertionError as error:
        if chosen.v:
            print("\n".join(getattr(error, "lines", [])))
        raise
    if chosen.v:
        print("\n".join(run.world.trace))
    answered = sum(client.done for client in run.clients)
    print(
        f"seed {chosen.seed}: {len(run.hosts)} members, {run.faults} faults, "
        f"{len(run.oracle.leaders)} leaders, {len(run.oracle.committed)} records, "
        f"{answered} answers, {run.world.events} steps"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
