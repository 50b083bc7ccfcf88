"""`mrstream cluster status`: what every role on every host says of itself, asked all at once."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any

from mrstream.cluster.config.config import (
    DFS_MASTER,
    GROUP_NAMES,
    Cluster,
    ClusterConfig,
    base_role,
    group_name,
)
from mrstream.cluster.hosts.health import UP, RoleState, ask

ASK_AT_ONCE_MAX = 64


def roles_now(cluster: Cluster) -> dict[str, dict[str, RoleState]]:
    """Return host → role → state, hosts in the order of cluster.yaml."""
    pairs = [
        (host.name, role)
        for host in cluster.config.hosts
        for role in cluster.config.roles_of(host.name)
    ]
    with concurrent.futures.ThreadPoolExecutor(min(len(pairs), ASK_AT_ONCE_MAX)) as pool:
        states = list(pool.map(lambda pair: ask(cluster, *pair), pairs))
    found: dict[str, dict[str, RoleState]] = {host.name: {} for host in cluster.config.hosts}
    for (host, role), state in zip(pairs, states, strict=True):
        found[host][role] = state
    return found


def answering(roles: dict[str, dict[str, RoleState]]) -> set[str]:
    """Return the roles that answer on any host: of the others nobody need be asked."""
    return {role for found in roles.values() for role, state in found.items() if state.state == UP}


def status_document(
    cluster: Cluster,
    roles: dict[str, dict[str, RoleState]],
    chunks: dict[str, int | None],
    log_copies: dict[str, int | None],
) -> dict[str, Any]:
    """Return what `status --json` prints; the keys are documented in docs/guide/cluster.md."""
    config = cluster.config
    return {
        "name": config.name,
        "id": cluster.secret.cluster_id,
        "master": config.master,
        "hosts": {
            host.name: {
                "address": host.address,
                "via": host.via,
                "rack": host.rack,
                "guard": _guard(config, roles[host.name]),
                "roles": {role: _role(state) for role, state in roles[host.name].items()},
            }
            for host in config.hosts
        },
        "chunks": chunks,
        "log_copies": log_copies,
    }


def _role(found: RoleState) -> dict[str, Any]:
    health = found.health
    return {
        "state": found.state,
        "pid": health.pid if health else None,
        "since": health.since_s if health else None,
        "ready": health.ready if health else False,
        "version": health.version if health else None,
        "detail": health.detail if health else found.reason,
    }


def _guard(config: ClusterConfig, roles: dict[str, RoleState]) -> dict[str, Any] | None:
    """What any daemon of a host says of its guard; None: there is to be none, or nobody says."""
    healths = [state.health for state in roles.values() if state.health is not None]
    if not config.guard or not healths:
        return None
    said = next((health.guard for health in healths if health.guard is not None), None)
    if said is None:
        return {"pid": None, "restarts": {}, "left_down": {}}
    return {"pid": said.pid, "restarts": said.restarts, "left_down": said.left_down}


def guard_lines(document: dict[str, Any]) -> list[str]:
    """Say what guards have done, or would have to do and cannot."""
    lines: list[str] = []
    for name, host in document["hosts"].items():
        guard = host["guard"]
        if guard is None:
            continue
        if guard["pid"] is None:
            lines.append(f"{name} has no guard: `mrstream cluster up` starts it")
        for role, why in guard["left_down"].items():
            lines.append(f"{name}: {left_down(name, role, why)}")
        for role, count in guard["restarts"].items():
            times = "once" if count == 1 else f"{count} times"
            lines.append(f"{name}: its guard has started {role} again, {times}")
    return lines


def left_down(host: str, role: str, why: str) -> str:
    """What to do about a role that its guard has given up."""
    return (
        f"{role} {why}; its guard leaves it down: see `mrstream cluster logs {host} {role}`, then "
        "`mrstream cluster up`"
    )


def is_all_up(document: dict[str, Any]) -> bool:
    """Whether every role answers, ready or still starting."""
    return all(
        role["state"] == UP
        for host in document["hosts"].values()
        for role in host["roles"].values()
    )


def status_lines(document: dict[str, Any]) -> list[str]:
    """Return the same for people: a line a role."""
    rows = [("HOST", "ROLE", "STATE", "PID", "SINCE", "")]
    for name, host in document["hosts"].items():
        for role, state in host["roles"].items():
            rows.append(
                (
                    f"{name} ({host['address']})",
                    role,
                    state["state"] if state["state"] != UP or state["ready"] else "starting",
                    str(state["pid"] or "-"),
                    _moment(state["since"]) if state["since"] else "-",
                    (state["detail"] or "") + _lead(document, name, role),
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]])
        for row in rows
    ]
    known = {key: value for key, value in document["chunks"].items() if value is not None}
    chunks = ", ".join(f"{value} {key.replace('_', '-')}" for key, value in known.items())
    return [
        f"cluster {document['name']}, {_master(document)}",
        *[line.rstrip() for line in lines],
        f"chunks: {chunks or 'unknown (the dfs master does not answer)'}",
        *cell_lines(document.get("cells", {})),
        *log_copy_lines(document["log_copies"]),
        *guard_lines(document),
    ]


def _moment(at_s: float) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(at_s))


def _group(document: dict[str, Any], role: str) -> dict[str, Any] | None:
    group: dict[str, Any] | None = document.get("groups", {}).get(group_name(role))
    return group


def _master(document: dict[str, Any]) -> str:
    """Who leads the dfs, whoever was to lead first."""
    group = _group(document, DFS_MASTER)
    leader = document["master"] if group is None else group["leader"]
    return f"master {leader}" if leader else "no master leads at the moment"


def _lead(document: dict[str, Any], host: str, role: str) -> str:
    """Since when this one leads; nothing of one that does not."""
    group = _group(document, role) if base_role(role) in GROUP_NAMES else None
    if group is None or group["leader"] != host or not group["since"]:
        return ""
    return f", since {_moment(group['since'])}"


def cell_lines(cells: dict[str, Any]) -> list[str]:
    """Say what lies in each cell besides the root's."""
    lines: list[str] = []
    for name, cell in cells.items():
        held = f"{cell['files']} files, {cell['chunks']} chunks"
        known = held if cell["files"] is not None else "unknown (its master does not answer)"
        lines.append(f"cell {name} at {cell['path']}: {known}")
    return lines


def log_copy_lines(copies: dict[str, int | None]) -> list[str]:
    """Say that the master's log is on fewer hosts than it should be, if it is."""
    in_step, wanted = copies.get("in_step"), copies.get("wanted")
    if in_step is None or wanted is None or in_step >= wanted:
        return []
    alone = ": one copy only, on the master's own disk" if in_step == 0 else ""
    return [f"{in_step} of {wanted} copies of the dfs master's log are in step{alone}"]
