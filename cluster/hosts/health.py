"""Asking daemons how they are, from outside: one question each, with a limit."""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.errors import CallTimedOut, ClusterError, NotTrusted, WrongCluster
from mrstream.cluster.wire.messages import Health, HealthReply
from mrstream.cluster.wire.network import Connection

ASK_S_MAX = 3.0

UP = "up"
DOWN = "down"
DEAD = "dead"


@dataclass(frozen=True, slots=True)
class RoleState:
    """What is known of one role on one host."""

    state: str
    """up: it answers; down: its host answers, but nobody listens; dead: no answer at all."""
    health: HealthReply | None = None
    reason: str = ""


def ask(cluster: Cluster, host: str, role: str, limit_s: float = ASK_S_MAX) -> RoleState:
    address = cluster.config.address(host, role)
    identity = cluster.identity()
    try:
        with Connection(address, identity, role=role, connect_s_max=limit_s) as connection:
            return RoleState(UP, connection.call(Health(), limit_s))
    except (NotTrusted, WrongCluster) as error:
        return RoleState(DEAD, None, str(error))
    except ClusterError as error:
        refused = isinstance(error.__cause__, ConnectionRefusedError)
        hangs = isinstance(error, CallTimedOut)
        reason = f"{address} accepts connections but does not answer" if hangs else str(error)
        return RoleState(DOWN if refused else DEAD, None, reason)
