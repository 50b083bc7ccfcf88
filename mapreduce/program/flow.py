"""How far a program got with its input, in bytes of its standard input and of a file."""

from __future__ import annotations

import msgspec

# What Hadoop loses without noticing: its own buffer and the pipe's (spec 8.2).
UNREAD_BYTES_MAX = (128 << 10) + (64 << 10)


class Flow(msgspec.Struct, frozen=True):
    """How far a program's input got.

    The program surely read `read_bytes` of the `given_bytes`; `left_bytes` more never reached the
    pipe because it closed its standard input (counted only until it is clear that they are too
    many).
    """

    given_bytes: int
    read_bytes: int
    left_bytes: int
    is_broken: bool

    @property
    def breaks_the_pipe(self) -> bool:
        """Whether more stayed unread than Hadoop would overlook (spec 8.2)."""
        return self.is_broken and self.given_bytes - self.read_bytes + self.left_bytes > (
            UNREAD_BYTES_MAX
        )


class InputRange(msgspec.Struct, frozen=True, array_like=True):
    """How far into its input a program got, in bytes of one file (or of a reduce's stream).

    It surely read up to `read_to`; it was given up to `given_to`; the input ends at `end`.
    """

    source: str
    start: int
    read_to: int
    given_to: int
    end: int
