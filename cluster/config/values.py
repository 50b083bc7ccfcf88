"""Single values of cluster.yaml: from text to what it means; a `ValueError` says what is wanted."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Any

from mrstream.cluster.config.config import PORTS_COUNT
from mrstream.cluster.units import parse_share, parse_size, parse_time

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "a name has letters, digits, dots, dashes and underscores, 63 at most"

Parse = Callable[[str], Any]


def parse_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(NAME_RULE)
    return text


def parse_path(text: str) -> str:
    """Return a path on a host, without a slash at its end."""
    if not text.startswith(("/", "~")) or "\0" in text:
        raise ValueError("a path begins with / or ~")
    return text.rstrip("/") or "/"


def parse_address(text: str) -> str:
    """Return an address that a daemon can listen on."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9._\[\]-]{1,253}", text):
            raise ValueError("an address is an IP address or a host name, without a port") from None
        return text
    if address.is_unspecified:
        raise ValueError("nothing listens on all addresses: give the one that other hosts use")
    return str(address)


def parse_base_port(text: str) -> int:
    port: int = whole(1024, 65_535 - PORTS_COUNT)(text)
    return port


def parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "on", "off"):
        raise ValueError("it is true or false")
    return text.lower() in ("true", "yes", "on")


def parse_reserve(text: str) -> float | int:
    """Return a share of a disk, or a number of bytes."""
    return parse_share(text) if text.strip().endswith("%") else parse_size(text)


def parse_chunk_size(text: str) -> int:
    size = parse_size(text)
    if size % 65_536 or not 65_536 <= size <= 2**30:
        binary = re.sub(r"(?i)(?<=[kmg])b\s*$", "iB", text)
        meant = f"; did you mean {binary!r}?" if binary != text else ""
        raise ValueError(f"a chunk is a multiple of 64KiB, at least 64KiB and at most 1GiB{meant}")
    return size


def positive_time(text: str) -> float:
    seconds = parse_time(text)
    if seconds <= 0:
        raise ValueError("it must be more than 0")
    return seconds


def seconds_between(low_s: float, high_s: float) -> Parse:
    """Return what reads times between two limits."""

    def parse(text: str) -> float:
        seconds = parse_time(text)
        if not low_s <= seconds <= high_s:
            raise ValueError(f"it must be from {low_s:g}s to {high_s:g}s")
        return seconds

    return parse


def whole(low: int, high: int) -> Parse:
    """Return what reads whole numbers between two limits."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"it must be a whole number from {low:,} to {high:,}")
        return int(text)

    return parse


def one_of(choices: tuple[str, ...]) -> Parse:
    """Return what takes one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"it must be {' or '.join(choices)}{suggestion(text, choices)}")
        return text

    return parse


def close_to(word: str, known: Sequence[str]) -> list[str]:
    """Return the known word that was probably meant, or none."""
    return difflib.get_close_matches(word, known, n=1, cutoff=0.5)


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return the question after the word that was probably meant, or nothing."""
    return "".join(f"; did you mean {meant!r}?" for meant in close_to(word, known))


DFS_KEYS: dict[str, tuple[str, Parse]] = {
    "chunk_size": ("chunk_bytes", parse_chunk_size),
    "replication": ("replication", whole(1, 100)),
    "dead_after": ("dead_after_s", positive_time),
    "heartbeat": ("heartbeat_s", positive_time),
    "lease": ("lease_s", positive_time),
    "trash_after": ("trash_after_s", parse_time),
    "reserve": ("reserve_share", parse_reserve),
    "log_replicas": ("log_replicas", whole(0, 10)),
    "scrub_every": ("scrub_every_s", positive_time),
    "checkpoint_after": ("checkpoint_bytes", parse_size),
    "safe_mode": ("safe_mode_s", parse_time),
}
LOCK_KEYS: dict[str, tuple[str, Parse]] = {
    "session": ("session_s", seconds_between(2.0, 60.0)),
    "grace": ("grace_s", seconds_between(1.0, 600.0)),
}
BACKUP_KEYS: dict[str, tuple[str, Parse]] = {
    "to": ("to", parse_path),
    "every": ("every_s", seconds_between(60.0, 365 * 86400.0)),
    "keep": ("keep", whole(1, 10_000)),
}
