"""The dfs master under many small calls, and with a million files.

The load is made by one process with plain sockets and no library of ours behind the handshake, so
that it costs the same for every kind of call and the server is what is measured.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.wire.addresses import connect_socket
from mrstream.cluster.wire.connection import client_handshake
from mrstream.cluster.wire.frames import HEADER, HEADER_BYTES, Kind, encode_frame
from mrstream.cluster.wire.identity import Identity, new_client_id
from mrstream.cluster.wire.messages import Health, Request
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, Epoch, ServerId, pack_reports
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.image import pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import encode_record
from mrstream.dfs.protocol import (
    CreateFile,
    DiskUse,
    Locate,
    MakeDirectory,
    Register,
    ReportChunks,
    ServerAddress,
    Stat,
)
from tests.benchmarks.common import Row, Run
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for

CONNECTIONS = 64
SECONDS = 2.0
ROUNDS = 3
FILES = 1_000_000
FILES_IN_LOG = 60_000
"""As many as the log holds before the master writes its next checkpoint: the worst moment."""
FILES_PER_DIRECTORY = 1000
EMPTY_SERVER = """
import asyncio, sys
from mrstream.cluster.wire.messages import Health
from mrstream.cluster.wire.network import Server, new_event_loop
from mrstream.cluster.wire.identity import Identity
async def main(address, cluster_id, secret):
    server = Server(
        {Health: lambda request, peer: None},
        Identity(cluster_id, bytes.fromhex(secret), "dfs.master", "h1"),
    )
    print(await server.start(address), flush=True)
    await asyncio.Event().wait()
new_event_loop().run_until_complete(main(*sys.argv[1:]))
"""

RequestOf = Callable[[int, int], Request]
"""(connection, number) → request."""


# -- calls --------------------------------------------------------------------------------


def call_rates(place: Path) -> list[Row]:
    """Stats and durable creates from 64 connections, against an empty call."""
    home = place / "calls"
    home.mkdir()
    rates: dict[str, list[float]] = {"empty": [], "stat": [], "create": [], "mkdir": []}
    with LocalCluster(home, 1, dfs={"chunk_size": "64MiB"}) as cluster, _empty(cluster) as empty:
        client = cluster.client()
        client.make_directory("/some/where/below", parents=True)
        master, identity = client.master, cluster.cluster.identity()
        rounds = iter(range(ROUNDS))
        for _ in range(ROUNDS):
            turn = next(rounds)
            rates["empty"].append(call_rate(empty, identity, lambda at, number: Health()))
            rates["stat"].append(
                call_rate(master, identity, lambda at, number: Stat("/some/where/below"))
            )
            rates["create"].append(call_rate(master, identity, _create_in(turn)))
            rates["mkdir"].append(call_rate(master, identity, _mkdir_in(turn)))
    shutil.rmtree(home)
    middle = {name: statistics.median(found) for name, found in rates.items()}
    return [
        Row(f"stats from {CONNECTIONS} connections against an empty call",
            middle["stat"], middle["empty"], "/s", "≥ 0.4"),
        Row(f"durable creates from {CONNECTIONS} connections against an empty call",
            middle["create"], middle["empty"], "/s", "≥ 0.1"),
        Row(f"durable directories from {CONNECTIONS} connections against durable creates",
            middle["mkdir"], middle["create"], "/s", "≥ 1"),
    ]  # fmt: skip


def _create_in(turn: int) -> RequestOf:
    return lambda at, number: CreateFile(
        path=f"/some/where/below/{turn}-{at}-{number}",
        client="bench",
        user="bench",
        group="bench",
        first_chunk=False,
    )


def _mkdir_in(turn: int) -> RequestOf:
    return lambda at, number: MakeDirectory(
        f"/some/where/below/d{turn}-{at}-{number}", user="bench", group="bench"
    )


@contextmanager
def _empty(cluster: LocalCluster) -> Iterator[str]:
    """A server that answers with nothing, over the same wire as the master's."""
    identity = cluster.cluster.identity()
    with subprocess.Popen(
        [sys.executable, "-c", EMPTY_SERVER, "127.0.0.1:0", identity.cluster_id,
         identity.secret.hex()],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent.parent,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def call_rate(address: str, identity: Identity, request_of: RequestOf) -> float:
    """Calls a second, one in flight on each connection."""
    sockets = [_connected(address, identity) for _ in range(CONNECTIONS)]
    numbers = [0] * CONNECTIONS
    held = [b""] * CONNECTIONS
    poll = select.epoll()
    by_descriptor = {one.fileno(): at for at, one in enumerate(sockets)}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)

    def ask(at: int) -> None:
        numbers[at] += 1
        frame = encode_frame(Kind.CALL, numbers[at], request_of(at, numbers[at]))
        sockets[at].send(frame)

    for at in range(CONNECTIONS):
        ask(at)
    answered = 0
    started_s = time.monotonic()
    until_s = started_s + SECONDS
    while time.monotonic() < until_s:
        for descriptor, _ in poll.poll(1.0):
            at = by_descriptor[descriptor]
            data = held[at] + sockets[at].recv(65536)
            length, kind, _ = HEADER.unpack_from(data)
            if len(data) < HEADER_BYTES + length:
                held[at] = data
                continue
            assert kind == Kind.REPLY, data
            held[at] = b""
            answered += 1
            ask(at)
    rate = answered / (time.monotonic() - started_s)
    for one in sockets:
        one.close()
    return rate


def _connected(address: str, identity: Identity) -> socket.socket:
    connected = connect_socket(address, 5.0)
    sock, _, _ = client_handshake(connected, address, identity, MASTER, new_client_id())
    sock.setblocking(True)
    return sock


# -- a million files ----------------------------------------------------------------------


def million_files(place: Path, count: int = FILES) -> list[Row]:
    """Memory of a master with a million files, and how soon it serves after kill -9."""
    home = place / "million"
    home.mkdir()
    dfs = {"chunk_size": "64MiB", "replication": "1", "safe_mode": "60s"}
    cluster = LocalCluster(home, 1, dfs=dfs)
    cluster.roles = (MASTER,)
    fill(cluster, count)
    reports = _reports(count)
    try:
        cluster.launch(MASTER, "h1")
        _until_served(cluster, reports, count)
        cluster.kill(MASTER, "h1")
        cluster.launch(MASTER, "h1")
        names, chunks = _until_served(cluster, reports, count)
        memory_mb = _resident_bytes(cluster.pid(MASTER, "h1")) / 1e6
    finally:
        cluster.close()
        shutil.rmtree(home)
    files = f"{count:,} files of one chunk each"
    return [
        Row(f"{files}: memory of the master", memory_mb, 300.0, "MB", "≤ 1"),
        Row(f"{files}: names served after kill -9, against 5 s",
            names.wall_s, 5.0, "s", "about 1"),
        Row(f"{files}: the same, CPU time of the master", names.cpu_s, 5.0, "s", "about 1"),
        Row(f"{files}: all chunks reported, against 5 s", chunks.wall_s, 5.0, "s", ""),
        Row(f"{files}: the same, CPU time of the master", chunks.cpu_s, 5.0, "s", ""),
    ]  # fmt: skip


def fill(cluster: LocalCluster, count: int) -> None:
    """Leave behind what a master killed with -9 would: a checkpoint and a log after it."""
    directory = cluster.host_directory("h1") / MASTER / "oplog"
    directory.parent.mkdir(parents=True, exist_ok=True)
    brain = Metadata(Settings(replication=1), Random(1))
    journal = Journal(str(directory), cluster.cluster.identity().cluster_id)
    journal.recover()
    in_log = min(count // 2, FILES_IN_LOG)
    brain.apply(op.ServerKnown(ServerId("h1")))
    for record in _records(brain, 0, count - in_log):
        brain.apply(record)
    # One record, so that the journal has a sequence for the checkpoint to be of.
    journal.append(encode_record(op.ServerKnown(ServerId("h1"))))
    journal.commit()
    sequence = journal.rotate()
    journal.commit()
    journal.write_checkpoint(sequence, pack_image(brain))
    for record in _records(brain, count - in_log, count):
        brain.apply(record)
        journal.append(encode_record(record))
    journal.close()


def _records(brain: Metadata, first: int, stop: int) -> Iterator[op.AnyRecord]:
    """What the master logs for files that are made, written and closed. Each record must be
    applied before the next is asked for: ids follow from the state."""
    nodes = brain.space.nodes
    if first == 0:
        yield op.DirectoryMade("/data", nodes.next_id(), "bench", "bench", 0o755, 1.7e9)
    for number in range(first, stop):
        directory, name = divmod(number, FILES_PER_DIRECTORY)
        path, at_s = f"/data/part-{directory:05}", 1.7e9 + number
        if name == 0:
            yield op.DirectoryMade(path, nodes.next_id(), "bench", "bench", 0o755, at_s)
            yield op.HandlesReserved(ChunkHandle(number + 2 * FILES_PER_DIRECTORY))
        file_id, handle, epoch = nodes.next_id(), ChunkHandle(number + 1), Epoch(number + 1)
        yield op.FileCreated(
            f"{path}/file-{name:08}", file_id, epoch, f"bench@host:4711:{number:016x}",
            "bench", "bench", 0o644, 1, 64 << 20, at_s, (number + 1, 1),
        )  # fmt: skip
        yield op.ChunkAdded(file_id, handle)
        yield op.FileClosed(file_id, epoch, 1000 + name, at_s)


def _reports(count: int) -> list[bytes]:
    """What a chunkserver with all of those chunks says, in parts."""
    step = 50_000
    return [
        pack_reports(
            ChunkReport(
                ChunkHandle(number + 1), ChunkVersion(1), 1000 + number % FILES_PER_DIRECTORY
            )
            for number in range(first, min(first + step, count))
        )
        for first in range(0, count, step)
    ]


def _until_served(cluster: LocalCluster, reports: list[bytes], count: int) -> tuple[Run, Run]:
    """What it took from now until the master answers a stat, and until it knows where every chunk
    is."""
    started_s, pid = time.monotonic(), cluster.pid(MASTER, "h1")
    identity = cluster.cluster.identity(CHUNKSERVER, "h1")
    reporter = threading.Thread(target=_report, args=(cluster, identity, reports), daemon=True)
    reporter.start()
    directory, name = divmod(count - 1, FILES_PER_DIRECTORY)
    path = f"/data/part-{directory:05}/file-{name:08}"
    address = cluster.config.address("h1", MASTER)

    def answered(request: Request) -> object:
        with contextlib.suppress(Unavailable), Connection(address, identity) as connection:
            return connection.call(request, 5.0)
        return None

    wait_for(lambda: answered(Stat(path)), 120, "the names to be served", 0.02)
    names = Run(time.monotonic() - started_s, _cpu_s(pid))
    wait_for(
        lambda: (found := answered(Locate(path))) and found.chunks[0].replicas,  # type: ignore[attr-defined]
        120, "the chunks to be located", 0.02,
    )  # fmt: skip
    cluster.wait_ready(MASTER, "h1", 120)
    chunks = Run(time.monotonic() - started_s, _cpu_s(pid))
    reporter.join()
    return names, chunks


def _report(cluster: LocalCluster, identity: Identity, reports: list[bytes]) -> None:
    """Be a chunkserver that registers as soon as there is a master."""
    server = ServerId("h1")
    address = ServerAddress(server, "127.0.0.1", 1, 1, "")
    register = Register(
        address, time.time_ns(), identity.cluster_id,
        (DiskUse("/disk", 1 << 40, 1 << 39, 0),), (), number=1,
    )  # fmt: skip
    with Connection(cluster.config.address("h1", MASTER), identity, role=MASTER) as connection:
        while True:
            try:
                connection.call(register, 30.0)
                break
            except Unavailable:
                threading.Event().wait(0.02)
            except ClusterError as error:
                raise AssertionError(f"the master refused the chunkserver: {error}") from error
        for part, packed in enumerate(reports):
            request = ReportChunks(
                server, register.incarnation, part, packed, part == len(reports) - 1
            )
            connection.call(request, 60.0)


def _cpu_s(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
