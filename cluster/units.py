"""Sizes, times, shares and ranges as people write them: `64MiB`, `10s`, `5%`, `node[01-20]`.

And as they read them in a sentence. Two other places write sizes, neither of them free to choose:
`view/words.py` has five characters for one, `dfs/shell/formats.py` prints what `hdfs dfs` prints.
"""

from __future__ import annotations

import re

_SIZES = {
    "": 1, "B": 1,
    "K": 1024, "KB": 1000, "KIB": 1024,
    "M": 1024**2, "MB": 1000**2, "MIB": 1024**2,
    "G": 1024**3, "GB": 1000**3, "GIB": 1024**3,
    "T": 1024**4, "TB": 1000**4, "TIB": 1024**4,
}  # fmt: skip
_TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)\s*")
_RANGE = re.compile(r"\[([0-9]+)-([0-9]+)\]")
RANGE_COUNT_MAX = 10_000


def parse_size(text: str) -> int:
    """Return bytes; `ValueError` says what a size looks like."""
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None or match[2].upper() not in _SIZES:
        raise ValueError("a size is a number and a unit, such as 64MiB, 512KB or 10G")
    return int(float(match[1]) * _SIZES[match[2].upper()])


def parse_time(text: str) -> float:
    """Return seconds; `ValueError` says what a time looks like."""
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None or match[2] not in _TIMES:
        raise ValueError("a time is a number and a unit, such as 500ms, 10s, 5m, 12h or 3d")
    return float(match[1]) * _TIMES[match[2]]


def parse_share(text: str) -> float:
    """Return a share between 0 and 1 of a percentage."""
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None or match[2] != "%" or float(match[1]) > 100:
        raise ValueError("a share is a percentage, such as 5%")
    return float(match[1]) / 100


def binary_size(count_bytes: float) -> str:
    """Return a size of memory or disk, whose limits are set in powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"


def decimal_size(count_bytes: float) -> str:
    """Return a number of bytes that a job moves: a figure beside records and bytes a second."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count_bytes) < 1000:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} TB"


def with_commas(number: int) -> str:
    """Return a number whose thousands can be seen."""
    return f"{number:,}"


def duration(seconds: float) -> str:
    """Return a time span: `4.2 s`, `31 s`, `3 min 07 s`, `2 h 15 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def expand_range(text: str) -> list[str]:
    """Return the names that `node[01-20]` stands for (leading zeros are kept), or just the text."""
    match = _RANGE.search(text)
    if match is None:
        return [text]
    first, last = match[1], match[2]
    if int(last) < int(first):
        raise ValueError(f"the range {match[0]} goes down")
    if int(last) - int(first) >= RANGE_COUNT_MAX:
        raise ValueError(f"the range {match[0]} has more than {RANGE_COUNT_MAX:,} names")
    width = len(first) if first.startswith("0") else 0
    names: list[str] = []
    for number in range(int(first), int(last) + 1):
        name = f"{text[: match.start()]}{number:0{width}d}{text[match.end() :]}"
        names += expand_range(name)
    return names
