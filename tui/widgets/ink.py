"""The palette as Rich writes it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from rich.text import Text

from mrstream.view.cells import Cell
from mrstream.view.palette import ON_DARK, Colour


@cache
def ink(colour: Colour, *, loud: bool = False) -> str:
    """Give the style of a colour: `bold #d55e00`; the terminal's own if the colour is plain."""
    name = "dim" if colour is Colour.FAINT else ON_DARK.get(colour, "")
    return f"bold {name}".rstrip() if loud else name


def joined(cells: Iterable[Cell]) -> Text:
    """Give cells as one line, two blanks between them."""
    text = Text()
    for cell in cells:
        gap = "  " if text else ""
        text.append(f"{gap}{cell.text}", ink(cell.colour, loud=cell.loud))
    return text


DONE = ink(Colour.SKY)
REST = ink(Colour.SLATE)
BAD = ink(Colour.VERMILLION, loud=True)
ACCENT = ink(Colour.ORANGE, loud=True)
