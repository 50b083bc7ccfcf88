"""Numbers, times and modes as people read them in a narrow column."""

from __future__ import annotations

import re
import time

_UNITS = ("B", "K", "M", "G", "T", "P")


def size(count_bytes: float) -> str:
    """Return bytes in at most five characters: `999B`, `1.5K`, `64M`."""
    value = float(count_bytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            if unit == "B" or value >= 9.95:
                return f"{value:.0f}{unit}"
            return f"{value:.1f}{unit}"
        value /= 1024
    raise AssertionError("the last unit takes any value")


def rate(bytes_a_second: float) -> str:
    """Return a rate: `12M/s`."""
    return f"{size(bytes_a_second)}/s"


def span(seconds: float) -> str:
    """Return a duration: `45s`, `3:07`, `2:15:00`; a dash if it is not known."""
    if seconds < 0:
        return "–"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def count(number: float) -> str:
    """Return a count: `999`, `15.0k`, `1.2M`."""
    for limit, divisor, unit in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if number < limit:
            return f"{number:.0f}" if divisor == 1 else f"{number / divisor:.1f}{unit}"
    return f"{number / 1e12:.1f}T"


def percent(fraction: float) -> str:
    """Return a share; a hundred only when all is done."""
    return f"{min(int(fraction * 100), 99) if fraction < 1 else 100:3d}%"


def mode(bits: int, *, is_directory: bool) -> str:
    """Return the mode of a file: `drwxr-xr-x`."""
    letters = "".join(
        letter if bits >> (8 - i) & 1 else "-" for i, letter in enumerate("rwxrwxrwx")
    )
    return ("d" if is_directory else "-") + letters


def moment(at_s: float) -> str:
    """Return a moment of the past, to the minute, by the clock on this wall."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which h2 comes before h10."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.findall(r"[0-9]+|[^0-9]+", name)
    ]
