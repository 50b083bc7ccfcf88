"""Fences: whoever held a lock, or led, before may change nothing any more (CH-20).

A fence is a name and a generation, and nothing more is known of it here. F6: a change under a
generation below the highest seen of its name is refused; one above it raises the fence in the same
decision, and files that were opened under an older one are taken over. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable

from mrstream.dfs.chunk import Fence
from mrstream.dfs.errors import BadRequest, FencedOff
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.writers import Writers
from mrstream.dfs.protocol import FenceFact, ListFences

FENCES_MAX = 10_000
FORGOTTEN_AFTER_S = 30 * 86_400.0
"""A name may be forgotten, to make room for another, that was not raised for so long: a process
that was stopped before that and still has a request to send would get it through again."""
NAME_BYTES_MAX = 255
GENERATION_MAX = (1 << 63) - 1


class Fences:
    """The highest generation seen of each name, with the time: the one raised last comes last."""

    def __init__(self) -> None:
        self.raised: dict[str, tuple[int, float]] = {}

    def apply(self, record: op.FenceRaised) -> None:
        known = self.raised.pop(record.name, None)
        assert known is None or known[0] < record.generation, f"{record.name} is not raised by this"
        self.raised[record.name] = (record.generation, record.at_s)
        if len(self.raised) > FENCES_MAX:
            del self.raised[next(iter(self.raised))]

    def generation(self, name: str) -> int:
        """The highest seen; below every other where none was."""
        known = self.raised.get(name)
        return -1 if known is None else known[0]

    def oldest_s(self) -> float:
        """When the name was raised that was not for the longest time."""
        return next(iter(self.raised.values()))[1]

    def listed(self, ask: ListFences) -> tuple[FenceFact, ...]:
        return tuple(FenceFact(name, *known) for name, known in sorted(self.raised.items()))


class Fencing:
    """Decides who may still change something."""

    def __init__(self, fences: Fences, writers: Writers, emit: Callable[[op.OneRecord], None]):
        self._fences = fences
        self._writers = writers
        self._emit = emit

    def admit(self, fence: Fence, at_s: float, request: op.RequestId = op.NO_REQUEST) -> None:
        """Let a change under this fence through, or refuse it; a newer one fences off the others.
        `request` is that of one who wants nothing else."""
        name, generation = fence
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not 0 <= generation <= GENERATION_MAX:
            raise BadRequest(
                f"fence {name[:40]!r}, generation {generation}: a name has 1 to {NAME_BYTES_MAX} "
                "bytes, a generation is 0 or more"
            )
        seen = self._fences.generation(name)
        if generation < seen:
            raise FencedOff(
                f"{name}: generation {generation} is over, {seen} has come; who holds the lock now "
                "may change things, this process may not",
                name=name,
                generation=generation,
                seen=seen,
            )
        if generation > seen:
            self._check_room(name, at_s)
            self._emit(op.FenceRaised(name, generation, at_s, request))
            self._writers.take_over_fenced(fence)

    def _check_room(self, name: str, at_s: float) -> None:
        fences = self._fences
        is_known = name in fences.raised
        if is_known or len(fences.raised) < FENCES_MAX:
            return
        if at_s - fences.oldest_s() < FORGOTTEN_AFTER_S:
            raise BadRequest(
                f"fence {name}: {FENCES_MAX} names are known, and all were used within "
                f"{FORGOTTEN_AFTER_S / 86_400:.0f} days; use a name again instead of a new one"
            )
