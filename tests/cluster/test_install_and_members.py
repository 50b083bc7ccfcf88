"""Software onto bare hosts; hosts that come and go; a master that is lost for good."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Metrics
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.client.client import client_of
from mrstream.dfs.client.reader import DfsReader
from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts, wait_for

OperatorAt = Callable[[TestHosts], Operator]
BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")


def put_random(operator: Operator, name: str, size: int) -> bytes:
    content = os.urandom(size)
    (operator.home / name).write_bytes(content)
    operator.good("dfs", "-put", name, f"/{name}")
    return content


def get(operator: Operator, name: str) -> bytes:
    back = operator.home / f"{name}.back"
    back.unlink(missing_ok=True)
    operator.good("dfs", "-get", f"/{name}", back)
    return back.read_bytes()


@contextlib.contextmanager
def read_all_the_time(operator: Operator, name: str, content: bytes) -> Iterator[list[str]]:
    """Read a file over and over meanwhile; the list says how each reading went."""
    went: list[str] = []
    ended = threading.Event()

    def read() -> None:
        with client_of(operator.cluster()) as client:
            while not ended.is_set():
                try:
                    with DfsReader(client, f"/{name}") as file:
                        went.append("same" if file.read() == content else "other bytes")
                except ClusterError as error:
                    went.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield went
    finally:
        ended.set()
        thread.join()


def in_step(operator: Operator) -> bool:
    cluster = operator.cluster()
    address = cluster.config.master_address("dfs.master")
    with Connection(address, cluster.identity(), role="dfs.master") as connection:
        figures = connection.call(Metrics())
    return bool(figures["log_copies_in_step"] == figures["log_copies_wanted"] > 0)


@pytest.mark.timeout(600)
def test_a_wheelhouse_installs_on_hosts_without_a_network_once(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """The hosts' network has no way out: everything must come from us, asked for or not; what is
    there by its hash is not sent again. An extra that the file gets later comes in an environment
    of its own."""
    hosts = make_netns(1, disk_bytes=2 << 30)
    operator = operator_at(hosts)
    path = operator.write_cluster(install="wheel", python=BARE_PYTHON)

    said = operator.good("cluster", "up", "-f", path, timeout_s=280)

    assert "h1: installing mrstream-" in said
    assert "h1: no way from there to the package index? All is sent from here" in said
    (why,) = [line for line in said.splitlines() if "cannot install mrstream" in line]
    assert "ERROR: " in why and len(why) < 600
    command = "".join(hosts.processes("h1"))
    assert "/srv/mrstream/versions/" in command
    content = put_random(operator, "f", 2_000_000)
    assert get(operator, "f") == content
    operator.good("cluster", "down")
    assert "installing" not in operator.good("cluster", "up", "-f", path)

    path = operator.write_cluster(install="wheelhouse", python=BARE_PYTHON, extras=["mount"])
    said = operator.good("cluster", "up", "-f", path, timeout_s=280)

    assert ") with mount\n" in said
    assert said.count("ran with other extras; it is started anew") == 4
    command = "".join(hosts.processes("h1"))
    assert "/venv-mount/bin/python" in command and "/venv/bin/python" not in command
    found = "/srv/mrstream/versions/*/venv*/lib/python*/site-packages/mfusepy.py"
    (there,) = hosts.run("h1", "sh", "-c", f"ls {found}").split()
    assert "/venv-mount/" in there
    assert get(operator, "f") == content
    operator.good("cluster", "down")


def test_a_host_is_added_and_another_removed_without_a_moment_of_fewer_replicas(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Fault gate 28: under load, and with no moment in which a file cannot be read."""
    hosts = make_netns(4)
    operator = operator_at(hosts)
    all_four = operator.write_cluster(dfs={"replication": 2})
    three = {name: {"address": hosts.address(name)} for name in ("h1", "h2", "h3")}
    text = all_four.read_text()
    path = operator.write_cluster(dfs={"replication": 2})
    document = json.loads(text)
    document["hosts"] = three
    path.write_text(json.dumps(document))
    operator.good("cluster", "up", "-f", path)
    content = put_random(operator, "f", 6_000_000)

    path.write_text(text)
    with read_all_the_time(operator, "f", content) as reads:
        operator.good("cluster", "add", "h4", "-f", path)
        assert ("h4", "dfs.chunkserver") in operator.roles("up")
        said = operator.good("cluster", "remove", "h2")
        seen = len(reads)
        wait_for(lambda: len(reads) > seen, "a read after all of it")

    assert set(reads) == {"same"}
    assert "h2: down; no process is left" in said
    assert hosts.processes("h2") == []
    assert set(operator.status()["hosts"]) == {"h1", "h3", "h4"}
    wait_for(lambda: operator.status()["chunks"]["under_replicated"] == 0, "all chunks are safe")
    assert operator.status()["chunks"]["missing"] == 0
    assert get(operator, "f") == content
    assert "runs the masters" in operator.refused("cluster", "remove", "h1")


def test_a_host_that_is_gone_for_good_is_taken_out_without_a_login(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """What it held is copied from the other replicas; a host that is not lost is not given up."""
    hosts = make_netns(4)
    operator = operator_at(hosts)
    path = operator.write_cluster(dfs={"replication": 2, "dead_after": "3s"})
    operator.good("cluster", "up", "-f", path)
    content = put_random(operator, "f", 4_000_000)
    assert "h3 is not lost" in operator.refused("cluster", "remove", "h3", "--lost")

    hosts.kill("h3")
    said = operator.good("cluster", "remove", "h3", "--lost")

    assert "h3 is out of cluster t" in said
    assert set(operator.status()["hosts"]) == {"h1", "h2", "h4"}
    wait_for(lambda: operator.status()["chunks"]["under_replicated"] == 0, "all chunks are safe")
    assert get(operator, "f") == content
    hosts.kill("h4")
    wait_for(lambda: _is_given_up(operator, "h4"), "the master gives h4 up")
    assert "`mrstream cluster remove h4 --lost`" in operator.refused("cluster", "remove", "h4")


def _is_given_up(operator: Operator, host: str) -> bool:
    with client_of(operator.cluster()) as client:
        servers = client.report().servers
    return any(s.address.server == host and s.state == "dead" for s in servers)


def test_a_master_whose_disk_is_gone_is_restored_elsewhere_with_everything(
    make_hosts: MakeHosts, operator_at: OperatorAt
) -> None:
    """GFS-16, GFS-76: of two hosts both have the log before anyone is told; a person lets the other
    one go on, under the same name, and nothing acknowledged is lost."""
    hosts = make_hosts(2)
    operator = operator_at(hosts)
    path = operator.write_cluster(masters=None)
    assert "listens to the group of dfs.master" in operator.good("cluster", "up", "-f", path)
    wait_for(lambda: in_step(operator), "the other log is in step")
    content = put_random(operator, "f", 4_000_000)
    operator.good("dfs", "-mkdir", "-p", "/a/b/c")

    hosts.kill("h1")
    for entry in hosts.disk("h1").iterdir():
        if entry.name != "lost+found":
            shutil.rmtree(entry)
    assert "changes that only h1 had" in operator.refused("cluster", "restore", "--master", "h2")
    said = operator.good("cluster", "restore", "--master", "h2", "--yes", timeout_s=200)

    assert "master h2" in said
    status = operator.status()
    assert status["master"] == "h2"
    assert status["hosts"]["h2"]["roles"]["dfs.master"]["state"] == "up"
    assert get(operator, "f") == content
    assert "/a/b/c" in operator.good("dfs", "-ls", "/a/b")
    hosts.start("h1")
    operator.good("cluster", "up")
    assert ("h1", "dfs.chunkserver") in operator.roles("up")
    wait_for(lambda: operator.status()["chunks"]["under_replicated"] == 0, "repaired", 90)
    assert get(operator, "f") == content
    groups = operator.status()["groups"]
    assert {name: group["leader"] for name, group in groups.items()} == {"dfs": "h2", "jobs": "h2"}
    assert groups["dfs"]["members"]["h1"]["state"] == "learner"
