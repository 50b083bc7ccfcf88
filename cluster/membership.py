"""`mrstream cluster add` and `remove`: hosts come and go while the cluster runs.

What the chunk store must do for it (copy everything off a host, forget it) is handed in, since this
package does not know the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cluster import state
from cluster.config import Cluster, ClusterConfig
from cluster.config_writer import write_config
from cluster.down import down
from cluster.errors import ClusterError, UserError
from cluster.launcher import Hosts, Say
from cluster.up import Up

DRAIN_POLL_S: Final = 0.5


def add_host(config: ClusterConfig, host: str, say: Say) -> dict[str, ClusterError]:
    """Bring up a host that has been added to the cluster file; every other host hears of it."""
    config.host(host)
    failed = Up(config, say).run()
    if host in failed:
        raise failed[host]
    return failed


def remove_host(
    cluster: Cluster,
    host: str,
    say: Say,
    drain: Callable[[str], int],
    forget: Callable[[str], None],
) -> ClusterConfig:
    """Take a host out: drained first, so that at no moment a chunk has fewer good replicas than it
    had. `drain(host)` begins or goes on with it and returns how many chunks are still to copy."""
    config = cluster.config
    config.host(host)
    if host == config.master:
        raise UserError(
            f"{host} runs the masters: bring them up elsewhere first, with `mrstream cluster "
            "restore --master HOST`"
        )
    left = -1
    while left != 0:
        now_left = drain(host)
        if now_left != left:
            say(host, f"{now_left} chunks still to be copied elsewhere")
        left = now_left
        if left:
            time.sleep(DRAIN_POLL_S)
    failed = down(config, say, only=[host])
    if failed:
        raise UserError(f"{host} is drained, but cannot be stopped: {failed[host]}")
    forget(host)
    smaller = replace(config, hosts=tuple(h for h in config.hosts if h.name != host))
    publish(smaller, say)
    return smaller


def publish(config: ClusterConfig, say: Say) -> None:
    """Give every host, and this user, the cluster file as it is now."""
    text = write_config(config)
    with Hosts(config) as hosts:
        hosts.open(lock=True)
        hosts.each(
            lambda link: link.call(
                "put", path=f"{link.directory}/cluster.yaml", mode=0o600, payload=text.encode()
            )
        )
        for name, error in hosts.failed.items():
            say(name, f"did not get the new cluster file: {error}")
    state.write_private(state.cluster_file(config.name), text)
