"""`mrstream cluster add` and `remove`: hosts come and go while the cluster runs.

What the chunk store must do for it (copy everything off a host, forget it) is handed in, since this
package does not know the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mrstream.cluster.config import state
from mrstream.cluster.config.config import (
    DFS_MASTER,
    GROUP_ROLES,
    MAPREDUCE_MASTER,
    Cluster,
    ClusterConfig,
)
from mrstream.cluster.config.masters_reader import MASTERS_COUNT
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts.down import down
from mrstream.cluster.hosts.launcher import Hosts, Say
from mrstream.cluster.hosts.up import Up

DRAIN_POLL_S = 0.5
HEARD_TIMES = 3
"""So often the silence of a host has to end before it counts as alive: a master that has just taken
over counts everybody's silence from its own beginning."""


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
    others = with_other_masters(config, host)
    if others != config:
        # While it still answers, so that at no moment fewer have the log.
        _tell_who_follows(config, others, host, say)
        Up(others, say).run()
        config = others
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
    others = with_other_masters(config, host)
    before_s, heard = -1.0, 0
    while (silence_s := silence_of(host)) is not None:
        heard += silence_s < before_s
        if heard == HEARD_TIMES:
            raise UserError(
                f"{host} is not lost: the master hears from it; leave out --lost, and what it "
                "holds is copied first"
            )
        if before_s < 0.0:
            say(host, f"the master gives it up after {config.dfs.dead_after_s:g} s of silence")
        before_s = silence_s
        time.sleep(DRAIN_POLL_S)
    forget(host)
    smaller = _without(others, host, say)
    if others != config:
        _tell_who_follows(config, others, host, say)
        Up(smaller, say).run()
    return smaller


def with_other_masters(config: ClusterConfig, host: str) -> ClusterConfig:
    """Return the cluster with another host in this one's place among the masters, of a rack that
    has none of them if there is one; as it is, where the host is none of them."""
    if host == config.learner:
        return replace(config, learner="")
    if host not in config.masters_of(DFS_MASTER):
        return config
    if not config.masters:
        raise UserError(
            f"{host} runs the masters: bring them up elsewhere first, with `mrstream cluster "
            "restore --master HOST`"
        )
    stay = [name for name in config.masters if name != host]
    racks = {config.host(name).rack for name in stay}
    spare = [other for other in config.hosts if other.name not in config.masters]
    master = stay[0] if config.master == host else config.master
    if not spare:  # fewer of them: an even number bears no more than the odd one below it
        first = [master, *(name for name in stay if name != master)]
        if len(first) > MASTERS_COUNT:
            return replace(config, master=master, masters=tuple(first[:MASTERS_COUNT]))
        return replace(config, master=master, masters=(), learner=first[1])
    heir = min(spare, key=lambda other: other.rack in racks).name
    masters = tuple(heir if name == host else name for name in config.masters)
    return replace(config, master=master, masters=masters)


def _tell_who_follows(before: ClusterConfig, now: ClusterConfig, host: str, say: Say) -> None:
    if now.learner:
        say(now.learner, f"keeps the logs of the masters; {now.master} alone can lead from now on")
    heirs = [name for name in now.masters if name not in before.masters]
    for heir in heirs:
        say(heir, f"takes the place of {host} in masters: write that into your cluster file too")
    if now.masters and not heirs:
        say(now.master, f"masters are {', '.join(now.masters)} from now on")
    if before.master == host and MAPREDUCE_MASTER not in GROUP_ROLES:
        say(now.master, "has the job master now: jobs that ran have to be submitted again")


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
