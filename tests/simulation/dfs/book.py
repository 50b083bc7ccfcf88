"""What clients of the simulator know for certain, to be compared with what there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mrstream.dfs.chunk import Fence, Fences
from mrstream.dfs.metadata.operations import FenceRaised, parts_of
from mrstream.dfs.oplog import decode_record


@dataclass
class Truth:
    """What must be true of a file."""

    data: bytearray = field(default_factory=bytearray)
    """What its writer meant to write, in order."""
    acked: int = 0
    """So many bytes were acknowledged."""
    closed: bool = False
    records: list[tuple[int, bytes]] = field(default_factory=list)
    """Record appends that succeeded: offset in the file, bytes."""
    unsure: list[tuple[int, int]] = field(default_factory=list)
    """Regions in which an overwrite failed: their bytes are undefined (GFS Table 1)."""
    instead: bytearray | None = None
    """What it is all of if a join was carried out that nobody heard of."""


@dataclass
class Operation:
    """One change of the namespace, as its client saw it."""

    request: Any
    request_id: tuple[int, int]
    invoked_at_s: float
    returned_at_s: float = float("inf")
    outcome: str = "unknown"
    """done | refused | unknown | over: what was opened, if it was, has been taken over since"""


@dataclass
class Look:
    """A question about a path: what was answered, and on which sequence that rests."""

    path: str
    file_id: int | None
    length: int
    sequence: int


class Book:
    """Everything that clients know for certain."""

    def __init__(self) -> None:
        self.files: dict[int, Truth] = {}
        self.operations: list[Operation] = []
        self.looks: list[Look] = []
        self.accepted: list[tuple[float, int, str]] = []
        self.wrong: list[str] = []
        self.replaced: dict[int, int] = {}
        """Files that were compared and swapped, and by which file."""
        self.told: dict[int, int] = {}
        """The highest count that was ever asked for as an attribute of a file."""
        self.generation = 0
        """Of the lock that clients take from each other."""
        self.under: dict[tuple[int, int], Fences] = {}
        """The fences under which a request was made."""
        self.changed: dict[str, int] = {}
        """The highest generation of each fence under which something in the log was changed."""

    def look_at(self, log: Iterable[bytes]) -> None:
        """F6, CH-20: where somebody changed something under a later generation nobody does under an
        earlier one, in all that these records of a log change, each looked at once."""
        for payload in log:
            for record in parts_of(decode_record(payload)):
                if isinstance(record, FenceRaised):
                    self._changes(record, (record.name, record.generation - 1))
                    self._changes(record, (record.name, record.generation))
                for fence in self.under.get(getattr(record, "request", (0, 0)), ()):
                    self._changes(record, fence)

    def _changes(self, record: Any, fence: Fence) -> None:
        name, generation = fence
        before = self.changed.get(name, -1)
        assert generation >= before, f"F6: {record} under {generation} of {name} after {before}"
        self.changed[name] = generation
