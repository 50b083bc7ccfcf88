"""A group as people see it: every member asked, and what an operator should know or do.

Asking is at the bottom; what is made of the answers is plain values and words.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import Any, Final

from mrstream.cluster.config.config import GROUP_NAMES, GROUP_ROLES, Cluster, ClusterConfig
from mrstream.cluster.consensus.members import host_of
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.network import Connection

ASK_S_MAX: Final = 3.0
BEHIND_S_MAX: Final = 2.0
LEASE_S_LOW: Final = 2.0

LEADER: Final = "leader"
SHADOW: Final = "shadow"
LEARNER: Final = "learner"
OUTSIDE: Final = "outside"
"""It runs, and belongs to no group or to another."""
SILENT: Final = "silent"


@dataclass(frozen=True, slots=True)
class MemberView:
    """One host of a group."""

    state: str
    sequence: int = 0
    """The last record that it knows to be committed."""
    synced: int = 0
    behind_s: float = -1.0
    why: str = ""
    """Why it is silent."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """All members of one master's group at one moment."""

    role: str
    leader: str
    """The host that answers with a lease; "" when none does."""
    epoch: int
    committed: int
    voters: tuple[str, ...]
    members: dict[str, MemberView]

    @property
    def answering(self) -> tuple[str, ...]:
        """The voters that answer."""
        states = {host: member.state for host, member in self.members.items()}
        return tuple(host for host in self.voters if states.get(host) in (LEADER, SHADOW))

    @property
    def needed(self) -> int:
        """So many voters must run."""
        return len(self.voters) // 2 + 1

    def document(self) -> dict[str, Any]:
        """For `status --json`."""
        return {
            "epoch": self.epoch,
            "leader": self.leader or None,
            "committed": self.committed,
            "voters": list(self.voters),
            "needed": self.needed,
            "members": {
                host: {
                    "state": member.state,
                    "sequence": member.sequence,
                    "synced": member.synced,
                    "behind_s": member.behind_s if member.behind_s >= 0.0 else None,
                }
                for host, member in self.members.items()
            },
        }

    def line(self) -> str:
        """For `status`."""
        name, count = GROUP_NAMES[self.role], len(self.voters)
        if not self.voters:
            return f"group {name}: not founded: `mrstream cluster up` founds it"
        here = f"{len(self.answering)} of {count} members answer, {self.needed} must"
        if not self.leader:
            return f"group {name}: NO LEADER, {here}: changes wait, nothing is lost"
        return f"group {name}: {self.leader} leads epoch {self.epoch}; {here}"

    def findings(self, config: ClusterConfig) -> list[str]:
        """For `doctor`: what is wrong, and what to do."""
        found: list[str] = []
        name = self.role
        if not self.voters:
            return [f"{name}: its group is not founded: `mrstream cluster up` founds it"]
        silent = [host for host in self.voters if host not in self.answering]
        if len(self.answering) < self.needed:
            found.append(
                f"{name}: only {len(self.answering)} of {len(self.voters)} members answer, and "
                f"{self.needed} must: nothing is served until {' or '.join(silent)} is back; "
                "`mrstream cluster up` starts what can be started"
            )
        elif not self.leader:
            found.append(f"{name}: no member leads at the moment: if this lasts, see its logs")
        elif silent and len(self.answering) == self.needed:
            found.append(
                f"{name}: {', '.join(silent)} does not answer; it is served by {self.leader}, but "
                "the next failure stops it: bring the host back, or name another in masters"
            )
        for host, member in self.members.items():
            if member.state in (LEARNER, OUTSIDE):
                found.append(
                    f"{name}: {host} does not vote ({member.state}): `mrstream cluster up` lets it"
                )
            if member.state == SHADOW and member.behind_s > BEHIND_S_MAX:
                found.append(
                    f"{name}: {host} is {member.behind_s:.0f} s behind {self.leader or 'the log'}: "
                    "is its disk slow, or its network?"
                )
        return found + self._unwise(config)

    def _unwise(self, config: ClusterConfig) -> list[str]:
        found: list[str] = []
        racks = {config.host(host).rack for host in self.members}
        if len(racks) == 1 and len({host.rack for host in config.hosts}) > 1:
            found.append(
                f"{self.role}: all of masters are in rack {racks.pop()!r}, whose loss stops it: "
                "name hosts of several racks"
            )
        if config.failover_after_s < LEASE_S_LOW:
            found.append(
                f"failover_after is {config.failover_after_s:g}s: a busy host may lose the lead "
                f"for nothing; {LEASE_S_LOW:g}s and more are safe"
            )
        return found


def view_of(role: str, answers: dict[str, Standing | str]) -> GroupView:
    """Make one view of what each host said; a string is why it said nothing."""
    heard = {host: one for host, one in answers.items() if isinstance(one, Standing)}
    serving = [host for host, one in heard.items() if one.is_serving]
    # The one of the highest epoch knows best who belongs to the group.
    best = max(heard.values(), key=lambda one: (one.epoch, one.is_serving, one.last), default=None)
    voters = () if best is None else best.voters
    learners = () if best is None else best.learners
    leader = max(serving, key=lambda host: heard[host].epoch, default="")
    members: dict[str, MemberView] = {}
    for host, one in answers.items():
        if isinstance(one, str):
            members[host] = MemberView(SILENT, why=one)
            continue
        state = SHADOW if one.member in voters else LEARNER if one.member in learners else OUTSIDE
        state = LEADER if host == leader else state
        members[host] = MemberView(state, one.committed, one.synced, one.behind_s)
    epoch = best.epoch if best is not None else 0
    committed = max((one.committed for one in heard.values()), default=0)
    return GroupView(role, leader, epoch, committed, tuple(map(host_of, voters)), members)


def look_at_group(cluster: Cluster, role: str) -> GroupView:
    """Ask every member of a master's group."""
    hosts = cluster.config.masters_of(role)

    def ask(host: str) -> Standing | str:
        address = cluster.config.address(host, role)
        try:
            with Connection(
                address, cluster.identity(), role=role, connect_s_max=ASK_S_MAX
            ) as connection:
                found: Standing = connection.call(WhoLeads(), ASK_S_MAX)
                return found
        except ClusterError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        return view_of(role, dict(zip(hosts, pool.map(ask, hosts), strict=True)))


def look_at_groups(cluster: Cluster) -> dict[str, GroupView]:
    """Ask the members of all groups that the cluster has, by name."""
    config = cluster.config
    there = {role for host in config.hosts for role in config.roles_of(host.name)}
    return {
        GROUP_NAMES[role]: look_at_group(cluster, role)
        for role in GROUP_ROLES
        if role in there and len(config.masters_of(role)) > 1
    }
