"""`mrstream cluster` over real sshd, on network namespaces and on docker containers."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.frames import Kind, encode_frame
from mrstream.cluster.wire.messages import Health
from mrstream.cluster.wire.network import Connection, Identity
from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator, all_roles, no_daemon_left
from tests.cluster.machine import TestHosts, wait_for
from tests.cluster.netns import NetnsHosts

OperatorAt = Callable[[TestHosts], Operator]


class Pair(NamedTuple):
    """Two hosts on which a cluster runs, without guards; who uses it leaves it running."""

    hosts: TestHosts
    operator: Operator

    @property
    def path(self) -> Path:
        return self.operator.write_cluster(guard=False)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    hosts = NetnsHosts(2)
    try:
        made = Pair(hosts, Operator(tmp_path_factory.mktemp("pair") / "home", hosts))
        made.operator.good("cluster", "up", "-f", made.path)
        yield made
    finally:
        hosts.close()


def test_up_status_logs_up_again_and_down(make_both: MakeHosts, operator_at: OperatorAt) -> None:
    """The whole life of a cluster, as the guide tells it."""
    hosts = make_both(3)
    operator = operator_at(hosts)
    path = operator.write_cluster()

    said = operator.good("cluster", "up", "-f", path)

    assert "cluster t is up: 3 hosts, master h1" in said
    document = operator.status()
    assert document["name"] == "t" and document["master"] == "h1"
    assert operator.roles("up") == all_roles(operator)
    assert set(document["hosts"]["h1"]["roles"]) >= {"dfs.master", "dfs.chunkserver"}
    assert document["hosts"]["h2"]["address"] == hosts.address("h2")
    assert document["chunks"] == {"total": 0, "under_replicated": 0, "missing": 0, "corrupt": 0}
    assert "serving" in operator.good("cluster", "logs", "h2", "dfs.chunkserver")

    pids = {(h, r): s["pid"] for h, k in document["hosts"].items() for r, s in k["roles"].items()}
    operator.good("cluster", "up", "-f", path)
    again = operator.status()
    assert pids == {
        (h, r): s["pid"] for h, k in again["hosts"].items() for r, s in k["roles"].items()
    }

    assert "cluster t is down" in operator.good("cluster", "down")
    assert no_daemon_left(hosts)
    assert operator.roles("up", "-f", path) == set()


def test_after_power_was_cut_everywhere_up_brings_the_same_cluster_back(
    make_both: MakeHosts, operator_at: OperatorAt
) -> None:
    """Fault gate 26: same cluster id, no manual step, whatever the order, nothing lost."""
    hosts = make_both(3)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    operator.good("cluster", "up", "-f", path)
    before = operator.status()["id"]
    (operator.home / "file").write_bytes(os.urandom(3_000_000))
    operator.good("dfs", "-put", "file", "/kept")

    for name in ("h2", "h1", "h3"):
        hosts.kill(name)
    assert operator.roles("up") == set()
    for name in ("h3", "h2", "h1"):
        hosts.start(name)
    operator.good("cluster", "up", "-f", path)

    assert operator.status()["id"] == before
    operator.good("dfs", "-get", "/kept", "back")
    assert (operator.home / "back").read_bytes() == (operator.home / "file").read_bytes()
    operator.good("cluster", "down")


def test_doctor_names_what_was_killed_and_up_repairs_it_and_leaves_the_rest_alone(
    pair: Pair,
) -> None:
    hosts, operator = pair
    before = operator.status()["hosts"]
    pid = before["h2"]["roles"]["dfs.chunkserver"]["pid"]
    hosts.run("h2", "kill", "-9", str(pid))
    wait_for(lambda: ("h2", "dfs.chunkserver") in operator.roles("down"), "h2 is seen to be down")

    said = operator.refused("cluster", "doctor")
    operator.good("cluster", "up", "-f", pair.path)

    assert "h2: dfs.chunkserver does not run: `mrstream cluster up` starts it" in said
    after = operator.status()["hosts"]
    again = after["h2"]["roles"].pop("dfs.chunkserver")
    assert again["state"] == "up" and again["pid"] != pid
    assert {h: {r: s["pid"] for r, s in known["roles"].items()} for h, known in after.items()} == {
        h: {r: s["pid"] for r, s in known["roles"].items() if (h, r) != ("h2", "dfs.chunkserver")}
        for h, known in before.items()
    }


def test_a_host_that_is_down_is_named_and_the_cluster_comes_up_without_it(
    make_hosts: MakeHosts, operator_at: OperatorAt
) -> None:
    hosts = make_hosts(3)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    hosts.kill("h3")

    ended = operator.run("cluster", "up", "-f", path)

    assert ended.returncode == 0, ended.stderr
    assert "h3: FAILED" in ended.stderr and "does not answer" in ended.stderr
    assert "cluster t is up: 2 of 3 hosts" in ended.stdout
    assert ("h3", "dfs.chunkserver") in operator.roles("dead")
    hosts.start("h3")
    assert "3 hosts" in operator.good("cluster", "up", "-f", path)
    assert ("h3", "dfs.chunkserver") in operator.roles("up")


def test_a_master_that_is_down_stops_up_and_nothing_is_left(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    hosts = make_netns(3)
    operator = operator_at(hosts)
    hosts.kill("h1")

    said = operator.refused("cluster", "up", "-f", operator.write_cluster())

    assert "h1 (the master)" in said and "does not answer" in said
    hosts.start("h1")
    assert no_daemon_left(hosts)


def test_a_taken_port_is_named(pair: Pair) -> None:
    hosts, operator = pair
    path = operator.write_cluster("other", ports={"base": 7800}, guard=False)
    server = f"setsid python3 -m http.server --bind {hosts.address('h2')} 7801 >/dev/null 2>&1"
    pid = hosts.run("h2", "sh", "-c", f"{server} & echo $!").strip()
    wait_for(lambda: _answers(hosts.address("h2"), 7801), "the other program to listen")

    ended = operator.run("cluster", "up", "-f", path)

    assert "h2: FAILED: port 7801" in ended.stderr and "is taken" in ended.stderr
    assert ("h1", "dfs.master") in operator.roles("up", "-f", path)
    operator.good("cluster", "down", "-f", path)
    hosts.run("h2", "kill", pid)
    operator.good("cluster", "up", "-f", pair.path)  # the current one again


def test_a_full_disk_is_named(make_hosts: MakeHosts, operator_at: OperatorAt) -> None:
    hosts = make_hosts(2, disk_bytes=128 << 20)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    hosts.fill_disk("h2")

    ended = operator.run("cluster", "up", "-f", path)

    assert "h2: FAILED" in ended.stderr
    assert "No space left" in ended.stderr or "free; at least" in ended.stderr
    hosts.free_disk("h2")
    assert "2 hosts" in operator.good("cluster", "up", "-f", path)


def test_an_old_python_is_named_with_what_to_do(pair: Pair) -> None:
    hosts, operator = pair
    for host in hosts.names:
        old = hosts.disk(host) / "python3"
        old.write_text("#!/bin/sh\necho 3.8.2\nexit 1\n")
        old.chmod(0o755)
    path = operator.write_cluster("old", python="/srv/python3")

    said = operator.refused("cluster", "up", "-f", path)

    assert "too old (/srv/python3 is 3.8.2); mrstream needs 3.11" in said


def test_ctrl_c_during_up_leaves_nothing(make_hosts: MakeHosts, operator_at: OperatorAt) -> None:
    """Pressed when the first host was looked at, when daemons start, and when one is healthy."""
    hosts = make_hosts(3)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    for moment in ("free", "", "is up"):
        process = operator.start("cluster", "up", "-f", path)
        assert process.stdout is not None
        if moment:
            out = next(line for line in process.stdout if moment in line)
        else:
            out = ""
            wait_for(lambda: not no_daemon_left(hosts), "some daemon has been started")
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)

        assert "Traceback" not in err, err
        if "cluster t is up" in out + rest:  # it had ended its work a moment before
            operator.good("cluster", "down", "-f", path)
        else:
            assert process.returncode == 130, (out, rest, err)
            wait_for(lambda: no_daemon_left(hosts), "no daemon is left", 60)
    assert "3 hosts" in operator.good("cluster", "up", "-f", path)


def test_kill_9_of_up_leaves_nothing(make_netns: MakeHosts, operator_at: OperatorAt) -> None:
    """Nobody is left to clean up but the agents on the hosts."""
    hosts = make_netns(2)
    operator = operator_at(hosts)
    # Workers that do not come up: `up` cannot be quicker than we are.
    python = operator.home / "python"
    slow = '"-m mrstream.mapreduce.worker"'
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *{slow}*) sleep 300;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    process = operator.start("cluster", "up", "-f", operator.write_cluster(python=str(python)))
    wait_for(lambda: all(map(hosts.processes, hosts.names)), "every host has been begun with")

    process.kill()
    process.communicate()

    wait_for(lambda: no_daemon_left(hosts), "no daemon is left", 60)


def test_a_second_up_while_one_runs_is_refused_and_so_is_down(pair: Pair) -> None:
    """Two administrators at once. Workers wait at a gate, so that the first is at work until the
    others have been refused."""
    hosts, operator = pair
    operator.good("cluster", "down")
    gate, python = operator.home / "gate", operator.home / "gated-python"
    os.mkfifo(gate)
    waits = f'*"-m mrstream.mapreduce.worker"*) read word < {gate};;'
    python.write_text(f'#!/bin/sh\ncase "$*" in {waits} esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    path = operator.write_cluster(guard=False, python=str(python))
    both = os.open(gate, os.O_RDWR)  # whoever comes to the gate finds it open to be waited at
    try:
        first = operator.start("cluster", "up", "-f", path)
        wait_for(lambda: not no_daemon_left(hosts), "the first has started something")
        refused = [operator.refused("cluster", verb, "-f", path) for verb in ("up", "down")]
        os.write(both, b"go\n" * len(hosts.names))
        out, err = first.communicate(timeout=60)
    finally:
        os.close(both)

    assert first.returncode == 0, (out, err)
    for said in refused:
        assert said.count("another `mrstream cluster` command is at work on this host") == 2, said
    assert operator.roles("up") == all_roles(operator)
    operator.good("cluster", "up", "-f", pair.path)  # with the file that the others use


def test_a_connection_lost_during_up_costs_that_host_only(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    hosts = make_netns(3)
    operator = operator_at(hosts)
    process = operator.start("cluster", "up", "-f", operator.write_cluster())
    wait_for(lambda: bool(hosts.processes("h3")), "h3 has been started")

    hosts.kill("h3")
    out, err = process.communicate(timeout=120)

    if "h3: FAILED" in err:
        assert "2 of 3 hosts" in out
    assert process.returncode == 0, (out, err)
    hosts.start("h3")
    assert hosts.processes("h3") == []


def test_two_clusters_share_the_same_hosts(pair: Pair) -> None:
    operator = pair.operator
    one, two = pair.path, operator.write_cluster("two", ports={"base": 7800})

    operator.good("cluster", "up", "-f", two)

    assert operator.status("-f", one)["id"] != operator.status("-f", two)["id"]
    assert operator.status()["name"] == "two"
    operator.good("cluster", "down", "-f", two)
    assert operator.roles("up", "-f", one) == all_roles(operator, "-f", one)
    assert operator.roles("up", "-f", two) == set()
    operator.good("cluster", "up", "-f", one)  # the current one again


def test_one_name_for_two_clusters_is_refused_before_anything_is_touched(pair: Pair) -> None:
    """A host that holds another cluster of that name keeps it."""
    hosts, operator = pair
    path = pair.path
    identity = operator.home / ".mrstream" / "clusters" / "t" / "identity.json"
    before = json.loads(identity.read_text())["cluster_id"]
    identity.unlink()

    said = operator.refused("cluster", "up", "-f", path)

    assert "belongs to another cluster named t" in said
    assert before in hosts.run("h1", "cat", "/srv/mrstream/t/h1/identity.json")
    operator.good("cluster", "join", "-f", path)
    assert operator.status()["id"] == before


def test_a_stranger_at_a_daemons_port_gets_nowhere_and_the_daemon_lives(pair: Pair) -> None:
    """faults.md, security: wrong secret, wrong cluster, noise, and nothing on other addresses."""
    hosts, operator = pair
    cluster = operator.cluster()
    address = cluster.config.master_address("dfs.master")
    host, port = address.rsplit(":", 1)

    for noise in (b"GET / HTTP/1.0\r\n\r\n", bytes(encode_frame(Kind.CALL, 1, ["Health"]))):
        with socket.create_connection((host, int(port)), 60) as sock:
            sock.sendall(noise)
            sock.settimeout(60)
            assert len(sock.recv(4096)) < 1024
    for identity in (
        Identity(cluster.secret.cluster_id, b"x" * 32),
        Identity("another", cluster.secret.secret),
    ):
        try:
            Connection(address, identity).call(Health(), 60)
        except ClusterError as error:
            assert type(error).__name__ in ("NotTrusted", "WrongCluster")
        else:
            raise AssertionError("a stranger was let in")

    assert operator.roles("up") == all_roles(operator)
    log = operator.good("cluster", "logs", "h1", "dfs.master")
    assert "refused peer=" in log
    assert cluster.secret.secret.hex() not in log
    listening = hosts.run("h1", "sh", "-c", "cat /proc/net/tcp")
    assert "00000000:1E1" not in listening  # 7700 is 0x1E14: nothing listens on all addresses


def test_down_ends_by_force_what_does_not_stop_and_purge_removes_all(
    make_hosts: MakeHosts, operator_at: OperatorAt
) -> None:
    hosts = make_hosts(2)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    operator.good("cluster", "up", "-f", path)
    pid = operator.status()["hosts"]["h2"]["roles"]["dfs.chunkserver"]["pid"]
    hosts.run("h2", "kill", "-STOP", str(pid))

    said = operator.good("cluster", "down", "--purge", "--yes")

    assert "by force" in said and "its data is removed" in said
    assert no_daemon_left(hosts)
    assert not (hosts.disk("h2") / "mrstream" / "t" / "h2").exists()
    assert not (operator.home / ".mrstream" / "clusters" / "t").exists()


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True
