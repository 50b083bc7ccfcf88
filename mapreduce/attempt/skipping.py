"""Skipping bad records (MapReduce §4.6): what makes a program fail is found and left out.

An attempt in skipping mode first runs its command on parts of its input until it knows which
records make it fail (`narrow`), then runs for good without them, counts them and keeps
them. Takes as many bad places as there are, but no place wider than the job accepts. Used only
where a job asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from mrstream.mapreduce.attempt.attempt_report import Noted
from mrstream.mapreduce.attempt.narrow import Range, RecordIndex, narrow
from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow.files import join
from mrstream.mapreduce.program.command import Command
from mrstream.mapreduce.program.ending import ExitRule
from mrstream.mapreduce.program.errors import CommandFailed, TaskTimedOut

PLACES_MAX = 1000


class Skipping:
    """The input of an attempt without the records that its program cannot take."""

    def __init__(
        self, attempt: Attempt, index: RecordIndex, command: Command, rule: ExitRule
    ) -> None:
        self._attempt = attempt
        self._index = index
        self._command = command
        self._rule = rule
        self.ranges: list[Range] = []

    @property
    def records(self) -> int:
        """How many records are left out."""
        return sum(behind - first for first, behind in self.ranges)

    def find(self, widen: Callable[[Range], Range], is_acceptable: Callable[[Range], bool]) -> None:
        """Find all bad places; CommandFailed if one is wider than the job accepts.

        `widen` extends a place to what must be left out with it.
        """
        while len(self.ranges) < PLACES_MAX:
            found = narrow(self._fails, len(self._index))
            if found is None:
                return
            place = widen(found) if found[0] < found[1] else found
            if place[0] == place[1] or not is_acceptable(place):
                raise CommandFailed(
                    f"records {place[0]} to {place[1] - 1} make the program fail together: more "
                    "than the job lets be skipped at one place"
                    if place[0] < place[1]
                    else "the program fails without any record: nothing can be skipped"
                )
            self.ranges.append(place)
            self.ranges.sort()
            text = f"{self._attempt.order.attempt_id} skips records {place[0]} to {place[1] - 1}"
            self._attempt.tell(Noted("WARN", text))
        raise CommandFailed(f"the program fails at more than {PLACES_MAX} places of its input")

    def blobs(self) -> Iterator[bytes]:
        """Return the input without the bad places."""
        return self._without(0, len(self._index))

    def keep(self) -> None:
        """Write the skipped records where the job wants them."""
        directory = self._attempt.conf.skip_output
        if not directory or directory.lower() == "none" or not self.ranges:
            return
        files, order = self._attempt.files, self._attempt.order
        kind = "m" if order.is_map else "r"
        name = f"skipped-{kind}-{order.task_index:05d}"
        with files.create(join(files.qualify(directory), name)) as kept:
            for first, behind in self.ranges:
                for blob in self._index.blobs(first, behind):
                    kept.write(blob)

    def _fails(self, first: int, behind: int) -> bool:
        feed: Iterable[bytes] = self._without(first, behind)
        try:
            self._command.run(feed, lambda _: None, self._rule, lambda: 1 << 62)
        except (CommandFailed, TaskTimedOut):
            return True
        return False

    def _without(self, first: int, behind: int) -> Iterator[bytes]:
        at = first
        for skip_first, skip_behind in self.ranges:
            if skip_behind <= at or skip_first >= behind:
                continue
            yield from self._index.blobs(at, max(at, skip_first))
            at = max(at, skip_behind)
        if at < behind:
            yield from self._index.blobs(at, behind)


class Silence:
    """An ear that hears nothing: trials must not count counters, nor fill the log."""

    def feed(self, data: bytes) -> None:
        """Drop it."""

    def close(self) -> None:
        """Nothing to end."""


def dump(attempt: Attempt, blobs: Iterable[bytes]) -> str:
    """Write a command's input to a file of the attempt's own; return its path."""
    path = os.path.join(attempt.scratch, "stdin")
    with open(path, "wb") as file:
        for blob in blobs:
            file.write(blob)
            attempt.watch.touch()
    return path


def key_group(index: RecordIndex, separator: bytes, place: Range) -> Range:
    """Extend a range of lines to whole groups of equal keys."""

    def key(record: int) -> bytes:
        return index.read(record, record + 1).rstrip(b"\n").partition(separator)[0]

    first, behind = place
    first_key, last_key = key(first), key(behind - 1)
    while first > 0 and key(first - 1) == first_key:
        first -= 1
    while behind < len(index) and key(behind) == last_key:
        behind += 1
    return first, behind


def groups_in(index: RecordIndex, separator: bytes, place: Range) -> int:
    """Count the different keys of a range of lines; equal ones stand together."""
    groups, before = 0, None
    for record in range(*place):
        key = index.read(record, record + 1).rstrip(b"\n").partition(separator)[0]
        groups += key != before
        before = key
    return groups
