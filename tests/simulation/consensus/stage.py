"""A group on a stage: no chance, no faults but those that a history names, step by step.

Hosts are `a`, `b`, `c` …; messages take a millisecond, disks as long. A history cuts, holds, kills,
elects and looks. The same oracle as in the random runs watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of
from tests.simulation.consensus.mutants import Mutant
from tests.simulation.consensus.network import Datagrams
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import Process, Request
from tests.simulation.world import World

Match = Callable[[str, str, Any], bool]
"""(from host, to host, message): is it one of those?"""


class Stage:
    """A small group in whose life everything is said."""

    def __init__(
        self, names: str, mutant: Mutant | None = None, timing: Timing | None = None
    ) -> None:
        mutant = mutant or Mutant()
        self.world = World(0)
        self.network = Datagrams(self.world)
        self.network.latency_s = (0.001, 0.001)
        self.timing = timing or Timing(lease_s=1.0, beat_s=0.1)
        self.oracle = Oracle(self.timing, lambda: self.world.now_s)
        kind = type("Staged", (mutant.process,), {"replica_kind": mutant.replica})
        self.hosts = {
            name: mutant.host(name, self.network, self.oracle, self.timing, kind) for name in names
        }
        for host in self.hosts.values():
            host.sync_s = lambda: 0.001  # type: ignore[method-assign]
            host.network = self._send
            host.random.choice = lambda options: options[0]  # type: ignore[method-assign,assignment]
        self.network.receive = self._receive
        self.oracle.ballot_of = lambda member: self.hosts[host_of(member)].durable_ballot()
        self.held: list[tuple[MemberId, MemberId, Any]] = []
        self._holds: list[Match] = []
        self._asks = 0
        self._numbers = 0
        self.outcomes: dict[int, list[tuple[str, str | None]]] = {}

    # --- the network

    def _send(self, sender: MemberId, to: MemberId, word: Any) -> None:
        if any(match(host_of(sender), host_of(to), word) for match in self._holds):
            self.held.append((sender, to, word))
        else:
            self.network.send(sender, to, word)

    def _receive(self, sender: MemberId, to: MemberId, word: Any) -> None:
        self.hosts[host_of(to)].receive(sender, to, word)

    def hold(self, match: Match) -> None:
        """Put such messages aside instead of carrying them."""
        self._holds.append(match)

    def release(self, match: Match = lambda *_: True) -> int:
        """Carry what was put aside, if it matches; hold nothing any more. Say how many."""
        held, self.held, self._holds = self.held, [], []
        count = 0
        for sender, to, word in held:
            if match(host_of(sender), host_of(to), word):
                self._receive(sender, to, word)
                count += 1
            else:
                self.held.append((sender, to, word))
        self.run(0.05)
        return count

    def cut(self, one: str, others: str) -> None:
        """Nothing passes between one and the others, either way."""
        for other in others:
            self.network.cuts |= {(one, other), (other, one)}

    def heal(self) -> None:
        self.network.cuts.clear()

    # --- time and hosts

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_s + seconds)

    def __getitem__(self, name: str) -> Process:
        process = self.hosts[name].process
        assert process is not None, f"{name} is down"
        return process

    def member(self, name: str) -> MemberId:
        return self.hosts[name].member()

    def kill(self, name: str, power: bool = False) -> None:
        self.hosts[name].end(power)

    def start(self, name: str) -> None:
        self.hosts[name].start()
        self.hold_back(name)

    def hold_back(self, names: str) -> None:
        """Let these not stand by themselves."""
        for name in names:
            process = self.hosts[name].process
            if process is not None:
                process.replica.state.stand_at_s = float("inf")

    def found(self, voters: str, learners: str = "") -> None:
        """Make a group: the first founds it, the others come one by one."""
        for name in voters + learners:
            self.hosts[name].start()
        self[voters[0]].handle(e.Found())
        self.run(0.3)
        for name in voters[1:] + learners:
            self.ask(voters[0], e.AddLearner(self._ask(), self.member(name)))
            self.run(0.5)
        for name in voters[1:]:
            self.ask(voters[0], e.Promote(self._ask(), self.member(name)))
            self.run(0.5)
        members = self[voters[0]].replica.members
        assert [host_of(m) for m in members.voters] == list(voters), members
        self.run(0.3)

    def _ask(self) -> int:
        self._asks += 1
        return self._asks

    def ask(self, name: str, event: e.Event) -> Any:
        """Ask a member for a change; return what it says about it."""
        self[name].handle(event)
        return self.hosts[name].answers.get(getattr(event, "ask", 0))

    def elect(self, name: str, seconds: float = 0.05, wait_s: float | None = None) -> None:
        """Let one stand and the others not, once no promise is in force."""
        self.hold_back("".join(self.hosts))
        self.run(self.timing.promise_s * 1.02 if wait_s is None else wait_s)
        self.hold_back("".join(self.hosts))
        # Asked a second time, it knows the epoch that the others are in.
        for _ in range(2):
            if self.hosts[name].process is not None and not self[name].replica.is_leading:
                self[name].replica.state.stand_at_s = self.hosts[name].clock_s()
                self[name].handle(e.Tick())
                self.run(seconds)
        self.hold_back("".join(self.hosts))

    # --- clients

    def write(self, name: str, key: str, value: str) -> int:
        """Ask a member to write; return the request's number (see `outcomes`)."""
        return self._request(name, key, value)

    def read(self, name: str, key: str) -> int:
        return self._request(name, key, None)

    def _request(self, name: str, key: str, value: str | None) -> int:
        self._numbers += 1
        number = self._numbers
        said = self.outcomes.setdefault(number, [])
        request = Request(
            number, key, value, lambda _, outcome, result: said.append((outcome, result))
        )
        self[name].request(request)
        return number

    def leads(self) -> str:
        """Names of those who serve."""
        found = [n for n, host in self.hosts.items() if host.process and host.process.may_serve()]
        return "".join(found)
