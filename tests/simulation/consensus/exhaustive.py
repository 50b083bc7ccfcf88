"""Every history of a small group, not some: `python -m tests.simulation.consensus.exhaustive`.

Three members, a few epochs, records and crashes. Any message may come next, late, or never; any
member may stand, sync, write or crash at any moment. States that were seen are not looked at again.

No rule about time takes part: nobody asks before it stands, nobody keeps a promise. What may happen
here is therefore more than what may happen in life, and C1, C2 and C3 must hold all the same: the
log's safety needs no clock.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.ballot import Ballot
from mrstream.cluster.consensus.epochs import Epochs
from mrstream.cluster.consensus.leading import Progress
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, MemberRows, Members
from mrstream.cluster.consensus.messages import AppendLog, Voted
from mrstream.cluster.consensus.records import EpochBegan, decode_own
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.state import NOBODY, Remembered, State

NAMES = tuple(MemberId(f"{name}/1") for name in "abc")
TIMING = Timing(lease_s=1e9, beat_s=1.0)
MEMBERS = Members(NAMES)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the search goes."""

    epochs: int = 2
    """Elections that are begun."""
    records: int = 1
    """Records that clients bring; each leader adds its own."""
    crashes: int = 1
    beats: int = 1
    messages: int = 6
    """Messages under way at a time; of more the oldest are lost."""
    is_lean: bool = False
    """Refusals and beats are always lost, and every write is synced at once: much smaller, and
    still the core of Raft."""


class Disk(NamedTuple):
    """What a member has written: (epoch, payload) from record 1 on, and how much is synced."""

    log: tuple[tuple[int, bytes], ...] = ()
    synced: int = 0
    epoch: int = 1
    voted_for: MemberId = NOBODY
    committed: int = 0


class Spent(NamedTuple):
    epochs: int = 0
    records: int = 0
    crashes: int = 0
    beats: int = 0


class World(NamedTuple):
    """One state of everything; `replicas` are copied before they are changed."""

    replicas: tuple[Replica, ...]
    disks: tuple[Disk, ...]
    messages: tuple[tuple[int, int, Any], ...] = ()
    leaders: tuple[tuple[int, int], ...] = ()
    votes: tuple[tuple[int, int, MemberId], ...] = ()
    committed: tuple[tuple[int, bytes], ...] = ()
    spent: Spent = Spent()


def timeless(kind: type[Ballot]) -> type[Ballot]:
    """The ballot without the rules about time."""

    class Timeless(kind):  # type: ignore[misc,valid-type]
        def ask(self, now_s: float) -> None:
            self.stand(now_s)

        def _is_promised(self, now_s: float) -> bool:
            return False

    return Timeless


class Search:
    """A walk through all states within bounds."""

    def __init__(
        self, bounds: Bounds, kind: type[Replica] = Replica, forgets_votes: bool = False
    ) -> None:
        self._bounds = bounds
        self._forgets_votes = forgets_votes
        self._kind = type("Timeless", (kind,), {"ballot_kind": timeless(kind.ballot_kind)})
        self.states = 0

    def start(self) -> World:
        disk = Disk()
        return World(tuple(self._replica(name, disk) for name in NAMES), (disk,) * len(NAMES))

    def _replica(self, me: MemberId, disk: Disk) -> Replica:
        rows = []
        for at, (epoch, _) in enumerate(disk.log, 1):
            if epoch > (rows[-1][1] if rows else 1):
                rows.append((at, epoch))
        found = Remembered(
            epoch=disk.epoch,
            voted_for=NOBODY if self._forgets_votes else disk.voted_for,
            base_epoch=1,
            epochs=tuple(rows),
            members=((0, MEMBERS),),
            last=len(disk.log),
            committed=0,
        )
        return self._kind(me, found, TIMING, _Fixed(), 0.0)

    # --- walking

    def run(self, seconds_max: float = 1e9) -> bool:
        """Look at every state, deepest first; False if the time was over before."""
        until_s = time.monotonic() + seconds_max
        first = self.start()
        seen = {key_of(first)}
        stack = [first]
        while stack:
            world = stack.pop()
            self.states += 1
            if self.states % 256 == 0 and time.monotonic() > until_s:
                return False
            for after in self._steps(world):
                key = key_of(after)
                if key not in seen:
                    seen.add(key)
                    stack.append(after)
        return True

    def _steps(self, world: World) -> Iterator[World]:
        bounds, spent = self._bounds, world.spent
        for at, (_, to, word) in enumerate(world.messages):
            rest = world.messages[:at] + world.messages[at + 1 :]
            event = e.Received(NAMES[world.messages[at][0]], word)
            yield self._handle(world._replace(messages=rest), to, event)
        for who, (replica, disk) in enumerate(zip(world.replicas, world.disks, strict=True)):
            if disk.synced < len(disk.log) or replica.synced < disk.synced:
                synced = disk._replace(synced=len(disk.log))
                event = e.Synced(len(disk.log), replica.state.era)
                yield self._handle(_with_disk(world, who, synced), who, event)
            if replica.is_leading:
                if spent.records < bounds.records:
                    more = world._replace(spent=spent._replace(records=spent.records + 1))
                    payload = bytes([48 + spent.records])
                    yield self._handle(more, who, e.Proposed((payload,)))
                if spent.beats < bounds.beats:
                    more = world._replace(spent=spent._replace(beats=spent.beats + 1))
                    yield self._handle(more, who, e.Tick(), beat=True)
            elif spent.epochs < bounds.epochs and (spent.epochs or who == 0):
                # The first to stand is called a: all three are alike until then.
                more = world._replace(spent=spent._replace(epochs=spent.epochs + 1))
                yield self._handle(more, who, e.Tick())
            if spent.crashes < bounds.crashes:
                yield self._crash(world, who)

    def _crash(self, world: World, who: int) -> World:
        """Lose what is not synced, and start again."""
        disk = world.disks[who]
        disk = disk._replace(log=disk.log[: disk.synced])
        replicas = list(world.replicas)
        replicas[who] = self._replica(NAMES[who], disk)
        spent = world.spent._replace(crashes=world.spent.crashes + 1)
        return _with_disk(world, who, disk)._replace(replicas=tuple(replicas), spent=spent)

    def _handle(self, world: World, who: int, event: e.Event, beat: bool = False) -> World:
        replica = clone(world.replicas[who])
        if isinstance(event, e.Tick):
            replica.state.stand_at_s = 0.0
            if beat:
                assert replica._leading is not None
                replica._leading.beat_at_s = 0.0
        commands = replica.handle(event, 0.0)
        replica.check_invariants()
        replicas = list(world.replicas)
        replicas[who] = replica
        world = world._replace(replicas=tuple(replicas))
        for command in commands:
            if not (self._bounds.is_lean and is_idle(command)):
                world = self._do(world, who, command)
        check(world, who)
        disk = world.disks[who]
        if self._bounds.is_lean and disk.synced < len(disk.log):
            world = _with_disk(world, who, disk._replace(synced=len(disk.log)))
            return self._handle(world, who, e.Synced(len(disk.log), replica.state.era))
        if len(world.messages) > self._bounds.messages:
            world = world._replace(messages=world.messages[-self._bounds.messages :])
        return world

    def _do(self, world: World, who: int, command: c.Command) -> World:
        disk = world.disks[who]
        match command:
            case c.SaveBallot():
                saved = disk._replace(epoch=command.epoch, voted_for=command.voted_for)
                return _with_disk(world, who, saved)
            case c.Write():
                log = list(disk.log)
                for payload in command.records:
                    own = decode_own(payload)
                    before = log[-1][0] if log else 1
                    log.append((own.epoch if isinstance(own, EpochBegan) else before, payload))
                return _with_disk(world, who, disk._replace(log=tuple(log)))
            case c.Cut():
                for at in range(command.after, min(len(disk.log), len(world.committed))):
                    assert disk.log[at] != world.committed[at], f"C2: {NAMES[who]} cuts {at + 1}"
                cut = disk._replace(
                    log=disk.log[: command.after], synced=min(disk.synced, command.after)
                )
                return _with_disk(world, who, cut)
            case c.Send():
                return _send(world, who, command.to, command.word)
            case c.SendLog():
                records = tuple(p for _, p in disk.log[command.previous : command.last])
                word = AppendLog(
                    command.epoch,
                    command.previous,
                    command.previous_epoch,
                    command.committed,
                    0.0,
                    records,
                )
                return _send(world, who, command.to, word)
            case c.Committed():
                return _commit(world, who, command.sequence)
            case _:
                return world


def is_idle(command: c.Command) -> bool:
    """Would nothing be decided without it?"""
    if isinstance(command, c.SendLog):
        return command.last == command.previous
    return (
        isinstance(command, c.Send)
        and isinstance(command.word, Voted)
        and (not command.word.granted)
    )


class _Fixed(Random):
    """Chance without chance."""

    def uniform(self, a: float, b: float) -> float:
        return a


def _with_disk(world: World, who: int, disk: Disk) -> World:
    disks = list(world.disks)
    disks[who] = disk
    return world._replace(disks=tuple(disks))


def _send(world: World, who: int, to: MemberId, word: Any) -> World:
    if isinstance(word, Voted) and word.granted:
        votes = [vote for vote in world.votes if vote[:2] == (who, word.wanted)]
        assert all(vote[2] == to for vote in votes), f"C1: {NAMES[who]} votes twice"
        if not votes:
            votes_now = tuple(sorted((*world.votes, (who, word.wanted, to))))
            world = world._replace(votes=votes_now)
    message = (who, NAMES.index(to), word)
    if message in world.messages:
        return world
    return world._replace(messages=(*world.messages, message))


def _commit(world: World, who: int, sequence: int) -> World:
    log = world.disks[who].log
    shared = min(sequence, len(world.committed))
    assert log[:shared] == world.committed[:shared], f"C2: {NAMES[who]} commits another log"
    if world.replicas[who].is_leading:
        holders = [d for d in world.disks if d.log[:sequence][: d.synced] == log[:sequence]]
        assert len(holders) >= 2, f"C3: {NAMES[who]} commits {sequence} on {len(holders)} disks"
    if sequence > len(world.committed):
        return world._replace(committed=log[:sequence])
    return world


def check(world: World, who: int) -> None:
    """C1 and C2 of one state, after something happened to one member."""
    replica = world.replicas[who]
    if replica.is_leading:
        for other, rival in enumerate(world.replicas):
            is_rival = other != who and rival.is_leading and rival.epoch == replica.epoch
            assert not is_rival, f"C1: {NAMES[who]} and {NAMES[other]} lead {replica.epoch}"
        if replica.epoch > max((epoch for epoch, _ in world.committed), default=0):
            log = world.disks[who].log
            assert log[: len(world.committed)] == world.committed, (
                f"C2: {NAMES[who]} leads {replica.epoch} without what is committed"
            )
    mine = world.disks[who].log
    for disk in world.disks:
        for at in range(min(len(mine), len(disk.log)) - 1, -1, -1):
            if mine[at][0] == disk.log[at][0]:
                assert mine[: at + 1] == disk.log[: at + 1], "C2: same epoch, another prefix"
                break


_all_of_state = attrgetter(*(field.name for field in fields(State)))
_all_of_progress = attrgetter(*(field.name for field in fields(Progress)))


def clone(replica: Replica) -> Replica:
    """Return another replica that knows the same."""
    twin = object.__new__(type(replica))
    state = replica.state
    epochs = Epochs(state.epochs.base, state.epochs.base_epoch, (), state.epochs.last)
    epochs.rows = list(state.epochs.rows)
    members = MemberRows(tuple(state.members.rows))
    new = State(*_all_of_state(state))
    new.epochs, new.members, new.out = epochs, members, []
    twin._state = new
    twin._ballot = replica.ballot_kind(new)
    twin._ballot._granted = dict(replica._ballot._granted)
    twin._following = replica.following_kind(new)
    twin._leading = twin._changing = twin._transferring = None
    twin.story = _Silent()  # type: ignore[assignment]
    if replica._leading is not None:
        leading = object.__new__(type(replica._leading))
        leading.__dict__.update(replica._leading.__dict__)
        leading._state = new
        leading.progress = {
            m: Progress(*_all_of_progress(p)) for m, p in replica._leading.progress.items()
        }
        twin._leading = leading
        twin._changing = replica.changing_kind(new, leading)
        twin._transferring = replica.transferring_kind(new, leading)
    return twin


class _Silent:
    def add(self, *_: object) -> None:
        pass


def key_of(world: World) -> int:
    """A number for the state, as far as it matters for what comes."""
    parts: list[Any] = []
    for replica, disk in zip(world.replicas, world.disks, strict=True):
        state, leading = replica.state, replica._leading
        progress = (
            ()
            if leading is None
            else tuple((p.next, p.synced, p.under_way) for p in leading.progress.values())
        )
        granted = tuple(sorted(replica._ballot._granted))
        parts.append(
            (
                disk, state.role.value, state.epoch, state.voted_for, state.leader, state.synced,
                state.committed, state.verified, granted, progress,
            )
        )  # fmt: skip
    messages = frozenset(world.messages)
    return hash((tuple(parts), messages, world.votes, world.committed, world.spent))


GATE = (
    Bounds(epochs=2, records=1, crashes=0, beats=0, messages=4, is_lean=True),
    Bounds(epochs=3, records=0, crashes=0, beats=0, messages=3, is_lean=True),
    Bounds(epochs=2, records=1, crashes=1, beats=0, messages=2, is_lean=True),
)
WHOLE = (
    Bounds(epochs=2, records=1, crashes=1, beats=0, messages=3, is_lean=True),
    Bounds(epochs=3, records=1, crashes=0, beats=0, messages=3, is_lean=True),
    Bounds(epochs=3, records=1, crashes=2, beats=0, messages=3, is_lean=True),
    Bounds(epochs=2, records=1, crashes=1, beats=1, messages=3),
    Bounds(epochs=3, records=1, crashes=2, beats=1, messages=5),
)
"""With each leader's own record, at most four records of at most three epochs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="exhaustive", description=__doc__)
    parser.add_argument("--whole", action="store_true", help="all of it: minutes to hours")
    parser.add_argument("--minutes", type=float, default=1e6, help="for each bound, at most")
    chosen = parser.parse_args()
    for bounds in WHOLE if chosen.whole else GATE:
        search = Search(bounds)
        began_s = time.monotonic()
        said = "all of them" if search.run(chosen.minutes * 60) else "not all of them"
        took_s = time.monotonic() - began_s
        print(f"{bounds}: {search.states:,} states in {took_s:.0f} s, {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
