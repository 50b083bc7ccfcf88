"""Sequencers: the state of a lock right after it was taken, as text (Chubby §2.4).

`PATH:GENERATION:MODE`, such as `/ls/local/nightly:17:exclusive`. Its first two parts are a fence,
`PATH:GENERATION`: all that a server needs which refuses what an ex-holder does late, since a higher
generation of the same path comes from a later holder (L2), and a generation has one mode. Paths
have no colon, so whoever fences needs nothing of ours to read it. Never does any IO.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mrstream.lock.errors import BadNodePath, SequencerInvalid
from mrstream.lock.paths import PATH_BYTES_MAX, canonical

ENVIRONMENT = "MRSTREAM_SEQUENCER"
"""Where `mrstream lock acquire` leaves the fence for the command that it runs, below those of locks
that are held around it: one a line."""

EXCLUSIVE = "exclusive"
SHARED = "shared"
_MODES = {EXCLUSIVE: False, SHARED: True}
_GENERATION = re.compile(r"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Sequencer:
    """Which lock, which of its holders, and how it is held."""

    path: str
    generation: int
    is_shared: bool | None
    """None: only the fence was given, and how the lock is held does not matter."""

    def __str__(self) -> str:
        if self.is_shared is None:
            return self.fence_text
        return f"{self.fence_text}:{SHARED if self.is_shared else EXCLUSIVE}"

    @property
    def fence_text(self) -> str:
        """The fence as the environment holds it."""
        return f"{self.path}:{self.generation}"

    @property
    def fence(self) -> tuple[str, int]:
        """What a file system needs to refuse late writes of an ex-holder."""
        return self.path, self.generation


def fences_within(around: str, held: Sequencer) -> str:
    """Return what the environment holds of a command under a lock, taken where `around` was held:
    of the same lock only the later holder counts."""
    others = [line for line in around.split("\n") if line and not line.startswith(f"{held.path}:")]
    return "\n".join([*others, held.fence_text])


def parse(text: str) -> Sequencer:
    """Read a sequencer or a fence, or raise `SequencerInvalid`."""
    name, _, rest = text[: PATH_BYTES_MAX + 100].partition(":")
    generation, colon, mode = rest.partition(":")
    if _GENERATION.fullmatch(generation) and (mode in _MODES if colon else True):
        try:
            path = canonical(name)
        except BadNodePath:
            path = ""
        if path and path == name:
            return Sequencer(path, int(generation), _MODES[mode] if colon else None)
    raise SequencerInvalid(
        f"{text[:200]!r} is no sequencer: it is PATH:GENERATION:MODE, such as "
        "/ls/local/nightly:17:exclusive"
    )
