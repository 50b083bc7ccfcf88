"""What came from outside, on a terminal: text is shown, never obeyed.

File names, names of jobs, what programs say: a terminal carries out the escape sequences in them.
On a terminal every such character is written as `\\x1b` is here; into a pipe or a file all goes as
it is. What draws on purpose uses `draw`.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any

# All controls but tab and line end; and what turns the direction of text, which hides a suffix.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ENDING = re.compile("[\t\n\x0b\x0c\r\x1c-\x1e\x85\u2028\u2029]")


def masked(text: str) -> str:
    """Return the text with nothing in it that a terminal would obey."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """Return a text that stands in a row of a list: what would end the row, or shift it, is a
    blank."""
    return _ENDING.sub(" ", text)


def draw(stream: Any, text: str) -> None:
    """Write text of our own, whose escape sequences are meant."""
    (stream.draw if isinstance(stream, MaskedTerminal) else stream.write)(text)


def show(stream: Any, data: bytes) -> None:
    """Write what a program said to a standard stream: as it is, or as text on a terminal."""
    if isinstance(stream, MaskedTerminal):
        stream.write(data.decode("utf-8", "replace"))
    else:
        stream.buffer.write(data)
    stream.flush()


class MaskedTerminal(io.TextIOWrapper):
    """A standard stream that is a terminal."""

    def write(self, text: str) -> int:
        return super().write(masked(text))

    def draw(self, text: str) -> None:
        """Write it as it is."""
        super().write(text)


def mask_terminals() -> None:
    """Let everything that is printed from now on be shown and not obeyed."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and stream is not None and stream.isatty():
            # Beside the interpreter's own, which the monitor draws on.
            bytes_out = open(number, "wb", closefd=False)  # noqa: SIM115
            ours = MaskedTerminal(bytes_out, stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, ours)
