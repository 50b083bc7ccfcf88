"""Numbers, times, modes and tables as Hadoop prints them. Never does any IO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from mrstream.dfs.errors import BadRequest

_UNITS = "KMGTPE"
_LETTERS = "rwxrwxrwx"
_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=][rwxXt]*)+)")
_ACTION = re.compile(r"([-+=])([rwxXt]*)")


def hadoop_size(count: int) -> str:
    """`1.5 K`, `64 M`, as `hdfs dfs -ls -h` prints it: no decimal for whole numbers."""
    if abs(count) < 1024:
        return str(count)
    exponent = 1
    while abs(count) >= 1024 ** (exponent + 1) and exponent < len(_UNITS):
        exponent += 1
    text = f"{count / 1024**exponent:.1f}"
    return f"{text.removesuffix('.0')} {_UNITS[exponent - 1]}"


def figure(count: int, is_human: bool) -> str:
    """A number, plain or (with `-h`) for people."""
    return hadoop_size(count) if is_human else str(count)


def minute(at_s: float) -> str:
    """Local time to the minute, as `ls` shows it."""
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M")


def millisecond(at_s: float) -> str:
    """Local time to the millisecond, as logs show it."""
    return datetime.fromtimestamp(at_s).isoformat(" ", "milliseconds")


def second_utc(at_s: float) -> str:
    """UTC to the second, as `stat` shows it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def permissions(mode: int) -> str:
    """`rwxr-x--t`."""
    text = "".join(letter if mode & (1 << (8 - at)) else "-" for at, letter in enumerate(_LETTERS))
    if mode & 0o1000:
        text = text[:8] + ("t" if text[8] == "x" else "T")
    return text


def changed_mode(mode: int, is_directory: bool, change: str) -> int:
    """The mode after `755`, `u+x,go-w`, `a=r` and the like; BadRequest if it is none of them."""
    if re.fullmatch(r"[01]?[0-7]{3}", change):
        return int(change, 8)
    for clause in change.split(","):
        parsed = _CLAUSE.fullmatch(clause)
        if parsed is None:
            raise BadRequest(f"chmod : mode '{change}' does not match the expected pattern.")
        who = parsed[1] or "a"
        for operator, letters in _ACTION.findall(parsed[2]):
            mode = _apply(mode, is_directory, who, operator, letters)
    return mode


def _apply(mode: int, is_directory: bool, who: str, operator: str, letters: str) -> int:
    bits = sum({"r": 4, "w": 2, "x": 1}.get(letter, 0) for letter in set(letters))
    if "X" in letters and (is_directory or mode & 0o111):
        bits |= 1
    for letter, shift in (("u", 6), ("g", 3), ("o", 0)):
        if letter not in who and "a" not in who:
            continue
        if operator == "+":
            mode |= bits << shift
        elif operator == "-":
            mode &= ~(bits << shift)
        else:
            mode = (mode & ~(7 << shift)) | bits << shift
    if "t" in letters:
        mode = mode & ~0o1000 if operator == "-" else mode | 0o1000
    return mode


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows as columns two spaces apart; the last column is not padded on its right."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
