"""The real client reads in the simulator, while everything breaks and bits rot.

`DfsReader`, with the sources, hedges and retries below it, is blocking code. It runs unchanged in a
thread that has the world to itself: it runs until it waits for something, then the world goes on,
and never both. What it would ask of the operating system (a clock, a sleep, a poll, sockets) is the
world's. Its bytes are compared with what this client's programs wrote, at that very moment: an
error is allowed while things are broken, a wrong byte never.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from mrstream.cluster import retry
from mrstream.cluster.errors import ClusterError, HostUnreachable, Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.identity import Identity
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import FileId
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.client import hedge, reader
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.topology import Place
from tests.simulation.dfs.client import SILENCE, Program, SimClient
from tests.simulation.dfs.master import NAME as MASTER
from tests.simulation.dfs.run import CALM_S, SECONDS, Run
from tests.simulation.dfs.server import SimServer, SimStream

CONNECT_S_MAX = 3.0
TRANSFER_S_MAX = 6.0
DAMAGE = 0.02
"""How many pieces lose a bit on their way."""
ROT = 0.5
"""How often bits rot instead of another fault."""
Wait = Callable[[Callable[[Any], None]], None]
_descriptors = itertools.count(1_000_000)


class Abandoned(BaseException):
    """Nobody waits for this work any more."""


class Handover:
    """Blocking work in a thread that runs only while the world stands still."""

    def __init__(self, work: Callable[[Handover], Any]) -> None:
        self._mine, self._worlds = threading.Semaphore(0), threading.Semaphore(0)
        self._asked: Wait | None = None
        self._given: Any = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def program(self) -> Program:
        """What the client's host runs: the thread, from wait to wait."""
        self._thread.start()
        while True:
            self._asked = None
            self._mine.release()
            self._worlds.acquire()
            if self._asked is None:
                break
            try:
                self._given = yield self._asked
            except GeneratorExit:  # the host has died
                self._is_abandoned = True
                self._mine.release()
                self._thread.join()
                raise
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, what: Wait) -> Any:
        """Let the world go on until it has an answer."""
        self._asked = what
        self._worlds.release()
        self._mine.acquire()
        if self._is_abandoned:
            raise Abandoned
        return self._given

    def _run(self, work: Callable[[Handover], Any]) -> None:
        self._mine.acquire()
        try:
            self._result = work(self)
        except BaseException as error:
            self._error = error
        self._asked = None
        self._worlds.release()


class SimSystem:
    """Clock, sleep, chance and poll of one host, with the faces of the modules that have them."""

    POLLIN = 1

    def __init__(self, client: SimClient, hand: Handover, chance: random.Random) -> None:
        self._client, self._hand = client, hand
        self.uniform = chance.uniform
        self.streams: dict[int, SimReadStream] = {}

    def monotonic(self) -> float:
        return self._client.world.now_s

    def sleep(self, seconds: float) -> None:
        self._hand.wait(self._client._pause(seconds))

    def poll(self) -> SimPoll:
        return SimPoll(self, self._client, self._hand)


class SimPoll:
    """`select.poll` for streams of the simulator."""

    def __init__(self, system: SimSystem, client: SimClient, hand: Handover) -> None:
        self._system, self._client, self._hand = system, client, hand
        self._registered: list[SimReadStream] = []

    def register(self, descriptor: int, events: int) -> None:
        self._registered.append(self._system.streams[descriptor])

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        def wait(resume: Callable[[Any], None]) -> None:
            for stream in self._registered:
                stream.wake = lambda: resume(None)
            self._client.world.at_host(self._client.name, milliseconds / 1000, lambda: resume(None))

        if not any(stream.has_bytes for stream in self._registered):
            self._hand.wait(wait)
        return [(s.fileno(), SimSystem.POLLIN) for s in self._registered if s.has_bytes]


class SimReadStream:
    """A bulk connection of a client: what a chunkserver sends arrives piece by piece or breaks."""

    timeout_s = TRANSFER_S_MAX

    def __init__(self, client: SimClient, hand: Handover, peer: SimServer) -> None:
        self._client, self._hand, self._peer = client, hand, peer
        self._life = peer.incarnation
        self._arrived: list[tuple[Any, bytes]] = []
        self._expected = 0
        self._bytes = b""
        self._descriptor = next(_descriptors)
        self.wake: Callable[[], None] = lambda: None
        self.sock = self

    def fileno(self) -> int:
        return self._descriptor

    @property
    def has_bytes(self) -> bool:
        return bool(self._arrived)

    def send(self, request: p.ReadChunk) -> None:
        world, here = self._client.world, self._client.name
        world.send(here, self._peer.name, lambda: self._serve(request))

    def _serve(self, request: p.ReadChunk) -> None:
        """At the chunkserver; a connection does not outlive its process."""
        peer = self._peer
        if peer.incarnation != self._life or self._expected:
            return
        made = SimStream(peer)
        outcome = peer.guard(lambda: made.send(request))
        if outcome is None:
            return
        pieces: list[tuple[Any, bytes]] = list(made._pieces)
        if not outcome[0]:
            pieces.append((outcome[1], b""))
        self._expected = 1  # a request that comes twice is one request
        for number, piece in enumerate(pieces):
            self._client.world.send(
                peer.name, self._client.name, lambda n=number, q=piece: self._take(n, q)
            )

    def _take(self, number: int, piece: tuple[Any, bytes]) -> None:
        """At the client: in order and once each; after a gap the connection is broken."""
        if number != self._expected - 1:
            return
        self._expected += 1
        message, data = piece
        if data and self._client.chance.random() < DAMAGE and self._client.world.loss:
            damaged = bytearray(data)
            damaged[self._client.chance.randrange(len(data))] ^= 1
            data = bytes(damaged)
        self._arrived.append((message, data))
        self.wake()

    def receive(self, kind: Any) -> Any:
        if not self._arrived:

            def wait(resume: Callable[[Any], None]) -> None:
                self.wake = lambda: resume(None)
                self._client.world.at_host(self._client.name, self.timeout_s, lambda: resume(None))

            self._hand.wait(wait)
        if not self._arrived:
            raise HostUnreachable(f"{self._peer.name} has sent nothing for {self.timeout_s} s")
        message, self._bytes = self._arrived.pop(0)
        if isinstance(message, ClusterError):
            raise message
        return message

    def receive_into(self, view: memoryview) -> None:
        view[:] = self._bytes

    def close(self) -> None:
        self._arrived.clear()
        self._expected = -1


class SimReadPool:
    """Connections of one client to chunkservers; each is used once."""

    def __init__(self, client: SimClient, hand: Handover, system: SimSystem) -> None:
        self._client, self._hand, self._system = client, hand, system

    def address_of(self, server: p.ServerAddress) -> str:
        return server.host

    def idle(self, address: str) -> None:
        return None

    def give_back(self, address: str, stream: SimReadStream) -> None:
        stream.close()

    def connect(self, address: str) -> SimReadStream:
        world, here = self._client.world, self._client.name
        peer = self._client.servers[address]
        is_refused = not world.hosts[address].is_up
        if is_refused or world.is_cut(here, address) or world.is_cut(address, here):
            self._hand.wait(self._client._pause(0.001 if is_refused else CONNECT_S_MAX))
            raise HostUnreachable(f"{address} is not reached")
        self._hand.wait(self._client._pause(0.001))
        stream = SimReadStream(self._client, self._hand, peer)
        self._system.streams[stream.fileno()] = stream
        return stream

    def call(self, address: str, request: p.ChunkLength) -> p.Number:
        peer = self._client.servers[address]

        def act(respond: Callable[[Any], None]) -> None:
            outcome = peer.guard(
                lambda: peer.service._current(request.handle, request.version).length
            )
            if outcome is not None:
                respond(outcome[1])

        answer = self._hand.wait(self._client._send(address, act))
        if answer is SILENCE:
            raise HostUnreachable(f"{address} does not answer")
        if isinstance(answer, ClusterError):
            raise answer
        return p.Number(answer)


class SimConnection:
    """The link to the master."""

    def __init__(self, client: ReadingClient, hand: Handover) -> None:
        self._client, self._hand = client, hand

    def next_number(self) -> int:
        return 0

    def call(self, request: Any, seconds: float, number: int = 0, **more: Any) -> Any:
        assert not request.mutates, "a reader changes nothing"
        client = self._client
        name = client._believes
        asked = client.master.at(name)

        def ask(respond: Callable[[Any], None]) -> None:
            asked.request(client.name, request, (0, 0), respond)

        answer = self._hand.wait(client._send(name, ask))
        client.heard(answer)
        if answer is SILENCE:
            raise HostUnreachable("the master does not answer")
        if isinstance(answer, ClusterError):
            raise answer
        return answer


class ReadingClient(SimClient):
    """Reads its files back between all else that it does."""

    reads = 0
    failures = 0

    def look(self, path: str) -> Program:
        yield from self.read_back(path)
        yield from super().look(path)

    def overwrite(self, path: str, file_id: int) -> Program:
        yield from self.read_back(path)
        yield from super().overwrite(path, file_id)
        yield from self.read_back(path)

    def append_file(self, path: str, length: int) -> Program:
        yield from super().append_file(path, length)
        yield from self.read_back(path)

    def write_file(self, path: str, length: int, *, overwrite: bool = False) -> Program:
        file_id = yield from super().write_file(path, length, overwrite=overwrite)
        yield from self.read_back(path)
        return file_id

    def read_all(self, paths: list[str]) -> Program:
        """Read files whole."""
        for path in paths:
            yield from self.read_back(path, is_whole=True)

    def read_back(self, path: str, *, is_whole: bool = False) -> Program:
        """Read a file of ours whole or in part; whatever comes is what we wrote."""
        start, size = 0, 1 << 30
        if not is_whole and self.chance.random() < 0.5:
            start, size = self.chance.randrange(200_000), self.chance.randint(1, 150_000)
        hand = Handover(lambda h: self._read(h, path, start, size))
        try:
            file_id, content = yield from hand.program()
        except Unavailable:
            self.failures += 1
            return
        self.reads += 1
        self._judge(path, file_id, start, size, content)

    def _read(self, hand: Handover, path: str, start: int, size: int) -> tuple[FileId, bytes]:
        chance = random.Random(self.chance.random())
        client = DfsClient(
            "master:1",
            Identity("cluster", b"secret"),
            place=Place("", "r0"),
            user="me",
            retry=RetryPolicy(total_s=20.0),
        )
        system = SimSystem(self, hand, chance)
        client.chance = chance
        client._connection = SimConnection(self, hand)  # type: ignore[assignment]
        client.pool = SimReadPool(self, hand, system)  # type: ignore[assignment]
        with self._instead_of_the_system(hand, system), reader.DfsReader(client, path) as file:
            return file.status.file_id, file.pread(start, size)

    @contextlib.contextmanager
    def _instead_of_the_system(self, hand: Handover, system: SimSystem) -> Iterator[None]:
        """Only one thread runs at a time, so what it needs is put in place when it goes on."""
        names = [(retry, "time"), (retry, "random"), (reader, "time"), (hedge, "select")]
        wait = hand.wait

        def leave_and_come_back(what: Wait) -> Any:
            for patch in patches:
                patch.stop()
            try:
                return wait(what)
            finally:
                for patch in patches:
                    patch.start()

        patches = [mock.patch.object(owner, name, system) for owner, name in names]
        for patch in patches:
            patch.start()
        hand.wait = leave_and_come_back  # type: ignore[method-assign]
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()

    def _judge(self, path: str, file_id: FileId, start: int, size: int, content: bytes) -> None:
        truth = self.book.files.get(file_id)
        if truth is None or not truth.closed or truth.instead is not None or truth.records:
            return
        expected = bytearray(truth.data[start : start + size])
        found = bytearray(content)
        for from_, to in truth.unsure:
            low, high = max(from_ - start, 0), max(to - start, 0)
            expected[low:high] = bytes(len(expected[low:high]))
            found[low:high] = bytes(len(found[low:high]))
        if found != expected:
            self.book.wrong.append(
                f"{path}: {len(content)} bytes read at {start} are not the {len(expected)} written"
            )


class ReadingRun(Run):
    """A run whose clients read, and in which bits rot at any time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clients: list[ReadingClient] = [  # type: ignore[assignment]
            ReadingClient(self.world, one.number, self.master, self.servers, self.book)
            for one in self.clients
        ]
        self.rotten: list[int] = []

    def _break_something(self) -> None:
        if self.chance.random() >= ROT:
            super()._break_something()
            return
        server = self.rot_some()
        if server is None:
            return
        # One replica is rotten and nobody knows; one more may be out of reach, and the master gone.
        # Were all others away while a writer goes on, the only copy would be the rotten one.
        kind = self.chance.randrange(4)
        other = self.servers[self.chance.choice(sorted(set(self.servers) - {server.name}))]
        if kind == 0 and self.world.hosts[MASTER].is_up:
            self.master.crash()
        elif kind == 1:
            self._cut({(other.name, MASTER), (MASTER, other.name)})
        elif kind == 2:
            other.crash(power_cut=False)
        self.world.run(self.world.now_s + self.chance.uniform(0.5, 6.0))
        self._heal()
        self.world.run(self.world.now_s + 4.0)
        self.scrub()
        self.world.run(self.world.now_s + CALM_S)

    def rot_some(self) -> SimServer | None:
        """Flip a bit in some replicas of one server, where all others are good and in touch."""
        chunks = self.master.brain.tables.chunks
        if not self.master.is_awake or not all(host.is_up for host in self.world.hosts.values()):
            return None
        server = self.servers[self.chance.choice(sorted(self.servers))]
        for handle in sorted(server.store.handles()):
            good = chunks.good(handle) if handle in chunks else []
            length = server.store.get(handle).length
            if len(good) < 3 or not length or self.chance.random() < 0.3:
                continue
            self.rotten.append(handle)
            server.disk.flip_bit(path_of(handle, "data"), self.chance.randrange(length * 8))
            self.world.note(f"bit rot in {handle:x} on {server.name}")
        return server

    def _check_called_short(self) -> None:
        """What rots may be called so while it is replaced."""

    def check(self) -> None:
        """Besides all else: what is whole again is read, every file of it, by the real client."""
        super().check()
        page: p.Page = self._ask(p.FindTree("/", "", 10_000, 0), 3)
        kept = [entry for entry in page.entries if not entry.is_directory]
        one = self.clients[0]
        one.is_done, one.failures = False, 0
        one.run(one.read_all([entry.path for entry in kept]))
        while not one.is_done:
            self.world.run(self.world.now_s + 10.0)
        assert not one.failures, f"{one.failures} of {len(kept)} files cannot be read"


def main() -> None:
    """Replay one seed: python -m tests.simulation.dfs.reading SEED [-v]."""
    logging.disable(logging.CRITICAL)
    simulated = ReadingRun(int(sys.argv[1]))
    try:
        simulated.live(SECONDS)
        simulated.settle()
        simulated.check()
    finally:
        if "-v" in sys.argv:
            print("\n".join(simulated.world.trace))
    reads = sum(client.reads for client in simulated.clients)
    failures = sum(client.failures for client in simulated.clients)
    rotten = len(simulated.rotten)
    print(f"seed {sys.argv[1]}: {reads} reads, {failures} gave up, {rotten} rotten, all well")


if __name__ == "__main__":
    main()
