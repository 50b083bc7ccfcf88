"""A worker's connection to a job master, as in life: every try is a new one.

What goes over it comes once and in order, and may overtake what went over another. Whoever closes
it hears nothing more that comes over it: an order dies with the connection whose `Register` it
answers. What a worker said before it closed is still heard, however late, as a server reads what
lies in its buffer before it sees the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.jobs.masters import JobMaster
    from tests.simulation.jobs.run import Run, Worker


class Connection:
    def __init__(self, run: Run, worker: Worker, master: str) -> None:
        run.connections += 1
        self._run, self._worker, self._master = run, worker, master
        self._number = run.connections
        self._peer: JobMaster | None = None
        """The life of the master that heard its first word; no other hears any."""
        self.is_open = True
        """At the worker."""
        self._is_read = True
        """At the master."""

    @property
    def worker(self) -> str:
        return self._worker.name

    def hang_up(self) -> None:
        """The worker closes it, or sees that it is broken."""
        self.is_open = False
        self._worker.parted(self)

    def turn_out(self) -> None:
        """The master closes it; the worker hears of that."""
        self._is_read = False
        self.push(self.hang_up)

    def call(self, act: Callable[[JobMaster], None]) -> None:
        """Have something happen at the master."""

        def arrive() -> None:
            master = self._run.masters.at(self._master)
            self._peer = self._peer or master
            if master is None or master is not self._peer:
                self.push(self.hang_up)  # that life is over
            elif self._is_read:
                act(master)

        self._send(self.worker, self._master, arrive)

    def push(self, act: Callable[[], None]) -> None:
        """Have something happen at the worker."""
        self._send(self._master, self.worker, lambda: act() if self.is_open else None)

    def _send(self, source: str, target: str, act: Callable[[], None]) -> None:
        """It loses nothing, unless it breaks."""
        if self._run.world.is_cut(source, target):
            self.hang_up()
        else:
            self._run.world.send(source, target, act, self._number)
