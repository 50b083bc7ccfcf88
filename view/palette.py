"""Which state has which sign, word and colour: one table for every medium.

The colours are Okabe and Ito's, which the colour-blind can tell apart, by name: what a name is in
markup or in CSS is the business of what draws. Every state has a sign of its own all the same, so
that all reads without colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mrstream.mapreduce.snapshot import BACKUP, COMMITTED, FAILED, IDLE, RUNNING


class Colour(StrEnum):
    """A colour by name; `PLAIN` and `FAINT` are the ink of the medium, whatever that is."""

    PLAIN = "plain"
    FAINT = "faint"
    SKY = "sky"
    ORANGE = "orange"
    GREEN = "green"
    YELLOW = "yellow"
    VERMILLION = "vermillion"
    PURPLE = "purple"
    GREY = "grey"
    SLATE = "slate"


ON_DARK = {
    Colour.SKY: "#56b4e9",
    Colour.ORANGE: "#e69f00",
    Colour.GREEN: "#009e73",
    Colour.YELLOW: "#f0e442",
    Colour.VERMILLION: "#d55e00",
    Colour.PURPLE: "#cc79a7",
    Colour.GREY: "#6c7a89",
    Colour.SLATE: "#4a5866",
}
"""The colours as they are on a dark ground."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How a state is shown; a loud one wants to be seen first."""

    sign: str
    word: str
    colour: Colour = Colour.PLAIN
    loud: bool = False

    @property
    def text(self) -> str:
        return f"{self.sign} {self.word}"


TASK_MARKS = {
    IDLE: Mark("·", "idle", Colour.GREY),
    RUNNING: Mark("▸", "running", Colour.YELLOW, loud=True),
    COMMITTED: Mark("■", "done", Colour.SKY),
    FAILED: Mark("✗", "failed", Colour.VERMILLION, loud=True),
    BACKUP: Mark("◆", "backup", Colour.PURPLE, loud=True),
}
"""In the order of a legend."""

_JOB_MARKS = {
    "running": Mark("▸", "running", Colour.YELLOW),
    "waiting": Mark("·", "waiting", Colour.FAINT),
    "succeeded": Mark("■", "succeeded", Colour.SKY),
    "failed": Mark("✗", "failed", Colour.VERMILLION, loud=True),
    "killed": Mark("✗", "killed", Colour.VERMILLION),
}
_ATTEMPT_MARKS = {
    "running": Mark("▸", "running"),
    "succeeded": Mark("■", "succeeded"),
    "failed": Mark("✗", "failed", Colour.VERMILLION, loud=True),
    "killed": Mark("✗", "killed", Colour.VERMILLION, loud=True),
}


def job_mark(state: str) -> Mark:
    return _JOB_MARKS.get(state) or Mark("?", state)


def attempt_mark(state: str) -> Mark:
    """Return the mark of an attempt: only what went wrong has a colour, since most are well."""
    return _ATTEMPT_MARKS.get(state) or Mark("?", state)


def host_mark(roles: dict[str, str]) -> Mark:
    """Return the mark of a host from the state of each of its roles, the worse one first."""
    ill = [(role, state) for role, state in roles.items() if state != "up"]
    gone = bool(ill) and all(state in ("lost", "dead") for _, state in ill)
    if not roles or (gone and len(ill) == len(roles)):
        return Mark("✗", "lost", Colour.VERMILLION, loud=True)
    if not ill:
        return Mark("■", "up", Colour.SKY)
    role, state = ill[0]
    if gone:
        return Mark("✗", f"no {role}", Colour.VERMILLION, loud=True)
    return Mark("◆", state, Colour.YELLOW, loud=True)
