"""Whatever comes over a connection, no server and no client ends by it; `make soak` tries more.

A failing seed is shown with the command that replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.property.fuzz.__main__ import run_seed
from tests.property.fuzz.rooms import Room

SEEDS_MAX = {False: 400, True: 100}
"""With TLS each costs ten times as much."""


@pytest.fixture(params=[False, True], ids=["plain", "tls"], scope="module")
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    made = Room(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("attack", [Room.hostile_client, Room.hostile_server])
def test_nothing_from_outside_ends_anything_but_its_connection(
    room: Room, attack: Callable[[Room, int], None]
) -> None:
    """A frame of 1,024 bytes, without the secret, once ended every daemon of a cluster."""
    for seed in range(SEEDS_MAX[room.tls is not None]):
        run_seed(room, attack, seed)
