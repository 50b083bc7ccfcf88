"""Which epoch each record of the log is of: a table of few rows, one for each leader.

A leader's first record is `EpochBegan`, so records need not say their epoch. A log is a string of
runs: what two logs share can be told from their tables alone (Kafka's leader-epoch table).
"""

from __future__ import annotations

UNKNOWN = -1
"""The epoch of a record that is not in the log: before its beginning or after its end."""


class Epochs:
    """The shape of one log: after record `base`, whose epoch is known, up to record `last`.

    Rows rise in both sequence and epoch: an older leader's records never follow a newer one's.
    """

    __slots__ = ("base", "base_epoch", "last", "rows")

    def __init__(
        self,
        base: int = 0,
        base_epoch: int = 0,
        rows: tuple[tuple[int, int], ...] = (),
        last: int = 0,
    ) -> None:
        self.base = base
        self.base_epoch = base_epoch
        self.rows: list[tuple[int, int]] = [row for row in rows if row[0] > base]
        """(first sequence, epoch) of every epoch that begins after `base`, oldest first."""
        self.last = max(base, last)

    @property
    def last_epoch(self) -> int:
        return self.rows[-1][1] if self.rows else self.base_epoch

    def at(self, sequence: int) -> int:
        """Return the epoch of a record, `UNKNOWN` where the log does not hold it."""
        if not self.base <= sequence <= self.last:
            return UNKNOWN
        epoch = self.base_epoch
        for first, row_epoch in self.rows:
            if first > sequence:
                break
            epoch = row_epoch
        return epoch

    def add(self, epoch: int) -> None:
        """The log has grown by one record of that epoch."""
        assert epoch >= self.last_epoch, f"epoch {epoch} after {self.last_epoch}"
        self.last += 1
        if epoch > self.last_epoch:
            self.rows.append((self.last, epoch))

    def cut(self, after: int) -> None:
        """The log now ends with record `after`."""
        assert self.base <= after <= self.last
        self.last = after
        while self.rows and self.rows[-1][0] > after:
            self.rows.pop()

    def forget(self, base: int) -> None:
        """Records up to `base` are no longer kept one by one: a checkpoint holds them."""
        if base <= self.base:
            return
        assert base <= self.last
        self.base_epoch = self.at(base)
        self.base = base
        self.rows = [row for row in self.rows if row[0] > base]

    def fork_point(self, sequence: int, epoch: int) -> tuple[int, int]:
        """Return the last record, with its epoch, that this log may share with one that has
        `epoch` at `sequence`: at or before it, of no later epoch."""
        sequence = min(sequence, self.last)
        for first, row_epoch in reversed(self.rows):
            if first <= sequence:
                if row_epoch <= epoch:
                    return sequence, row_epoch
                sequence = first - 1
        return max(sequence, self.base), self.base_epoch
