"""The fence that a process works under: `NAME:GENERATION[:MODE]` in `$MRSTREAM_SEQUENCER`.

Whoever holds a lock sets it for what it starts; the file system refuses changes of those whose
generation is over. What the name means is not known here, nor does it matter how the lock is held
(MODE: exclusive, shared).
"""

from __future__ import annotations

import os
import re

from mrstream.cluster.errors import UserError
from mrstream.dfs.chunk import NO_FENCE, Fence

SEQUENCER = "MRSTREAM_SEQUENCER"
_FENCE = re.compile(r"(.+):([0-9]{1,19})(?::exclusive|:shared)?", re.DOTALL)


def parse_fence(text: str) -> Fence:
    """Return name and generation of `NAME:GENERATION[:MODE]`; raise UserError if it is not that."""
    found = _FENCE.fullmatch(text)
    if found is None:
        raise UserError(
            f"{text[:80]!r} is not NAME:GENERATION, as `/ls/local/nightly:17:exclusive` is"
        )
    return found[1], int(found[2])


def format_fence(fence: Fence) -> str:
    """Return it as the environment holds it."""
    return f"{fence[0]}:{fence[1]}"


def fence_of_environment() -> Fence:
    """The fence of this process, if it has one."""
    text = os.environ.get(SEQUENCER, "")
    if not text:
        return NO_FENCE
    try:
        return parse_fence(text)
    except UserError as error:
        raise UserError(f"${SEQUENCER}: {error}") from None
