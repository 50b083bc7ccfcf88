"""What a job master shows of itself, as rows that each know when they last changed.

The master puts rows on a `Board` as events come; a watcher asks for what changed since the version
it has seen, and `apply`s the answer to its own board. One call a tick therefore costs what changed,
not what is there. Rows are facts for people: nothing is ever decided from them. Never does IO.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

IDLE, RUNNING, COMMITTED, FAILED, BACKUP = range(5)
"""States of a task in a grid; BACKUP is running with a second attempt beside the first."""
PRIORITY_NAMES = {1: "VERY_LOW", 2: "LOW", 3: "NORMAL", 4: "HIGH", 5: "VERY_HIGH"}


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A line of a table, found again by its `key`."""

    key: str


class DiskRow(msgspec.Struct, frozen=True, array_like=True):
    path: str
    used_bytes: int
    capacity_bytes: int
    state: str = "up"


class HostRow(Row, frozen=True, array_like=True):
    """One worker, keyed by host name."""

    address: str = ""
    rack: str = ""
    state: str = "up"
    slots: int = 0
    slots_used: int = 0
    load: float = 0.0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    disks: tuple[DiskRow, ...] = ()
    heard_at_s: float = 0.0
    running: tuple[str, ...] = ()
    reason: str = ""


class JobRow(Row, frozen=True, array_like=True):
    """One job, keyed by its id; fractions are of its own phase, 0 to 1."""

    name: str = ""
    user: str = ""
    state: str = "waiting"
    priority: str = "NORMAL"
    submitted_at_s: float = 0.0
    finished_at_s: float = 0.0
    maps: int = 0
    maps_done: int = 0
    maps_running: int = 0
    reduces: int = 0
    reduces_done: int = 0
    reduces_running: int = 0
    map_fraction: float = 0.0
    shuffle_fraction: float = 0.0
    reduce_fraction: float = 0.0
    input_bytes: int = 0
    shuffle_bytes: int = 0
    output_bytes: int = 0
    records_in: int = 0
    records_out: int = 0
    attempts_failed: int = 0
    seconds_left: float = -1.0
    output: str = ""
    diagnosis: str = ""


class TaskRow(Row, frozen=True, array_like=True):
    """One task of a job, keyed `m000012` or `r000003`."""

    state: int = IDLE
    host: str = ""
    started_at_s: float = 0.0
    progress: float = 0.0


class AttemptRow(Row, frozen=True, array_like=True):
    """One attempt of a job, keyed by attempt id."""

    task: str = ""
    host: str = ""
    state: str = "running"
    locality: str = ""
    started_at_s: float = 0.0
    finished_at_s: float = 0.0
    progress: float = 0.0
    phase: str = ""
    records: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    status: str = ""
    diagnosis: str = ""


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened, in words."""

    at_s: float
    text: str


class RatePoint(msgspec.Struct, frozen=True, array_like=True):
    """Bytes a second over one interval: the three curves of the paper's Figure 3."""

    at_s: float
    input_rate: float
    shuffle_rate: float
    output_rate: float


RowType = TypeVar("RowType", bound=Row)


class Changes(msgspec.Struct, Generic[RowType], frozen=True, array_like=True):
    """The rows that changed after a version; `whole` if the watcher must forget the rest."""

    version: int
    rows: tuple[RowType, ...] = ()
    gone: tuple[str, ...] = ()
    whole: bool = False


class Board(Generic[RowType]):
    """Rows by key, in order of their last change."""

    _GONE_MAX = 4096

    def __init__(self) -> None:
        self.version = 0
        # Re-inserting a changed row keeps both dicts in order of version, oldest first.
        self._rows: dict[str, tuple[int, RowType]] = {}
        self._gone: dict[str, int] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RowType]:
        return (row for _, row in self._rows.values())

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def get(self, key: str) -> RowType | None:
        """Return the row with this key, or None."""
        found = self._rows.get(key)
        return found[1] if found else None

    def put(self, row: RowType) -> bool:
        """Show this row; says whether anything changed."""
        old = self._rows.get(row.key)
        if old is not None:
            if old[1] == row:
                return False
            del self._rows[row.key]
        self.version += 1
        self._rows[row.key] = (self.version, row)
        self._gone.pop(row.key, None)
        return True

    def drop(self, key: str) -> None:
        """Stop showing the row with this key."""
        if self._rows.pop(key, None) is None:
            return
        self.version += 1
        self._gone[key] = self.version
        if len(self._gone) > self._GONE_MAX:
            oldest = next(iter(self._gone))
            self._forgotten = self._gone.pop(oldest)

    def since(self, version: int) -> Changes[RowType]:
        """Return what changed after `version`; everything if that is too long ago to say."""
        if version < self._forgotten or version > self.version or version == 0:
            rows = tuple(row for _, row in self._rows.values())
            return Changes(self.version, rows, whole=True)
        rows = tuple(_newer(self._rows, version))
        gone = tuple(key for key, at in reversed(self._gone.items()) if at > version)
        return Changes(self.version, rows, gone)

    def apply(self, changes: Changes[RowType]) -> list[str]:
        """Bring a watcher's board up to date; return the keys that differ from before."""
        touched: dict[str, None] = {}
        if changes.whole:
            wanted = {row.key for row in changes.rows}
            for key in [key for key in self._rows if key not in wanted]:
                del self._rows[key]
                touched[key] = None
        for row in changes.rows:
            old = self._rows.get(row.key)
            if old is None or old[1] != row:
                self._rows[row.key] = (changes.version, row)
                touched[row.key] = None
        for key in changes.gone:
            if self._rows.pop(key, None) is not None:
                touched[key] = None
        self.version = changes.version
        return list(touched)


def _newer(rows: dict[str, tuple[int, RowType]], version: int) -> Iterator[RowType]:
    """Newest first, up to the first row that the watcher has seen: costs what changed."""
    for at, row in reversed(rows.values()):
        if at <= version:
            return
        yield row


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a watcher of the whole cluster: what changed, by the master's clock."""

    at_s: float
    hosts: Changes[HostRow]
    jobs: Changes[JobRow]


class JobSeen(msgspec.Struct, frozen=True, array_like=True):
    """How much of one job a watcher has seen: board versions, and lengths of the two lists."""

    tasks: int = 0
    attempts: int = 0
    events: int = 0
    rates: int = 0


class JobSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a watcher of one job; `seen` goes into its next question."""

    at_s: float
    job: JobRow
    seen: JobSeen
    tasks: Changes[TaskRow]
    attempts: Changes[AttemptRow]
    events: tuple[EventRow, ...] = ()
    rates: tuple[RatePoint, ...] = ()
    counters: dict[str, dict[str, int]] = {}
    remarks: tuple[str, ...] = ()


class JobBoard:
    """All that one job shows. Events and rates only grow, so their length is their version."""

    def __init__(self, job: JobRow) -> None:
        self.job = job
        self.tasks: Board[TaskRow] = Board()
        self.attempts: Board[AttemptRow] = Board()
        self.events: list[EventRow] = []
        self.rates: list[RatePoint] = []
        self.counters: dict[str, dict[str, int]] = {}

    def since(self, seen: JobSeen, at_s: float) -> JobSnapshot:
        """Return what a watcher that has seen `seen` does not know yet."""
        if seen.events > len(self.events) or seen.rates > len(self.rates):
            seen = JobSeen()  # it watched a master that ran before this one
        return JobSnapshot(
            at_s,
            self.job,
            JobSeen(self.tasks.version, self.attempts.version, len(self.events), len(self.rates)),
            self.tasks.since(seen.tasks),
            self.attempts.since(seen.attempts),
            tuple(self.events[seen.events :]),
            tuple(self.rates[seen.rates :]),
            self.counters,
            remarks(self, at_s),
        )

    def apply(self, news: JobSnapshot, seen: JobSeen) -> None:
        """Bring a watcher's board, which had seen `seen`, up to date."""
        if news.seen.events - len(news.events) < seen.events:
            self.events.clear()
            self.rates.clear()
        self.job = news.job
        self.tasks.apply(news.tasks)
        self.attempts.apply(news.attempts)
        self.events.extend(news.events)
        self.rates.extend(news.rates)
        self.counters = news.counters


def remarks(board: JobBoard, now_s: float) -> tuple[str, ...]:
    """Point out stragglers and skew in words, the gravest first; at most five."""
    said: list[tuple[float, str]] = []
    for kind, word in (("m", "map"), ("r", "reduce")):
        attempts = [row for row in board.attempts if row.task.startswith(kind)]
        done = [row for row in attempts if row.state == "succeeded"]
        if len(done) < 3:
            continue
        usual_s = _median([row.finished_at_s - row.started_at_s for row in done])
        for row in attempts:
            elapsed_s = now_s - row.started_at_s
            if row.state == "running" and elapsed_s > max(2 * usual_s, usual_s + 5):
                ratio = elapsed_s / max(usual_s, 0.001)
                said.append(
                    (
                        ratio,
                        f"{row.task} on {row.host} runs for {elapsed_s:.0f} s; "
                        f"a {word} here usually takes {usual_s:.1f} s",
                    )
                )
        usual_records = _median([row.records for row in done])
        most = max(done, key=lambda row: row.records)
        if usual_records > 0 and most.records > 3 * usual_records:
            ratio = most.records / usual_records
            said.append(
                (ratio, f"{most.task} had {most.records:,} records, {ratio:.1f}× the usual {word}")
            )
    return tuple(text for _, text in sorted(said, key=lambda entry: -entry[0])[:5])


def _median(values: list[float] | list[int]) -> float:
    return sorted(values)[len(values) // 2]


def by_name(row: msgspec.Struct) -> dict[str, Any]:
    """Return a row by the names of its fields, for JSON; on the wire between ours it has none."""
    return {name: _plain(value) for name, value in msgspec.structs.asdict(row).items()}


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return by_name(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
