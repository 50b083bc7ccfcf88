"""All kinds of tables by name: a new one is a class with the functions of `Table`, and a row."""

from __future__ import annotations

from collections.abc import Callable

from mrstream.saw.tables.collections import Collection, Set
from mrstream.saw.tables.extremes import Extremes
from mrstream.saw.tables.frequent import Top
from mrstream.saw.tables.kinds import Declaration
from mrstream.saw.tables.quantiles import Quantile
from mrstream.saw.tables.samples import Sample
from mrstream.saw.tables.sums import Counter, Sum
from mrstream.saw.tables.table import Chance, Table
from mrstream.saw.tables.unique import Unique

KINDS: dict[str, Callable[[Declaration, Chance], Table]] = {
    "sum": Sum,
    "collection": Collection,
    "text": Collection,
    "set": Set,
    "maximum": Extremes,
    "minimum": Extremes,
    "sample": Sample,
    "weightedsample": Sample,
    "quantile": Quantile,
    "top": Top,
    "unique": Unique,
    "mrcounter": Counter,
}
ESTIMATED = frozenset({"sample", "weightedsample", "quantile", "top", "unique"})
"""Kinds whose rows are made of a state, and cannot be merged themselves."""
KEYED_BY_VALUE = frozenset({"collection", "text"})
"""Kinds whose value is the last part of the key."""


def table_of(declaration: Declaration, chance: Chance) -> Table:
    """Return the table of a checked declaration, with the chance that its kind may draw from."""
    return KINDS[declaration.kind](declaration, chance)


def nearest(name: str) -> str:
    """Return what to say about a kind that does not exist."""
    import difflib

    close = difflib.get_close_matches(name, KINDS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(KINDS)}"
