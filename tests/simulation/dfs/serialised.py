"""Serialised appends in the simulator (EV-08): several clients append to one file while things
break, and read it as it grows.

    python -m tests.simulation.dfs.serialised SEED [-v]

Checked: replicas equal byte for byte; every acknowledged record there exactly once, where its
appender was told; none twice, no fragment, padding only at the end of a chunk; the records of one
appender in its order; whatever a reader saw at any time is a beginning of what there is in the end.
"""

from __future__ import annotations

import logging
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mrstream.cluster.errors import UserError
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle
from mrstream.dfs.errors import BadRequest, ChunkFull, NotPrimary, ReplicaFailed
from tests.simulation.dfs.book import Truth
from tests.simulation.dfs.client import RETRY_S_MAX, SILENCE, GaveUp, Program, SimClient
from tests.simulation.dfs.run import FOUND_S_MAX, SECONDS, SETTINGS, Run

DIRECTORY, PATH = "/exact", "/exact/log"
_HEADER = struct.Struct("<4sHII")
MAGIC = b"SREC"


@dataclass
class Ledger:
    """What appenders and readers know."""

    tried: dict[tuple[int, int], bytes] = field(default_factory=dict)
    acked: dict[tuple[int, int], int] = field(default_factory=dict)
    seen: list[bytearray] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    """Snapshots that were made."""


class Appender(SimClient):
    """A client that appends, snapshots now and then, and reads what is there."""

    ledger: Ledger

    def program(self, until_s: float) -> Program:
        number = 0
        seen = bytearray()
        self.ledger.seen.append(seen)
        while self.world.now_s < until_s:
            yield self._pause(self.chance.uniform(0.01, 0.4))
            action = self.chance.random()
            try:
                if action < 0.70:
                    number += 1
                    yield from self._append(number)
                elif action < 0.97:
                    yield from self._look(seen)
                else:
                    copy = f"{DIRECTORY}/c{self.number}-{number}"
                    yield from self.call(p.Snapshot(PATH, copy, "me"))
                    self.ledger.copies.append(copy)
            except (GaveUp, UserError):
                pass

    def _append(self, number: int) -> Program:
        body = self.chance.randbytes(self.chance.choice([1, 300, 4000, 20_000]))
        record = _HEADER.pack(MAGIC, self.number, number, len(body)) + body
        self.ledger.tried[self.number, number] = record
        grant = yield from self.call(p.AppendTarget(PATH, "me", once=True))
        until_s = self.world.now_s + RETRY_S_MAX
        while True:
            make = partial(self._request, grant, len(record), number)
            answer = yield from self.mutate(grant, record, make)
            if answer[0] == "ok":
                self.ledger.acked[self.number, number] = answer[1]
                return
            if self.world.now_s > until_s:
                raise GaveUp("append")
            full = grant.handle if isinstance(answer[0], ChunkFull) else ChunkHandle(0)
            yield self._pause(self.chance.uniform(0.05, 0.3))
            ask = p.AppendTarget(
                PATH, "me", full, grant.version, answer[1], handle=grant.handle, once=True
            )
            grant = yield from self.call(ask)

    def _request(self, grant: p.ChunkGrant, size: int, number: int, data_id: bytes) -> Any:
        assert grant.serialised, "the rule of the directory is not in the grant"
        return p.AppendRecord(
            grant.handle, grant.version, size, data_id, grant.replicas, grant.chunk_bytes,
            self.number, number, grant.index,
        )  # fmt: skip

    def _look(self, seen: bytearray) -> Program:
        """Read on from where we are, as the real reader does."""
        size = SETTINGS.chunk_bytes
        located = yield from self.call(p.Locate(PATH, len(seen) // size, 1))
        if not located.chunks:
            return
        chunk = located.chunks[0]
        length = chunk.length_bytes
        if chunk.is_open:
            assert chunk.serialised
            for address in chunk.replicas:
                answer = yield from self._ask(
                    address.server, lambda s: s.service.agreed_length(chunk.handle, chunk.version)
                )
                length = max(length, answer or 0)
        start = len(seen) % size
        if start >= length or not chunk.replicas:
            return
        address = self.chance.choice(chunk.replicas)

        def read(server: Any) -> bytes:
            replica = server.service._current(chunk.handle, chunk.version)
            return bytes(server.store.read(replica, start, length - start))

        seen += (yield from self._ask(address.server, read)) or b""

    def _ask(self, name: str, question: Callable[[Any], Any]) -> Program:
        """What a chunkserver says; None if nothing is heard of it."""

        def act(respond: Callable[[Any], None]) -> None:
            outcome = self.servers[name].guard(lambda: question(self.servers[name]))
            if outcome is not None:
                respond(outcome)

        answer = yield self._send(name, act)
        return None if answer is SILENCE or not answer[0] else answer[1]


class SerialisedRun(Run):
    """One seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, clients=2 + seed % 3)
        self.ledger = Ledger()
        self._short_since_s: dict[tuple[int, int], float] = {}
        self.clients = [
            Appender(self.world, number, self.master, self.servers, self.book)
            for number in range(1, len(self.clients) + 1)
        ]
        for client in self.clients:
            client.ledger = self.ledger  # type: ignore[attr-defined]

    def _make_shared(self) -> None:
        self._ask(p.MakeDirectory(DIRECTORY, "me"), 1)
        self._ask(p.SetPolicy(DIRECTORY, "me", appends=1), 2)
        opened = self._ask(p.CreateFile(PATH, "c0", "me"), 3)
        self._ask(p.CloseFile(opened.status.file_id, opened.epoch, 0), 4)
        self.book.files[opened.status.file_id] = Truth(closed=False)

    def _check_called_short(self) -> None:
        """As for any file; but that a short replica was just replaced, its server says in a moment:
        here failures leave short ones, and a chunk that many wait for is cloned at once."""
        tables = self.master.brain.tables
        short = [
            (handle, index)
            for handle, replicas in tables.chunks._odd.items()
            for index, replica in replicas.items()
            if replica.state == "short" and self._is_whole_at(index, handle)
        ]
        since_s = self._short_since_s
        self._short_since_s = {one: since_s.get(one, self.world.now_s) for one in short}
        for one, at_s in self._short_since_s.items():
            assert self.world.now_s - at_s < FOUND_S_MAX, f"{one} is whole and called short"

    def _check_contents(self) -> None:
        nodes = self.master.brain.space.nodes
        row = nodes.lookup(tuple(PATH[1:].encode().split(b"/")))
        assert row is not None and self.ledger.acked, "a run without appends proves nothing"
        content = self._copies(row, Truth())["first"]
        self._check_records(content)
        for seen in self.ledger.seen:
            assert content.startswith(seen), "a reader saw what is not there any more"
        for path in self.ledger.copies:
            copy = nodes.lookup(tuple(path[1:].encode().split(b"/")))
            if copy is not None:
                assert content.startswith(self._copies(copy, Truth())["first"]), f"{path} differs"

    def _check_records(self, content: bytes) -> None:
        size = SETTINGS.chunk_bytes
        found: dict[tuple[int, int], int] = {}
        last: dict[int, int] = {}
        at = 0
        while at < len(content):
            edge = min(len(content), at - at % size + size)
            if not any(content[at:edge]):
                assert edge % size == 0, f"padding at {at} in the middle of a chunk"
                at = edge
                continue
            magic, client, number, length = _HEADER.unpack_from(content, at)
            assert magic == MAGIC, f"a fragment at {at}"
            record = content[at : at + _HEADER.size + length]
            assert record == self.ledger.tried[client, number], f"a wrong record at {at}"
            assert (client, number) not in found, f"{client}, {number} is there twice"
            assert number > last.get(client, 0), f"{client}, {number} is out of its order"
            found[client, number], last[client] = at, number
            at += len(record)
        for key, offset in self.ledger.acked.items():
            assert found.get(key) == offset, f"{key}: told {offset}, is at {found.get(key)}"


# --- directed histories


class Directed:
    """A calm file system with three servers and one file; appends are made by hand."""

    def __init__(self) -> None:
        self.run = SerialisedRun(1)
        self.spare = self.run.servers["s4"]
        self.spare.crash(power_cut=False)
        self.run.world.run(6.0)
        self.run._make_shared()
        self._number = 10
        self.grant: p.ChunkGrant = self.target()

    def target(self, **fields: Any) -> p.ChunkGrant:
        self._number += 1
        ask = p.AppendTarget(PATH, "me", once=True, **fields)
        grant: p.ChunkGrant = self.run._ask(ask, self._number)
        return grant

    def target_after_failure(self, **fields: Any) -> None:
        """What a client asks for when an append failed."""
        self.grant = self.target(version=self.grant.version, handle=self.grant.handle, **fields)

    @property
    def primary(self) -> Any:
        return self.run.servers[self.grant.primary]

    @property
    def secondaries(self) -> list[Any]:
        names = [address.server for address in self.grant.replicas]
        return [self.run.servers[name] for name in names if name != self.grant.primary]

    def append(self, appender: int, number: int, data: bytes) -> Any:
        """The offset, or the error."""
        data_id = f"{appender}-{number}-{self._number}".encode()
        for address in self.grant.replicas:
            self.run.servers[address.server].push(data_id, data)
        ask = p.AppendRecord(
            self.grant.handle, self.grant.version, len(data), data_id, self.grant.replicas,
            self.grant.chunk_bytes, appender, number, self.grant.index,
        )  # fmt: skip
        return self.primary.mutate(ask)[1]

    def contents(self) -> set[bytes]:
        """The chunk as its replicas have it."""
        servers = [self.run.servers[address.server] for address in self.grant.replicas]
        replicas = [server.store.get(self.grant.handle) for server in servers]
        return {bytes(replica.read(0, 1 << 30)) for replica in replicas}


def primary_fails_alone() -> None:
    """It has less than the others: what it would order next lies where they have something."""
    d = Directed()
    assert d.append(1, 1, b"first") == 0
    room, d.primary.disk.capacity_bytes = d.primary.disk.capacity_bytes, 1
    assert isinstance(d.append(1, 2, b"lost"), ReplicaFailed)
    d.primary.disk.capacity_bytes = room
    assert isinstance(d.append(2, 1, b"other"), NotPrimary)
    d.target_after_failure()
    assert d.append(2, 1, b"other") == 5
    assert d.append(1, 2, b"lost") == 10
    assert d.contents() == {b"firstotherlost"}


def secondary_fails_alone() -> None:
    """It has less than the others, which are cut; the repeat comes after somebody else's."""
    d = Directed()
    assert d.append(1, 1, b"first") == 0
    other = d.secondaries[0]
    d.run.world.cut[d.primary.name, other.name] = None
    assert isinstance(d.append(1, 2, b"again"), ReplicaFailed)
    assert d.primary.service.agreed_length(d.grant.handle, 1) == 5
    d.run.world.cut.clear()
    d.target_after_failure()
    assert len(d.grant.replicas) == 3
    assert d.append(2, 1, b"other") == 5
    assert d.append(1, 2, b"again") == 10
    assert d.contents() == {b"firstotheragain"}


def answer_is_lost() -> None:
    """All have it, and nobody knows: the repeat finds it where it is."""
    d = Directed()
    other = d.secondaries[0]
    d.run.world.cut[other.name, d.primary.name] = None
    assert isinstance(d.append(1, 1, b"there"), ReplicaFailed)
    d.run.world.cut.clear()
    d.target_after_failure()
    assert d.append(1, 1, b"there") == 0
    assert isinstance(d.append(1, 1, b"other bytes"), BadRequest)
    assert d.append(1, 2, b"next") == 5
    assert isinstance(d.append(1, 1, b"there"), BadRequest)
    assert d.contents() == {b"therenext"}


def repeated_in_the_next_chunk() -> None:
    """The answer was lost, and others went on to the chunk behind it."""
    d = Directed()
    size = d.grant.chunk_bytes // 4
    assert d.append(1, 1, b"early") == 0
    full = d.append(2, 1, bytes(size))
    for number in range(2, 5):
        full = d.append(2, number, bytes(size))
    assert isinstance(full, ChunkFull)
    d.grant = d.target(full=d.grant.handle, version=d.grant.version, handle=d.grant.handle)
    assert d.grant.index == 1
    assert d.append(1, 1, b"early") == 0
    assert d.append(2, 4, bytes(size)) == d.grant.chunk_bytes
    assert d.contents() == {bytes(size)}


def repeated_at_a_clone() -> None:
    """The replica that noted the append is gone, and one that was copied from it leads."""
    d = Directed()
    assert d.append(1, 1, b"noted") == 0
    lost, kept = d.secondaries
    lost.crash(power_cut=False)
    d.spare.start()
    d.run.world.run(d.run.world.now_s + 60.0)
    assert d.grant.handle in d.spare.store.handles()
    for server in (d.primary, kept):
        server.crash(power_cut=False)
    d.run.world.run(d.run.world.now_s + 10.0)
    d.target_after_failure()
    assert d.append(1, 1, b"noted") == 0
    assert d.contents() == {b"noted"}


DIRECTED = [
    primary_fails_alone, secondary_fails_alone, answer_is_lost, repeated_in_the_next_chunk,
    repeated_at_a_clone,
]  # fmt: skip


def main() -> None:
    """Replay one seed."""
    logging.disable(logging.CRITICAL)
    seed, verbose = int(sys.argv[1]), "-v" in sys.argv
    run = SerialisedRun(seed)
    try:
        run.live(SECONDS)
        run.settle()
        run.check()
    finally:
        if verbose:
            print("\n".join(run.world.trace))
    print(f"seed {seed}: {run.world.events} events, {len(run.ledger.acked)} appends, all well")


if __name__ == "__main__":
    main()
