"""Keys of the doors in words: who may come in through a gateway, where, and until when.

Of a key nothing is shown with which anybody could come in: its secret is kept nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from mrstream.view.cells import Cell, Column, passes, warning
from mrstream.view.picture import KeyEntry
from mrstream.view.words import moment

COLUMNS = (
    Column("Name"),
    Column("User"),
    Column("May"),
    Column("Files"),
    Column("Made"),
    Column("Ends"),
)
NO_KEYS = "There are no keys; mrstream key add NAME makes one."
_RIGHTS = {"r": "look", "rw": "look and change"}


def listed(keys: Iterable[KeyEntry], *, wanted: str = "") -> list[KeyEntry]:
    """Return the keys that the user wants to see, by name."""
    found = [key for key in keys if passes(wanted, key.name, key.user, *key.paths)]
    return sorted(found, key=lambda key: key.name)


def key_cells(key: KeyEntry, now_s: float) -> tuple[Cell, ...]:
    """Return the cells of one key, in the order of `COLUMNS`."""
    return (
        Cell(key.name),
        Cell(key.user),
        Cell(_RIGHTS.get(key.rights, key.rights)),
        Cell(", ".join(key.paths)),
        Cell(moment(key.made_at_s)),
        _end(key, now_s),
    )


def _end(key: KeyEntry, now_s: float) -> Cell:
    if not key.expires_at_s:
        return Cell("never")
    if key.expires_at_s <= now_s:
        return warning("✗ over")
    return Cell(moment(key.expires_at_s))
