"""Fault gate 11 on real hosts: partitions that go one way only, and partitions that come and go.

A writer goes on all the while. No write is taken by two primaries, the lease of one that is cut off
is waited out, everything converges, and every acknowledged byte reads back. Nothing here waits for
time to pass: each step follows when what it needs has happened.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator

import pytest

from mrstream.cluster.errors import Unavailable
from mrstream.cluster.retry import RetryPolicy
from mrstream.dfs.client import writer
from mrstream.dfs.client.chunk_writer import Run, ask_primary, push
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import DfsWriter
from mrstream.dfs.protocol import ChunkGrant, WriteChunk
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts, wait_for
from tests.cluster.netns import NetnsHosts

MASTER_HOST = "h1"
PIECE_BYTES = 1000
FLAPS = int(os.environ.get("MRSTREAM_FLAPS", "8"))
LIMIT_S = 180.0
"""Only a net: a crowded machine takes long, a broken one for ever."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[TestHosts]:
    made = NetnsHosts(4)
    yield made
    made.close()


@pytest.fixture(scope="module")
def operator(hosts: TestHosts, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    one = Operator(tmp_path_factory.mktemp("partitions") / "home", hosts)
    settings = {"replication": 3, "dead_after": "5s", "chunk_size": "1MiB"}
    one.good("cluster", "up", "-f", one.write_cluster(dfs=settings))
    return one


@pytest.fixture
def client(hosts: TestHosts, operator: Operator) -> Iterator[DfsClient]:
    retry = RetryPolicy(total_s=LIMIT_S)
    with client_of(operator.cluster(), user="root", retry=retry) as connected:
        yield connected
    hosts.heal()


class SteadyWriter:
    """A file that grows by a piece at a time, each flushed, until it is told to stop."""

    def __init__(self, client: DfsClient) -> None:
        self.file = self._with_a_primary_elsewhere(client)
        self.written = bytearray()
        self.versions: list[tuple[int, int]] = []
        """(chunk, version) under which each piece was acknowledged."""
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write_on)

    def _with_a_primary_elsewhere(self, client: DfsClient) -> DfsWriter:
        """The master's own host cannot be cut off from it."""
        for _ in range(100):
            file = writer.create(client, f"/{uuid.uuid4().hex}")
            if file._grant is not None and file._grant.primary != MASTER_HOST:
                return file
            file.abandon()
        raise AssertionError("every primary is on the master's host")

    @property
    def grant(self) -> ChunkGrant:
        grant = self.file._grant
        assert grant is not None
        return grant

    def write_piece(self) -> None:
        piece = b"%08d," % len(self.versions) * (PIECE_BYTES // 9 + 1)
        self.file.write(piece)
        self.file.flush()
        self.written += piece
        self.versions.append((self.grant.index, self.grant.version))

    def start(self) -> None:
        self._thread.start()

    def _write_on(self) -> None:
        try:
            while not self._stop.is_set():
                self.write_piece()
                self._stop.wait(0.02)  # the file should not grow without end
        except BaseException as error:
            self._error = error

    def wait_for_more(self, count: int) -> None:
        """Return when that many more pieces have been acknowledged."""
        goal = len(self.versions) + count
        wait_for(
            lambda: len(self.versions) >= goal or self._error is not None,
            f"{count} more pieces",
            LIMIT_S,
        )
        assert self._error is None, self._error

    def stop(self) -> bytes:
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the writer hangs"
        assert self._error is None, self._error
        self.file.close()
        return bytes(self.written)


def wait_until(client: DfsClient, host: str, state: str) -> None:
    """Return when the master says so of a host's chunkserver."""

    def state_of() -> str:
        return {one.address.server: one.state for one in client.report().servers}[host]

    wait_for(lambda: state_of() == state, f"{host} is {state}", LIMIT_S)


def converges(operator: Operator, client: DfsClient, steady: SteadyWriter, expected: bytes) -> None:
    """All replicas again, all bytes, versions only ever upwards, a clean fsck."""
    with DfsReader(client, steady.file.status.path) as file:
        assert file.read() == expected
    assert steady.versions == sorted(steady.versions), "acknowledged under an older lease again"
    report = client.report
    wait_for(
        lambda: not (report().under_replicated or report().missing or report().corrupt),
        "all replicas are there",
        LIMIT_S,
    )
    with DfsReader(client, steady.file.status.path) as file:
        assert file.read() == expected
    assert "Status: HEALTHY" in operator.good("dfs", "-fsck", "/", "-compare")


@pytest.mark.parametrize("deaf", ["primary", "master"])
def test_a_primary_on_the_far_side_of_a_one_way_cut_is_fenced(
    hosts: TestHosts, operator: Operator, client: DfsClient, deaf: str
) -> None:
    """Gate 11, asymmetric (GFS-36): one hears the other, not the other way round. The client sees
    both, so that only the end of the lease keeps the old primary from taking its writes."""
    steady = SteadyWriter(client)
    steady.write_piece()
    old = steady.grant
    late = Run(0, len(steady.written), memoryview(b"LATE" * 100))
    push(client, late, old)
    request = WriteChunk(
        old.handle, old.version, late.offset, len(late.data), late.data_id, old.replicas
    )

    hosts.deafen(*(old.primary, MASTER_HOST) if deaf == "primary" else (MASTER_HOST, old.primary))
    wait_until(client, old.primary, "dead")
    with pytest.raises(Unavailable):
        ask_primary(client, old, request)
    while steady.grant.version == old.version:
        steady.write_piece()
    assert steady.grant.primary != old.primary
    with pytest.raises(Unavailable):
        ask_primary(client, old, request)
    hosts.heal()
    wait_until(client, old.primary, "up")
    with pytest.raises(Unavailable):
        ask_primary(client, old, request)
    steady.write_piece()
    steady.file.close()

    converges(operator, client, steady, bytes(steady.written))


def test_partitions_that_come_and_go_neither_stop_a_writer_nor_split_it(
    hosts: TestHosts, operator: Operator, client: DfsClient
) -> None:
    """Gate 11, flapping: master|primary and primary|secondary, both ways and one way, some shorter
    than it takes to notice and some long enough for the primary to be given up."""
    steady = SteadyWriter(client)
    steady.write_piece()
    steady.start()
    for number in range(FLAPS):
        grant = steady.grant
        primary = grant.primary if grant.primary != MASTER_HOST else "h2"
        other = next(s.server for s in grant.replicas if s.server != primary)
        kind = number % 4
        if kind == 0:
            hosts.cut(primary, MASTER_HOST)
        elif kind == 1:
            hosts.deafen(primary, other)
        elif kind == 2:
            hosts.deafen(MASTER_HOST, primary)
        else:
            hosts.cut(primary, other)
        if kind == 0 and number:
            wait_until(client, primary, "dead")
        steady.wait_for_more(2)
        hosts.heal()
    steady.wait_for_more(2)

    expected = steady.stop()

    for host in hosts.names:
        wait_until(client, host, "up")
    converges(operator, client, steady, expected)
