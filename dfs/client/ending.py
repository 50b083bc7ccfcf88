"""What comes with the end of a file that is written or joined: its path, conditions, attributes."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrstream.dfs.chunk import FileId
from mrstream.dfs.protocol import ANY_FILE


@dataclass(slots=True)
class Ending:
    """What comes with the close of a file, in one decision; may be changed until then."""

    path: str = ""
    """The path that it gets; empty: it keeps its own."""
    overwrite: bool = False
    """May a file that is there be replaced?"""
    parents: bool = False
    """Are missing directories made?"""
    replaces: FileId = ANY_FILE
    """Only if this very file is there; `NO_FILE`: only if none is."""
    keep_replaced: bool = False
    """Does what is replaced go to the trash?"""
    attributes: dict[str, bytes] = field(default_factory=dict)
