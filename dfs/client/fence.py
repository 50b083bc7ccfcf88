"""The fences that a process works under: `NAME:GENERATION[:MODE]` in `$MRSTREAM_SEQUENCER`, one a
line.

Whoever holds a lock sets it for what it starts, below those of locks that are held around it; the
file system refuses changes of those whose generation is over. What the name means is not known
here, nor does it matter how the lock is held (MODE: exclusive, shared).
"""

from __future__ import annotations

import os
import re

from mrstream.cluster.errors import UserError
from mrstream.dfs.chunk import Fence, Fences

SEQUENCER = "MRSTREAM_SEQUENCER"
_FENCE = re.compile(r"([^\n]+):([0-9]{1,19})(?::exclusive|:shared)?")


def parse_fence(text: str) -> Fence:
    """Return name and generation of `NAME:GENERATION[:MODE]`; raise UserError if it is not that."""
    found = _FENCE.fullmatch(text)
    if found is None:
        raise UserError(
            f"{text[:80]!r} is not NAME:GENERATION, as `/ls/local/nightly:17:exclusive` is"
        )
    return found[1], int(found[2])


def format_fences(fences: Fences) -> str:
    """Return them as the environment holds them."""
    return "\n".join(f"{name}:{generation}" for name, generation in fences)


def fences_of_environment() -> Fences:
    """The fences of this process."""
    text = os.environ.get(SEQUENCER, "")
    if not text:
        return ()
    try:
        return tuple(parse_fence(line) for line in text.split("\n"))
    except UserError as error:
        raise UserError(f"${SEQUENCER}: {error}") from None


def within(own: Fences, around: Fences) -> Fences:
    """Return what one works under who has fences of its own within others: its own first, and of a
    name that both have, its own."""
    names = [name for name, _ in own]
    return (*own, *(fence for fence in around if fence[0] not in names))
