"""`mrstream cluster restore --master HOST`: a new master from a copy of the lost one's log.

The best copy (the one that goes furthest) is found by asking the hosts that keep one; everything is
stopped, the copy put in place on the new master's host, and the cluster brought up with it as
master. From then on no host listens to the old master any more, should it come back.
"""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import Final

from cluster.config import CHUNKSERVER, DFS_MASTER, Cluster, ClusterConfig
from cluster.down import PHASES, stop_roles
from cluster.errors import ClusterError, UserError
from cluster.health import ASK_S_MAX
from cluster.launcher import HostLink, Hosts, Say
from cluster.log_copy import LogPoint, LogPosition
from cluster.network import Connection
from cluster.up import Up

PIECE_BYTES: Final = 4 * 1024 * 1024
JOURNAL_FOLDER: Final = f"{DFS_MASTER}/oplog"


def restore_master(cluster: Cluster, new_master: str, say: Say) -> ClusterConfig:
    """Bring up the masters on another host, everything intact; return the cluster as it is now."""
    config = cluster.config
    config.host(new_master)
    if new_master == config.master:
        raise UserError(f"{new_master} is the master already: `mrstream cluster up` starts it")
    source, point = _best_copy(cluster, say)
    changed = replace(config, master=new_master)
    with Hosts(config) as hosts:
        hosts.open(lock=True)
        for name, error in hosts.failed.items():
            say(name, f"is left out: {error}")
        for needed in (source, new_master):
            if needed in hosts.failed:
                raise UserError(f"{needed} is needed for this: {hosts.failed[needed]}")
        for phase in PHASES:
            hosts.each(lambda link, roles=phase: stop_roles(link, roles, say))  # type: ignore[misc]
        files = _fetch_copy(hosts.link(source))
        target = hosts.link(new_master)
        place = f"{target.directory}/{JOURNAL_FOLDER}"
        moved = target.call("set_aside", path=place)["moved"]
        if moved:
            say(new_master, f"an older journal there was kept as {moved}")
        for name, content in files.items():
            target.call("put", path=f"{place}/{name}", mode=0o600, payload=content, timeout_s=600.0)
        say(new_master, f"has the log up to record {point.sequence}, copied from {source}")
    Up(changed, say).run()
    return changed


def _best_copy(cluster: Cluster, say: Say) -> tuple[str, LogPoint]:
    """Return the host whose copy goes furthest, and how far."""
    best: tuple[str, LogPoint] | None = None
    for host in cluster.config.hosts:
        address = cluster.config.address(host.name, CHUNKSERVER)
        try:
            with Connection(
                address, cluster.identity(), role=CHUNKSERVER, connect_s_max=ASK_S_MAX
            ) as connection:
                point: LogPoint = connection.call(LogPosition(DFS_MASTER), ASK_S_MAX)
        except ClusterError as error:
            say(host.name, f"does not say how far its copy of the log goes: {error}")
            continue
        if point.sequence >= 0:
            say(host.name, f"has a copy of the log up to record {point.sequence}")
            if best is None or point.sequence > best[1].sequence:
                best = (host.name, point)
    if best is None:
        raise UserError(
            "no host has a copy of the master's log (are the chunkservers running? `mrstream "
            "cluster status`), so there is nothing to restore from"
        )
    return best


def _fetch_copy(link: HostLink) -> dict[str, bytes]:
    folder = f"{link.directory}/log-copies/{DFS_MASTER}"
    names = link.call("names", path=folder)["names"]
    for name in sorted(names, reverse=True):
        sizes: dict[str, int] = link.call("files", path=f"{folder}/{name}")["files"]
        if "complete" in sizes:
            return {
                file: _fetch(link, os.path.join(folder, name, file), size)
                for file, size in sizes.items()
                if file != "complete"
            }
    raise UserError(f"{link.name} has no complete copy of the log in {folder}")


def _fetch(link: HostLink, path: str, size: int) -> bytes:
    content = b""
    while len(content) < size:
        answer = link.call("fetch", path=path, offset=len(content), count=PIECE_BYTES)
        piece = base64.b64decode(answer["base64"])
        if not piece:
            raise UserError(f"{link.name}: {path} became shorter while it was being read")
        content += piece
    return content
