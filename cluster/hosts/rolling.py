"""What runs another version is replaced one after the other, so that nobody is without the cluster.

Of a group of masters the shadows come first, then the lead is handed to one of them, and the old
leader comes last: a pause of well under a second. Then the servers of one host after the other (of
a large cluster, of some hosts at a time): what one has, others have too. The first that does not
come up stops it all: the rest runs on as it was.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from mrstream.cluster.config.config import (
    CHUNKSERVER,
    DFS_MASTER,
    HOST_ROLES,
    MAPREDUCE_MASTER,
    Cluster,
    group_name,
)
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts.health import UP, ask
from mrstream.cluster.hosts.launcher import HostLink, Hosts, Say
from mrstream.cluster.hosts.switch import switch
from mrstream.cluster.leader.group_view import look_at_group

STEPS_MAX = 16
"""A cluster of more hosts is replaced several hosts at a time."""
SERVER_S_MAX = 15.0
"""A server that is up, but not ready for so long, does not hold the others up."""
MEMBER_S_MAX = 60.0
HAND_OVER_S_MAX = 20.0
POLL_S = 0.05


class NotReplaced(UserError):
    """The new version did not come up somewhere."""


class Rolling:
    """One round of replacements. `outdated` says why a running role has to be replaced, or nothing;
    `replace` stops and starts it; `see_alive` raises what it said if it has ended."""

    def __init__(
        self,
        cluster: Cluster,
        hosts: Hosts,
        say: Say,
        outdated: Callable[[HostLink, str], str],
        replace: Callable[[HostLink, str], None],
        see_alive: Callable[[HostLink, str], None],
    ) -> None:
        self._cluster, self._hosts, self._say = cluster, hosts, say
        self._outdated, self._replace, self._see_alive = outdated, replace, see_alive
        self._is_led = True

    def run(self) -> None:
        """Replace what has to be; raise `NotReplaced` where that fails."""
        for role in self._cluster.config.master_roles:
            self._replace_group(role)
        self._replace_servers()

    # --- masters

    def _replace_group(self, role: str) -> None:
        links = {link.name: link for link in self._hosts.good if self._outdated(link, role)}
        if not links or len(self._cluster.config.voters_of(role)) == 1:
            return
        view = look_at_group(self._cluster, role)
        if not view.leader or len(view.answering) == 1:
            return  # nobody could take over: all at once, as at a start
        for name in [name for name in links if name != view.leader]:
            self._one_member(links[name], role)
        if view.leader in links:
            self._hand_over(view.leader, [host for host in view.answering if host != view.leader])
            self._one_member(links[view.leader], role)

    def _one_member(self, link: HostLink, role: str) -> None:
        try:
            self._replace(link, role)
            self._await(link, role, MEMBER_S_MAX, must=True)
        except ClusterError as error:
            raise self._stopped(link, role, error) from None

    def _hand_over(self, leader: str, heirs: list[str]) -> None:
        """Let another lead every group that this host leads."""
        config = self._cluster.config
        for role in config.master_roles:
            if leader not in config.voters_of(role) or len(config.voters_of(role)) == 1:
                continue
            if look_at_group(self._cluster, role).leader == leader:
                others = [host for host in heirs if host in config.voters_of(role)]
                self._switch(role, leader, others)

    def _switch(self, role: str, leader: str, heirs: list[str]) -> None:
        """Hand a group over to one of these: a member that has just been replaced may have to
        catch up first, so it is asked for a while, in turn with the others; one that took over
        later than it was waited for is left to lead."""
        why = "no other member answers"
        deadline_s = time.monotonic() + HAND_OVER_S_MAX
        for turn, heir in enumerate(itertools.cycle(heirs), 1):
            try:
                _, epoch, took_s = switch(self._cluster, heir, group_name(role))
            except ClusterError as error:
                why = str(error)
                late = look_at_group(self._cluster, role)
                if late.leader in heirs:
                    self._say(late.leader, f"leads {role} after {leader}, epoch {late.epoch}")
                    return
                if time.monotonic() > deadline_s:
                    break
                time.sleep(POLL_S)
                continue
            said = f"leads {role} after {leader}, epoch {epoch}, in {1000 * took_s:.0f} ms"
            self._say(heir, said if turn == 1 else f"{said}, at try {turn}")
            return
        self._say(leader, f"WARNING: {role} was not handed over: {why}")

    # --- servers

    def _replace_servers(self) -> None:
        """The hosts of masters first: servers of this version ask masters of this version. Where
        nobody leads until the group is founded, all at once: waiting would be in vain."""
        config = self._cluster.config
        is_group = len(config.masters_of(DFS_MASTER)) > 1
        view = look_at_group(self._cluster, DFS_MASTER)
        # A master that was alone leads no more once it is replaced by a member of a group to come.
        self._is_led = not is_group or (bool(view.leader) and view.is_founded)
        order = [config.master, *(host.name for host in config.hosts if host.name != config.master)]
        names = [link.name for link in self._hosts.good if self._outdated_here(link)]
        names.sort(key=order.index)
        at_once = -(-len(names) // STEPS_MAX) if self._is_led else len(names)
        for first in range(0, len(names), max(1, at_once)):
            batch = names[first : first + at_once]
            self._hosts.each(self._one_host, only=batch)
            for name in batch:
                if name in self._hosts.failed:
                    link = self._hosts.link(name)
                    raise self._stopped(link, "one of its roles", self._hosts.failed[name])

    def _outdated_here(self, link: HostLink) -> list[str]:
        roles = (*self._cluster.config.dfs_masters, MAPREDUCE_MASTER, *HOST_ROLES)
        return [role for role in roles if self._outdated(link, role)]

    def _one_host(self, link: HostLink) -> None:
        roles = self._outdated_here(link)
        for role in roles:
            self._replace(link, role)
        if (
            CHUNKSERVER in roles and self._is_led
        ):  # a worker may wait for a job master that starts only later
            self._await(link, CHUNKSERVER, SERVER_S_MAX)

    def _await(self, link: HostLink, role: str, limit_s: float, must: bool = False) -> None:
        deadline_s = time.monotonic() + limit_s
        while True:
            found = ask(self._cluster, link.name, role)
            if found.state == UP and found.health is not None and found.health.ready:
                return
            self._see_alive(link, role)
            if time.monotonic() > deadline_s:
                if must:
                    words = found.health.detail if found.health is not None else found.reason
                    raise UserError(f"it is not ready after {limit_s:.0f} s: {words}")
                return
            time.sleep(POLL_S)

    def _stopped(self, link: HostLink, role: str, error: ClusterError) -> NotReplaced:
        return NotReplaced(
            f"{link.name}: {role} could not be replaced by this version, so nothing more was: "
            f"{error}"
        )
