"""Questions to shadows: what only reads goes on while nobody leads (GFS §5.1.3).

After `LOOK_ROUND_S` without a leader the members are asked one after the other what they know; the
first answer whose bound is within what the caller takes is given. Jobs never read so: only whoever
says how old an answer may be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from mrstream.cluster.errors import Unavailable
from mrstream.cluster.leader.connection import LeaderConnection
from mrstream.cluster.wire.messages import Request, unpack
from mrstream.dfs.protocol import AskShadow, Question, ShadowAnswer

LOOK_ROUND_S = 3.0
ASK_S_MAX = 5.0
_QUESTIONS = get_args(Question)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a shadow said; None is an answer too."""

    value: Any


class StaleReads:
    """What one client knows of the time without a leader; its threads may share it."""

    def __init__(
        self, stale_s_max: float | None, on_stale: Callable[[str, float], None] | None
    ) -> None:
        self._stale_s_max = stale_s_max
        self._on_stale = on_stale
        self._lock = threading.Lock()
        self._since_s: float | None = None

    def is_led(self) -> None:
        if self._since_s is not None:
            with self._lock:
                self._since_s = None

    def ask(self, connection: LeaderConnection, request: Request) -> Answer | None:
        """No leader has answered. Return what a shadow says, or None: wait, and ask the leader
        again; raise what a shadow refuses."""
        if self._stale_s_max is None or not isinstance(request, _QUESTIONS):
            return None
        now_s = time.monotonic()
        with self._lock:
            if self._since_s is None:
                self._since_s = now_s
            if now_s - self._since_s < LOOK_ROUND_S:
                return None
        for host, address in connection.finding.members():
            try:
                said: ShadowAnswer = connection.ask_member(address, AskShadow(request), ASK_S_MAX)
            except Unavailable:
                continue
            if said.behind_s <= self._stale_s_max:
                if self._on_stale is not None:
                    self._on_stale(host, said.behind_s)
                return Answer(unpack(said.answer, request.reply))
        return None
