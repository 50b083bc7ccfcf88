"""Clients in the simulator: programs that write, append, overwrite, look, rename and delete, note
what was acknowledged, and try again as the real client does.

A program is a generator: it yields a message to send and gets the answer (or a ClusterError, or
SILENCE) when it is resumed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from mrstream.cluster.consensus.standing import NotLeader
from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, Epoch, FileId, ServerId
from mrstream.dfs.errors import ChunkFull, ReplicaFailed, WriterFenced
from tests.simulation.dfs import objects
from tests.simulation.dfs.book import Book, Look, Operation, Truth
from tests.simulation.dfs.master import SimMaster
from tests.simulation.dfs.server import SimServer
from tests.simulation.world import World

ANSWER_S_MAX = 6.0
RETRY_S_MAX = 90.0
Program = Generator[Callable[[Callable[[Any], None]], None], Any, Any]


SILENCE = object()
"""What is had in place of an answer (which may well be None) when none comes."""


class GaveUp(Exception):
    """Nobody answered for as long as a client is patient."""


class SimClient:
    """One client host and its programs."""

    def __init__(
        self,
        world: World,
        number: int,
        master: SimMaster,
        servers: dict[str, SimServer],
        book: Book,
    ) -> None:
        self.world = world
        self.name = f"c{number}"
        self.number = number
        self.master = master
        self.servers = servers
        self.book = book
        self.chance = random.Random(f"{world.seed}-client-{number}")
        self._request_number = 0
        self._data_number = 0
        self.is_done = False
        self._believes = master.names[0]

    # --- running a program

    def run(self, program: Program) -> None:
        self._step(program, None)

    def _step(self, program: Program, value: Any) -> None:
        try:
            wait = program.send(value)
        except StopIteration:
            self.is_done = True
            return
        settled: list[bool] = []

        def resume(answer: Any) -> None:
            if not settled:
                settled.append(True)
                self._step(program, answer)

        wait(resume)

    def _send(
        self, target: str, action: Callable[[Callable[[Any], None]], None]
    ) -> Callable[[Callable[[Any], None]], None]:
        """A message to a host; resumed with its answer, or with SILENCE after a while."""

        def wait(resume: Callable[[Any], None]) -> None:
            def respond(value: Any) -> None:
                self.world.send(target, self.name, lambda: resume(value))

            self.world.send(self.name, target, lambda: action(respond))
            self.world.at_host(self.name, ANSWER_S_MAX, lambda: resume(SILENCE))

        return wait

    def _pause(self, seconds: float) -> Callable[[Callable[[Any], None]], None]:
        return lambda resume: self.world.at_host(self.name, seconds, lambda: resume(None))

    # --- the master

    @property
    def next_id(self) -> tuple[int, int]:
        """The id that the next request will have."""
        return (self.number, self._request_number + 1)

    def call(self, request: Any) -> Program:
        """Ask until there is an answer; raise what is refused for good."""
        self._request_number += 1
        request_id = (self.number, self._request_number)
        operation = Operation(request, request_id, self.world.now_s)
        if request.mutates:
            self.book.operations.append(operation)
        until_s = self.world.now_s + RETRY_S_MAX

        while True:
            asked = self.master.at(self._believes)

            def ask(respond: Callable[[Any], None], asked: Any = asked) -> None:
                asked.request(self.name, request, request_id, respond)

            answer = yield self._send(self._believes, ask)
            self.heard(answer)
            if answer is not SILENCE and not isinstance(answer, Unavailable):
                operation.returned_at_s = self.world.now_s
                if isinstance(answer, ClusterError):
                    is_opening = isinstance(request, p.CreateFile | p.OpenAppend)
                    is_over = is_opening and isinstance(answer, WriterFenced)
                    operation.outcome = "over" if is_over else "refused"
                    raise answer
                operation.outcome = "done"
                return answer if answer != () else ()
            if self.world.now_s > until_s:
                raise GaveUp(f"{request}: {answer}")
            yield self._pause(self.chance.uniform(0.1, 1.0))

    def heard(self, answer: Any) -> None:
        """Whoever is silent, or does not lead, is not asked next time, if there are others."""
        if (answer is SILENCE or isinstance(answer, NotLeader)) and self.master.names[1:]:
            self._believes = self.chance.choice(self.master.names)

    # --- mutations

    def _push(self, grant: p.ChunkGrant, data: bytes) -> tuple[bytes, ServerId | None]:
        self._data_number += 1
        data_id = f"{self.name}-{self._data_number}".encode()
        source = self.name
        for address in grant.replicas:
            server = self.servers[address.server]
            host = self.world.hosts[address.server]
            if (
                not self.world.can_reach(source, address.server)
                or host.stopped_until_s > self.world.now_s
                or self.chance.random() < self.world.loss
            ):
                return data_id, address.server
            server.push(data_id, data)
            source = address.server
        return data_id, None

    def mutate(self, grant: p.ChunkGrant, data: bytes, make: Callable[[bytes], Any]) -> Program:
        """Push and have the primary apply: the answer, or (error, servers that failed)."""
        data_id, failed = self._push(grant, data)
        if failed is not None:
            yield self._pause(0.01)
            return Unavailable(f"push to {failed} failed"), (failed,)
        primary = self.servers[grant.primary]
        request = make(data_id)

        def act(respond: Callable[[Any], None]) -> None:
            others = [
                s.name for s in self.servers.values()
                if s is not primary and s.acts_on_lease(grant.handle)
            ]  # fmt: skip
            outcome = primary.mutate(request)
            if outcome is None:
                return
            ok, value = outcome
            if ok and others and primary.acts_on_lease(grant.handle):
                self.book.wrong.append(
                    f"two primaries of {grant.handle}: {primary.name} and {others}"
                )
            respond(("ok", value) if ok else value)

        answer = yield self._send(grant.primary, act)
        if isinstance(answer, tuple):
            return answer
        if answer is SILENCE:
            return Unavailable("no answer"), (grant.primary,)
        if isinstance(answer, ReplicaFailed):
            return answer, tuple(answer.details.get("servers", ()))
        return answer, ()

    def write_at(
        self,
        opened: p.OpenFile | None,
        path: str,
        grant: p.ChunkGrant,
        pieces: list[tuple[int, bytes]],
        durable: bool = True,
    ) -> Program:
        """Have the last of these pieces on all replicas of a chunk; those before it are there, but
        perhaps in caches only, so after a failure all are sent again. Return the grant in force."""
        until_s = self.world.now_s + RETRY_S_MAX
        todo = pieces[-1:]
        while True:
            answer: Any = ("ok", None)
            for offset, data in todo:
                is_last = offset == pieces[-1][0]
                make = partial(_write_request, grant, offset, len(data), durable or not is_last)
                answer = yield from self.mutate(grant, data, make)
                if answer[0] != "ok":
                    break
            if answer[0] == "ok":
                return grant
            if self.world.now_s > until_s:
                raise GaveUp(f"write: {answer[0]}")
            todo = pieces
            yield self._pause(self.chance.uniform(0.05, 0.5))
            file_id = opened.status.file_id if opened is not None else FileId(0)
            epoch = opened.epoch if opened is not None else Epoch(0)
            grant = yield from self.call(
                p.FindLease(path, grant.index, file_id, epoch, grant.version, answer[1])
            )

    # --- whole operations

    def write_file(self, path: str, length: int, *, overwrite: bool = False) -> Program:
        """Create, write, close; return the file's id."""
        opened = yield from self.call(
            p.CreateFile(path, self.name, "me", overwrite=overwrite, first_chunk=True)
        )
        truth = self.book.files[opened.status.file_id] = Truth()
        yield from self._extend(opened, truth, length, opened.grant)
        return opened.status.file_id

    def append_file(self, path: str, length: int) -> Program:
        """Open at the end, write, close."""
        opened = yield from self.call(p.OpenAppend(path, self.name, "me"))
        truth = self.book.files[opened.status.file_id]
        if len(truth.data) > opened.status.length_bytes:
            del truth.data[opened.status.length_bytes :]
        truth.closed = False
        yield from self._extend(opened, truth, length, None)

    def _extend(
        self,
        opened: p.OpenFile,
        truth: Truth,
        length: int,
        grant: p.ChunkGrant | None,
        ending: dict[str, Any] | None = None,
    ) -> Program:
        size = opened.status.chunk_bytes
        file_id, epoch = opened.status.file_id, opened.epoch
        position = opened.status.length_bytes
        if len(truth.data) != position or truth.acked > position:
            self.book.wrong.append(
                f"{opened.status.path}: opened with {position} bytes, {truth.acked} acknowledged"
            )
        left = length
        pending: list[tuple[int, bytes]] = []
        while left > 0:
            index, offset = divmod(position, size)
            piece = self.chance.randbytes(min(left, size - offset, self.chance.randint(1, size)))
            truth.data += piece
            if grant is None or grant.index != index:
                if offset:
                    grant = yield from self.call(p.FindLease("", index, file_id, epoch))
                else:
                    grant = yield from self.call(p.AllocateChunk(file_id, epoch, index))
            position += len(piece)
            left -= len(piece)
            # Not every write waits for the disks; the last of a chunk and of the file does.
            durable = left == 0 or position % size == 0 or self.chance.random() < 0.5
            pending.append((offset, piece))
            grant = yield from self.write_at(opened, "", grant, pending, durable)
            if durable:
                pending = []
                truth.acked = position
            if self.chance.random() < 0.05:
                yield self._pause(self.chance.uniform(0, 5))
            if self.chance.random() < 0.02:
                raise GaveUp("the writer dies in the middle of the file")
            yield from self.call(p.KeepAlive(self.name, (epoch,)))
        yield from self.call(p.CloseFile(file_id, epoch, position, **(ending or {})))
        truth.closed = True

    def record_append(self, path: str, file_id: int) -> Program:
        """Append one record somewhere at the end; note where."""
        record = self.chance.randbytes(self.chance.randint(1, 4000))
        yield from self.append_to(path, file_id, record)

    def append_to(self, path: str, file_id: int, record: bytes) -> Program:
        truth = self.book.files[file_id]
        grant = yield from self.call(p.AppendTarget(path, "me"))
        until_s = self.world.now_s + RETRY_S_MAX
        while True:
            answer = yield from self.mutate(
                grant,
                record,
                partial(_append_request, grant, len(record)),
            )
            if answer[0] == "ok":
                truth.records.append((grant.index * grant.chunk_bytes + answer[1], record))
                return
            if self.world.now_s > until_s:
                raise GaveUp("append")
            full = grant.handle if isinstance(answer[0], ChunkFull) else ChunkHandle(0)
            yield self._pause(self.chance.uniform(0.05, 0.3))
            grant = yield from self.call(p.AppendTarget(path, "me", full, grant.version, answer[1]))

    def overwrite(self, path: str, file_id: int) -> Program:
        """Change some bytes in the middle of a closed file."""
        truth = self.book.files[file_id]
        if not truth.closed or not truth.data:
            return
        size = 2 * 65536
        start = self.chance.randrange(len(truth.data))
        index, offset = divmod(start, size)
        room = min(len(truth.data) - start, size - offset, 5000)
        piece = self.chance.randbytes(self.chance.randint(1, room))
        truth.unsure.append((start, start + len(piece)))
        grant = yield from self.call(p.FindLease(path, index))
        yield from self.write_at(None, path, grant, [(offset, piece)])
        truth.unsure.pop()
        truth.data[start : start + len(piece)] = piece

    def look(self, path: str) -> Program:
        """Stat, and note on which sequence the answer rests."""
        sequences: list[int] = []
        request = p.Stat(path)

        asked = self.master.at(self._believes)

        def ask(respond: Callable[[Any], None]) -> None:
            sequences.append(asked.seen)
            asked.request(self.name, request, (0, 0), respond)

        answer = yield self._send(self._believes, ask)
        if answer is SILENCE or not sequences:
            return
        if len(sequences) > 1:
            return  # repeated on the way: which of the two answered is not known
        if isinstance(answer, UserError):
            self.book.looks.append(Look(path, None, 0, sequences[0]))
        elif not isinstance(answer, ClusterError):
            self.book.looks.append(Look(path, answer.file_id, answer.length_bytes, sequences[0]))

    def program(self, until_s: float) -> Program:
        """Do this and that until the time is over."""
        mine: dict[str, int] = {}
        shared = "/shared"
        count = 0
        while self.world.now_s < until_s:
            yield self._pause(self.chance.uniform(0.01, 0.5))
            action = self.chance.random()
            try:
                if mine and self.chance.random() < 0.25:
                    count += 1
                    yield from objects.act(self, mine, count)
                elif action < 0.30 or not mine:
                    path = f"/{self.name}/f{count}"
                    count += 1
                    length = self.chance.choice([0, 10, 70_000, 131_072, 300_000])
                    mine[path] = yield from self.write_file(path, length)
                elif action < 0.40:
                    path = self.chance.choice(sorted(mine))
                    yield from self.append_file(path, self.chance.choice([1, 60_000, 150_000]))
                elif action < 0.50:
                    path = self.chance.choice(sorted(mine))
                    yield from self.overwrite(path, mine[path])
                elif action < 0.60:
                    path = self.chance.choice(sorted(mine))
                    new = f"/{self.name}/r{count}"
                    count += 1
                    file_id = mine.pop(path)
                    yield from self.call(p.Rename(path, new, "me"))
                    mine[new] = file_id
                elif action < 0.66:
                    path = self.chance.choice(sorted(mine))
                    mine.pop(path)
                    yield from self.call(
                        p.Delete(path, "me", skip_trash=self.chance.random() < 0.5)
                    )
                elif action < 0.72:
                    yield from self._snapshot(mine, count)
                    count += 1
                elif action < 0.82 and self.book.files.get(-1) is not None:
                    yield from self.record_append(shared, -1)
                elif action < 0.90:
                    yield from self.look(self.chance.choice([*sorted(mine), "/contested"]))
                else:
                    yield from self._contend()
            except (GaveUp, WriterFenced, UserError):
                # Files with an uncertain fate are left alone from here on.
                mine = {p_: i for p_, i in mine.items() if self.book.files[i].closed}

    def _snapshot(self, mine: dict[str, int], count: int) -> Program:
        """A copy that shares chunks; then both are changed on their own."""
        path = self.chance.choice(sorted(mine))
        source = self.book.files[mine[path]]
        if not source.closed or source.unsure:
            return
        new = f"/{self.name}/s{count}"
        yield from self.call(p.Snapshot(path, new, "me"))
        status = yield from self.call(p.Stat(new))
        self.book.files[status.file_id] = Truth(bytearray(source.data), source.acked, True)
        self.book.told[status.file_id] = self.book.told.get(mine[path], 0)
        mine[new] = status.file_id

    def _contend(self) -> Program:
        """Fight with the others over one path (fault gate 16)."""
        kind = self.chance.randrange(3)
        if kind == 0:
            opened = yield from self.call(
                p.CreateFile("/contested", self.name, "me", overwrite=self.chance.random() < 0.5)
            )
            self.book.files[opened.status.file_id] = Truth()
            yield from self.call(p.CloseFile(opened.status.file_id, opened.epoch, 0))
        elif kind == 1:
            yield from self.call(p.Delete("/contested", "me", skip_trash=True))
        else:
            yield from self.call(p.Rename("/contested", f"/won-{self.name}", "me", overwrite=True))


def _write_request(
    grant: p.ChunkGrant, offset: int, length_bytes: int, durable: bool, data_id: bytes
) -> p.WriteChunk:
    return p.WriteChunk(
        grant.handle, grant.version, offset, length_bytes, data_id, grant.replicas, durable
    )


def _append_request(grant: p.ChunkGrant, length_bytes: int, data_id: bytes) -> p.AppendRecord:
    return p.AppendRecord(
        grant.handle, grant.version, length_bytes, data_id, grant.replicas, grant.chunk_bytes
    )
