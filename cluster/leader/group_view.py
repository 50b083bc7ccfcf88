"""A group as people see it: every member asked, and what an operator should know or do.

Asking is at the bottom; what is made of the answers is plain values and words.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import Any

from mrstream.cluster.config.config import Cluster, ClusterConfig, group_name
from mrstream.cluster.consensus.members import host_of, is_alone
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.leader.office import share_learned
from mrstream.cluster.wire.network import Connection

ASK_S_MAX = 3.0
BEHIND_S_MAX = 2.0
LEASE_S_LOW = 2.0
CLOCK_RATE_OFF = 0.01

LEADER = "leader"
SHADOW = "shadow"
LEARNER = "learner"
OUTSIDE = "outside"
"""It runs, and belongs to no group or to another."""
SILENT = "silent"


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
    clock_rate: float = 0.0
    """How much faster its clock runs than its leader's; 0: not known."""


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
    is_founded: bool = True
    """Not so: who leads belongs to no group yet."""

    @property
    def answering(self) -> tuple[str, ...]:
        states = {host: member.state for host, member in self.members.items()}
        return tuple(host for host in self.voters if states.get(host) in (LEADER, SHADOW))

    @property
    def is_silent(self) -> bool:
        """Nobody says anything, so nothing is known of the group."""
        return all(member.state == SILENT for member in self.members.values())

    @property
    def needed(self) -> int:
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
                    "learned_percent": self._learned(member),
                }
                for host, member in self.members.items()
            },
        }

    def _learned(self, member: MemberView) -> int | None:
        if member.state != LEARNER:
            return None
        return share_learned(member.synced, self.committed)

    def _listening(self) -> str:
        """Of two hosts, what the one that cannot lead has; "" where all can."""
        others = {host: one for host, one in self.members.items() if host not in self.voters}
        if len(self.voters) != 1 or not others:
            return ""
        host, member = next(iter(others.items()))
        if member.state != LEARNER:
            return f"ONE COPY ONLY: {host} does not listen ({member.state})"
        share = self._learned(member)
        return f"{host} listens" + ("" if share == 100 else f", and has {share} % of the log")

    def line(self) -> str:
        """For `status`."""
        name, count = group_name(self.role), len(self.voters)
        if self.is_silent:
            return f"group {name}: NO ANSWER from {', '.join(self.members)}: nothing is served"
        if not self.voters:
            return f"group {name}: not founded: `mrstream cluster up` founds it"
        here = f"{len(self.answering)} of {count} members answer, {self.needed} must"
        if not self.leader:
            return f"group {name}: NO LEADER, {here}: changes wait, nothing is lost"
        if listening := self._listening():
            here = f"{listening}; only {self.voters[0]} can lead"
        return f"group {name}: {self.leader} leads epoch {self.epoch}; {here}"

    def findings(self, config: ClusterConfig) -> list[str]:
        """For `doctor`: what is wrong, and what to do."""
        found: list[str] = []
        name = self.role
        if self.is_silent:
            return [
                f"{name}: none of {', '.join(self.members)} answers: nothing is served; `mrstream "
                "cluster up` starts what can be started"
            ]
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
        found += self._alone(config)
        for host, member in self.members.items():
            if abs(member.clock_rate) > CLOCK_RATE_OFF:
                found.append(
                    f"{name}: the clock of {host} runs {100 * member.clock_rate:+.1f} % faster "
                    f"than that of {self.leader or 'its leader'}, and leases bear 1 %: mend the "
                    "clock of one of them before two lead at once"
                )
            is_to_listen = host not in config.voters_of(self.role) and member.state == LEARNER
            if member.state in (LEARNER, OUTSIDE) and not is_to_listen:
                found.append(
                    f"{name}: {host} does not vote ({member.state}): `mrstream cluster up` lets it"
                )
            if member.state == SHADOW and member.behind_s > BEHIND_S_MAX:
                found.append(
                    f"{name}: {host} is {member.behind_s:.0f} s behind {self.leader or 'the log'}: "
                    "is its disk slow, or its network?"
                )
        return found + self._unwise(config)

    def _alone(self, config: ClusterConfig) -> list[str]:
        """What two hosts do not bear."""
        if len(self.voters) != 1 or len(config.masters_of(self.role)) == 1:
            return []
        master, listens = self.voters[0], config.masters_of(self.role)[-1]
        if self.members[listens].state != LEARNER:
            return [
                f"{self.role}: one copy only: {listens} does not listen, so what is acknowledged "
                f"now is on the disk of {master} alone: `mrstream cluster up` starts it there"
            ]
        return [
            f"{self.role}: no fail-over: two hosts have no majority; if {master} is lost, "
            f"`mrstream cluster restore --master {listens}` goes on from what {listens} has; with "
            "a third host others take over by themselves"
        ]

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
        members[host] = MemberView(
            state, one.committed, one.synced, one.behind_s, clock_rate=one.clock_rate
        )
    epoch = best.epoch if best is not None else 0
    committed = max((one.committed for one in heard.values()), default=0)
    is_founded = not any(map(is_alone, voters))
    hosts = tuple(map(host_of, voters))
    return GroupView(role, leader, epoch, committed, hosts, members, is_founded)


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
    roles = [role for role in config.master_roles if len(config.masters_of(role)) > 1]
    if not roles:
        return {}
    with concurrent.futures.ThreadPoolExecutor(len(roles)) as pool:
        views = pool.map(lambda role: look_at_group(cluster, role), roles)
        return {group_name(view.role): view for view in views}
