"""A group of simulated members and its operator, who founds it and wants it whole."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.members import MemberId, host_of
from tests.simulation.consensus.host import Host
from tests.simulation.consensus.network import Network
from tests.simulation.consensus.oracle import Oracle
from tests.simulation.consensus.process import Process
from tests.simulation.world import World


class Members:
    """Members on their hosts, in a world, with the oracle that sees them."""

    world: World
    network: Network
    random: Random
    oracle: Oracle
    hosts: list[Host]
    by_name: dict[str, Host]
    listens = ""
    """The host that is never to vote."""
    wanted: set[str]
    """Hosts that the operator wants as voters."""
    _asks: Iterator[int]

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
                    self.network.send(host.member(), other.member(), e.JoinAsked(host.member()))
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

    def is_settled(self) -> bool:
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
