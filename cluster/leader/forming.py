"""Forming a group: a person's act, done by `mrstream cluster up`, never a daemon's own idea.

Every host that can lead is asked what it belongs to. Where nobody has a group, it is founded on the
host that leads first; and only if every host has answered, since one that is silent may have the
group already. Then hosts that are not members yet listen, catch up, and vote, one after another;
members that cluster.yaml does not name any more are let go. Interrupted anywhere: again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.standing import AskGroup, Standing, WhoLeads
from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Connection

FORM_S_MAX = 60.0
ASK_S_MAX = 3.0
WISH_S_MAX = 12.0
PAUSE_S = 0.05

Say = Callable[[str, str], None]


class Forming:
    """One try to bring the group of a role into the shape that cluster.yaml asks for."""

    def __init__(
        self,
        cluster: Cluster,
        role: str,
        say: Say,
        without: Collection[str] = (),
        down: Collection[str] = (),
    ) -> None:
        self._cluster, self._role, self._say = cluster, role, say
        self._hosts = cluster.config.masters_of(role)
        self._voters = cluster.config.voters_of(role)
        self._without = frozenset(without)
        self._down = frozenset(down)
        self._why = ""
        self._late: list[str] = []
        """Hosts that should be members, and have not answered yet, though all others are."""

    def run(self, seconds: float, check: Callable[[], None]) -> None:
        """Return when all hosts that are not down are voters; raise why not otherwise. `check` is
        called now and then, and raises when waiting is in vain. One that never answers costs the
        others nothing but the wait."""
        deadline_s = time.monotonic() + seconds
        while not self._step():
            check()
            if time.monotonic() > deadline_s:
                if self._late:
                    for host in self._late:
                        self._say(host, f"WARNING: is no member of {self._role}: {self._why}")
                    return
                raise Unavailable(f"the group of {self._role} is not formed: {self._why}")
            time.sleep(PAUSE_S)

    def has_others(self) -> bool:
        """Does a lone master still have members that cluster.yaml names no more?"""
        seen = self.standings().values()
        return any(len(one.voters) + len(one.learners) > 1 for one in seen)

    def standings(self) -> dict[str, Standing]:
        """What each host that answers says of itself."""
        found: dict[str, Standing] = {}
        for host in self._hosts:
            if host in self._down:
                continue
            try:
                found[host] = self._ask(host, WhoLeads(), ASK_S_MAX)
            except ClusterError as error:
                self._why = f"{host}: {error}"
        return found

    def _step(self) -> bool:
        """Do the one thing that comes next; say whether nothing is left to be done."""
        seen = self.standings()
        leader = next((host for host, one in seen.items() if one.is_serving), "")
        self._late = []
        try:
            if leader:
                if not self._extend(leader, seen):
                    return False
                known = {*seen, *self._down, *self._without}
                self._late = [host for host in self._hosts if host not in known]
                return not self._late
            if any(one.voters for one in seen.values()):
                _see_log_lost(seen)
                self._why = "it has no leader: a majority of its members must run"
                return False
            return self._found(seen)
        except ClusterError as error:
            if _is_final(error):
                raise
            self._why = str(error)
            return False

    def _found(self, seen: dict[str, Standing]) -> bool:
        first = next((host for host in self._voters if host not in self._without), "")
        silent = [host for host in self._hosts if host not in seen and host not in self._without]
        if silent:
            self._why = (
                f"{', '.join(silent)} does not answer, and may have the group already; start it, "
                f"or say that it is lost with `mrstream cluster up --without {silent[0]}`"
            )
            if all(host in self._down for host in silent):
                raise NoFounding(self._why)
            return False
        if first in seen:
            self._ask(first, AskGroup("found"), WISH_S_MAX)
            self._say(first, f"founds the group of {self._role}")
        return False

    def _extend(self, leader: str, seen: dict[str, Standing]) -> bool:
        group = seen[leader]
        for host, one in seen.items():
            if one.member in group.voters:
                continue
            is_learner = one.member in group.learners
            if is_learner and host not in self._voters:
                continue
            self._ask(leader, AskGroup("promote" if is_learner else "add", one.member), WISH_S_MAX)
            if is_learner:
                self._say(host, f"votes in the group of {self._role}")
            elif host not in self._voters:
                self._say(host, f"listens to the group of {self._role}, and keeps its log")
            return False
        # First those that are gone for good: they must not be needed for what follows.
        for member in [*group.voters, *group.learners]:
            if host_of(member) not in self._hosts:
                self._let_go(leader, member, group)
                self._say(host_of(member), f"leaves the group of {self._role}")
                return False
        for member in group.voters:
            if host_of(member) not in self._voters:
                self._let_go(leader, member, group)  # and it comes back as one that listens
                return False
        return True

    def _let_go(self, leader: str, member: MemberId, group: Standing) -> None:
        if member == group.leader:
            heir = next(one for one in group.voters if host_of(one) in self._voters)
            self._ask(leader, AskGroup("transfer", heir), WISH_S_MAX)
        else:
            self._ask(leader, AskGroup("remove", member), WISH_S_MAX)

    def _ask(self, host: str, request: Request, seconds: float) -> Standing:
        config = self._cluster.config
        identity = self._cluster.identity()
        with Connection(
            config.address(host, self._role), identity, role=self._role, connect_s_max=ASK_S_MAX
        ) as connection:
            answer: Standing = connection.call(request, seconds)
            return answer


class LogLost(UserError):
    """The one member that could lead has lost its log."""


def _see_log_lost(seen: dict[str, Standing]) -> None:
    """Raise where waiting for a leader is in vain: nobody founds such a group anew by himself."""
    group = max(seen.values(), key=lambda one: (one.epoch, one.last))
    if len(group.voters) == 1:
        host = host_of(group.voters[0])
        if host in seen and seen[host].member not in group.voters:
            raise LogLost(
                f"{host}, which alone can lead, has lost its log: nothing was changed; `mrstream "
                f"cluster restore --master {host}` brings back all that any host still has: "
                f"{host_of(group.member)} goes to record {group.last:,}"
            )


class NoFounding(UserError):
    """A host that is down may have the group already."""


def _is_final(error: ClusterError) -> bool:
    """Does trying again not help? A refusal of the brain passes: a newcomer has to catch up."""
    return isinstance(error, UserError) and type(error) is not UserError


def form_group(
    cluster: Cluster,
    role: str,
    say: Say = lambda host, text: None,
    without: Collection[str] = (),
    down: Collection[str] = (),
    check: Callable[[], None] = lambda: None,
    seconds: float = FORM_S_MAX,
) -> None:
    """Bring the group of a master's role into shape, where it has or had several hosts. `without`
    are hosts that have no group, by a person's word; `down` those that need not be asked."""
    forming = Forming(cluster, role, say, without, down)
    if len(cluster.config.masters_of(role)) > 1 or forming.has_others():
        forming.run(seconds, check)
