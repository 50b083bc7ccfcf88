"""`mrstream cluster restore`: masters without a majority, elsewhere, or from a backup.

The logs that are left (or those of the backup) are made logs of a lone master, which begins there
with epochs above every one that was; it comes up alone, gives up what only chunks show, and then
the other hosts of `masters:` are let in, as after every `up`. What lay there before is kept aside.
A group whose majority runs, or can run, needs none of this: `up` is enough. One master is a group
of one: its log goes to another host with it, or is gone on with on a person's word.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mrstream.cluster.config.config import (
    DFS_MASTER,
    MAPREDUCE_MASTER,
    Cluster,
    ClusterConfig,
    base_role,
)
from mrstream.cluster.config.state import LOSS_ACCEPTED_MARK
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts.backup import Backup
from mrstream.cluster.hosts.down import stop_all
from mrstream.cluster.hosts.kept_log import LogEnd, as_lone_log, fetch_log, journal_of, look_at_log
from mrstream.cluster.hosts.launcher import HostLink, Hosts, Say
from mrstream.cluster.hosts.up import Up

EPOCHS_SKIPPED = 1_000_000
"""Epochs may have been begun since, of which nobody is left to tell: more than one a second for
eleven days."""

Agreed = Callable[[list[str]], bool]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The log that one role comes back from."""

    role: str
    folder: str
    end: LogEnd
    whence: str
    host: str = ""
    lacking: tuple[str, ...] = ()
    """The hosts of which nothing is known: they cannot be reached, or have no log."""


def restore_groups(
    cluster: Cluster,
    new_master: str,
    say: Say,
    backup: Backup | None,
    agreed: Agreed,
    source: str = "",
) -> ClusterConfig:
    """Bring the masters up there from what is left, or from a backup; return the cluster as it is
    now. `agreed` is asked before anything is given up. `source`: of two hosts, the one whose logs
    count, where they went different ways."""
    config = cluster.config
    config.host(new_master)
    masters = config.masters_of(DFS_MASTER)
    if len(masters) > 1 and new_master not in masters:
        raise UserError(f"{new_master} is none of masters, which are {', '.join(masters)}")
    if backup is not None and backup.cluster_id != cluster.secret.cluster_id:
        raise UserError(
            f"{backup.path} is of another cluster (id {backup.cluster_id}), and this one has id "
            f"{cluster.secret.cluster_id}"
        )
    with Hosts(config) as hosts, tempfile.TemporaryDirectory(prefix="mrstream-restore-") as folder:
        hosts.open(lock=True)
        for name, error in hosts.failed.items():
            say(name, f"is left out: {error}")
        if new_master in hosts.failed:
            raise UserError(f"{new_master} is needed for this: {hosts.failed[new_master]}")
        logs = _of_backup(backup) if backup else _of_hosts(cluster, hosts, folder, say, source)
        doubts = _doubts(config, new_master, logs, backup, source)
        if doubts and not agreed(doubts):
            raise UserError("nothing was changed; --yes is for those who mean it")
        stop_all(hosts, say)
        if backup is None:  # they may have gone on until now
            again = os.path.join(folder, "again")
            os.mkdir(again)
            logs = _of_hosts(cluster, hosts, again, say, source)
        for role in config.master_roles:
            _clear(hosts, role, say)
        known = dict(backup.ends if backup else {}) | {log.role: log.end for log in logs}
        for role in config.master_roles:  # also where it begins anew: others remember its epochs
            _raise_epoch(hosts.link(new_master), role, known.get(role, LogEnd(0, 0)).epoch)
        for log in logs:
            is_given_up = bool(doubts or source)  # whoever only moves has lost nothing
            _put(hosts.link(new_master), log, cluster, folder, say, is_given_up=is_given_up)
        lost = tuple(hosts.failed)
    alone = replace(config, master=new_master, masters=(), learner="")
    Up(alone, say).run()
    others = tuple(name for name in masters if name != new_master)
    if len(masters) == 1 or not others:
        return alone
    if config.masters:
        whole = replace(config, master=new_master, masters=(new_master, *others))
    else:
        whole = replace(alone, learner=others[0])
    # Who cannot be reached may have the group of before: a person has just given that up.
    Up(whole, say, without=[name for name in lost if name in others]).run()
    return whole


def _of_backup(backup: Backup) -> list[Chosen]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(backup.at_s))
    return [
        Chosen(role, backup.log(role), end, f"the backup of {when}")
        for role, end in backup.ends.items()
        if role != MAPREDUCE_MASTER
    ]


def _of_hosts(cluster: Cluster, hosts: Hosts, folder: str, say: Say, source: str) -> list[Chosen]:
    """The log that goes furthest of those that can be reached, or that of a host, for each role."""
    config, chosen = cluster.config, []
    for role in [role for role in config.master_roles if role != MAPREDUCE_MASTER]:
        found: list[Chosen] = []
        for name in config.masters_of(role):
            if name in hosts.failed:
                continue
            link, here = hosts.link(name), os.path.join(folder, f"{role}-{name}")
            try:
                if not fetch_log(link, f"{link.directory}/{role}/{journal_of(role)}", here):
                    continue
                end = look_at_log(here, cluster.secret.cluster_id)
            except ClusterError as error:
                say(name, f"its log of {role} cannot be used: {error}")
                continue
            say(name, f"its log of {role} goes to record {end.sequence:,} of epoch {end.epoch}")
            found.append(Chosen(role, here, end, f"the log on {name}", name))
        found = [log for log in found if source in ("", log.host)]
        if not found:
            raise UserError(
                f"no host has a log of {role} that can be used: name a backup with --from DIR"
            )
        having = [log.host for log in found]
        lacking = tuple(name for name in config.masters_of(role) if name not in having)
        chosen.append(replace(max(found, key=lambda log: log.end), lacking=lacking))
    return chosen


def _doubts(
    config: ClusterConfig, new_master: str, logs: list[Chosen], backup: Backup | None, source: str
) -> list[str]:
    """Say what is given up, or may be; refuse where nothing has to be."""
    if backup is not None:
        return [
            f"{log.role} goes back to record {log.end.sequence:,}, {log.whence}: all later changes "
            "are given up"
            for log in logs
        ]
    is_master = new_master in config.masters_of(DFS_MASTER)
    if is_master and not source and all(_is_whole(config, log) for log in logs):
        raise UserError(
            "a majority of masters has its log, and so all that was acknowledged: nothing to "
            "restore; `mrstream cluster up` starts what does not run"
        )
    return [
        f"{log.role} goes on from {log.whence}, up to record {log.end.sequence:,}: changes that "
        f"only {' and '.join(log.lacking)} had, if any, are given up"
        for log in logs
        if log.lacking
    ]


def _is_whole(config: ClusterConfig, log: Chosen) -> bool:
    """Is nothing to be restored? A majority has its log; the one that leads alone has all of it."""
    voters = config.voters_of(log.role)
    if len(voters) == 1:
        return log.host == voters[0]
    return 2 * len([name for name in log.lacking if name in voters]) < len(voters)


def _clear(hosts: Hosts, role: str, say: Say) -> None:
    """Keep aside what any host has of a log: an older member must never come back into it."""

    def aside(link: HostLink) -> None:
        place = f"{link.directory}/{role}/{journal_of(role)}"
        moved = link.call("set_aside", path=place)["moved"]
        if moved:
            say(link.name, f"what was there was kept as {moved}")

    hosts.each(aside)


def _raise_epoch(link: HostLink, role: str, known: int) -> None:
    """Let the master of a role begin above every epoch that anybody may have heard of."""
    path = f"{link.directory}/{role}/epoch"
    said = link.call("read", path=path)["text"]
    before = int(said) if said is not None and said.strip().isdigit() else 0
    epoch = max(before, known) + EPOCHS_SKIPPED
    link.call("put", path=path, mode=0o600, payload=f"{epoch}\n".encode())


def _put(
    link: HostLink, log: Chosen, cluster: Cluster, folder: str, say: Say, *, is_given_up: bool
) -> None:
    place = f"{link.directory}/{log.role}"
    lone = os.path.join(folder, f"{log.role}-lone")
    last = as_lone_log(log.folder, lone, cluster.secret.cluster_id)
    for name in sorted(os.listdir(lone)):
        with open(os.path.join(lone, name), "rb") as file:
            content = file.read()
        path = f"{place}/{journal_of(log.role)}/{name}"
        link.call("put", path=path, mode=0o600, payload=content, timeout_s=600.0)
    if base_role(log.role) == DFS_MASTER and is_given_up:
        mark = f"{place}/{LOSS_ACCEPTED_MARK}"
        link.call("put", path=mark, mode=0o600, payload=str(last).encode())
    say(link.name, f"{log.role} has {log.whence} now, up to record {log.end.sequence:,}")
