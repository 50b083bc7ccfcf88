"""The palette as Rich writes it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Self

from rich.text import Text

from mrstream.cluster.terminal import masked
from mrstream.view.cells import Cell
from mrstream.view.palette import ON_DARK, Colour


class PlainText(Text):
    """Text in which whatever came from outside is shown: no markup, no escape sequence."""

    def __init__(self, text: str = "", style: str = "", **options: Any) -> None:
        super().__init__(masked(text), style, **options)

    def append(self, text: Text | str, style: Any = None) -> Self:
        super().append(masked(text) if isinstance(text, str) else text, style)
        return self


@cache
def ink(colour: Colour, *, loud: bool = False) -> str:
    """Return the style of a colour: `bold #d55e00`; the terminal's own if the colour is plain."""
    name = "dim" if colour is Colour.FAINT else ON_DARK.get(colour, "")
    return f"bold {name}".rstrip() if loud else name


def joined(cells: Iterable[Cell]) -> PlainText:
    """Return cells as one line, two blanks between them."""
    text = PlainText()
    for cell in cells:
        gap = "  " if text else ""
        text.append(f"{gap}{cell.text}", ink(cell.colour, loud=cell.loud))
    return text


DONE = ink(Colour.SKY)
REST = ink(Colour.SLATE)
BAD = ink(Colour.VERMILLION, loud=True)
ACCENT = ink(Colour.ORANGE, loud=True)
