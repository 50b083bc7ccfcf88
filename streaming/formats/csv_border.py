"""Where CSV records begin, judged from a place in the middle of a file. Pure.

A line end may stand inside quotes, so nobody who begins to read in the middle can know for certain
whether he is inside; but in well-formed CSV most bytes around a quote rule out one of the two. All
states that the place may be in are followed at once, and those that meet something impossible are
dropped; when all that are left agree on where the first record begins, that is the answer.

It is an answer for well-formed files only: who relies on it must have it checked by whoever reads
the records before (`mapreduce/dataflow/csv_rows.py` does).
"""

from __future__ import annotations

import re

from mrstream.streaming.records.csv_dialect import Dialect

_START, _FIELD, _QUOTED, _AFTER_QUOTE, _AFTER_CR = range(5)


def record_start(data: bytes, dialect: Dialect, *, at_end: bool) -> int | None:
    """Return where the first record begins in `data`, behind its first byte.

    `data` begins anywhere; `at_end`: the file ends with it. None: what there is does not decide
    it. The answer is the length of `data` if no record begins there before the file ends.
    """
    if dialect.quote is None or dialect.quote not in data:
        found = _line_end(data)
        return found if found is not None else (len(data) if at_end else None)
    starts = {start for _, start in _survivors(data, dialect)}
    if at_end:
        starts = {len(data) if start is None else start for start in starts}
    return starts.pop() if len(starts) == 1 else None


def _line_end(data: bytes) -> int | None:
    match = re.search(rb"\r\n|\n|\r(?!\Z)", data)
    return match.end() if match else None


def _survivors(data: bytes, dialect: Dialect) -> set[tuple[int, int | None]]:
    """Follow every state that the first byte may be in: (state, first record start) of those that
    can be."""
    delimiter, quote = dialect.delimiter, dialect.quote
    assert quote is not None
    special = re.compile(b"[" + re.escape(delimiter + quote) + rb"\r\n]")
    states: set[tuple[int, int | None]] = {
        (state, None) for state in (_START, _FIELD, _QUOTED, _AFTER_QUOTE)
    }
    behind = 0
    for match in special.finditer(data):
        at = match.start()
        if at > behind:
            states = _after_text(states, behind)
        byte = match[0]
        states = {new for old in states if (new := _after(old, byte, at, delimiter, quote))}
        behind = at + 1
    if behind < len(data):
        states = _after_text(states, behind)
    return states


def _after_text(states: set[tuple[int, int | None]], at: int) -> set[tuple[int, int | None]]:
    """Bytes that mean nothing follow: only a quoted field that has ended cannot have them."""
    found: set[tuple[int, int | None]] = set()
    for state, start in states:
        if state == _AFTER_CR:
            start = at if start is None else start
        if state != _AFTER_QUOTE:
            found.add((_QUOTED if state == _QUOTED else _FIELD, start))
    return found


def _after(
    old: tuple[int, int | None], byte: bytes, at: int, delimiter: bytes, quote: bytes
) -> tuple[int, int | None] | None:
    """Return what a state becomes; None: it could not have met this byte."""
    state, start = old
    if state == _AFTER_CR:
        if byte == b"\n":
            return _START, at + 1 if start is None else start
        state, start = _START, at if start is None else start
    if state == _QUOTED:
        return (_AFTER_QUOTE if byte == quote else _QUOTED), start
    if byte == quote:
        opens = {_START: _QUOTED, _AFTER_QUOTE: _QUOTED}.get(state)
        return None if opens is None else (opens, start)
    if byte == delimiter:
        return _START, start
    if byte == b"\r":
        return _AFTER_CR, start
    return _START, at + 1 if start is None else start
