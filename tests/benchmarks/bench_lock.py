"""The lock cell beside etcd (Debian's etcd-server): three members each, on one machine and disk.

Both sync before they answer. Values have 200 bytes. etcd is asked through its HTTP gateway, by the
same kind of Python client that asks us. `$ETCD` names the program where it is not installed.
"""

from __future__ import annotations

import base64
import http.client
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mrstream.cluster.config.config import LOCK_MASTER
from mrstream.lock import protocol as p
from mrstream.lock.client.client import CellClient
from mrstream.lock.client.handle import NodeHandle
from tests.benchmarks.common import Row, workplace
from tests.cluster.local import LocalCluster, wait_for

VALUE = b"v" * 200
SERIAL_WRITES = 300
CROWD_S = 4.0
CROWD_PROCESSES, CROWD_THREADS = 4, 16
REPEATS = 3
READY_S_MAX = 60.0

Put = Callable[[str, bytes], object]
Join = Callable[[], Put]
"""Become one more client; give its way to write."""


def bench() -> Iterator[str]:
    """Serial writes, and those of 64 clients; medians of runs in turn."""
    program = os.environ.get("ETCD") or shutil.which("etcd")
    if program is None:
        yield "| etcd is not here: install etcd-server, or set ETCD | | | | |"
        return
    with ExitStack() as stack:
        place = stack.enter_context(workplace())
        join_cell = stack.enter_context(_cell(place / "cell"))
        join_etcd = stack.enter_context(_etcd(program, place / "etcd"))
        sides = {"ours": join_cell, "etcd": join_etcd}
        serial: dict[str, list[float]] = {name: [] for name in sides}
        crowd: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(REPEATS):
            for name, join in sides.items():
                serial[name].append(_serial_ms(join()))
                crowd[name].append(_crowd_per_s(join))
        ours, etcd = (statistics.median(serial[name]) for name in sides)
        yield str(Row("write of 200 bytes, one client", ours, etcd, "ms", "≤ 1.5"))
        ours, etcd = (statistics.median(crowd[name]) for name in sides)
        clients = CROWD_PROCESSES * CROWD_THREADS
        yield str(Row(f"writes of {clients} clients", ours, etcd, "1/s", "≥ 0.35"))


def _serial_ms(put: Put) -> float:
    """The median of one write after the other."""
    took: list[float] = []
    for number in range(SERIAL_WRITES):
        began_s = time.perf_counter()
        put(f"k{number % 10}", VALUE)
        took.append(time.perf_counter() - began_s)
    return 1000 * statistics.median(took)


def _crowd_per_s(join: Join) -> float:
    """How many writes a second of many clients, in several processes, are acknowledged."""
    context = multiprocessing.get_context("fork")
    counts = context.SimpleQueue()
    ready = context.Barrier(CROWD_PROCESSES)
    processes = [
        context.Process(target=_crowd, args=(join, number, ready.wait, counts.put))
        for number in range(CROWD_PROCESSES)
    ]
    for process in processes:
        process.start()
    total = sum(counts.get() for _ in processes)
    for process in processes:
        process.join()
    return float(total / CROWD_S)


def _crowd(
    join: Join, number: int, ready: Callable[[], object], done: Callable[[int], None]
) -> None:
    puts = [join() for _ in range(CROWD_THREADS)]
    counts = [0] * CROWD_THREADS
    ready()
    until_s = time.monotonic() + CROWD_S

    def write(at: int) -> None:
        while time.monotonic() < until_s:
            puts[at](f"k{number}-{at}", VALUE)
            counts[at] += 1

    threads = [threading.Thread(target=write, args=(at,)) for at in range(CROWD_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done(sum(counts))


@contextmanager
def _cell(directory: Path) -> Iterator[Join]:
    directory.mkdir()
    more = "masters: [h1, h2, h3]\nlock: {}\n"
    with LocalCluster(directory, 3, roles=[LOCK_MASTER], more=more) as cluster:

        def join() -> Put:
            """Files are opened once and written through their handles, as programs of a cell do:
            a write is then one request, as with the others."""
            client = CellClient(cluster.cluster).open_session()
            opened: dict[str, NodeHandle] = {}

            def put(key: str, value: bytes) -> None:
                if key not in opened:
                    path = f"/ls/local/{key}"
                    opened[key] = client.open(path, p.WRITE, create=p.MAY_CREATE)
                opened[key].set(value)

            return put

        yield join


@contextmanager
def _etcd(program: str, directory: Path) -> Iterator[Join]:
    directory.mkdir()
    ports = _free_ports(6)
    peers = {f"m{n}": f"http://127.0.0.1:{ports[2 * n]}" for n in range(3)}
    clients = {f"m{n}": f"http://127.0.0.1:{ports[2 * n + 1]}" for n in range(3)}
    members: list[subprocess.Popen[bytes]] = []
    try:
        for name in peers:
            argv = [
                program, "--name", name, "--data-dir", str(directory / name),
                "--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name],
                "--listen-client-urls", clients[name], "--advertise-client-urls", clients[name],
                "--initial-cluster", ",".join(f"{n}={url}" for n, url in peers.items()),
                "--initial-cluster-state", "new",
            ]  # fmt: skip
            log = open(directory / f"{name}.log", "wb")  # noqa: SIM115  the process keeps it
            members.append(subprocess.Popen(argv, stdout=log, stderr=log))
            log.close()
        leader = wait_for(lambda: _leader(ports[1::2]), READY_S_MAX, "etcd to serve")
        yield lambda: _etcd_client(leader)
    finally:
        for member in members:
            member.kill()
            member.wait()


def _etcd_client(port: int) -> Put:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    connection.connect()
    assert connection.sock is not None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(key: str, value: bytes) -> None:
        words = {name: base64.b64encode(w).decode() for name, w in
                 (("key", key.encode()), ("value", value))}  # fmt: skip
        connection.request("POST", "/v3/kv/put", json.dumps(words))
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text

    return put


def _leader(ports: list[int]) -> int:
    """The client port of the member that leads: ours are asked there too; 0 while nobody does."""
    for port in ports:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
            connection.request("POST", "/v3/maintenance/status", "{}")
            status = json.loads(connection.getresponse().read())
            connection.close()
        except (OSError, ValueError):
            continue
        if status.get("leader", "0") == status.get("header", {}).get("member_id", "") != "0":
            return port
    return 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
