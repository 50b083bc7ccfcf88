"""Which replica is near: from names, addresses and racks (GFS §3.2). Never does any IO."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mrstream.dfs.protocol import ServerAddress


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client is: the cluster's name of its host (empty: none of them) and its rack."""

    host: str = ""
    rack: str = ""

    def distance(self, server: ServerAddress) -> int:
        """0 on this host, 1 in this rack, 2 elsewhere."""
        if self.host and server.server == self.host:
            return 0
        if self.rack and server.rack == self.rack:
            return 1
        return 2


def nearest_first(
    place: Place, servers: Sequence[ServerAddress], chance: random.Random
) -> list[ServerAddress]:
    """The servers in the order in which to try them; equally near ones in any order, so that a
    hot chunk's readers spread over its replicas (GFS-12)."""
    shuffled = list(servers)
    chance.shuffle(shuffled)
    return sorted(shuffled, key=place.distance)


def chain(place: Place, servers: Sequence[ServerAddress]) -> tuple[ServerAddress, ...]:
    """The servers in the order in which data is passed on: each time to the nearest next hop."""
    left = list(servers)
    order: list[ServerAddress] = []
    here = place
    while left:
        following = min(left, key=lambda server: (here.distance(server), server.server))
        left.remove(following)
        order.append(following)
        here = Place(following.server, following.rack)
    return tuple(order)
