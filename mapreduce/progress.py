"""How far a job is, as its master tells it and a terminal shows it; knows neither of them."""

from __future__ import annotations

import msgspec


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job is; fractions from 0 to 1."""

    map_fraction: float
    reduce_fraction: float
    maps_done: int
    maps: int
    reduces_done: int
    reduces: int
    records: int = 0
    """What all attempts have read so far, whatever became of them: it never falls."""
    bytes_done: int = 0
    """Likewise: of splits, of map output brought to reduces, and of that given to reducers."""
    shuffled_bytes: int = 0
    elapsed_s: float = 0.0
    status: str = ""

    @property
    def fraction(self) -> float:
        """How much of all the work is done; a job with reduces is half maps, half reduces."""
        if not self.reduces:
            return self.map_fraction
        return (self.map_fraction + self.reduce_fraction) / 2

    @property
    def left_s(self) -> float | None:
        """How long the rest will take if it goes on like this; None while nobody can tell."""
        if self.fraction < 0.01 or self.elapsed_s < 1:
            return None
        return self.elapsed_s * (1 - self.fraction) / self.fraction
