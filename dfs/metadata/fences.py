"""Fences: whoever held a lock, or led, before may change nothing any more (CH-20).

A fence is a name and a generation, and nothing more is known of it here. F6: a change under a
generation below the highest seen of its name is refused; one above it raises the fence in the same
decision, and files that were opened under an older one are taken over. A change under several holds
to all of them, or none is raised. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from mrstream.dfs.chunk import FENCES_OF_A_CHANGE_MAX, Fence
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

    def listed(self, ask: ListFences) -> tuple[FenceFact, ...]:
        return tuple(FenceFact(name, *known) for name, known in sorted(self.raised.items()))


class Fencing:
    """Decides who may still change something."""

    def __init__(self, fences: Fences, writers: Writers, emit: Callable[[op.OneRecord], None]):
        self._fences = fences
        self._writers = writers
        self._emit = emit

    def admit(
        self, fences: Sequence[Fence], at_s: float, request: op.RequestId = op.NO_REQUEST
    ) -> None:
        """Let a change under these fences through, or refuse it; newer ones fence off the others.
        One decision: if any of them is over, none is raised. The first that is over is named, so
        that who has one of its own puts it first. `request` is that of one who wants nothing else.
        """
        self._check(fences)
        for name, generation in fences:
            seen = self._fences.generation(name)
            if generation < seen:
                raise FencedOff(
                    f"{name}: generation {generation} is over, {seen} has come; who holds the lock "
                    "now may change things, whoever held it before may not",
                    name=name,
                    generation=generation,
                    seen=seen,
                )
        newer = [fence for fence in fences if fence[1] > self._fences.generation(fence[0])]
        # Known names first: one that is new may have the longest unused forgotten, none of these.
        newer.sort(key=lambda fence: fence[0] not in self._fences.raised)
        self._check_room(newer, at_s)
        for fence in newer:
            by = request if fence == newer[-1] else op.NO_REQUEST
            self._emit(op.FenceRaised(*fence, at_s, by))
            self._writers.take_over_fenced(fence)

    def _check(self, fences: Sequence[Fence]) -> None:
        """Refuse what cannot be."""
        if len(fences) > FENCES_OF_A_CHANGE_MAX:
            raise BadRequest(
                f"a change under {len(fences)} fences: it may have {FENCES_OF_A_CHANGE_MAX}"
            )
        for name, generation in fences:
            if (
                not 0 < len(name.encode()) <= NAME_BYTES_MAX
                or not 0 <= generation <= GENERATION_MAX
            ):
                raise BadRequest(
                    f"fence {name[:40]!r}, generation {generation}: a name has 1 to "
                    f"{NAME_BYTES_MAX} bytes, a generation is 0 or more"
                )
        if len({name for name, _ in fences}) < len(fences):
            raise BadRequest(f"fences {fences}: a name may be there once")

    def _check_room(self, newer: Sequence[Fence], at_s: float) -> None:
        """Names may be forgotten to make room: as many of those raised longest ago as are new."""
        raised, names = self._fences.raised, [name for name, _ in newer]
        new = [name for name in names if name not in raised]
        short = len(raised) + len(new) - FENCES_MAX
        if not new or short <= 0:
            return
        others = (since_s for name, (_, since_s) in raised.items() if name not in names)
        if at_s - next(islice(others, short - 1, None), at_s) < FORGOTTEN_AFTER_S:
            raise BadRequest(
                f"fence {new[0]}: {FENCES_MAX} names are known, and all were used within "
                f"{FORGOTTEN_AFTER_S / 86_400:.0f} days; use a name again instead of a new one"
            )
