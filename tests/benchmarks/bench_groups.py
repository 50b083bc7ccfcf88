"""What a group of masters costs and how soon it serves again: three hosts on this machine.

The peers: one master alone, the leader of the same group, the same job undisturbed, and, for what
groups cost where there is none, the last version that had no groups (`tests/cluster/releases`).
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mrstream.cluster.config.config import LOCK_MASTER, Cluster
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.wire.messages import Metrics
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.protocol import AskShadow, MakeDirectory, Stat
from mrstream.lock.client.client import CellClient
from tests.benchmarks.common import Row, run, script, workplace
from tests.benchmarks.dfs_calls import FILES, call_rate, fill
from tests.cluster.job_faults import JOB_MASTER, ROLES
from tests.cluster.local import MASTER, LocalCluster, wait_for

GROUP = "masters: [h1, h2, h3]\n"
REPEATS = 3
NAMES = 1_000
SEEN = 300
SLOW_S, QUICK_S = 0.2, 0.02
MAPS, MAP_S, SLOTS = 60, 6, 2
"""On three hosts a job of these takes a minute."""
IDLE_CLIENTS, IDLE_S = 100, 30.0
RELEASE = Path(__file__).parent.parent / "cluster" / "releases" / "five-names.tar.xz"
CLI = "import sys; from {package}streaming.cli import main; sys.exit(main())"
LIGHT = """\
name: light
ports: {{base: {base}}}
hosts:
  h1: {{address: 127.0.0.1, via: local, dir: {place}}}
  h2: {{address: 127.0.0.2, via: local, dir: {place}}}
  h3: {{address: 127.0.0.3, via: local, dir: {place}}}
"""


def bench() -> Iterator[Row]:
    """Give the rows of the table."""
    with workplace() as place:
        yield from _names(place / "names")
        yield from _shadow(place / "shadow")
        yield from _million(place / "million")
        yield _job(place / "job")
        yield from _idle_cell(place / "cell")
        yield from _light(place / "light")


# --- names ----------------------------------------------------------------------------------------


def _names(place: Path) -> Iterator[Row]:
    """Directories made: by a group and by a master alone; with a member that is slow."""
    with _cluster(place / "group", GROUP) as group, _cluster(place / "alone") as alone:
        rates: dict[str, list[float]] = {"group": [], "alone": []}
        p99s: dict[str, list[float]] = {"all": [], "slow": []}
        leader = leader_of(group.cluster)
        shadow = next(host for host in group.hosts if host != leader)
        for turn in range(REPEATS):
            for name, cluster in (("group", group), ("alone", alone)):
                host = leader_of(cluster.cluster)
                address, identity = cluster.config.address(host, MASTER), cluster.cluster.identity()
                rates[name].append(call_rate(address, identity, _directories(f"r{turn}")))
            p99s["all"].append(_p99_ms(group, f"a{turn}"))
            with _slowed(group, shadow):
                p99s["slow"].append(_p99_ms(group, f"s{turn}"))
    middle = {name: statistics.median(found) for name, found in (rates | p99s).items()}
    yield Row(
        "directories made from 64 connections, three members against a master alone",
        middle["group"],
        middle["alone"],
        "/s",
        "",
    )
    yield Row(
        "… one after the other, 99th of 100, one member slow against all quick",
        middle["slow"],
        middle["all"],
        "ms",
        "≤ 1.2",
    )


def _directories(prefix: str) -> Callable[[int, int], MakeDirectory]:
    return lambda at, number: MakeDirectory(f"/{prefix}-{at}-{number}", user="b", group="b")


def _p99_ms(cluster: LocalCluster, prefix: str) -> float:
    client = cluster.client()
    took: list[float] = []
    for number in range(NAMES):
        began_s = time.perf_counter()
        client.make_directory(f"/{prefix}-{number}")
        took.append(time.perf_counter() - began_s)
    return 1000 * statistics.quantiles(took, n=100)[-1]


@contextmanager
def _slowed(cluster: LocalCluster, host: str) -> Iterator[None]:
    """A member that gets a tenth of its time."""
    over = threading.Event()

    def slow() -> None:
        while not over.is_set():
            cluster.signal(MASTER, host, signal.SIGSTOP)
            over.wait(SLOW_S)
            cluster.signal(MASTER, host, signal.SIGCONT)
            over.wait(QUICK_S)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- shadows --------------------------------------------------------------------------------------


def _shadow(place: Path) -> Iterator[Row]:
    """How late a shadow sees what was acknowledged, and how many questions it answers."""
    with _cluster(place, GROUP) as cluster:
        client, identity = cluster.client(), cluster.cluster.identity()
        client.make_directory("/some/where/below", parents=True)
        leader = leader_of(cluster.cluster)
        shadow = next(host for host in cluster.hosts if host != leader)
        asked, leads = (cluster.config.address(host, MASTER) for host in (shadow, leader))
        late: list[float] = []
        with Connection(asked, identity) as one:
            for number in range(SEEN):
                path = f"/seen-{number}"
                client.make_directory(path)
                began_s = time.perf_counter()
                while not _sees(one, path):
                    pass
                late.append(time.perf_counter() - began_s)
        rates: dict[str, list[float]] = {"shadow": [], "leader": []}
        where = Stat("/some/where/below")
        for _ in range(REPEATS):
            rates["leader"].append(call_rate(leads, identity, lambda at, number: where))
            rates["shadow"].append(call_rate(asked, identity, lambda at, number: AskShadow(where)))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    yield Row(
        "a shadow knows what was acknowledged, 99th of 100 (peer: the goal)",
        1000 * statistics.quantiles(late, n=100)[-1],
        100.0,
        "ms",
        "≤ 1",
    )
    yield Row(
        "stats from 64 connections, a shadow against the leader",
        middle["shadow"],
        middle["leader"],
        "/s",
        "≥ 0.9",
    )


def _sees(one: Connection, path: str) -> bool:
    try:
        one.call(AskShadow(Stat(path)), 5.0)
    except UserError:
        return False
    return True


# --- fail-over with many files --------------------------------------------------------------------


def _million(place: Path) -> Iterator[Row]:
    """From kill -9 of the leader to an answer of the next, with a million files and with none."""
    took: dict[int, float] = {}
    for count in (0, FILES):
        home = place / str(count)
        home.mkdir(parents=True)
        cluster = LocalCluster(home, 3, roles=(MASTER,), dfs={"safe_mode": "60s"}, more=GROUP)
        if count:
            fill(cluster, count)
            # The checkpoint holds more than the records before it: nobody may be sent those.
            min((cluster.host_directory("h1") / MASTER / "oplog").glob("log-*")).unlink()
        try:
            with cluster:
                took[count] = statistics.median(_falls(cluster) for _ in range(REPEATS))
        finally:
            cluster.close()
    yield Row(
        f"kill -9 of the leader to the next one's answer: {FILES:,} files, none (goal: + 1 s)",
        took[FILES],
        took[0],
        "s",
        "",
    )


def _falls(cluster: LocalCluster) -> float:
    client = cluster.client(60.0)
    client.stat("/")
    leader = leader_of(cluster.cluster)
    began_s = time.monotonic()
    cluster.kill(MASTER, leader)
    client.stat("/")
    took_s = time.monotonic() - began_s
    cluster.launch(MASTER, leader)
    wait_for(lambda: "shadow" in _detail(cluster, leader), 120.0, "it to follow")
    return took_s


def _detail(cluster: LocalCluster, host: str) -> str:
    with suppress(ClusterError):
        return cluster.health(MASTER, host).detail
    return ""


# --- a job ----------------------------------------------------------------------------------------


def _job(place: Path) -> Row:
    """A job of a minute, whose master is killed in its middle, against the same undisturbed."""
    place.mkdir(parents=True)
    lines = place / "lines"
    lines.write_text("".join(f"line {number}\n" for number in range(MAPS)))
    program = script(place / "slow.sh", f"#!/bin/sh\nsleep {MAP_S}\nexec cat\n")
    with _cluster(place / "cluster", GROUP, roles=ROLES, slots=SLOTS) as cluster:
        cluster.client().make_directory("/out")
        run(
            [
                sys.executable,
                "-c",
                CLI.format(package="mrstream."),
                "dfs",
                "-put",
                str(lines),
                "/lines",
            ],
            place,
            cluster.environment,
        )
        took: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(REPEATS):
            for is_killed in (False, True):
                output = f"/out/{turn}-{is_killed}"
                took[is_killed].append(_job_s(cluster, program, output, is_killed))
    return Row(
        f"{MAPS} maps of {MAP_S} s, their master killed in the middle, against undisturbed",
        statistics.median(took[True]),
        statistics.median(took[False]),
        "s",
        "≤ 1.15",
    )


def _job_s(cluster: LocalCluster, program: Path, output: str, is_killed: bool) -> float:
    began_s = time.monotonic()
    with cluster.begin(
        "-D",
        "mapreduce.map.speculative=false",
        "-inputformat",
        "org.apache.hadoop.mapred.lib.NLineInputFormat",
        "-input",
        "/lines",
        "-output",
        output,
        "-mapper",
        str(program),
        "-reducer",
        "cat",
    ) as job:
        if is_killed:
            with suppress(subprocess.TimeoutExpired):
                job.wait(MAPS * MAP_S / (2 * SLOTS * len(cluster.hosts)))
            leader = leader_of(cluster.cluster, JOB_MASTER)
            cluster.kill(JOB_MASTER, leader)
        _, said = job.communicate()
    took_s = time.monotonic() - began_s
    assert job.returncode == 0, said.decode()
    if is_killed:
        cluster.start(JOB_MASTER, leader)
    return took_s


# --- an idle cell ---------------------------------------------------------------------------------


def _idle_cell(place: Path) -> Iterator[Row]:
    """A26: what clients that read a cached file and do nothing else say to their cell."""
    with _cluster(place, GROUP + "lock: {}\n", roles=[LOCK_MASTER]) as cluster:
        clients = [CellClient(cluster.cluster).open_session() for _ in range(IDLE_CLIENTS)]
        path = "/ls/local/read"
        clients[0].put(path, b"what is read")
        for client in clients:
            client.get(path)
        host = leader_of(cluster.cluster, LOCK_MASTER)
        before = _figures(cluster, host)
        until_s = time.monotonic() + IDLE_S
        while time.monotonic() < until_s:
            for client in clients:
                assert client.get(path) == b"what is read"
            time.sleep(0.5)  # as programs do that look at a setting now and then
        after = _figures(cluster, host)
        for client in clients:
            client.close()
    calls = {
        name: count - before.get(name, 0.0)
        for name, count in after.items()
        if name.startswith("calls_") and name != "calls_waiting"
    }
    total = sum(calls.values())
    yield Row(
        f"KeepAlives of {IDLE_CLIENTS} clients that read a cached file, of all their calls",
        calls["calls_KeepAlive"],
        total,
        "",
        "≥ 0.9",
    )
    again = sum(count for name, count in calls.items() if "Look" in name or "Get" in name)
    yield Row("… re-reads among them (goal: 0)", again, total, "", "0")


def _figures(cluster: LocalCluster, host: str) -> dict[str, float]:
    address = cluster.config.address(host, LOCK_MASTER)
    with Connection(address, cluster.cluster.identity()) as one:
        figures: dict[str, float] = one.call(Metrics(), 10.0)
        return figures


# --- where there is no group ----------------------------------------------------------------------


def _light(place: Path) -> Iterator[Row]:
    """`cluster up` of three local hosts, and their memory when idle, beside the last version that
    had no groups."""
    sides = {"ours": (sys.executable, "mrstream."), "older": (_older(place / "older"), "")}
    took: dict[str, list[float]] = {name: [] for name in sides}
    memory: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(REPEATS + 2):
        for number, (name, (python, package)) in enumerate(sides.items()):
            home = place / f"{name}-{turn}"
            hosts = home / "hosts"
            hosts.mkdir(parents=True)
            file = home / "cluster.yaml"
            base = 21000 + 100 * number
            file.write_text(LIGHT.format(base=base, place=hosts))
            env = {**os.environ, "MRSTREAM_HOME": str(home)}
            env.pop("MRSTREAM_CLUSTER", None)
            command = [python, "-P", "-c", CLI.format(package=package), "cluster"]
            took[name].append(run([*command, "up", "-f", str(file)], home, env).wall_s)
            memory[name].append(_memory_mb(str(hosts)) / 3)
            run([*command, "down"], home, env)
    yield Row(
        "`cluster up` of three local hosts, against the last version without groups",
        statistics.median(took["ours"]),
        statistics.median(took["older"]),
        "s",
        "≤ 1.2",
    )
    yield Row(
        "memory of a host of those when idle (goal: + 60 MB)",
        statistics.median(memory["ours"]),
        statistics.median(memory["older"]),
        "MB",
        "",
    )


def _older(place: Path) -> str:
    """A Python that has that version, with the libraries of this one."""
    with tarfile.open(RELEASE) as archive:
        archive.extractall(place / "tree", filter="data")
    venv.create(place / "venv", symlinks=True)
    (packages,) = (place / "venv").glob("lib/python*/site-packages")
    (packages / "older.pth").write_text(f"{place / 'tree'}\n{sysconfig.get_path('purelib')}\n")
    return str(place / "venv" / "bin" / "python")


def _memory_mb(mark: str) -> float:
    """What the daemons of a directory use, shared pages shared out."""
    total_kb = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                for line in Path(f"/proc/{name}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total_kb += int(line.split()[1])
    return total_kb * 1024 / 1e6


# --- what they share ------------------------------------------------------------------------------


@contextmanager
def _cluster(place: Path, more: str = "", **options: object) -> Iterator[LocalCluster]:
    place.mkdir(parents=True)
    with LocalCluster(place, 3, dfs={"chunk_size": "64MiB"}, more=more, **options) as cluster:  # type: ignore[arg-type]
        yield cluster


def leader_of(cluster: Cluster, role: str = MASTER) -> str:
    """The host that serves, as soon as there is one."""

    def look() -> str:
        for host, address in cluster.config.master_addresses(role).items():
            with suppress(ClusterError), Connection(address, cluster.identity()) as one:
                standing: Standing = one.call(WhoLeads(), 5.0)
                if standing.is_serving:
                    return host
        return ""

    return wait_for(look, 60.0, "a leader")
