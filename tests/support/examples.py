"""How much a property is tried: so often in the gate, and `MRSTREAM_EXAMPLES` times that in
`make soak`. Every run draws other examples; what one finds becomes a test of its own."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("MRSTREAM_EXAMPLES", "1"))


def examples(count: int) -> int:
    """Give how many examples to try of what the gate tries `count` times."""
    return count * TIMES
