"""`mrstream cluster down`: stop everything, prove that nothing is left, remove data if asked to."""

from __future__ import annotations

import os
import shutil

from mrstream.cluster.config import state
from mrstream.cluster.config.config import (
    CHUNKSERVER,
    DFS_MASTER,
    GATEWAY,
    LOCK_MASTER,
    MAPREDUCE_MASTER,
    WORKER,
    ClusterConfig,
)
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.hosts.launcher import HostLink, Hosts, Say, with_resolved_addresses
from mrstream.cluster.hosts.session import HostRefused

# First nothing new comes in. Jobs end before the files they use; data servers end before the master
# that records their going.
PHASES = ((GATEWAY,), (WORKER, MAPREDUCE_MASTER), (CHUNKSERVER,), (DFS_MASTER, LOCK_MASTER))
GRACE_S = 10.0


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
    for phase in PHASES:
        hosts.each(lambda link, roles=phase: stop_roles(link, roles, say))  # type: ignore[misc]


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
    if state.current_name() == config.name:
        state.make_current(None)
    if purge and os.path.isdir(state.cluster_directory(config.name)):
        shutil.rmtree(state.cluster_directory(config.name))
