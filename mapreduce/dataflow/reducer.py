"""Stage 9: run the reduce program over one sorted stream.

Takes a merge and the command; gives the command's output, blob by blob. How it ended is judged by
the rule: a reducer must read everything (spec 8.2). A reduce without any record still starts
its command, but what that prints is thrown away (spec 6.2). Knows nothing of jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Protocol

from mrstream.mapreduce.program.command import Command
from mrstream.mapreduce.program.ending import ExitRule


class Stream(Protocol):
    """A sorted stream for a command, and how many records it has given."""

    @property
    def records(self) -> int: ...

    def blobs(self) -> Iterator[tuple[int, bytes]]: ...


def run_reducer(
    command: Command, stream: Stream, collect: Callable[[memoryview], None], rule: ExitRule
) -> bool:
    """Feed the reduce command and collect what it writes; says whether there was any input."""
    blobs = stream.blobs()
    held = [blob for _, blob in itertools.islice(blobs, 1)]
    if not held:
        command.run((), lambda _: None, rule, lambda: 0)
        return False

    def feed() -> Iterator[bytes]:
        yield held.pop()  # a blob may be one huge record: nobody keeps it longer than needed
        for _, blob in blobs:
            yield blob
            del blob

    command.run(feed(), collect, rule, lambda: 0)
    return True
