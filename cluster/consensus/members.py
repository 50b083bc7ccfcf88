"""Who belongs to the group: voters, of whom a majority decides, and learners, who only listen.

A member is a journal on a host, `HOST/UUID`: a host whose disk was emptied comes back under another
name, so that what it has forgotten is never counted upon (C5). The list is a record of the log; it
holds from the moment it is written, and goes back to the one before when that record is cut.
"""

from __future__ import annotations

from typing import NewType

import msgspec

MemberId = NewType("MemberId", str)


ALONE = "alone"
"""In place of a journal's uuid: of a master that belongs to no group."""


def member_id(host: str, journal: str) -> MemberId:
    """Return the name of the journal with that uuid on that host."""
    return MemberId(f"{host}/{journal}")


def host_of(member: MemberId) -> str:
    return member.rpartition("/")[0]


def is_alone(member: MemberId) -> bool:
    """Is this a master that belongs to no group?"""
    return member.endswith(f"/{ALONE}")


class Members(msgspec.Struct, frozen=True, array_like=True):
    """One list of members; in the order in which they came."""

    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()

    @property
    def majority(self) -> int:
        """So many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def everyone(self) -> tuple[MemberId, ...]:
        return self.voters + self.learners

    def with_learner(self, member: MemberId) -> Members:
        """Return the list with a newcomer, who takes the place of a learner of the same host."""
        kept = [old for old in self.learners if host_of(old) != host_of(member)]
        return Members(self.voters, (*kept, member))

    def with_voter(self, member: MemberId) -> Members:
        """Return the list in which a learner votes."""
        return Members((*self.voters, member), tuple(m for m in self.learners if m != member))

    def without(self, member: MemberId) -> Members:
        return Members(
            tuple(m for m in self.voters if m != member),
            tuple(m for m in self.learners if m != member),
        )


class MemberRows:
    """The lists that the log holds, with the sequences of their records; the last is in force."""

    __slots__ = ("rows",)

    def __init__(self, rows: tuple[tuple[int, Members], ...] = ()) -> None:
        self.rows: list[tuple[int, Members]] = list(rows)

    @property
    def now(self) -> Members:
        """The list in force."""
        return self.rows[-1][1] if self.rows else Members()

    @property
    def set_at(self) -> int:
        """The sequence of its record; 0 before the first."""
        return self.rows[-1][0] if self.rows else 0

    def at(self, sequence: int) -> tuple[tuple[int, Members], ...]:
        """Return the row in force after that record: what a checkpoint of it must hold."""
        return tuple([row for row in self.rows if row[0] <= sequence][-1:])

    def decides_alone(self, committed: int) -> bool:
        """Does one voter alone decide, by the list in force or by one to which it may go back?"""
        if self.set_at <= committed:
            return len(self.now.voters) == 1
        rows = [*self.at(committed), *(row for row in self.rows if row[0] > committed)]
        return any(len(members.voters) == 1 for _, members in rows)

    def add(self, sequence: int, members: Members) -> None:
        assert sequence > self.set_at
        self.rows.append((sequence, members))

    def cut(self, after: int) -> None:
        """The log now ends with record `after`."""
        while self.rows and self.rows[-1][0] > after:
            self.rows.pop()

    def forget(self, base: int) -> None:
        """Only the last list up to `base` can come back into force."""
        self.rows = [*self.at(base), *[row for row in self.rows if row[0] > base]]
