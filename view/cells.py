"""Tables without a medium: columns, and cells of words that know their colour."""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.view.palette import Colour, Mark

NOT_KNOWN = "–"
"""In a cell that has nothing to say."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and whether its cells stand at the right."""

    title: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """Words in one colour; a loud cell wants to be seen first."""

    text: str
    colour: Colour = Colour.PLAIN
    loud: bool = False
    share: float | None = None
    """What a bar before the words shows, 0 to 1; none where that means nothing."""

    @staticmethod
    def of(mark: Mark) -> Cell:
        return Cell(mark.text, mark.colour, mark.loud)


Row = tuple[str, tuple[Cell, ...]]
"""A key by which the row is found again, and its cells."""


def warning(text: str) -> Cell:
    """Return a cell that says what is wrong."""
    return Cell(text, Colour.VERMILLION, loud=True)


def passes(wanted: str, *words: str) -> bool:
    """Whether a row with these words is one of those that the user wants to see."""
    wanted = wanted.lower()
    return not wanted or any(wanted in word.lower() for word in words)
