"""What slow clients hold of a server's memory: all of them together, no more than their budget."""

from __future__ import annotations

import contextlib
import socket
import tracemalloc
from collections.abc import Iterator

import pytest

from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.topology import Place
from mrstream.web.http import connection
from mrstream.web.http.budget import Budget
from mrstream.web.http.figures import Figures
from mrstream.web.http.limits import CONNECTION_BYTES, Limits
from mrstream.web.http.reply import Reply, stream_reply
from mrstream.web.http.request import Request
from mrstream.web.http.streams import READER_BYTES, SMALL_BYTES, Files, Reading
from tests.cluster.local import LocalCluster
from tests.cluster.machine import wait_for
from tests.unit.web.raw_http import Served

MIB = 1 << 20
MEMORY_BYTES = 24 * MIB
READERS = 60
FILE_BYTES = 24 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("slow"), 1, dfs={"replication": "1"}) as started:
        with started.client() as client:
            with writer.create(client, "/big") as file:
                for number in range(FILE_BYTES // MIB):
                    file.write(bytes([number]) * MIB)
            with writer.create(client, "/small") as file:
                file.write(b"s" * SMALL_BYTES)
        yield started


class Door:
    """A server of files that remembers whom it serves."""

    def __init__(self, cluster: LocalCluster, wait_s_max: float) -> None:
        self._cluster = cluster
        self.budget = Budget(MEMORY_BYTES, wait_s_max)
        self.files = Files(self._connect, self.budget, Figures())
        self.readings: list[Reading] = []

    def _connect(self, user: str) -> DfsClient:
        client = self._cluster.client()
        client.place = Place()  # as on a gateway's host that has no replica
        return client

    async def __call__(self, request: Request) -> Reply:
        if request.path == "/small":
            found = await self.files.ask("ann", lambda client: client.locate("/small", 0, 1))
            data, sent = await self.files.fetch("ann", "/small", found, 0, SMALL_BYTES)
            return Reply(200, data, over=sent)
        reading = await self.files.open("ann", request.path)
        self.readings.append(reading)
        return stream_reply(reading.take(0, reading.size), reading.size)

    def has_filled_all(self) -> bool:
        """Is each as far ahead of its client as it will go?"""
        return all(each._next is not None and each._next.done() for each in self.readings)


@pytest.fixture
def door(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Door]:
    made = Door(cluster, getattr(request, "param", 0.2))
    yield made
    made.files.close()


def slow(served: Served, target: str) -> socket.socket:
    """A client that asks and takes as good as nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(60)
    made.connect(("127.0.0.1", served.port))
    made.sendall(served.head(f"GET {target} HTTP/1.1"))
    return made


def begun(clients: list[socket.socket]) -> list[int]:
    """Wait until each has the status of its answer."""
    return [int(client.recv(12, socket.MSG_WAITALL).split()[1]) for client in clients]


def leave(served: Served) -> None:
    """Wait until nobody is left."""
    wait_for(lambda: not served.server.connections.count, "all connections have ended")
    wait_for(lambda: not served.server._underway, "all requests are over")


def test_many_slow_readers_together_hold_their_budget_and_no_more(door: Door) -> None:
    """Each held a megabyte more than it was counted for: 1,024 connections could hold half as much
    again as the gateway's memory."""
    limits = Limits(connections=READERS, connections_of_one=READERS)
    with Served(door, limits) as served:
        served.get("/small")  # what is made once is there
        free = door.budget.free_bytes
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            clients = [slow(served, "/big") for _ in range(READERS)]
            statuses = begun(clients)
            wait_for(door.has_filled_all, "all readers are ahead of their clients")
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        served_count = statuses.count(200)
        for client in clients:
            client.close()
        leave(served)
        wait_for(lambda: door.budget.free_bytes == free, "what they held is given back")

    assert set(statuses) == {200, 503}, "more come than there is memory for, and are told"
    assert served_count >= MEMORY_BYTES // 2 // READER_BYTES
    # Those that wait hold their connection alone.
    assert served_count * MIB < peak < MEMORY_BYTES, f"{peak / MIB:.1f} MiB of {served_count}"


def test_a_small_answer_is_counted_until_its_client_has_taken_it(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted while it was fetched, and held for as long as a slow client liked."""
    monkeypatch.setattr(connection, "UNSENT_BYTES", 16 << 10)  # else the kernel has room for it
    with Served(door, Limits(connections_of_one=READERS)) as served:
        full = door.budget.free_bytes
        client = slow(served, "/small")
        assert begun([client]) == [200]
        held = full - door.budget.free_bytes
        taken = 0
        while taken < SMALL_BYTES:
            taken += len(client.recv(1 << 16))
        wait_for(lambda: door.budget.free_bytes == full, "it is given back")
        client.close()

    assert SMALL_BYTES < held <= 4 * SMALL_BYTES


@pytest.mark.parametrize("door", [5.0], indirect=True)  # to wait for memory: all sent by then
def test_a_body_that_nobody_reads_stays_with_its_sender(door: Door) -> None:
    """A request that waits for its turn holds what a connection may hold, whatever it sends."""
    with Served(door, Limits(connections_of_one=READERS)) as served:
        served.get("/small")
        tracemalloc.start()
        try:
            readers = [slow(served, "/big") for _ in range(door.budget.free_bytes // READER_BYTES)]
            assert set(begun(readers)) == {200}  # from now on who comes waits
            wait_for(door.has_filled_all, "all readers are ahead of their clients")
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            senders = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(8)]
            for sender in senders:
                sender.setblocking(False)
                sender.sendall(served.head("GET /big HTTP/1.1", f"Content-Length: {64 * MIB}"))
                with pytest.raises(BlockingIOError):
                    while True:
                        sender.send(bytes(MIB))
            for sender in senders:
                sender.setblocking(True)
                sender.settimeout(60)
            assert begun(senders) == [503] * 8
            with contextlib.suppress(ConnectionResetError):
                for sender in senders:
                    while sender.recv(1 << 16):
                        pass
            more = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        for each in (*readers, *senders):
            each.close()
        leave(served)

    assert more < 8 * 2 * CONNECTION_BYTES, f"{more / MIB:.1f} MiB"
