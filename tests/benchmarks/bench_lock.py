"""The lock cell beside etcd and ZooKeeper (Debian's packages): three members each, on one machine
and disk. All sync before they answer. Values have 200 bytes.

`$ETCD` and `$ZOOKEEPER_JARS` name them where they are not installed. A peer that is not here is
left out, and said.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mrstream.cluster.config.config import LOCK_MASTER
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.leader.group_view import look_at_group
from mrstream.cluster.wire.network import Channel
from mrstream.lock import protocol as p
from mrstream.lock.client.client import CellClient
from mrstream.lock.client.handle import NodeHandle
from tests.benchmarks.common import Row, workplace
from tests.benchmarks.lock_peers import Join, Put, etcd, etcd_program, zookeeper, zookeeper_jars
from tests.cluster.local import LocalCluster, wait_for

VALUE = b"v" * 200
SERIAL_WRITES = 300
READS = 2000
CROWD_S = 4.0
CROWD_PROCESSES, CROWD_THREADS = 4, 16
REPEATS = 3
SESSIONS, CONNECTIONS = 10_000, 100
IDLE_S = 60.0


def bench() -> Iterator[str]:
    """Serial writes, those of 64 clients, reads: medians of runs in turn. Then idle sessions."""
    with ExitStack() as stack:
        place = stack.enter_context(workplace())
        cell = stack.enter_context(_cell(place / "cell"))
        sides: dict[str, Join] = {"ours": cell.join, "by name": cell.join_by_name}
        reads: dict[str, Callable[[], Callable[[str], object]]] = {"ours": cell.join_to_read}
        if program := etcd_program():
            sides["etcd"], reads["etcd"] = stack.enter_context(etcd(program, place / "etcd"))
        else:
            yield "| etcd is not here: install etcd-server, or set ETCD | | | | |"
        if jars := zookeeper_jars():
            sides["ZooKeeper"] = stack.enter_context(zookeeper(jars, place / "zookeeper"))
        else:
            yield "| ZooKeeper is not here: install it, or set ZOOKEEPER_JARS | | | | |"
        serial: dict[str, list[float]] = {name: [] for name in sides}
        crowd: dict[str, list[float]] = {name: [] for name in sides}
        seen: dict[str, list[float]] = {name: [] for name in reads}
        for _ in range(REPEATS):
            for name, join in sides.items():
                serial[name].append(_serial_ms(join()))
                crowd[name].append(_crowd_per_s(join))
            for name, read in reads.items():
                seen[name].append(_reads_per_s(read()))
        middle = {name: statistics.median(figures) for name, figures in serial.items()}
        rate = {name: statistics.median(figures) for name, figures in crowd.items()}
        for peer, goal, least in (("etcd", "≤ 1.5", "≥ 0.35"), ("ZooKeeper", "", "≥ 0.25")):
            if peer not in sides:
                continue
            for ours, how in (("ours", "open handle"), ("by name", "by name")):
                words = f"write, one client, {how}, beside {peer}"
                yield str(Row(words, middle[ours], middle[peer], "ms", goal))
            clients = CROWD_PROCESSES * CROWD_THREADS
            for ours, how in (("ours", "open handles"), ("by name", "by name")):
                words = f"writes of {clients} clients, {how}, beside {peer}"
                yield str(Row(words, rate[ours], rate[peer], "1/s", least))
        if "etcd" in seen:
            ours, theirs = (statistics.median(seen[name]) for name in ("ours", "etcd"))
            yield str(
                Row("read of a file that is cached, beside etcd", ours, theirs, "1/s", "≥ 50")
            )
    with workplace() as place, _cell(place / "cell") as cell:
        yield asyncio.run(_idle(cell.cluster))


def _serial_ms(put: Put) -> float:
    """The median of one write after the other."""
    took: list[float] = []
    for number in range(SERIAL_WRITES):
        began_s = time.perf_counter()
        put(f"k{number % 10}", VALUE)
        took.append(time.perf_counter() - began_s)
    return 1000 * statistics.median(took)


def _reads_per_s(read: Callable[[str], object]) -> float:
    read("k0")
    began_s = time.perf_counter()
    for _ in range(READS):
        read("k0")
    return READS / (time.perf_counter() - began_s)


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


class _Cell:
    """Three members, and the ways in which programs use them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def join(self) -> Put:
        """Files are opened once and written through their handles, as programs of a cell do."""
        client = CellClient(self.cluster.cluster).open_session()
        opened: dict[str, NodeHandle] = {}

        def put(key: str, value: bytes) -> None:
            if key not in opened:
                opened[key] = client.open(f"/ls/local/{key}", p.WRITE, create=p.MAY_CREATE)
            opened[key].set(value)

        return put

    def join_by_name(self) -> Put:
        client = CellClient(self.cluster.cluster).open_session()
        return lambda key, value: client.put(f"/ls/local/{key}", value)

    def join_to_read(self) -> Callable[[str], object]:
        client = CellClient(self.cluster.cluster).open_session()
        return lambda key: client.get(f"/ls/local/{key}")


@contextmanager
def _cell(directory: Path) -> Iterator[_Cell]:
    directory.mkdir()
    more = "masters: [h1, h2, h3]\nlock: {}\n"
    with LocalCluster(directory, 3, roles=[LOCK_MASTER], more=more) as cluster:
        yield _Cell(cluster)


# --- idle sessions


async def _idle(cluster: LocalCluster) -> str:
    """What many sessions that do nothing cost their leader. They share connections."""
    host = wait_for(lambda: look_at_group(cluster.cluster, LOCK_MASTER).leader, 60.0, "a leader")
    address = cluster.cluster.config.address(host, LOCK_MASTER)
    pid = cluster.pid(LOCK_MASTER, host)
    identity = cluster.cluster.identity()
    channels = [
        await Channel.connect(address, identity, role=LOCK_MASTER) for _ in range(CONNECTIONS)
    ]
    lost: list[ClusterError] = []
    begun = asyncio.Semaphore(0)
    keeping = [
        asyncio.create_task(_live(channels[at % CONNECTIONS], at + 1, begun, lost))
        for at in range(SESSIONS)
    ]
    for _ in keeping:
        await begun.acquire()
    figures = await channels[0].call(p.DescribeCell(), 60.0)
    await asyncio.sleep(2 * figures.lease_s)  # until all have a long lease
    began_s, before_s = time.monotonic(), _cpu_s(pid)
    await asyncio.sleep(IDLE_S)
    share = (_cpu_s(pid) - before_s) / (time.monotonic() - began_s)
    figures = await channels[0].call(p.DescribeCell(), 60.0)
    for task in keeping:
        task.cancel()
    for channel in channels:
        channel.close()
    return (
        f"| {figures.sessions:,} idle sessions ({len(lost)} lost, lease {figures.lease_s:.0f} s) | "
        f"{100 * share:.1f} % of a core | | | ≤ 15 % |"
    )


async def _live(
    channel: Channel, nonce: int, begun: asyncio.Semaphore, lost: list[ClusterError]
) -> None:
    """A program that has a file open and does nothing (one without would be sent away)."""
    granted: p.SessionGranted = await channel.call(p.OpenSession(nonce, "bench"), 300.0)
    session, epoch = granted.session, granted.epoch
    asked = p.KeepAlive(session, epoch)
    opening = p.OpenNode(session, epoch, 1, "/ls/local/open", create=p.MAY_CREATE)
    await channel.call(opening, 300.0)
    begun.release()
    while True:
        try:
            kept: p.Kept = await channel.call(asked, 300.0)
        except ClusterError as error:
            lost.append(error)
            return
        if kept.events:
            asked = p.KeepAlive(session, epoch, kept.events[-1].number)


def _cpu_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
