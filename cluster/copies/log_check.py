"""Before a master serves: does any host know more of its log than it does itself?

Every host of the cluster is asked how far its copy of the log goes. A copy that goes further than
our log, or that has another record where ours has one, means that our log is old, cut or not the
one that was acknowledged: the master refuses, and names the way back. Without a log of its own a
master begins a new one only where no host has a copy of one, nor anything stored; each has to say
so, unless the launcher marked the cluster as new. A host with a copy that is down when there is a
log does not keep the master from starting: its `LogSink` looks again when the host is back.

Never changes anything but that mark.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crc32c import crc32c

from mrstream.cluster.config.config import CHUNKSERVER, Cluster, ClusterConfig
from mrstream.cluster.config.state import NEW_MARK
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.errors import ClusterError, JournalCorrupt, Unavailable, UserError
from mrstream.cluster.journal.disk import OsDisk
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.log_copy import LogPoint, LogPosition
from mrstream.cluster.journal.recovery import Recovery
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.messages import Metrics
from mrstream.cluster.wire.network import Channel

log = logging.getLogger(__name__)

ASK_S_MAX: Final = 3.0
ASK_AGAIN_S: Final = 0.1
ANYONE_S_MAX: Final = 1.0
"""So long a host that should have no copy is waited for."""
COPIES_S_MAX: Final = 5.0
"""So long a host that should have one is: all daemons may be starting at this moment."""
FOUNDING_S_MAX: Final = 30.0
"""So long every host is, where there is no log; `up` waits longer than that for a master."""

GROUP_S_MAX: Final = 8.0
"""So long they are where a group is to be founded: `up` waits a little longer for that."""


class LogBehind(UserError):
    """The log here is gone, or is not (all of) the one that other hosts know of."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What a host has of the cluster that only the right log can make sense of."""

    point: LogPoint
    stored_count: int


def copy_hosts(config: ClusterConfig, master: str) -> list[str]:
    """Return the hosts that keep copies of the log: the first ones that cluster.yaml names."""
    others = [host.name for host in config.hosts if host.name != master]
    return others[: config.dfs.log_replicas]


async def look_and_compare(daemon: Daemon, journal: Journal, stored: str) -> Recovery:
    """Return what the journal holds if it may be served from; `LogBehind` if not.

    `stored` is the metric by which hosts count what they store for this master."""
    config, master = daemon.config, daemon.host.name
    way_back = WayBack(config, master, journal.directory)
    try:
        found = journal.look()
    except JournalCorrupt as error:
        raise JournalCorrupt(f"{error}: {way_back.words()}", **error.details) from None
    everyone = [host.name for host in config.hosts]
    asked = _Inquiry(daemon.cluster, daemon.identity, stored, daemon.stopping)
    if found.last_sequence > 0:
        answers = await asked.ask(everyone, copy_hosts(config, master), COPIES_S_MAX)
        for host in copy_hosts(config, master):
            if host in asked.errors:
                log.warning(
                    "copy of the log not compared yet host=%s: %s", host, asked.errors[host]
                )
        compare(found, {host: answer.point for host, answer in answers.items()}, way_back)
    elif not os.path.exists(os.path.join(daemon.state_directory, NEW_MARK)):
        answers = await asked.ask(everyone, everyone, FOUNDING_S_MAX)
        may_found(answers, asked.errors, way_back, stored)
    _remove_mark(daemon.state_directory)
    return found


async def check_founding(daemon: Daemon, directory: str, last: int, stored: str) -> None:
    """Before a group is founded over the log here, which ends at `last` (0: there is none): raise
    `LogBehind` if a copy goes further, or if there is no log though something is stored."""
    way_back = WayBack(daemon.config, daemon.host.name, directory)
    is_new = os.path.exists(os.path.join(daemon.state_directory, NEW_MARK))
    if last > 0 or not is_new:
        everyone = [host.name for host in daemon.config.hosts]
        asked = _Inquiry(daemon.cluster, daemon.identity, stored, daemon.stopping)
        needed = copy_hosts(daemon.config, daemon.host.name) if last else everyone
        answers = await asked.ask(everyone, needed, GROUP_S_MAX)
        points = {host: answer.point.sequence for host, answer in answers.items()}
        furthest = max(points, key=lambda host: points[host], default="")
        if last == 0:
            may_found(answers, asked.errors, way_back, stored)
        elif furthest and points[furthest] > last:
            raise way_back.behind(last, furthest, points[furthest])
    _remove_mark(daemon.state_directory)


def compare(found: Recovery, points: Mapping[str, LogPoint], way_back: WayBack) -> None:
    """Raise `LogBehind` if a copy goes further than what was found, or is not a part of it."""
    last = found.last_sequence
    furthest = max(points, key=lambda host: points[host].sequence, default="")
    if furthest and points[furthest].sequence > last:
        raise way_back.behind(last, furthest, points[furthest].sequence)
    # Older records than these the sink compares, where they are still there.
    wanted = {p.sequence for p in points.values() if p.sequence > 0 and p.last_crc}
    if not wanted:
        return
    own = {at: crc32c(payload) for at, payload in found.records if at in wanted}
    for host, point in points.items():
        if point.last_crc and own.get(point.sequence, point.last_crc) != point.last_crc:
            raise way_back.diverged(host, point.sequence)


def may_found(
    answers: Mapping[str, HostAnswer], silent: Mapping[str, str], way_back: WayBack, stored: str
) -> None:
    """Raise `LogBehind` unless every host said that there is nothing of a file system."""
    furthest = max(answers, key=lambda host: answers[host].point.sequence, default="")
    if furthest and answers[furthest].point.sequence >= 0:
        raise way_back.gone(furthest, answers[furthest].point.sequence)
    for host, why in silent.items():
        raise way_back.unknown(host, why)
    for host, answer in answers.items():
        if answer.point.damage:
            raise way_back.nowhere(f"its copy on {host} is damaged ({answer.point.damage})")
        if answer.stored_count:
            raise way_back.nowhere(f"{host} has {answer.stored_count:,} {stored} of it")


@dataclass(frozen=True, slots=True)
class WayBack:
    """The words that a master refuses with: what it found, and what brings everything back."""

    config: ClusterConfig
    master: str
    directory: str

    def behind(self, last: int, host: str, sequence: int) -> LogBehind:
        """A copy goes further than our log."""
        return LogBehind(
            f"the log on {self.master} ends at record {last:,}, but {host} has a copy of it up to "
            f"record {sequence:,}: {self.words()}"
        )

    def diverged(self, host: str, sequence: int) -> LogBehind:
        """A copy and our log went different ways."""
        return LogBehind(
            f"record {sequence:,} of the log on {self.master} is not the one that the copy on "
            f"{host} has: {self.words()}"
        )

    def gone(self, host: str, sequence: int) -> LogBehind:
        """We have no log, and somebody has a copy."""
        return LogBehind(
            f"the log on {self.master} is gone, but {host} has a copy of it up to record "
            f"{sequence:,}: {self.words()}"
        )

    def unknown(self, host: str, why: str) -> LogBehind:
        """We have no log, and somebody may have a copy."""
        return LogBehind(
            f"there is no log on {self.master}, and {host} does not say whether it has a copy "
            f"({why}): nothing was changed; start {host} and type `mrstream cluster up` again; if "
            f"it is lost for good, {self._backup()}"
        )

    def nowhere(self, why: str) -> LogBehind:
        """There was a log, and no copy of it can be reached."""
        return LogBehind(
            f"the log on {self.master} is gone and no host has a good copy, but {why}: nothing was "
            f"changed; {self._backup()}"
        )

    def older(self, why: str) -> LogBehind:
        """Somebody stores what our log does not know yet."""
        accept = f"`mrstream cluster restore --master {self.master} --from {self.master}`"
        return LogBehind(
            f"the log on {self.master} is older than the data: {why}: {self.words()}; where nobody "
            f"has more of it, {accept} goes on with it and gives up what came after"
        )

    def words(self) -> str:
        """What to do."""
        restore = f"`mrstream cluster restore --master {self.master}`"
        if copy_hosts(self.config, self.master):
            return f"nothing was changed; {restore} brings back all that any host still has"
        return f"nothing was changed; {self._backup()}"

    def _backup(self) -> str:
        return (
            f"put {self.directory} back from a backup, then `mrstream cluster up`; a new, empty "
            "file system begins after `mrstream cluster down --purge`, or under another `name:`"
        )


class _Inquiry:
    """One question to many hosts at once."""

    def __init__(
        self, cluster: Cluster, identity: Identity, stored: str, stopping: asyncio.Event
    ) -> None:
        self._config = cluster.config
        self._identity = identity
        self._stored = stored
        self._stopping = stopping
        self.errors: dict[str, str] = {}
        """Why hosts have not answered, so far."""

    async def ask(
        self, hosts: Iterable[str], needed: Iterable[str], limit_s: float
    ) -> dict[str, HostAnswer]:
        """Return what hosts answered; those that are needed have so long to come up."""
        self.errors = dict.fromkeys(hosts, "no answer")
        tasks = {host: asyncio.ensure_future(self._until_answered(host)) for host in self.errors}
        ending = asyncio.ensure_future(self._stopping.wait())
        try:
            await _all_done([*tasks.values()], ending, ANYONE_S_MAX)
            await _all_done([tasks[host] for host in needed], ending, limit_s - ANYONE_S_MAX)
            if ending.done():
                raise Unavailable("told to stop before the copies of the log were compared")
            done = {host: task.result() for host, task in tasks.items() if task.done()}
        finally:
            for task in (*tasks.values(), ending):
                task.cancel()
            await asyncio.gather(*tasks.values(), ending, return_exceptions=True)
        for host in done:
            del self.errors[host]
        return done

    async def _until_answered(self, host: str) -> HostAnswer:
        while True:
            try:
                return await self._once(host)
            except ClusterError as error:
                self.errors[host] = str(error)
            await asyncio.sleep(ASK_AGAIN_S)

    async def _once(self, host: str) -> HostAnswer:
        address = self._config.address(host, CHUNKSERVER)
        channel = await Channel.connect(
            address, self._identity, role=CHUNKSERVER, timeout_s=ASK_S_MAX
        )
        try:
            point: LogPoint = await channel.call(LogPosition(self._identity.role), ASK_S_MAX)
            metrics: dict[str, float] = await channel.call(Metrics(), ASK_S_MAX)
        finally:
            channel.close()
        return HostAnswer(point, int(metrics.get(self._stored, 0)))


async def _all_done(
    tasks: list[asyncio.Task[HostAnswer]], ending: asyncio.Task[Any], limit_s: float
) -> None:
    """Wait until all of these are done, or the other is, or the time is over."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + limit_s
    while waiting := [task for task in tasks if not task.done()]:
        left_s = until_s - loop.time()
        if ending.done() or left_s <= 0.0:
            return
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait([*waiting, ending], timeout=left_s, return_when=first)


def _remove_mark(directory: str) -> None:
    """From the first log on a missing one is a loss."""
    path = os.path.join(directory, NEW_MARK)
    if os.path.exists(path):
        os.unlink(path)
        OsDisk().sync_directory(directory)
