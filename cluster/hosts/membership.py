"""`mrstream cluster add` and `remove`: hosts come and go while the cluster runs.

What the chunk store must do for it (copy everything off a host, forget it) is handed in, since this
package does not know the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mrstream.cluster.config import state
from mrstream.cluster.config.config import Cluster, ClusterConfig
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts.down import down
from mrstream.cluster.hosts.launcher import Hosts, Say
from mrstream.cluster.hosts.up import Up

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
    _not_the_master(config, host)
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
        raise UserError(
            f"{host} is drained, but cannot be stopped: {failed[host]} (is it gone for good? "
            f"`mrstream cluster remove {host} --lost`)"
        )
    forget(host)
    return _without(config, host, say)


def remove_lost_host(
    cluster: Cluster,
    host: str,
    say: Say,
    silence_of: Callable[[str], float | None],
    forget: Callable[[str], None],
) -> ClusterConfig:
    """Take a host out that will not come back; what it held is copied from the other replicas.
    `silence_of(host)` is for how long the store's master has not heard from it; None: it gave the
    host up."""
    config = cluster.config
    config.host(host)
    _not_the_master(config, host)
    began_s = time.monotonic()
    waited_s = 0.0
    while (silence_s := silence_of(host)) is not None:
        if silence_s < waited_s:
            raise UserError(
                f"{host} is not lost: the master hears from it; leave out --lost, and what it "
                "holds is copied first"
            )
        if not waited_s:
            say(host, f"the master gives it up after {config.dfs.dead_after_s:g} s of silence")
        time.sleep(DRAIN_POLL_S)
        waited_s = time.monotonic() - began_s
    forget(host)
    return _without(config, host, say)


def _not_the_master(config: ClusterConfig, host: str) -> None:
    if host == config.master:
        raise UserError(
            f"{host} runs the masters: bring them up elsewhere first, with `mrstream cluster "
            "restore --master HOST`"
        )


def _without(config: ClusterConfig, host: str, say: Say) -> ClusterConfig:
    smaller = config.without(host)
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
