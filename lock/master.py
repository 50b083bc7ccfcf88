"""A member of a lock cell: all nodes and sessions, as the leader or as its shadow (Chubby §2.2).

The shell around `lock.cell`. Its duties, in order: take one request, let the brain decide, put what
must last into the log, and only when that is durable answer. KeepAlives and calls that wait for a
lock are answers that come late. Everything runs on the one loop. Who leads, and whether anything
may be said, is the office's to know (`cluster/leader`). Never decides anything itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mrstream.cluster.config.config import LOCK_MASTER, LockConfig
from mrstream.cluster.daemon import Daemon, run
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.leader.office import Office
from mrstream.cluster.user import login_name
from mrstream.cluster.wire.network import Handler, Peer
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.events import Called, Event, LeadershipBegan, Refuse, Reply, Tick
from mrstream.lock.cell.image import load_image, pack_image
from mrstream.lock.cell.records import decode_record
from mrstream.lock.cell.settings import Settings
from mrstream.lock.duties import Duties
from mrstream.lock.protocol import Locate, Whereabouts

log = logging.getLogger(__name__)

ROLE = LOCK_MASTER
TICK_S = 0.25


def settings_from(config: LockConfig, superuser: str) -> Settings:
    """Return the brain's numbers as cluster.yaml gives them."""
    return Settings(
        lease_s=config.session_s,
        lease_under_load_s=max(60.0, config.session_s),
        grace_s=config.grace_s,
        superuser=superuser,
    )


class Master:
    """The service of the `lock.master` daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._clock = daemon.clock
        self._loop = daemon.loop
        identity = daemon.identity
        config = daemon.config.lock or LockConfig()
        secret = hashlib.sha256(b"handles of the lock cell" + identity.secret).digest()
        self._brain = Cell(settings_from(config, login_name()), secret, daemon.config.name)
        self._office = Office(daemon, self)
        self._gate = self._office.gate(self._carry_out)
        self._duties = Duties(self._brain, self._office.log, self._gate)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next_call = 1
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due_s = 0.0
        self._stuck_at = 0
        self.handlers: Mapping[type[Any], Handler] = {
            **self._office.handlers,
            **self._office.guard(
                {**dict.fromkeys(self._brain.calls, self._call), Locate: self._locate}
            ),
        }

    # --- life

    async def start(self) -> None:
        """Take up the state that is there; then follow, or lead: every start is a fail-over."""
        await self._office.start()
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Make durable what was decided; sessions outlive us."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self._office.stop()

    def load(self, pieces: Iterator[bytes]) -> None:
        load_image(self._brain, pieces)

    def apply(self, payload: bytes) -> None:
        self._brain.apply(decode_record(payload))

    def lead(self, epoch: int) -> None:
        """The brain has all that was ever acknowledged."""
        self._tick_due_s = self._clock.now_s() + TICK_S
        self._event(LeadershipBegan(epoch))

    def ready(self) -> tuple[bool, str]:
        """Serving, and how far the fail-over is; or whose shadow."""
        is_well, words = self._office.ready()
        if not is_well or not self._office.is_leading:
            return is_well, words
        if self._brain.step < 7:
            return False, f"{words}: waits until every session knows of this leader"
        return True, f"serving, {words}"

    def metrics(self) -> dict[str, float]:
        figures = self._brain.describe()
        return {
            "epoch": float(figures.epoch),
            "nodes": float(figures.nodes),
            "contents_bytes": float(figures.contents_bytes),
            "sessions": float(figures.sessions),
            "handles": float(figures.handles),
            "locks_held": float(figures.locks_held),
            "calls_waiting": float(figures.calls_waiting),
            "cached_entries": float(figures.cached_entries),
            "log_sequence": float(self._office.seen),
            "log_durable": float(self._office.durable),
            **{f"calls_{name}": float(count) for name, count in figures.calls.items()},
        }

    def connected(self, peer: Peer) -> None:
        """Nothing is known of a client until it asks."""

    def disconnected(self, peer: Peer) -> None:
        """A session does not end with a connection (§2.8): only its lease counts."""

    # --- requests

    def _locate(self, request: Locate, peer: Peer) -> Whereabouts:
        daemon = self._daemon
        return Whereabouts(daemon.host.name, daemon.address, self._office.epoch, self._brain.step)

    def _call(self, request: Any, peer: Peer) -> Any:
        call, self._next_call = self._next_call, self._next_call + 1
        answer = self._answers[call] = self._loop.create_future()
        self._event(Called(call, request))
        return answer.result() if answer.done() else answer

    # --- the order of duties

    def _event(self, event: Event) -> None:
        self._duties.event(event, self._clock.now_s(), self._clock.wall_s())
        self._office.watch(self._gate)

    def _carry_out(self, command: Reply | Refuse) -> None:
        answer = self._answers.pop(command.call, None)
        if answer is None or answer.done():
            return  # whoever asked is gone
        if isinstance(command, Reply):
            answer.set_result(command.value)
        else:
            error: ClusterError = command.error
            answer.set_exception(error)

    # --- time and checkpoints

    def _tick(self) -> None:
        stuck_at, self._stuck_at = self._stuck_at, self._gate.waits_for
        is_stuck = stuck_at and stuck_at == self._stuck_at
        # While the log stands still, or the lease is lost, nothing can be said to anybody: that
        # time is ours. In a shadow no time passes.
        if self._office.is_leading and not is_stuck:
            now_s = self._clock.now_s()
            late_s = max(0.0, now_s - self._tick_due_s)
            self._tick_due_s = now_s + TICK_S
            self._event(Tick(late_s))
        self._office.checkpoint_if_due(self._image)
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _image(self) -> Iterable[bytes]:
        return pack_image(self._brain)


def main(argv: Sequence[str] | None = None) -> int:
    return run(ROLE, Master, argv)


if __name__ == "__main__":
    sys.exit(main())
