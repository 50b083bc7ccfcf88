"""Regular expressions: Python's `re`, which agrees with the language's in all that is taken here.

What would mean something else, or nothing, is refused when the program is checked; patterns that
are made while it runs are undefined then.
"""

from __future__ import annotations

import re
from functools import lru_cache

PATTERN_LENGTH_MAX = 10_000
_OTHER = re.compile(r"(?<!\\)(?:\\\\)*(\\[GKRXQEhHvC]|\[\[:|[*+?}]\+|\(\?>|\(\*|\(\?R|\(\?\d)")


class BadPattern(ValueError):
    """A pattern that is not taken."""


def check(pattern: str) -> None:
    """Raise `BadPattern` with what is wrong about a pattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise BadPattern(f"the pattern has more than {PATTERN_LENGTH_MAX:,} characters")
    other = _OTHER.search(pattern)
    if other is not None:
        raise BadPattern(f"{other.group(1)} is not taken in patterns")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"the pattern cannot be read: {error}") from None


@lru_cache(maxsize=512)
def text_pattern(pattern: str) -> re.Pattern[str]:
    check(pattern)
    return re.compile(pattern)


@lru_cache(maxsize=512)
def bytes_pattern(pattern: str) -> re.Pattern[bytes]:
    check(pattern)
    return re.compile(pattern.encode())


def match(pattern: str, text: str) -> bool:
    """Whether the pattern matches somewhere."""
    return text_pattern(pattern).search(text) is not None


def match_bytes(pattern: str, text: bytes) -> bool:
    return bytes_pattern(pattern).search(text) is not None


def matchstrs(pattern: str, text: str) -> list[str]:
    """Return the first match and its groups; an empty array if there is none."""
    found = text_pattern(pattern).search(text)
    return [] if found is None else [found.group(), *(group or "" for group in found.groups())]


def matchposns(pattern: str, text: str) -> list[int]:
    """Return begin and end of the first match and of each group (-1 of one that took no part)."""
    found = text_pattern(pattern).search(text)
    if found is None:
        return []
    return [at for group in range(found.re.groups + 1) for at in found.span(group)]


def saw(text: str, steps: tuple[tuple[str, bool], ...]) -> list[str]:
    """Cut matches off the front of a text, one a step, each where the last ended; those of `skip`
    are dropped. Ends at the first that does not match there."""
    pieces: list[str] = []
    _saw_on(text, 0, steps, pieces)
    return pieces


def sawn(count: int, text: str, steps: tuple[tuple[str, bool], ...]) -> list[str]:
    """Do the steps over and over, `count` times or (-1) until one does not match."""
    pieces: list[str] = []
    at = 0
    while count != 0:
        before = at
        at, whole = _saw_on(text, at, steps, pieces)
        if not whole or at == before:
            break
        count -= 1
    return pieces


def _saw_on(
    text: str, at: int, steps: tuple[tuple[str, bool], ...], pieces: list[str]
) -> tuple[int, bool]:
    for pattern, is_skipped in steps:
        found = text_pattern(pattern).match(text, at)
        if found is None:
            return at, False
        at = found.end()
        if not is_skipped:
            pieces.append(found.group())
    return at, True
