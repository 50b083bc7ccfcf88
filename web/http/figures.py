"""What a gateway counts of its requests, for `/metrics` and `cluster status`; without IO.

Never a path, a user or a key as a label: what strangers can invent would fill the memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mrstream.web.http.server import Outcome

SECONDS = (0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0)
"""Upper ends of the buckets of times; the eighth has no end."""
LABELS_MAX = 200


@dataclass(slots=True)
class Figures:
    """Sums since the start."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(face, operation, class of status such as `2xx`) → how many."""
    bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(face, in | out) → how many."""
    seconds: dict[str, list[int]] = field(default_factory=dict)
    """Face → requests by bucket of `SECONDS`."""
    seconds_sum: dict[str, float] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    """Status of a refusal → how many."""
    reading: int = 0
    """Streams out of the dfs now."""
    writing: int = 0

    def note(self, outcome: Outcome) -> None:
        """A request is over."""
        face = outcome.note.face or "none"
        known = (face, outcome.note.operation or outcome.method, f"{outcome.status // 100}xx")
        if known not in self.requests and len(self.requests) >= LABELS_MAX:
            known = (face, "other", known[2])
        self.requests[known] += 1
        self.bytes[face, "in"] += outcome.bytes_in
        self.bytes[face, "out"] += outcome.bytes_out
        buckets = self.seconds.setdefault(face, [0] * (len(SECONDS) + 1))
        at = sum(1 for end in SECONDS if outcome.seconds > end)
        buckets[at] += 1
        self.seconds_sum[face] = self.seconds_sum.get(face, 0.0) + outcome.seconds
        if outcome.status in {401, 403, 408, 413, 421, 429, 431, 503}:
            self.refused[str(outcome.status)] += 1
