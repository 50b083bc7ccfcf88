"""Program text, places in it, and what can be wrong there.

A `Fault` names a place and says in one line what is wrong; `Refused` carries all faults of a
program, each shown with its line and a caret.
"""

from __future__ import annotations

import bisect
import difflib
import unicodedata
from collections.abc import Iterable

import msgspec

from mrstream.cluster.errors import UserError

FAULTS_MAX = 10
SOURCE_BYTES_MAX = 1 << 20
_LINE_SHOWN_MAX = 160


class Fault(msgspec.Struct, frozen=True, order=True):
    """Something wrong at a place; lines and columns count from 1."""

    line: int
    column: int
    message: str


class Faulty(Exception):
    """Stops the reading or checking of a statement at a byte of the text."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message


class Refused(UserError):
    """A program that cannot be run; the message shows every fault."""


class Source:
    """The text of a program and its name."""

    def __init__(self, text: str, name: str = "program.szl") -> None:
        self.text = text
        self.name = name
        self._starts = [0]
        for at, letter in enumerate(text):
            if letter == "\n":
                self._starts.append(at + 1)

    def place(self, at: int) -> tuple[int, int]:
        """Return line and column of a position."""
        line = bisect.bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def fault(self, at: int, message: str) -> Fault:
        return Fault(*self.place(at), message)

    def line(self, number: int) -> str:
        return self.text[self._starts[number - 1] :].partition("\n")[0].rstrip("\r")

    def shown(self, fault: Fault) -> str:
        """Return a fault as people read it: place and message, the line, a caret."""
        head = f"{self.name}:{fault.line}:{fault.column}: {fault.message}"
        line = self.line(fault.line)
        if len(line) > _LINE_SHOWN_MAX:
            return head
        plain = "".join(letter if letter.isprintable() else " " for letter in line)
        before = "".join(map(_blank, plain[: fault.column - 1]))
        return f"{head}\n  {plain}\n  {before}^"

    def refusal(self, faults: Iterable[Fault]) -> Refused:
        """Return the error of a program with these faults: one a line, ten at most."""
        by_line: dict[int, Fault] = {}
        for fault in faults:
            by_line.setdefault(fault.line, fault)
        found = sorted(by_line.values())
        shown = [self.shown(fault) for fault in found[:FAULTS_MAX]]
        if len(found) > FAULTS_MAX:
            shown.append(f"{self.name}: {len(found) - FAULTS_MAX} more lines have faults")
        return Refused("\n".join(shown))


def _blank(letter: str) -> str:
    """Return as much room as a terminal gives a letter."""
    if unicodedata.combining(letter):
        return ""
    return "  " if unicodedata.east_asian_width(letter) in "WF" else " "


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question after the nearest known name, or nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
