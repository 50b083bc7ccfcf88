"""Faults of whole hosts while files are written (fault gates 1, 7, 11, 12, 14)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.conftest import KINDS, MakeHosts
from tests.cluster.docker_hosts import DockerHosts
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts, wait_for
from tests.cluster.netns import NetnsHosts

OperatorAt = Callable[[TestHosts], Operator]
FAST = {"replication": 2, "dead_after": "5s"}


class Four(NamedTuple):
    """Four hosts on which a cluster runs; who uses it leaves it whole."""

    hosts: TestHosts
    operator: Operator


@pytest.fixture(scope="module", params=KINDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Four]:
    if request.param == "docker":
        hosts: TestHosts = DockerHosts(request.getfixturevalue("engine"), 4)
    else:
        hosts = NetnsHosts(4)
    try:
        operator = Operator(tmp_path_factory.mktemp("four") / "home", hosts)
        operator.good("cluster", "up", "-f", operator.write_cluster(dfs=FAST))
        yield Four(hosts, operator)
    finally:
        hosts.close()


@pytest.fixture
def four(shared: Four) -> Iterator[Four]:
    yield shared
    (shared.operator.home / "go").unlink(missing_ok=True)
    shared.operator.run("dfs", "-rm", "-r", "-skipTrash", "/f*")
    wait_for(lambda: shared.operator.status()["chunks"]["total"] == 0, "no chunk is left")


def healthy(operator: Operator) -> bool:
    chunks = operator.status()["chunks"]
    return chunks["total"] is not None and not (
        chunks["under_replicated"] or chunks["missing"] or chunks["corrupt"]
    )


def put_slowly(operator: Operator, path: str, size: int) -> tuple[subprocess.Popen[str], str]:
    """Begin to write a file from a pipe that has one half, and the other when there is `go`."""
    content = os.urandom(size)
    (operator.home / "source").write_bytes(content)
    wait = "until test -e go; do sleep 0.05; done"
    feed = f"(head -c {size // 2} source; {wait}; tail -c +{size // 2 + 1} source)"
    words = f"{feed} | mrstream dfs -put - {path}"
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", words],
        cwd=operator.home,
        env={**operator.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, hashlib.md5(content).hexdigest()


def md5_of(operator: Operator, path: str) -> str:
    """Read a file back, at once and at the first try: it was acknowledged."""
    back = operator.home / "back"
    operator.good("dfs", "-get", "-f", path, back)
    return hashlib.md5(back.read_bytes()).hexdigest()


@pytest.mark.parametrize("fault", ["power", "cable", "freeze"])
def test_a_write_goes_on_when_a_chunkserver_is_lost_and_repair_follows(
    four: Four, fault: str
) -> None:
    """Gates 1, 11 and 12: pipeline replacement, no acknowledged byte lost, all replicas again, and
    a host that comes back with stale replicas is never believed."""
    hosts, operator = four
    writing, expected = put_slowly(operator, "/f", 6_000_000)
    wait_for(lambda: (operator.status()["chunks"]["total"] or 0) >= 2, "some chunks are written")
    victim = "h3"

    {"power": hosts.kill, "cable": hosts.cut, "freeze": hosts.pause}[fault](victim)
    (operator.home / "go").touch()
    out, err = writing.communicate(timeout=120)

    assert writing.returncode == 0, (out, err)
    assert md5_of(operator, "/f") == expected
    wait_for(lambda: healthy(operator), "every chunk has its replicas again", 90)
    if fault == "power":
        hosts.start(victim)
        operator.good("cluster", "up")
    elif fault == "cable":
        hosts.heal()
    else:
        hosts.resume(victim)
    wait_for(lambda: (victim, "dfs.chunkserver") in operator.roles("up"), "it is back", 60)
    assert md5_of(operator, "/f") == expected
    wait_for(lambda: healthy(operator), "and nothing is wrong", 60)
    assert "Status: HEALTHY" in operator.good("dfs", "-fsck", "/")


def test_two_hosts_that_cannot_see_each_other_do_not_stop_a_write(four: Four) -> None:
    """Gate 11: node|node, while both still see the master and the client."""
    hosts, operator = four
    for a, b in (("h2", "h3"), ("h2", "h4")):
        hosts.cut(a, b)

    (operator.home / "go").touch()
    contents = {}
    for number in range(4):
        process, contents[number] = put_slowly(operator, f"/f{number}", 1_500_000)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)

    hosts.heal()
    for number, expected in contents.items():
        assert md5_of(operator, f"/f{number}") == expected
    wait_for(lambda: healthy(operator), "all replicas are there", 90)


def test_a_full_disk_fails_cleanly_and_recovers_when_there_is_room(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Gate 7: no partial file visible, and what was there stays; with the disk of the log:
    test_dfs_master.py."""
    hosts = make_netns(3, disk_bytes=256 << 20)
    operator = operator_at(hosts)
    operator.good("cluster", "up", "-f", operator.write_cluster(dfs=FAST))
    (operator.home / "big").write_bytes(os.urandom(4_000_000))
    expected = hashlib.md5((operator.home / "big").read_bytes()).hexdigest()
    operator.good("dfs", "-put", "big", "/before")
    for name in ("h2", "h3"):
        hosts.fill_disk(name)

    ended = operator.run("dfs", "-put", "big", "/during", timeout_s=200)

    # It fits on h1: then all of it is there. Else nothing is.
    if ended.returncode == 0:
        assert md5_of(operator, "/during") == expected
    else:
        assert "Traceback" not in ended.stderr
        assert operator.run("dfs", "-test", "-e", "/during").returncode == 1
    assert md5_of(operator, "/before") == expected
    for name in ("h2", "h3"):
        hosts.free_disk(name)
    wait_for(lambda: operator.run("dfs", "-put", "-f", "big", "/after").returncode == 0, "room", 90)
    assert md5_of(operator, "/after") == expected
    wait_for(lambda: healthy(operator), "all replicas are there", 90)


def test_a_slow_link_slows_a_transfer_no_more_than_its_share(four: Four) -> None:
    """Gate 14: one of the hosts at 20 Mbit/s; the file is whole and comes in bounded time."""
    hosts, operator = four
    hosts.shape("h3", "20mbit")
    content = os.urandom(5_000_000)
    (operator.home / "f").write_bytes(content)

    began_s = time.monotonic()
    operator.good("dfs", "-D", "dfs.replication=4", "-put", "f", "/f")  # h3 has all of it
    took_s = time.monotonic() - began_s
    hosts.shape("h3", "1gbit")

    assert md5_of(operator, "/f") == hashlib.md5(content).hexdigest()
    assert took_s < 60, took_s  # 5 MB at 20 Mbit/s are 2 s


def test_after_a_power_cut_with_full_disks_up_brings_back_reading_and_deleting(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Else nothing could be deleted, and the disks would be full for ever."""
    hosts = make_netns(2, disk_bytes=2 << 30)
    operator = operator_at(hosts)
    path = operator.write_cluster(install="none", python=sys.executable)
    operator.good("cluster", "up", "-f", path)
    content = os.urandom(3_000_000)
    (operator.home / "f").write_bytes(content)
    operator.good("dfs", "-put", operator.home / "f", "/f")

    for host in hosts.names:
        hosts.fill_disk(host)
        hosts.kill(host)
    for host in hosts.names:
        hosts.start(host)
    said = operator.good("cluster", "up", "-f", path)

    assert said.count("of ballast are given up") == 2
    operator.good("dfs", "-get", "/f", operator.home / "again")
    assert (operator.home / "again").read_bytes() == content
    operator.good("dfs", "-rm", "-skipTrash", "/f")
    assert "/f" not in operator.good("dfs", "-ls", "/")
