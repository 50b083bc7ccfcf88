"""One simulated cluster from one seed: lock cell, dfs masters, chunkservers and programs together.

    python -m tests.simulation.together.run SEED [-v]

Three machines run a dfs master and a member of the lock cell each: what happens to a machine, its
disk, its clock or its cables happens to both. Programs take locks and work in the dfs under their
fences. Looked at after each event: C1 to C8 of both groups, F1 to F6, L1 to L7, and CH-20 from end
to end (`holders`); at the end, when all is healed, both answer within the time that is promised,
everybody gets on, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Callable
from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.records import MARK
from mrstream.dfs import protocol as p
from mrstream.lock import protocol as lp
from mrstream.lock.cell.settings import Settings
from mrstream.lock.paths import ROOT
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.network import Network
from tests.simulation.dfs.book import Truth
from tests.simulation.dfs.client import Program, SimClient
from tests.simulation.dfs.failover import Failover
from tests.simulation.dfs.server import SimServer
from tests.simulation.lock.group import GroupClient
from tests.simulation.lock.members import LockCell, LockProcess, cell_of, image_of
from tests.simulation.together.holders import LOCKS, Holder, Ledger
from tests.simulation.world import Place, World
from tests.support.forgetful_disk import ForgetfulDisk

SECONDS = 20.0
STOPS_S = (0.3, 2.0, 4.0, 8.0, 8.0, 30.0)
ANSWER_S_MAX = 20.0
"""Within this both answer when the last fault is over, as docs/guide/availability.md says."""
GET_ON_S_MAX = 60.0
WHOLE_S_MAX = 120.0
HOLDERS = 3
CHANGE_S = 9.0
"""A change of members, and the way back, take no longer while all are well."""


class LockMember(LockProcess):
    """A member of the cell, with leases whose end a short history sees."""

    settings = Settings(
        lease_s=3.0, lease_under_load_s=6.0, load_sessions=40, grace_s=9.0, idle_s=15.0,
        orphan_s=4.0,
    )  # fmt: skip


class Cell(LockCell):
    """The lock cell, on machines of others."""

    settings = LockMember.settings

    def __init__(self, world: World, names: list[str]) -> None:
        self.world = world
        self.random = random.Random(f"{world.seed}-cell")
        self.network = Network(world, self.random)
        self.gather(names, LockMember, 1.0)


class Machine:
    """Daemons that share the fate of a host: its power, its clock, its disk, its cables."""

    def __init__(self, name: str, daemons: list[Host]) -> None:
        self.name = name
        self.daemons = daemons
        for daemon in daemons:
            daemon.clock = daemons[0].clock
            daemon.lose_power = self.lose_power  # type: ignore[method-assign]

    def end(self, power: bool) -> None:
        for daemon in self.daemons:
            daemon.end(power)
            daemon.stopped_until_s = 0.0

    def start_after(self, seconds: float) -> None:
        for daemon in self.daemons:
            daemon.start_after(seconds)

    def lose_power(self, down_s: float) -> None:
        self.end(power=True)
        self.start_after(down_s)

    def stop(self, seconds: float) -> None:
        for daemon in self.daemons:
            daemon.stop(seconds)

    def empty(self) -> None:
        """Both daemons find a new disk."""
        for daemon in self.daemons:
            daemon.empty()
            daemon.stopped_until_s = 0.0


class Probe(GroupClient):
    """Takes a lock of its own, once."""

    is_done = False

    def _act(self) -> None:
        if self.session is not None and not self.number:
            self.number += 1
            ask = lp.OpenNode(
                self.session.id, 0, self.number, f"{ROOT}/probe", 7, 0, create=lp.MAY_CREATE
            )
            self._call(ask, self._take)

    def _take(self, opened: Any) -> None:
        assert isinstance(opened, lp.Opened), f"a probe may not open its node: {opened}"
        self._on(lp.AcquireLock, opened.handle, self._taken, wait_s=5.0)

    def _taken(self, value: Any) -> None:
        assert isinstance(value, lp.Taken), f"a probe does not get its lock: {value}"
        self.is_done = True


class Together(Failover):
    """One seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, clients=0)
        masters = self.group.hosts
        self.cell = Cell(self.world, [f"lock@{name}" for name in masters])
        self.machines = [
            Machine(name, [master, self.cell.by_name[f"lock@{name}"]])
            for name, master in masters.items()
        ]
        self.chance = random.Random(f"{seed}-together")
        self.holders: list[Holder] = []
        self.ledgers = {path: Ledger() for path in LOCKS}
        self.numbers = itertools.count(100)
        self.is_over = False
        """Nobody takes a lock any more."""
        self._looked_at = 0
        self._cut_for_long: dict[tuple[str, str], float] = {}
        """Ways that stay cut until then, while other things are healed."""
        self._changes_until_s = 0.0
        """Until then somebody may be no member on purpose."""
        self.cell.found()

    def _after_each(self) -> None:
        super()._after_each()
        committed = self.group.oracle.committed
        if len(committed) > self._looked_at:
            new = [payload for _, payload in committed[self._looked_at :] if payload[0] != MARK]
            self._looked_at = len(committed)
            self.book.look_at(new)
        self.cell.book.check_beliefs()

    # --- what happens

    def live(self, seconds: float) -> None:
        world, chance = self.world, self.chance
        world.run(5.0)
        self.populate(HOLDERS)
        until_s = world.now_s + seconds
        world.loss = chance.choice([0.0, 0.002, 0.02])
        world.repeats = chance.choice([0.0, 0.01, 0.05])
        world.delays = chance.choice([0.0, 0.01, 0.03])
        while world.now_s < until_s:
            world.run(world.now_s + chance.uniform(0.3, 2.0))
            for _ in range(chance.choice([1, 1, 2])):
                self._break_something()
            world.run(world.now_s + chance.uniform(0.1, 3.0))
            self._heal()
        world.loss = world.repeats = world.delays = 0.0

    def populate(self, count: int) -> None:
        """So many programs begin."""
        for number in range(1, count + 1):
            name = f"c{number}"
            self.world.hosts[name] = Place(name)
            rate = self.chance.choice([0.99, 1.0, 1.01])
            self.holders.append(Holder(self, name, rate))
        self.cell.book.clients += self.holders

    def _break_something(self) -> None:
        chance = self.chance
        machine = chance.choice(self.machines)
        leaders = [self.group.leader, self.cell.leader()]
        leading = [process.host for process in leaders if process is not None]
        if leading and chance.random() < 0.7:
            host = chance.choice(leading)
            machine = next(one for one in self.machines if host in one.daemons)
        fault = chance.choice(FAULTS)
        self.world.note(f"fault {fault.__name__} at {machine.name}")
        fault(self, machine)

    def _heal(self) -> None:
        self.world.cut.clear()
        for way, until_s in self._cut_for_long.items():
            if self.world.now_s < until_s and not self.cell.is_settling:
                self.world.cut[way] = None
        for machine in self.machines:
            if any(daemon.process is None for daemon in machine.daemons):
                machine.start_after(self.chance.uniform(0.0, 2.0))
        for server in self.servers.values():
            server.disk.capacity_bytes = 1 << 30
            if not self.world.hosts[server.name].is_up:
                server.restart_later(self.chance.uniform(0, 2))
        for holder in self.holders:
            if not self.world.hosts[holder.name].is_up:
                self.world.hosts[holder.name].is_up = True
                holder.begin()

    # --- faults of machines

    def kill(self, machine: Machine) -> None:
        machine.end(power=False)

    def kill_one(self, machine: Machine) -> None:
        """One of its daemons; the other lives on."""
        daemon = self.chance.choice(machine.daemons)
        daemon.end(power=False)
        daemon.stopped_until_s = 0.0

    def power_cut(self, machine: Machine) -> None:
        machine.end(power=True)

    def power_cut_all(self, _: Machine) -> None:
        for machine in self.machines:
            machine.end(power=True)

    def power_cut_midway(self, machine: Machine) -> None:
        """Between two things that a daemon was to do one after the other."""
        daemon = self.chance.choice(machine.daemons)
        daemon.crash_chance = 0.05
        self.world.after(2.0, lambda: setattr(daemon, "crash_chance", 0.0))

    def stop(self, machine: Machine) -> None:
        machine.stop(self.chance.choice(STOPS_S))

    def hang(self, machine: Machine) -> None:
        """The cell's program shows no sign of life, and its group's thread runs."""
        daemon = machine.daemons[1]
        daemon.is_lively = False
        self.world.after(self.chance.uniform(1.0, 6.0), lambda: setattr(daemon, "is_lively", True))

    def slow_disk(self, machine: Machine) -> None:
        """Or full, which its log waits for as long."""
        for daemon in machine.daemons:
            daemon.slow_disk_until_s = self.world.now_s + self.chance.uniform(1.0, 6.0)

    def empty(self, machine: Machine) -> None:
        """A new disk, where the others can do without the old one."""
        if self._is_settled():
            self.world.note(f"{machine.name} gets an empty disk")
            machine.empty()

    def cut_alone(self, machine: Machine) -> None:
        """Its peers do not reach it; chunkservers and programs do."""
        others = [other.name for other in self.machines if other is not machine]
        self._cut({way for other in others for way in self._ways(machine.name, other)})

    def cut_off(self, machine: Machine) -> None:
        """Nobody reaches it."""
        places = {*self.group.names, *self.servers, *(holder.name for holder in self.holders)}
        others = places - {machine.name}
        self._cut({way for other in others for way in self._ways(machine.name, other)})

    def cut_one_way(self, machine: Machine) -> None:
        other = self.chance.choice([one.name for one in self.machines if one is not machine])
        self._cut({self.chance.choice(self._ways(machine.name, other))})

    def cut_partly(self, machine: Machine) -> None:
        """Two of three do not reach each other, and both reach the third."""
        other = self.chance.choice([one.name for one in self.machines if one is not machine])
        self._cut(set(self._ways(machine.name, other)))

    def cut_programs(self, machine: Machine) -> None:
        """They do not reach it, or it hears them and its answers are lost."""
        kind = self.chance.randrange(3)
        ways = [self._ways(holder.name, machine.name) for holder in self.holders]
        self._cut({way for pair in ways for way in (pair if kind == 2 else [pair[kind]])})

    @staticmethod
    def _ways(one: str, other: str) -> list[tuple[str, str]]:
        return [(one, other), (other, one)]

    # --- what operators do

    def hand_over_dfs(self, machine: Machine) -> None:
        leader = self.group.leader
        heirs = [host for host in self.group.hosts.values() if leader and host is not leader.host]
        if leader is not None:
            self.group.wish(leader, e.Transfer, self.chance.choice(heirs).member())

    def hand_over_locks(self, machine: Machine) -> None:
        self.cell.transfer(self.chance.choice(self.cell.hosts))

    def change_masters(self, machine: Machine) -> None:
        """One is no member for a while."""
        leader = self.group.leader
        if leader is not None and self._is_settled():
            self._changes_until_s = self.world.now_s + CHANGE_S
            others = [voter for voter in leader.replica.members.voters if voter != leader.me]
            self.group.wish(leader, e.Remove, self.chance.choice(others))

    def change_cell(self, machine: Machine) -> None:
        if self._is_settled():
            self._changes_until_s = self.world.now_s + CHANGE_S
            self.cell.change_members(self.chance.choice(self.cell.hosts))

    def _is_settled(self) -> bool:
        """Three voters in each group, the three that run, have all that is committed: one may go.
        More loss at a time is a human's matter."""
        return self.world.now_s >= self._changes_until_s and all(
            group.is_settled()
            and leader is not None
            and sorted(leader.replica.members.voters) == sorted(h.member() for h in hosts)
            and all(host.process is not None for host in hosts)
            for group, leader, hosts in (
                (self.group, self.group.leader, list(self.group.hosts.values())),
                (self.cell, self.cell.leader(), self.cell.hosts),
            )
        )

    def checkpoint(self, machine: Machine) -> None:
        for daemon in machine.daemons:
            process = daemon.process
            if process is not None:
                daemon.when_running(process, process.begin_checkpoint)

    # --- faults of programs and chunkservers

    def stop_program(self, _: Machine) -> None:
        """Somebody who works under a lock, if there is one."""
        holding = [holder for holder in self.holders if holder.programs]
        holder = self.chance.choice(holding or self.holders)
        stop_s = self.chance.choice(STOPS_S)
        self.world.note(f"{holder.name} is stopped for {stop_s} s")
        self.world.hosts[holder.name].stopped_until_s = self.world.now_s + stop_s

    def kill_program(self, _: Machine) -> None:
        holder = self.chance.choice(self.holders)
        if self.world.hosts[holder.name].is_up:
            holder.crash()

    def cut_program(self, _: Machine) -> None:
        """For longer than its session lasts, or it is heard and hears nothing, or neither."""
        holder = self.chance.choice(self.holders)
        ways = [self._ways(name, holder.name) for name in self.group.names]
        is_deaf = self.chance.random() < 0.5
        cut = {way for pair in ways for way in (pair[:1] if is_deaf else pair)}
        self._cut(cut)
        if self.chance.random() < 0.6:
            until_s = self.world.now_s + self.chance.uniform(4.0, 12.0)
            self._cut_for_long.update(dict.fromkeys(sorted(cut), until_s))

    def crash_server(self, _: Machine) -> None:
        self._server().crash(power_cut=self.chance.random() < 0.5)

    def stop_server(self, _: Machine) -> None:
        place = self.world.hosts[self._server().name]
        place.stopped_until_s = self.world.now_s + self.chance.uniform(1.0, 6.0)

    def fill_server(self, _: Machine) -> None:
        self._server().disk.capacity_bytes = 1000

    def break_disk(self, _: Machine) -> None:
        self._server().fail_at_step = self.chance.randint(1, 40)

    def lose_server(self, _: Machine) -> None:
        """With its disk, for ever, where the others have all that it has."""
        if not self._is_spare():
            return
        server = self._server()
        server.crash(power_cut=True)
        self.world.note(f"{server.name} comes back with an empty disk")
        server.disk = ForgetfulDisk(
            name=server.name, capacity_bytes=1 << 30, before_step=server._step
        )
        server.met_in.clear()

    def _server(self) -> SimServer:
        return self.servers[self.chance.choice(sorted(self.servers))]

    def _is_spare(self) -> bool:
        leader = self.group.leader
        if leader is None or not leader.may_speak() or leader.brain.tables.chunks.unsealed:
            return False
        report = self._report()
        is_whole = report.under_replicated == report.missing == report.corrupt == 0
        up = [server for server in leader.brain.tables.servers.all() if server.is_up]
        return is_whole and not report.safe_mode and len(up) == len(self.servers)

    # --- the end

    def settle(self) -> None:
        """Heal everything; then both answer, everybody gets on, and the dfs is whole."""
        world = self.world
        self.cell.is_settling = True
        self.cell.wanted = set(self.cell.by_name)
        for server in self.servers.values():
            server.die_at_step = server.fail_at_step = None
            if any(use.failure for use in server.store.uses()):
                server.crash(power_cut=True)
        for holder in self.holders:
            holder.is_calm = True
        for machine in self.machines:
            for daemon in machine.daemons:
                daemon.crash_chance = daemon.slow_disk_until_s = 0.0
                daemon.is_lively = True
        self._heal()
        stops_s = [place.stopped_until_s for place in world.hosts.values()]
        stops_s += [daemon.stopped_until_s for one in self.machines for daemon in one.daemons]
        world.run(max(world.now_s + 2.0, *stops_s))
        self._check_answers()
        before = [holder.rounds for holder in self.holders]

        def everybody_gets_on() -> bool:
            pairs = zip(self.holders, before, strict=True)
            return all(holder.rounds > count for holder, count in pairs)

        assert self._until(GET_ON_S_MAX, everybody_gets_on), (
            f"since all was healed {[(h.name, h.rounds) for h in self.holders]}, after {before}"
        )
        self.is_over = True
        assert self._until(WHOLE_S_MAX, self._is_idle), f"repair does not end: {self._report()}"

    def _check_answers(self) -> None:
        """Whoever asks for the first time now is answered in time."""
        self.world.hosts["c90"] = Place("c90")
        self.world.hosts["c91"] = Place("c91")
        client = SimClient(self.world, 90, self.master, self.servers, self.book)
        client.run(self._write_once(client))
        probe = Probe(self.world, "c91", self.cell, 1.0)
        self.cell.book.clients.append(probe)
        self._until(ANSWER_S_MAX, lambda: client.is_done and probe.is_done)
        assert probe.is_done, f"the cell does not answer within {ANSWER_S_MAX} s"
        assert client.is_done, f"the dfs does not answer within {ANSWER_S_MAX} s"

    def _write_once(self, client: SimClient) -> Program:
        yield from client.call(p.MakeDirectory("/probe", "me"))
        opened = yield from client.call(p.CreateFile("/probe/f", "c90", "me", first_chunk=True))
        truth = self.book.files[opened.status.file_id] = Truth(bytearray(b"well"))
        grant = opened.grant
        if grant is None:
            ask = p.AllocateChunk(opened.status.file_id, opened.epoch, 0)
            grant = yield from client.call(ask)
        yield from client.write_at(opened, "", grant, [(0, b"well")])
        yield from client.call(p.CloseFile(opened.status.file_id, opened.epoch, 4))
        truth.acked, truth.closed = 4, True

    def _is_idle(self) -> bool:
        is_done = not any(holder.programs for holder in self.holders)
        return is_done and self._is_whole() and not self._garbage()

    def _until(self, seconds: float, is_so: Callable[[], bool]) -> bool:
        """Let time pass until it is so, and no longer than that."""
        end_s = self.world.now_s + seconds
        while not is_so() and self.world.now_s < end_s:
            self.world.run(self.world.now_s + 0.5)
        return is_so()

    def _check_fences(self) -> None:
        """All of the log was looked at as it came."""

    def check(self) -> None:
        super().check()
        leader = self.cell.leader()
        assert isinstance(leader, LockProcess), "nobody leads the cell after everything was healed"
        assert leader.brain.step >= 7, "the fail-over does not end"
        committed = self.cell.oracle.committed
        for host in self.cell.hosts:
            process = host.process
            assert process is not None, f"nobody runs on {host.name}"
            if process.applied <= len(committed):
                image = image_of(cell_of(committed[: process.applied]))
                assert process.image() == image, f"L7: {host.name} has another state"


Fault = Callable[[Together, Machine], None]
FAULTS: list[Fault] = [
    Together.kill, Together.kill_one, Together.power_cut, Together.power_cut_all,
    Together.power_cut_midway, Together.stop, Together.stop, Together.hang, Together.slow_disk,
    Together.empty,
    Together.cut_alone, Together.cut_off, Together.cut_one_way, Together.cut_partly,
    Together.cut_programs, Together.hand_over_dfs, Together.hand_over_locks,
    Together.change_masters, Together.change_cell, Together.checkpoint, Together.stop_program,
    Together.stop_program, Together.stop_program, Together.kill_program, Together.cut_program,
    Together.cut_program, Together.cut_program,
    Together.crash_server, Together.stop_server, Together.fill_server, Together.break_disk,
    Together.lose_server,
]  # fmt: skip


def play(seed: int) -> Together:
    """Live through one history; raise where a promise is broken."""
    run = Together(seed)
    try:
        run.live(SECONDS)
        run.settle()
        run.check()
    except AssertionError as error:
        error.add_note(f"replay: {sys.executable} -m tests.simulation.together.run {seed} -v")
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
        f"seed {seed}: {run.world.events} events, {len(run.group.oracle.leaders)} masters and "
        f"{len(run.cell.oracle.leaders)} leaders of the cell, {len(run.group.history)} and "
        f"{len(run.cell.book.records)} records, {sum(h.rounds for h in run.holders)} times under a "
        f"lock, {sum(h.refused for h in run.holders)} refused, all well"
    )


if __name__ == "__main__":
    main()
