"""Before a master serves: does anybody know more than its log does?

A member of a group that has a majority need not ask: one whose log lacks what was acknowledged is
not elected. Who can lead alone asks. With a listener (two hosts): how far it
has the log; where that is more, ours is old, cut or another one. Without a log: whether any host
stores something of a file system; each has to say so, unless the launcher marked the cluster as
new. The master refuses then, and names the way back. A listener that is down when there is a log
does not keep the master from starting: until it is there again, nothing is condemned.

Never changes anything but that mark.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mrstream.cluster.config.config import CHUNKSERVER, DFS_MASTER, ClusterConfig
from mrstream.cluster.config.state import NEW_MARK
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import ClusterError, JournalCorrupt, Unavailable, UserError
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import Recovery
from mrstream.cluster.wire.messages import Metrics
from mrstream.cluster.wire.network import Channel

log = logging.getLogger(__name__)

ASK_S_MAX = 3.0
ASK_AGAIN_S = 0.1
LISTENERS_S_MAX = 5.0
"""So long a listener is waited for: all daemons may be starting at this moment."""
FOUNDING_S_MAX = 30.0
"""So long every host is, where there is no log; `up` waits longer than that for a master."""
GROUP_S_MAX = 8.0
"""So long they are where a group is to be founded: `up` waits a little longer for that."""

T = TypeVar("T")


class LogBehind(UserError):
    """The log here is gone, or is not (all of) the one that other hosts know of."""


async def look_and_compare(daemon: Daemon, journal: Journal, stored: str) -> Recovery:
    """Return what the journal of a lone master holds if it may be served from; `LogBehind` if not.

    `stored` is the metric by which hosts count what they store for this master."""
    way_back = WayBack(daemon.config, daemon.host.name, journal.directory)
    try:
        found = journal.look()
    except JournalCorrupt as error:
        raise JournalCorrupt(f"{error}: {way_back.words()}", **error.details) from None
    if found.last_sequence == 0:
        await _see_nothing_stored(daemon, way_back, stored, FOUNDING_S_MAX)
    _remove_mark(daemon.state_directory)
    return found


async def check_founding(daemon: Daemon, directory: str, last: int, stored: str) -> None:
    """Before a group is founded over the log here, which ends at `last` (0: there is none): raise
    `LogBehind` if there is no log though something is stored."""
    if last == 0:
        way_back = WayBack(daemon.config, daemon.host.name, directory)
        await _see_nothing_stored(daemon, way_back, stored, GROUP_S_MAX)
    _remove_mark(daemon.state_directory)


async def compare_with_listeners(
    daemon: Daemon, directory: str, last: int, listeners: Iterable[MemberId]
) -> None:
    """Before the one member that can lead does so: raise `LogBehind` if one that listens has more
    of the log, which ends at `last` here."""
    hosts = [host_of(member) for member in listeners if host_of(member) != daemon.host.name]
    known = [host for host in hosts if host in daemon.config.masters_of(daemon.role)]

    async def ask(host: str) -> int:
        channel = await _connect(daemon, host, daemon.role)
        try:
            seen: Standing = await channel.call(WhoLeads(), ASK_S_MAX)
        finally:
            channel.close()
        # All that it has was on our disk first (C8), acknowledged or not.
        return max(seen.committed, seen.synced)

    asked = _Inquiry(daemon.stopping, ask)
    answers = await asked.ask(known, LISTENERS_S_MAX)
    for host, why in asked.errors.items():
        log.warning("the log is not compared yet with that on host=%s: %s", host, why)
    furthest = max(answers, key=lambda host: answers[host], default="")
    if furthest and answers[furthest] > last:
        way_back = WayBack(daemon.config, daemon.host.name, directory)
        raise way_back.behind(last, furthest, answers[furthest])


async def _see_nothing_stored(
    daemon: Daemon, way_back: WayBack, stored: str, seconds: float
) -> None:
    if os.path.exists(os.path.join(daemon.state_directory, NEW_MARK)):
        return

    async def ask(host: str) -> int:
        channel = await _connect(daemon, host, CHUNKSERVER)
        try:
            metrics: dict[str, float] = await channel.call(Metrics(), ASK_S_MAX)
        finally:
            channel.close()
        return int(metrics.get(stored, 0))

    asked = _Inquiry(daemon.stopping, ask)
    answers = await asked.ask([host.name for host in daemon.config.hosts], seconds)
    may_found(answers, asked.errors, way_back, stored)


def may_found(
    stored_counts: Mapping[str, int], silent: Mapping[str, str], way_back: WayBack, stored: str
) -> None:
    """Raise `LogBehind` unless every host said that there is nothing of a file system."""
    for host, count in stored_counts.items():
        if count:
            raise way_back.nowhere(f"{host} has {count:,} {stored} of it")
    for host, why in silent.items():
        raise way_back.unknown(host, why)


@dataclass(frozen=True, slots=True)
class WayBack:
    """The words that a master refuses with: what it found, and what brings everything back."""

    config: ClusterConfig
    master: str
    directory: str

    def behind(self, last: int, host: str, sequence: int) -> LogBehind:
        """One that listens has more than our log."""
        return LogBehind(
            f"the log on {self.master} ends at record {last:,}, but {host} has it up to record "
            f"{sequence:,}: {self.words()}"
        )

    def unknown(self, host: str, why: str) -> LogBehind:
        """We have no log, and somebody may store something."""
        return LogBehind(
            f"there is no log on {self.master}, and {host} does not say whether it stores anything "
            f"({why}): nothing was changed; start {host} and type `mrstream cluster up` again; if "
            f"it is lost for good, {self._backup()}"
        )

    def nowhere(self, why: str) -> LogBehind:
        """There was a log."""
        return LogBehind(
            f"the log on {self.master} is gone, but {why}: nothing was changed; {self._backup()}"
        )

    def older(self, why: str) -> LogBehind:
        """Somebody stores what our log does not know yet."""
        accept = f"`mrstream cluster restore --master {self.master} --from {self.master}`"
        alone = len(self.config.masters_of(DFS_MASTER)) == 1
        rest = f"; where there is none, {accept} goes on with it and gives up what came after"
        return LogBehind(
            f"the log on {self.master} is older than the data: {why}: {self.words()}"
            f"{rest if alone else ''}"
        )

    def words(self) -> str:
        """What to do."""
        if len(self.config.masters_of(DFS_MASTER)) > 1:
            restore = f"`mrstream cluster restore --master {self.master}`"
            return f"nothing was changed; {restore} brings back all that any host still has"
        return f"nothing was changed; {self._backup()}"

    def _backup(self) -> str:
        restore = f"`mrstream cluster restore --master {self.master} --from DIR`"
        return (
            f"{restore} goes back to a backup (or put {self.directory} back from one, then "
            "`mrstream cluster up`); a new, empty file system begins after `mrstream cluster down "
            "--purge`, or under another `name:`"
        )


async def _connect(daemon: Daemon, host: str, role: str) -> Channel:
    address = daemon.config.address(host, role)
    return await Channel.connect(address, daemon.identity, role=role, timeout_s=ASK_S_MAX)


class _Inquiry(Generic[T]):
    """One question to many hosts at once, until each has answered or the time is over."""

    def __init__(self, stopping: asyncio.Event, question: Callable[[str], Awaitable[T]]) -> None:
        self._stopping, self._question = stopping, question
        self.errors: dict[str, str] = {}
        """Why hosts have not answered."""

    async def ask(self, hosts: Iterable[str], limit_s: float) -> dict[str, T]:
        self.errors = dict.fromkeys(hosts, "no answer")
        tasks = {host: asyncio.ensure_future(self._until_answered(host)) for host in self.errors}
        ending = asyncio.ensure_future(self._stopping.wait())
        try:
            await _all_done([*tasks.values()], ending, limit_s)
            if ending.done():
                raise Unavailable("told to stop before other hosts had said what they know")
            done = {host: task.result() for host, task in tasks.items() if task.done()}
        finally:
            for task in (*tasks.values(), ending):
                task.cancel()
            await asyncio.gather(*tasks.values(), ending, return_exceptions=True)
        for host in done:
            del self.errors[host]
        return done

    async def _until_answered(self, host: str) -> T:
        while True:
            try:
                return await self._question(host)
            except ClusterError as error:
                self.errors[host] = str(error)
            await asyncio.sleep(ASK_AGAIN_S)


async def _all_done(
    tasks: list[asyncio.Task[Any]], ending: asyncio.Task[Any], limit_s: float
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
