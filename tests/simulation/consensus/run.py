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

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.replica import Replica
from tests.simulation.consensus.client import Client
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.oracle import Oracle, fold, image_of
from tests.simulation.consensus.process import Process
from tests.simulation.consensus.world import World
from tests.support.linear import Operation, is_linearizable, register

SECONDS = 25.0
SETTLE_S = 20.0


class Run:
    """A group, its clients, its operator and its bad luck."""

    sizes = (3, 3, 3, 5)
    listens = ""
    """The host that is never to vote."""
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
        self.random = self.world.random
        lease_s = self.random.choice([3.0, 1.0, 0.6])
        self.timing = Timing(lease_s=lease_s, beat_s=lease_s / 6)
        self.oracle = Oracle(self.timing, lambda: self.world.now_s)
        size = self.random.choice(self.sizes)
        kind = type("Seeded", (process_kind,), {"replica_kind": replica_kind})
        names = [f"h{at}" for at in range(1, size + 1)]
        self.hosts = [host_kind(n, self.world, self.oracle, self.timing, kind) for n in names]
        for host in self.hosts:
            host.clock.rate = self.random.choice([0.99, 1.0, 1.01, self.random.uniform(0.99, 1.01)])
            host.message_bytes_max = self.random.choice([40, 200, 10_000])
        self.by_name = {host.name: host for host in self.hosts}
        self.world.receive = self._receive
        self.oracle.ballot_of = lambda member: self.by_name[host_of(member)].durable_ballot()
        self.clients = [Client(at, self.world, self.hosts, 4) for at in range(1, 5)]
        self._asks = itertools.count(1)
        self.wanted = set(names)
        """Hosts that the operator wants as voters."""
        self.faults = 0

    def _receive(self, sender: MemberId, to: MemberId, word: object) -> None:
        self.by_name[host_of(to)].receive(sender, to, word)

    # --- the operator

    def found(self) -> None:
        """As `cluster up` does: a group of one, then the others."""
        for host in self.hosts:
            host.start()
        assert self.hosts[0].process is not None
        self.hosts[0].process.handle(e.Found())
        self._operate()

    def leader(self) -> Process | None:
        found = [h.process for h in self.hosts if h.process and h.process.may_serve()]
        return max(found, key=lambda p: p.replica.epoch, default=None)

    def _operate(self) -> None:
        """Look round every while: who shall be a member and is not, who is and shall not."""
        self.world.after(self.random.uniform(0.1, 0.4), self._operate)
        for host in self.hosts:
            if host.process is not None and not host.process.replica.members.everyone:
                for other in self.hosts:
                    self.world.send(host.member(), other.member(), e.JoinAsked(host.member()))
        leader = self.leader()
        if leader is None:
            return
        event = self._wish(leader)
        if event is not None:
            leader.host.when_running(leader, lambda: leader.handle(event))

    def _wish(self, leader: Process) -> e.Event | None:
        members = leader.replica.members
        hosts = {host_of(member) for member in members.everyone}
        for name in sorted(self.wanted - hosts):
            host = self.by_name[name]
            if host.process is not None:
                return e.AddLearner(next(self._asks), host.member())
        for learner in members.learners:
            if host_of(learner) in self.wanted and host_of(learner) != self.listens:
                return e.Promote(next(self._asks), learner)
        for member in members.everyone:
            if host_of(member) not in self.wanted and member != leader.me:
                return e.Remove(next(self._asks), member)
        return None

    # --- bad luck

    def live(self, seconds: float) -> None:
        """Some seconds with clients and faults."""
        self.world.run(self.world.now_s + 3.0)
        self.until_s = self.world.now_s + seconds
        for client in self.clients:
            client.begin(self.until_s + SETTLE_S / 2)
        self.world.weather.loss = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self.world.weather.repeat = self.random.choice([0.0, 0.05])
        slow_s = self.timing.lease_s / 10
        self.world.weather.latency_s = self.random.choice([(0.001, 0.01), (0.001, slow_s)])
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
        host.stopped_until_s = self.world.now_s + self.random.choice(self.stops_s)

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
        self.world.weather.cuts.update(pairs)
        heal_s = self.random.choice([0.5, 3.0, 6.0, 12.0])
        self.world.after(heal_s, lambda: self.world.weather.cuts.difference_update(pairs))

    def empty(self, host: Host) -> None:
        """A new disk, only where the others can do without the old one."""
        if all(other.process is not None for other in self.hosts) and self._is_settled():
            host.empty()
            host.start_after(self.random.uniform(0.1, 2.0))

    def _is_settled(self) -> bool:
        """All voters have all that is committed, so that a disk may go: more loss than one disk
        of three at a time is a human's matter, not the group's."""
        leader = self.leader()
        if leader is None or len(leader.replica.members.voters) < 3:
            return False
        hosts = [host_of(voter) for voter in leader.replica.members.voters]
        committed = len(self.oracle.committed)
        logs = [self.oracle.logs[voter] for voter in leader.replica.members.voters]
        is_clean = len(set(hosts)) == len(hosts) and not leader.replica.members.learners
        return is_clean and all(log.synced >= committed for log in logs)

    def slow_disk(self, host: Host) -> None:
        host.slow_disk_until_s = self.world.now_s + self.random.uniform(1.0, 6.0)

    def checkpoint(self, host: Host) -> None:
        """Three in a row, so that records go that somebody may still lack."""
        process = host.process
        if process is not None:
            host.when_running(process, process.begin_checkpoint)
            for delay_s in (0.7, 1.4):
                self.world.after(
                    delay_s, lambda: host.when_running(process, process.begin_checkpoint)
                )

    def transfer(self, host: Host) -> None:
        leader = self.leader()
        if leader is not None and leader.host is not host:
            event = e.Transfer(next(self._asks), host.member())
            leader.host.when_running(leader, lambda: leader.handle(event))

    def change_members(self, host: Host) -> None:
        """Let a voter go, and want it back a while later."""
        if len(self.wanted) > 2:
            self.wanted.discard(host.name)
            self.world.after(self.random.uniform(1.0, 6.0), lambda: self.wanted.add(host.name))

    # --- the end

    def settle(self) -> None:
        """Heal everything; then there is a leader, everybody agrees, and clients are answered."""
        weather = self.world.weather
        weather.loss = weather.repeat = 0.0
        weather.latency_s = (0.001, 0.01)
        weather.cuts.clear()
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
        error.lines = run.world.lines  # type: ignore[attr-defined]
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
        print("\n".join(run.world.lines))
    answered = sum(client.done for client in run.clients)
    print(
        f"seed {chosen.seed}: {len(run.hosts)} members, {run.faults} faults, "
        f"{len(run.oracle.leaders)} leaders, {len(run.oracle.committed)} records, "
        f"{answered} answers, {run.world.steps} steps"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
