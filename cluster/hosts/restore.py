"""`mrstream cluster restore --master HOST`: masters from the log that goes furthest.

For a master whose host is lost (HOST is another one) and for one whose log is lost, cut or old
(HOST is its own). Every log that any host has is looked at: the copies, and the master's own. They
are fetched as files, so that no daemon has to run. The furthest one is put in place, with the one
that was there set aside, and the cluster brought up. Logs that went different ways are for a person
to choose from (`--from`); whoever names one also gives up what chunks show to be missing from it.
From then on no host listens to another master, should it come back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mrstream.cluster.config.config import DFS_MASTER, MAPREDUCE_MASTER, Cluster, ClusterConfig
from mrstream.cluster.config.state import LOSS_ACCEPTED_MARK
from mrstream.cluster.errors import ClusterError, JournalCorrupt, UserError
from mrstream.cluster.hosts.down import stop_all
from mrstream.cluster.hosts.kept_log import fetch_log
from mrstream.cluster.hosts.launcher import HostLink, Hosts, Say
from mrstream.cluster.hosts.up import Up
from mrstream.cluster.journal.journal import Journal

JOURNAL_FOLDER: Final = f"{DFS_MASTER}/oplog"
COPIES_FOLDER: Final = f"log-copies/{DFS_MASTER}"


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log that some host has, fetched to `here`."""

    host: str
    is_own: bool
    """The one that the master of now wrote itself; else a copy."""
    here: str
    cluster_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{'the log' if self.is_own else 'the copy'} on {self.host}"

    def last_record(self) -> tuple[int, bytes] | None:
        """Return its last record; None where it ends with its checkpoint."""
        last = None
        for record in Journal(self.here, self.cluster_id).look().records:
            last = record
        return last

    def holds(self, other: FoundLog) -> bool:
        """Return whether the other is a part of this one, as far as can be told."""
        if other.sequence > self.sequence:
            return False
        last = other.last_record()
        if last is None:
            return True
        try:
            records = Journal(self.here, self.cluster_id).look(since=last[0] - 1).records
            return next(records, last) == last
        except JournalCorrupt:
            return True  # this one does not go back that far any more


def restore_master(
    cluster: Cluster,
    new_master: str,
    say: Say,
    source: str | None = None,
    agreed: Callable[[list[str]], bool] = lambda doubts: False,
) -> ClusterConfig:
    """Bring up the masters there, everything intact; return the cluster as it is now. `agreed` is
    asked before anything is given up, or may be."""
    config = cluster.config
    for name in (new_master, source or new_master):
        config.host(name)
    is_there = new_master == config.master
    with Hosts(config) as hosts, tempfile.TemporaryDirectory(prefix="mrstream-restore-") as folder:
        hosts.open(lock=True)
        unreachable = dict(hosts.failed)
        for name, error in unreachable.items():
            say(name, f"is left out: {error}")
        for needed in (new_master, source or new_master):
            if needed in hosts.failed:
                raise UserError(f"{needed} is needed for this: {hosts.failed[needed]}")
        if is_there and DFS_MASTER in hosts.link(new_master).facts["running"]:
            raise UserError(f"{new_master} is the master already, and runs: nothing to restore")
        if not is_there:
            stop_all(hosts, say)  # while the old master runs, its logs grow
        found = hosts.each(lambda link: _logs_of(link, cluster, folder, say))
        for link_name, error in hosts.failed.items():
            if link_name not in unreachable and source is None:
                raise UserError(
                    f"{link_name}: its logs cannot be read, and may go furthest: {error}; try "
                    "again, or name the host whose log counts with --from"
                )
        logs = [log for of_host in found.values() for log in of_host]
        chosen = _choose(logs, source, new_master)
        doubts = doubts_about(chosen, logs, list(unreachable), config.master)
        if doubts and not agreed(doubts):
            raise UserError(
                "nothing was changed (`mrstream cluster up` starts what was stopped); --yes is for "
                "those who mean it"
            )
        others = [log for log in logs if not log.is_own and not chosen.holds(log)]
        if is_there and chosen.is_own and not others and source is None:
            raise UserError(
                f"no host has more of the log than {new_master} itself, up to record "
                f"{chosen.sequence:,}: nothing to restore; `mrstream cluster up` says what is "
                "wrong, if anything is"
            )
        stop_all(hosts, say)
        for log in others:
            link = hosts.link(log.host)
            moved = link.call("set_aside", path=f"{link.directory}/{COPIES_FOLDER}")["moved"]
            say(log.host, f"its copy, up to record {log.sequence:,}, was kept as {moved}")
        target = hosts.link(new_master)
        if not (is_there and chosen.is_own):
            _put(target, chosen, say)
        if not is_there:
            # Jobs of a life before, there, must not go on: they may write where others did since.
            jobs = f"{target.directory}/{MAPREDUCE_MASTER}/journal"
            moved = target.call("set_aside", path=jobs)["moved"]
            if moved:
                say(new_master, f"an older journal of jobs there was kept as {moved}")
        if source is not None:
            path = f"{target.directory}/{DFS_MASTER}/{LOSS_ACCEPTED_MARK}"
            target.call("put", path=path, mode=0o600, payload=str(chosen.sequence).encode())
            say(new_master, "what was logged beyond that, if anything, is given up (--from)")
    changed = replace(config, master=new_master)
    Up(changed, say).run()
    return changed


def _logs_of(link: HostLink, cluster: Cluster, folder: str, say: Say) -> list[FoundLog]:
    """Fetch what a host has of the log, and say how far it goes."""
    logs = []
    places = [(_newest_copy(link), False)]
    if link.name == cluster.config.master:
        places.append((f"{link.directory}/{JOURNAL_FOLDER}", True))
    for path, is_own in places:
        here = os.path.join(folder, f"{link.name}-{'own' if is_own else 'copy'}")
        if path is None or not fetch_log(link, path, here):
            continue
        what = "its own log" if is_own else "its copy of the log"
        cluster_id = cluster.secret.cluster_id
        try:
            last = Journal(here, cluster_id).look().last_sequence
        except ClusterError as error:
            say(link.name, f"{what} cannot be used: {str(error).replace(here, path)}")
            continue
        say(link.name, f"{what} goes to record {last:,}")
        if last > 0:
            logs.append(FoundLog(link.name, is_own, here, cluster_id, last))
    return logs


def _newest_copy(link: HostLink) -> str | None:
    folder = f"{link.directory}/{COPIES_FOLDER}"
    for name in sorted(link.call("names", path=folder)["names"], reverse=True):
        if (
            name.startswith("copy-")
            and link.call("have", paths=[f"{folder}/{name}/complete"])["paths"]
        ):
            return f"{folder}/{name}"
    return None


def _choose(logs: list[FoundLog], source: str | None, new_master: str) -> FoundLog:
    """Return the log that goes furthest, or that of the host asked for."""
    named = [log for log in logs if source in (None, log.host)]
    if not named:
        whose = "no host" if source is None else source
        raise UserError(
            f"{whose} has a log of the master that can be used: put {JOURNAL_FOLDER} in the "
            f"cluster's directory on {new_master} back from a backup, then `mrstream cluster up`"
        )
    best = max(named, key=lambda log: (log.sequence, log.is_own))
    if source is None:
        for log in logs:
            if not best.holds(log):
                raise UserError(
                    f"{best} (up to record {best.sequence:,}) and {log} (up to {log.sequence:,}) "
                    "went different ways: nothing was changed; `mrstream cluster restore --master "
                    f"{new_master} --from HOST` takes that of HOST, and keeps the others aside"
                )
    return best


def doubts_about(
    chosen: FoundLog, logs: list[FoundLog], unreachable: list[str], master: str
) -> list[str]:
    """Say what is lost with this log, or may be: a longer one is known, or the master that cannot
    be asked may have gone on without its copies."""
    longest = max(logs, key=lambda log: log.sequence)
    doubts = []
    if chosen.sequence < longest.sequence:
        doubts.append(
            f"{chosen} ends at record {chosen.sequence:,}, and {longest} goes to "
            f"{longest.sequence:,}: the changes in between are given up"
        )
    copies = {log.sequence for log in logs if not log.is_own}
    silent = [name for name in unreachable if name != master]
    if master in unreachable and (len(copies) > 1 or silent):
        why = f"{', '.join(silent)} cannot be asked" if silent else "its copies do not agree"
        doubts.append(
            f"{master} cannot be reached, and {why}: changes beyond record {chosen.sequence:,}, if "
            "it acknowledged any, are given up"
        )
    return doubts


def _put(link: HostLink, log: FoundLog, say: Say) -> None:
    """Put a log in the place of the one that is there, which is kept."""
    place = f"{link.directory}/{JOURNAL_FOLDER}"
    moved = link.call("set_aside", path=place)["moved"]
    if moved:
        say(link.name, f"an older journal there was kept as {moved}")
    for name in sorted(os.listdir(log.here)):
        with open(os.path.join(log.here, name), "rb") as file:
            content = file.read()
        link.call("put", path=f"{place}/{name}", mode=0o600, payload=content, timeout_s=600.0)
    say(link.name, f"has the log up to record {log.sequence:,} now, from {log}")
