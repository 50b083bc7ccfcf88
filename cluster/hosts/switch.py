"""`mrstream cluster switch HOST GROUP`: hand the lead over, on purpose, in well under a second.

For a person at the keyboard, alone: an `up` of another administrator may be about to hand the lead
to somebody else, or to stop the heir.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from mrstream.cluster.config.config import Cluster, ClusterConfig, group_name
from mrstream.cluster.consensus.standing import AskGroup, Standing, WhoLeads
from mrstream.cluster.errors import ClusterError, HostUnreachable, Unavailable, UserError
from mrstream.cluster.hosts.launcher import Hosts
from mrstream.cluster.leader.group_view import look_at_group
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Connection

TAKEN_S_MAX = 5.0


def switch_alone(cluster: Cluster, host: str, group: str) -> tuple[str, int, float]:
    """As `switch`, while no other command is at work on the hosts of the group. One of them that
    cannot be reached is no hindrance: who is at work holds a majority of them, as we do."""
    voters = cluster.config.voters_of(_checked(cluster.config, host, group))
    with Hosts(cluster.config, voters) as hosts:
        hosts.open(lock=True)
        is_majority = 2 * len(hosts.good) > len(voters)
        for name, error in hosts.failed.items():
            if not (is_majority and isinstance(error, HostUnreachable)):
                raise UserError(f"{name}: {error}")
        return switch(cluster, host, group)


def switch(cluster: Cluster, host: str, group: str) -> tuple[str, int, float]:
    """Let that host lead; return (who led, the new epoch, the seconds without a leader)."""
    role = _checked(cluster.config, host, group)
    view = look_at_group(cluster, role)
    if not view.leader:
        raise Unavailable(f"{role} has no leader that could hand over: {view.line()}")
    if view.leader == host:
        return host, view.epoch, 0.0
    heir: Standing = _ask(cluster, host, role, WhoLeads())
    began_s = time.monotonic()
    with contextlib.suppress(HostUnreachable):  # done: the old leader has started anew
        _ask(cluster, view.leader, role, AskGroup("transfer", heir.member))
    while time.monotonic() < began_s + TAKEN_S_MAX:
        with contextlib.suppress(ClusterError):  # it starts anew, or is busy taking over
            now: Standing = _ask(cluster, host, role, WhoLeads())
            if now.is_serving:
                return view.leader, now.epoch, time.monotonic() - began_s
        time.sleep(0.005)
    raise Unavailable(f"{host} did not take over: {look_at_group(cluster, role).line()}")


def _checked(config: ClusterConfig, host: str, group: str) -> str:
    """Return the role that the host may lead; refuses a host that may not."""
    role = _role_of(config, group)
    hosts = config.voters_of(role)
    if len(hosts) == 1:
        listens = config.learner
        only = f"; {listens} keeps its log, and two hosts have no majority" if listens else ""
        raise UserError(
            f"{role} can be led by {hosts[0]} alone{only}: `masters:` in cluster.yaml names more"
        )
    if host not in hosts:
        raise UserError(f"{host} is none of masters, which are {', '.join(hosts)}")
    return role


def _role_of(config: ClusterConfig, group: str) -> str:
    """Return the role whose group people call so."""
    groups = {group_name(role): role for role in config.master_roles}
    if group not in groups:
        raise UserError(
            f"cluster {config.name} has no group {group!r}; its groups are {', '.join(groups)}"
        )
    return groups[group]


def _ask(cluster: Cluster, host: str, role: str, request: Request) -> Any:
    address = cluster.config.address(host, role)
    with Connection(address, cluster.identity(), role=role, connect_s_max=3.0) as connection:
        return connection.call(request, 12.0)
