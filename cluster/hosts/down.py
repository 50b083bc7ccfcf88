"""`mrstream cluster down`: stop everything, prove that nothing is left, remove data if asked to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

from mrstream.cluster.config import state
from mrstream.cluster.config.config import (
    CELL_MARK,
    CHUNKSERVER,
    GATEWAY,
    LOCK_MASTER,
    MAPREDUCE_MASTER,
    WORKER,
    ClusterConfig,
    base_role,
)
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.hosts.launcher import HostLink, Hosts, Say, with_resolved_addresses
from mrstream.cluster.hosts.session import HostRefused

GRACE_S = 10.0


def phases(config: ClusterConfig) -> tuple[tuple[str, ...], ...]:
    """Return the roles in the order in which they are stopped."""
    # First nothing new comes in. Jobs end before the files they use; data servers end before the
    # masters that record their going.
    masters = (*config.dfs_masters, LOCK_MASTER)
    return ((GATEWAY,), (WORKER, MAPREDUCE_MASTER), (CHUNKSERVER,), masters)


def down(
    config: ClusterConfig, say: Say, purge: bool = False, only: list[str] | None = None
) -> dict[str, ClusterError]:
    """Stop the cluster; return the hosts where that could not be done or proven, and why."""
    config = with_resolved_addresses(config)
    with Hosts(config, only) as hosts:
        hosts.open(lock=True)
        stop_all(hosts, say)
        hosts.each(lambda link: _prove(link, say))
        if purge:
            hosts.each(lambda link: _purge(link, say))
        failed = dict(hosts.failed)
    if only is None and not failed:
        _forget(config, purge)
    return failed


def stop_all(hosts: Hosts, say: Say) -> None:
    """Stop everything on all hosts: the guards first, which would start it again."""
    hosts.each(lambda link: link.call("unguard"))
    for phase in phases(hosts.config):
        hosts.each(
            lambda link, roles=phase: stop_roles(  # type: ignore[misc]
                link, (*roles, *unmounted(link, roles)), say
            )
        )


def unmounted(link: HostLink, roles: Collection[str]) -> list[str]:
    """Return the masters of cells that run there, and that the cluster file names no more."""
    known = link.config.dfs_masters
    return [
        role
        for role in link.facts["running"]
        if CELL_MARK in role and base_role(role) in roles and role not in known
    ]


def stop_roles(link: HostLink, roles: tuple[str, ...], say: Say) -> None:
    """Stop these roles on a host: in order first, by force after the limit."""
    answer = link.call("stop", roles=list(roles), grace_s=GRACE_S, timeout_s=GRACE_S * 4)
    if answer["forced"]:
        say(link.name, f"{len(answer['forced'])} processes had to be ended by force")


def _prove(link: HostLink, say: Say) -> None:
    left = link.call("processes")["left"]
    if left:
        pid, command = left[0]
        raise HostRefused(f"process {pid} cannot be ended: {command}")
    say(link.name, "down; no process is left")


def _purge(link: HostLink, say: Say) -> None:
    """Remove all that the cluster keeps there; disks of its own have a directory by its name."""
    name = link.config.name
    paths = [link.directory, *[f"{disk}/{name}/{link.name}" for disk in link.host.disks]]
    link.call("purge", paths=paths, timeout_s=600.0)
    say(link.name, "data removed")


def _forget(config: ClusterConfig, purge: bool) -> None:
    """Remember that it is down; of one without data, nothing."""
    directory = state.cluster_directory(config.name)
    if not purge:
        if os.path.isdir(directory):
            state.write_private(state.down_mark(config.name), "")
        return
    if state.current_name() == config.name:
        state.make_current(None)
    if os.path.isdir(directory):
        shutil.rmtree(directory)
