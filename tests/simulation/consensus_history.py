"""Random histories of a group of replicas, for `python tests/simulation` and `make soak`."""

from __future__ import annotations

from tests.simulation.consensus.run import Pair, play


def run(seed: int) -> None:
    """Live through one history of three or five, and one of two; raise where a promise is
    broken."""
    play(seed)
    play(seed, kind=Pair)
