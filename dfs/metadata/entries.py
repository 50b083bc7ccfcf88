"""What the namespace keeps of few nodes, or of requests and not of nodes: small tables.

Never decides anything and never does any IO.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from mrstream.dfs.chunk import NO_FENCE, Epoch, Fence, FileId
from mrstream.dfs.metadata.operations import NO_REQUEST, RequestId

NO_RULE = -2
REQUESTS_REMEMBERED_MAX = 20_000

Answer = None | int | float | str
UNKNOWN = False
"""The answer to a request that a log of format 1 remembers: it did not say."""


@dataclass(slots=True)
class Writer:
    """Who may write a file: the one with this epoch. No client: the master is closing it."""

    epoch: Epoch
    client: str
    is_first: bool = False
    """It created the file: nothing in it was there before."""
    fence: Fence = NO_FENCE
    """What it was opened under: a newer generation takes the file over."""


@dataclass(slots=True)
class Policy:
    """Rules of a directory and what is below it; NO_RULE where it has none."""

    replication: int = NO_RULE
    trash_after_s: float = NO_RULE
    appends: int = NO_RULE
    """1: serialised; 0: GFS's."""


@dataclass(slots=True)
class Hidden:
    """Something in the trash."""

    original: str
    at_s: float


class Done(NamedTuple):
    """A request that was carried out: the node that it made or changed, and what was answered."""

    file_id: FileId
    answer: Answer


class Requests:
    """The requests carried out lately. F5: one that is repeated has no second effect, and gets the
    first answer, whatever others changed since."""

    def __init__(self) -> None:
        self._done: OrderedDict[RequestId, Done] = OrderedDict()

    def __len__(self) -> int:
        return len(self._done)

    def __contains__(self, request: RequestId) -> bool:
        return request in self._done

    def get(self, request: RequestId) -> Done | None:
        return self._done.get(request)

    def remember(self, request: RequestId, file_id: FileId, answer: Answer = None) -> None:
        if request == NO_REQUEST:
            return
        self._done[request] = Done(file_id, answer)
        if len(self._done) > REQUESTS_REMEMBERED_MAX:
            self._done.popitem(last=False)

    def packed(self) -> list[list[int | Answer]]:
        """All, oldest first, as a checkpoint holds them."""
        return [[*request, *done] for request, done in self._done.items()]


@dataclass
class Names:
    """Strings that many nodes share (owners, groups), by number."""

    strings: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, string: str) -> int:
        number = self._numbers.get(string)
        if number is None:
            number = self._numbers[string] = len(self.strings)
            self.strings.append(string)
        return number

    def is_known(self, string: str) -> bool:
        return string in self._numbers

    def forget(self) -> None:
        self.strings.clear()
        self._numbers.clear()
