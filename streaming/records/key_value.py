"""How one line of a program's output becomes a key and a value, and back.

Plain data and pure functions: the kernel and its twin take `KeyValueRule` and
give the same bytes as `split` and `join` here. Never reads files or properties.
"""

from __future__ import annotations

import msgspec

TAB = b"\t"


class KeyValueRule(msgspec.Struct, frozen=True):
    """Cut a line after its `key_fields`-th separator: key before it, value behind it.

    Invariant: the separator has at least one byte and `key_fields` is at least 1
    (a count below 1 behaves as 1, so `rule` raises it).
    """

    separator: bytes = TAB
    key_fields: int = 1

    def __post_init__(self) -> None:
        assert self.separator, "an empty separator is replaced by the default before it gets here"
        assert self.key_fields >= 1, "the count of key fields is raised to 1 before it gets here"


def rule(separator: bytes, key_fields: int) -> KeyValueRule:
    """Return the rule for what a job was given, with Hadoop's answer to odd values."""
    return KeyValueRule(separator or TAB, max(1, key_fields))


def split(line: bytes, by: KeyValueRule) -> tuple[bytes, bytes]:
    """Return (key, value) of a line without its end; too few separators make it all key."""
    end = -len(by.separator)
    for _ in range(by.key_fields):
        end = line.find(by.separator, end + len(by.separator))
        if end < 0:
            return line, b""
    return line[:end], line[end + len(by.separator) :]


def join(key: bytes, value: bytes, separator: bytes) -> bytes:
    """Return the line that a program reads for this record; the separator is always there."""
    return key + separator + value + b"\n"
