"""Where new replicas go (GFS §4.2, §4.3), and which one goes when there are too many.

Spread over racks first; then servers that are emptier than the average; then those with few recent
creations; chance decides the rest, so that no two runs of a busy minute hit the same three disks.
Randomness comes in as a seeded generator. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mrstream.dfs.metadata.servers import Server

ABOVE_AVERAGE_SLACK = 0.05
"""Differences in fullness below this share do not matter."""


class Placement:
    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(
        self,
        count: int,
        candidates: Sequence[Server],
        *,
        taken: Sequence[Server] = (),
        near: str = "",
        room_bytes: int,
        now_s: float,
    ) -> list[Server]:
        """Return up to `count` servers for new replicas of a chunk that `taken` hold already.

        `near` is the host of the writer, which gets the first replica if it can.
        """
        usable = [
            server
            for server in candidates
            if server.is_up and server.is_connected and not server.is_draining
            and server.largest_free_bytes >= room_bytes and server not in taken
        ]  # fmt: skip
        average = sum(s.used_share for s in usable) / len(usable) if usable else 0.0
        chosen: list[Server] = []
        while usable and len(chosen) < count:
            racks = [server.rack for server in (*taken, *chosen)]
            best = min(
                usable,
                key=lambda server: (
                    bool(racks) and racks.count(server.rack),
                    not (near and not racks and server.id == near),
                    server.used_share > average + ABOVE_AVERAGE_SLACK,
                    round(server.recent(now_s)),
                    self._random.random(),
                ),
            )
            usable.remove(best)
            chosen.append(best)
        return chosen

    def surplus(self, holders: Sequence[Server]) -> Server:
        """Return the holder whose replica to give up: one that is being drained, else one in the
        most crowded rack, else the fullest (GFS §4.3)."""
        racks = [server.rack for server in holders]
        return max(
            holders,
            key=lambda server: (
                server.is_draining,
                racks.count(server.rack),
                server.used_share,
                self._random.random(),
            ),
        )
