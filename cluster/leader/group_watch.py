"""What groups said last, for those who look again and again: who is silent holds up nobody.

Each group is asked beside whoever looks, and only while somebody does.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from mrstream.cluster.config.config import Cluster, group_name
from mrstream.cluster.leader.group_view import GroupView, look_at_group
from mrstream.cluster.tasks import beside

ASK_EVERY_S = 2.0


class GroupWatch:
    """The groups of a cluster, masters that are alone among them."""

    def __init__(
        self,
        cluster: Cluster,
        look: Callable[[Cluster, str], GroupView] = look_at_group,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._look, self._clock_s = cluster, look, clock_s
        self._lock = threading.Lock()
        self._asking: dict[str, Future[GroupView]] = {}
        self._known: dict[str, tuple[GroupView, float]] = {}
        """What was said last, and when."""

    def latest(self, wait_s: float = 0.0) -> dict[str, GroupView]:
        """Return what is known now, by name, and have those asked again whose answer is old. Waits
        at most so long, and only for groups of which nothing is known yet."""
        self._ask()
        if wait_s:
            wait(self._unknown(), wait_s)
        with self._lock:
            self._take()
            known = [
                self._known[r][0] for r in self._cluster.config.master_roles if r in self._known
            ]
        return {group_name(view.role): view for view in known}

    def _ask(self) -> None:
        with self._lock:
            self._take()
            for role in self._cluster.config.master_roles:
                _, at_s = self._known.get(role, (None, float("-inf")))
                if role not in self._asking and self._clock_s() - at_s >= ASK_EVERY_S:
                    self._asking[role] = beside(functools.partial(self._look, self._cluster, role))

    def _unknown(self) -> list[Future[GroupView]]:
        with self._lock:
            return [asked for role, asked in self._asking.items() if role not in self._known]

    def _take(self) -> None:
        """Take the answers that have come; a bug in the asking is raised here."""
        for role, asked in list(self._asking.items()):
            if asked.done():
                del self._asking[role]
                self._known[role] = asked.result(), self._clock_s()
