"""The lock cell on a group: `python -m tests.simulation.lock.group SEED [-v]`.

Real cell brains, duties and gates in members that run the real consensus over the forgetful disk;
real sessions, caches and the finding of the leader in the clients. Members are killed, stopped,
hung, cut off, lose their power, hand over; L1 to L7 and C1 to C7 are looked at after every event,
and what clients read and wrote of one file is linearizable.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mrstream.cluster.consensus.standing import NotLeader, Standing
from mrstream.cluster.errors import UserError
from mrstream.cluster.leader.connection import ASK_S_MAX, OTHERS_S_MAX
from mrstream.cluster.leader.finding import Finding
from mrstream.lock import protocol as p
from mrstream.lock.cell.settings import Settings
from mrstream.lock.client.link import LOOK_SHARE, PATIENT_SHARE
from mrstream.lock.paths import ROOT
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.network import Datagrams
from tests.simulation.consensus.run import Run
from tests.simulation.lock.client import SimClient
from tests.simulation.lock.members import LockCell, LockProcess
from tests.simulation.world import Place, World
from tests.support.linear import Operation, is_linearizable, register

SECONDS = 40.0
REGISTER = f"{ROOT}/register"


class GroupClient(SimClient):
    """A program; it finds the leader as the library does."""

    others_s_max = OTHERS_S_MAX

    @property
    def lease_s(self) -> float:
        """By which it measures its patience."""
        return self.run.settings.lease_s if self.session is None else self.session.lease_s

    def __init__(self, world: World, name: str, run: LockCell, rate: float) -> None:
        self.run = run
        self.finding = Finding({host.name: host.name for host in run.hosts})
        self.sent: dict[tuple[int, int], int] = {}
        super().__init__(world, name, run, run.book, rate)  # type: ignore[arg-type]

    def _send(self, request: Any, answer: Callable[[Any], None]) -> None:
        world, asked = self.world, self.finding.address
        host = world.hosts[self.name]
        life, state = host.life, {"answered": False}
        call = (getattr(request, "session", 0), getattr(request, "number", 0))
        self.sent[call] = self.sent.get(call, 0) + 1

        def heard(value: Any) -> None:
            if host.life != life:
                return
            first, state["answered"] = not state["answered"], True
            if isinstance(value, NotLeader):
                if first and not self._forgets(request, call, answer):
                    if self.finding.refused(asked, value):
                        self._send(request, answer)
                    else:
                        answer(value)
                return
            self.finding.answered(asked)
            answer(value)

        def back(value: Any) -> None:
            self._transmit(asked, self.name, lambda: heard(value))

        def silent() -> None:
            if not state["answered"]:
                self.finding.lost(asked)

        self._transmit(self.name, asked, lambda: self.run.deliver(asked, request, back))
        if isinstance(request, p.KeepAlive):

            def moved() -> None:
                if host.life == life and not state["answered"]:
                    state["answered"] = True
                    self._send(request, answer)

            Looking(self, asked, lambda: bool(state["answered"]), moved).begin()
        else:
            world.at_host(self.name, 1.2, silent)

    def _forgets(self, request: Any, call: tuple[int, int], answer: Callable[[Any], None]) -> bool:
        """A member that says NotLeader has done nothing: a call that was sent once may be forgotten
        as if it had never been sent."""
        is_once = self.sent[call] == 1 and not self.world.repeats and not self.run.is_settling
        if not isinstance(request, p.SetContents) or not is_once or self.chance.random() > 0.5:
            return False
        self.book.forgotten[call] = None  # type: ignore[attr-defined]
        answer(UserError("not sent again"))
        return True


class Looking:
    """A KeepAlive that is held back: now and then the library looks whether its leader lives and
    leads (`LeaderConnection._look_round`), with the limits that it has there."""

    def __init__(
        self, client: GroupClient, asked: str, is_over: Callable[[], bool],
        moved: Callable[[], None],
    ) -> None:  # fmt: skip
        self._client, self._asked, self._is_over, self._moved = client, asked, is_over, moved
        lease_s = client.lease_s
        self._not_before_s = client.world.now_s + PATIENT_SHARE * lease_s
        self._every_s = LOOK_SHARE * lease_s

    def begin(self) -> None:
        self._client.world.at_host(self._client.name, self._every_s, self._look)

    def _look(self) -> None:
        client = self._client
        if self._is_over():
            return
        if client.finding.address != self._asked:
            self._moved()
        elif client.world.now_s < self._not_before_s:
            self.begin()
        else:
            self._ask([self._asked, *client.finding.others(self._asked)])

    def _ask(self, places: list[str]) -> None:
        client = self._client
        if self._is_over():
            return
        if not places:
            self.begin()
            return
        place, rest = places[0], places[1:]
        state = {"done": False}

        def once(do: Callable[[], None]) -> None:
            if not state["done"]:
                state["done"] = True
                do()

        def heard(seen: Standing) -> None:
            if place == self._asked and seen.is_serving:
                self.begin()
            elif client.finding.heard(seen, self._asked):
                self._moved()
            else:
                self._ask(rest)

        def back(seen: Standing) -> None:
            client._transmit(place, client.name, lambda: once(lambda: heard(seen)))

        client._transmit(client.name, place, lambda: client.run.describe(place, back))
        limit_s = ASK_S_MAX if place == self._asked else client.others_s_max
        client.world.at_host(client.name, limit_s, lambda: once(lambda: self._ask(rest)))


class RegisterClient(GroupClient):
    """Reads and writes one file, past its cache, for the checker of linearizability."""

    def begin(self) -> None:
        self.operations: list[Operation] = getattr(self, "operations", [])
        self._open_ops: dict[int, tuple[float, Any]] = {}
        self._numbers = itertools.count()
        self._handle: p.Handle | None = None
        super().begin()

    def _act(self) -> None:
        assert self.session is not None
        if self._handle is None:
            self.number += 1
            request = p.OpenNode(
                self.session.id, 0, self.number, REGISTER, 7, 0, create=p.MAY_CREATE
            )
            self._call(request, self._opened_register)
            return
        op = next(self._numbers)
        if self.chance.random() < 0.5:
            contents = f"{self.name}-{self.number}-{self.world.now_s:.4f}".encode()
            self._open_ops[op] = (self.world.now_s, ("write", contents))
            self._on(p.SetContents, self._handle, partial(self._wrote, op), contents=contents)
        else:
            self._open_ops[op] = (self.world.now_s, ("read",))
            self._call(p.Look(self.session.id, 0, REGISTER), partial(self._looked, op))

    def _opened_register(self, value: Any) -> None:
        if isinstance(value, p.Opened):
            self._handle = value.handle
        self._act_later()

    def _wrote(self, op: int, value: Any) -> None:
        if isinstance(value, UserError) and str(value) == "not sent again":
            self._open_ops.pop(op, None)  # it never happened
        else:
            is_done = not isinstance(value, Exception)
            self._note(op, self.world.now_s if is_done else float("inf"), None)
        self._act_later()

    def _looked(self, op: int, value: Any) -> None:
        if isinstance(value, p.Seen) and value.stat is not None:
            self._note(op, self.world.now_s, value.contents)
        self._open_ops.pop(op, None)
        self._act_later()

    def _note(self, op: int, returned_at_s: float, answer: Any) -> None:
        if op in self._open_ops:
            called_at_s, asked = self._open_ops.pop(op)
            self.operations.append(Operation(called_at_s, returned_at_s, asked, answer))

    def _give_up(self) -> None:
        """A write without an answer may have happened or not; a read without one says nothing."""
        for op, (_, asked) in list(self._open_ops.items()):
            if asked[0] == "write":
                self._note(op, float("inf"), None)
        self._open_ops.clear()

    def _news(self, news: list[Any]) -> None:
        before = self.session
        super()._news(news)
        if self.session is not before:
            self._give_up()
            self._handle = None


class GroupRun(LockCell, Run):
    """One seed: three members, some programs, an operator, and bad luck."""

    def __init__(
        self, seed: int, process_kind: type[LockProcess] = LockProcess, lease_s: float = 0.0
    ) -> None:
        self.seed = seed
        self.world = world = World(seed)
        self.random = random.Random(seed)
        self.network = Datagrams(world, self.random)
        self.gather(["h1", "h2", "h3"], process_kind, lease_s)
        self.programs: list[GroupClient] = []
        self.faults = 0
        world.after_each = self.book.check_beliefs

    def populate(self) -> None:
        """Programs begin when the group is founded."""
        for at, kind in enumerate([GroupClient, GroupClient, RegisterClient, RegisterClient]):
            name = f"c{at}"
            self.world.hosts[name] = Place(name)
            rate = self.random.choice([0.99, 1.0, 1.01])
            self.programs.append(kind(self.world, name, self, rate))
        self.book.clients += self.programs

    def live(self, seconds: float) -> None:
        self.world.run(self.world.now_s + 3.0)
        self.populate()
        self.until_s = self.world.now_s + seconds
        self.world.loss = self.random.choice([0.0, 0.0, 0.03])
        self.world.repeats = self.random.choice([0.0, 0.0, 0.05])
        self.network.loss = self.random.choice([0.0, 0.0, 0.03])
        self._pace_s = self.random.choice([1.0, 2.0, 4.0])
        self._plan_fault()
        self.world.run(self.until_s)

    def _fault(self) -> None:
        if self.world.now_s >= self.until_s:
            return
        self.faults += 1
        leader = self.leader()
        host = self.random.choice(self.hosts)
        if leader is not None and self.random.random() < 0.6:
            host = leader.host
        fault = self.random.choice(FAULTS)
        self.world.note(f"fault {fault.__name__} {host.name}")
        fault(self, host)
        self._plan_fault()

    def cut_answers(self, host: Host) -> None:
        """The others hear it, and it does not hear them: what it sends is taken by a majority, and
        its successor commits it."""
        self._cut([(other.name, host.name) for other in self.hosts if other is not host])

    def cut_clients(self, host: Host) -> None:
        """Nobody but the other members reaches it; or it can hear and not answer."""
        names = [client.name for client in self.programs]
        ways = [(name, host.name) for name in names] + [(host.name, name) for name in names]
        for way in self.random.choice([ways, ways[: len(names)], ways[len(names) :]]):
            self.world.cut[way] = None
            self.world.after(
                self.random.uniform(0.5, 8.0), lambda way=way: self.world.cut.pop(way, None)
            )

    def stop_client(self, _: Host) -> None:
        client = self.random.choice(self.programs)
        place = self.world.hosts[client.name]
        place.stopped_until_s = self.world.now_s + self.random.uniform(0.0, 12.0)

    def settle(self) -> None:
        """Heal everything; then everybody gets on with it."""
        self.is_settling = True
        network = self.network
        network.loss = network.repeat = 0.0
        network.cuts.clear()
        self.wanted = set(self.by_name)
        world = self.world
        world.cut.clear()
        world.loss = world.repeats = 0.0
        for place in world.hosts.values():
            place.stopped_until_s = 0.0
        for host in self.hosts:
            host.crash_chance, host.is_lively = 0.0, True
            host.stopped_until_s = min(host.stopped_until_s, world.now_s)
            host.slow_disk_until_s = 0.0
            host.start_after(0.1)
        for client in self.programs:
            client.is_calm = True
        world.run(world.now_s + 20.0)
        self._before = [client.done_count for client in self.programs]
        world.run(world.now_s + 25.0)  # longer than anybody waits for a lock

    def check(self) -> None:
        leader = self.leader()
        assert isinstance(leader, LockProcess), "nobody leads after everything was healed"
        assert leader.brain.step >= 7, "the fail-over does not end"
        for client, count in zip(self.programs, self._before, strict=True):
            assert client.session is not None, f"{client.name} has no session in calm weather"
            assert client.done_count > count, f"{client.name} does not get on in calm weather"
        history: list[Operation] = []
        for client in self.programs:
            if isinstance(client, RegisterClient):
                client._give_up()
                history += client.operations
        assert is_linearizable(history, b"", register), "the register is not linearizable"
        self.reads_and_writes = len(history)


FAULTS: list[Callable[[GroupRun, Host], None]] = [
    Run.kill, Run.kill, Run.power_cut, Run.power_cut_midway, Run.stop, Run.stop, Run.hang,
    Run.cut_alone, Run.cut_alone, Run.cut_one_way, Run.cut_partly, Run.slow_disk, Run.checkpoint,
    Run.transfer, Run.transfer, GroupRun.cut_answers, GroupRun.cut_answers, GroupRun.cut_clients,
    GroupRun.stop_client, Run.empty, Run.change_members,
]  # fmt: skip


def play(
    seed: int, process_kind: type[LockProcess] = LockProcess, seconds: float = SECONDS
) -> GroupRun:
    """Live through one history; raise `AssertionError` where a promise is broken."""
    run = GroupRun(seed, process_kind)
    try:
        run.found()
        run.live(seconds)
        run.settle()
        run.check()
    except AssertionError as error:
        error.add_note(f"replay: {sys.executable} -m tests.simulation.lock.group {seed} -v")
        error.lines = run.world.trace  # type: ignore[attr-defined]
        raise
    return run


def play_unheard_leaders(process_kind: type[LockProcess] = LockProcess) -> GroupRun:
    """A directed history: again and again a leader does not hear that a majority has its records;
    its successor commits them."""
    run = GroupRun(1, process_kind, lease_s=0.6)
    run.found()
    run.world.run(run.world.now_s + 3.0)
    run.populate()
    for _ in range(12):
        run.world.run(run.world.now_s + 4.0)
        leader = run.leader()
        if leader is not None:
            pairs = [(o.name, leader.host.name) for o in run.hosts if o is not leader.host]
            run.network.cuts.update(pairs)
            run.world.run(run.world.now_s + 1.5)
            run.network.cuts.difference_update(pairs)
    run.settle()
    run.check()
    return run


class Holder(GroupClient):
    """Takes a lock and does nothing more, on a crowded machine: whatever goes to it or comes from
    it is late."""

    slow_s = 0.0

    def _transmit(self, source: str, target: str, action: Callable[[], Any]) -> None:
        self.world.at_host(self.name, self.slow_s, lambda: self.world.send(source, target, action))

    def _act(self) -> None:
        if not self.handles:
            self.number += 1
            request = p.OpenNode(
                self.session_id, 0, self.number, f"{ROOT}/held", 7, 0, create=p.MAY_CREATE
            )
            self._call(request, self._lock_it)

    def _lock_it(self, opened: Any) -> None:
        if not isinstance(opened, p.Opened):
            return
        handle = opened.handle
        key = (handle.epoch, handle.number)
        self.handles[key] = handle

        def taken(value: Any) -> None:
            if isinstance(value, p.Taken):
                self.holding[key] = (handle.path, False)

        self._on(p.AcquireLock, handle, taken)


class RealTimes(LockProcess):
    """With the leases that a cell has where nobody says otherwise."""

    settings = Settings()


def play_idle_holder(idle_s: float, slow_s: float, kind: type[Holder] = Holder) -> bool:
    """A directed history: somebody holds a lock and has been idle for so long when the leader is
    cut off from everybody; the machine is crowded. Return whether it has its session later."""
    run = GroupRun(3, RealTimes, lease_s=3.0)
    run.settings = RealTimes.settings
    run.found()
    run.world.run(run.world.now_s + 3.0)
    world = run.world
    world.hosts["c0"] = Place("c0")
    client = kind(world, "c0", run, 1.0)
    run.programs.append(client)
    run.book.clients.append(client)
    world.run(world.now_s + 20.0 + idle_s)
    assert client.holding, "it has its lock"
    session = client.session
    leader = run.leader()
    assert leader is not None
    client.slow_s, gone = slow_s, leader.host.name
    others = [host.name for host in run.hosts if host.name != gone]
    run.network.cuts.update([way for o in others for way in ((gone, o), (o, gone))])
    world.cut.update({(gone, "c0"): None, ("c0", gone): None})
    world.run(world.now_s + 60.0)
    assert len(run.oracle.leaders) > 1, "another leads"
    return client.session is session and session.id in run.book.state.held


def main() -> None:
    logging.disable(logging.CRITICAL)
    try:
        run = play(int(sys.argv[1]))
    except AssertionError as error:
        if "-v" in sys.argv:
            print("\n".join(getattr(error, "lines", [])))
        raise
    if "-v" in sys.argv:
        print("\n".join(run.world.trace))
    print(
        f"seed {run.seed}: {run.faults} faults, {len(run.oracle.leaders)} leaders, "
        f"{len(run.book.records)} records, {len(run.book.forgotten)} forgotten, "
        f"{sum(c.done_count for c in run.programs)} answers, {run.reads_and_writes} in the register"
    )


if __name__ == "__main__":
    main()
