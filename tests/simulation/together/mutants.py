"""Masters, cells and programs that are wrong on purpose, each about what keeps an ex-holder of a
lock from changing anything: every one is found (`test_together.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mrstream.dfs.chunk import Fence
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.fences import Fences
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.writers import Writers
from mrstream.dfs.protocol import RecoverFile
from mrstream.lock.cell.locks import Locks
from mrstream.lock.cell.nodes import Node
from mrstream.lock.protocol import Taken
from mrstream.lock.sequencer import Sequencer
from tests.simulation.together.holders import Holder

Patch = Callable[[pytest.MonkeyPatch], None]


def a_new_leader_forgets_fences(patch: pytest.MonkeyPatch) -> None:
    """They are what a leader knows, not what the log says."""
    right = Metadata._fence_raised

    def raised(self: Metadata, record: op.FenceRaised) -> None:
        if self._leads:
            right(self, record)
        else:
            self.space.remember(record.request, 0)

    patch.setattr(Metadata, "_fence_raised", raised)


def asks_once(patch: pytest.MonkeyPatch) -> None:
    """Who had to wait was asked for its fence when it came, and is not when its turn comes."""
    right = Metadata._pass_fences

    def pass_fences(self: Metadata, called: Called, fences: Sequence[Fence]) -> None:
        asked = self.__dict__.setdefault("asked", {})
        if called.call not in asked:
            asked[called.call] = None
            right(self, called, fences)

    patch.setattr(Metadata, "_pass_fences", pass_fences)


def refuses_what_is_done(patch: pytest.MonkeyPatch) -> None:
    """The answer was lost, the next holder came, and the repeat is refused: but it is done (F5)."""

    def pass_fences(self: Metadata, called: Called, fences: Sequence[Fence]) -> None:
        self._fencing.admit(fences, self._outbox.wall_s)

    patch.setattr(Metadata, "_pass_fences", pass_fences)


def one_fence_for_all(patch: pytest.MonkeyPatch) -> None:
    """Whatever the lock, its generation is compared with that of any other."""

    def generation(self: Fences, name: str) -> int:
        return max((known for known, _ in self.raised.values()), default=-1)

    patch.setattr(Fences, "generation", generation)


def answers_before_it_is_closed(patch: pytest.MonkeyPatch) -> None:
    """Who wants a file closed is told that it is while the writer of before has its lease."""
    right = Writers.wait_for_close

    def wait_for_close(self: Writers, row: int, called: Called) -> None:
        if isinstance(called.request, RecoverFile):
            self._t.outbox.reply(called.call, self._status(row))
        else:
            right(self, row, called)

    patch.setattr(Writers, "wait_for_close", wait_for_close)


def leaves_leases(patch: pytest.MonkeyPatch) -> None:
    """What an ex-holder was told of stays good for as long as it is used."""
    patch.setattr(Writers, "_end_leases_under", lambda self, fence: None)


def leaves_leases_of_before(patch: pytest.MonkeyPatch) -> None:
    """A new leader ends only those that it gave itself."""
    right = Writers._is_outdated
    patch.setattr(
        Writers, "_is_outdated", lambda self, lease, fence: (
            lease.confirmed and right(self, lease, fence)
        ),
    )  # fmt: skip


def counts_holders_by_itself(patch: pytest.MonkeyPatch) -> None:
    """A leader of the cell numbers those to whom it gives a lock; the next begins anew."""

    def taken(self: Locks, node: Node) -> Taken:
        counts = self.__dict__.setdefault("counts", {})
        counts[node.path] = counts.get(node.path, 0) + 1
        return Taken(str(Sequencer(node.path, counts[node.path], node.is_shared)))

    patch.setattr(Locks, "_taken", taken)


def keeps_its_first_fence(patch: pytest.MonkeyPatch) -> None:
    """A program that lost its session, has its lock again, and does not look at the sequencer."""

    def fence_of(self: Holder, held: Fence) -> Fence:
        fences: dict[str, Fence] = self.__dict__.setdefault("fences", {})
        return fences.setdefault(held[0], held)

    patch.setattr(Holder, "fence_of", fence_of)
