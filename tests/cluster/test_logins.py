"""Logins over real sshd: keys and host keys, ssh_config, MaxStartups, and another user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator, all_roles
from tests.cluster.machine import TestHosts

OperatorAt = Callable[[TestHosts], Operator]


def test_a_refused_key_is_explained(make_netns: MakeHosts, operator_at: OperatorAt) -> None:
    """Fault gate 25."""
    hosts = make_netns(2)
    operator = operator_at(hosts)
    stranger = operator.home / "stranger"
    os.system(f"ssh-keygen -q -t ed25519 -N '' -f {stranger}")
    path = operator.write_cluster(defaults={"key": str(stranger)})

    said = operator.refused("cluster", "up", "-f", path)

    assert "refused the login of root" in said and f"tried {stranger}" in said
    assert f"ssh-copy-id root@{hosts.address('h1')}" in said


def test_all_unknown_host_keys_are_told_at_once_with_the_lines_to_type(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Else each `up` would name one more host. What is typed then makes them known."""
    hosts = make_netns(3)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    operator.known_hosts.unlink()

    said = operator.refused("cluster", "up", "-f", path)

    assert said.count("is not in known_hosts") == said.count("SHA256:") == 3
    lines = [line.strip() for line in said.splitlines() if "ssh-keyscan" in line]
    assert lines == [
        f"ssh-keyscan {hosts.address(h)} >> {operator.known_hosts}" for h in hosts.names
    ]

    operator.know("h1")
    alone = operator.run("cluster", "up", "-f", path)
    assert alone.returncode == 1 and "is up: 1 of 3 hosts" in alone.stdout
    assert "half of the hosts or more are missing; --partial" in alone.stderr
    assert alone.stderr.count("ssh-keyscan") == 2
    operator.good("cluster", "up", "--partial", "-f", path)


def test_an_unknown_and_a_changed_host_key_are_refused_by_name(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Fault gate 25; faults.md: with what to do about it."""
    hosts = make_netns(3)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    operator.know("h1")
    with open(operator.known_hosts, "a") as file:
        file.write(f"{hosts.address('h2')} {hosts.host_key('h1')}\n")

    ended = operator.run("cluster", "up", "-f", path)

    assert "h2: FAILED: the host key of" in ended.stderr and "CHANGED" in ended.stderr
    assert f"ssh-keygen -R {hosts.address('h2')}" in ended.stderr
    assert "h3: FAILED: the host key of" in ended.stderr
    assert "is not in known_hosts" in ended.stderr and "SHA256:" in ended.stderr


def test_a_new_host_key_that_may_be_accepted_is_written_down_and_another_is_refused(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """`StrictHostKeyChecking accept-new`, as ssh has it."""
    hosts = make_netns(2)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    operator.known_hosts.unlink()
    (operator.home / ".ssh" / "config").write_text("Host *\n StrictHostKeyChecking accept-new\n")

    operator.good("cluster", "up", "-f", path)

    known = operator.known_hosts.read_text().splitlines()
    assert sorted(known) == sorted(f"{hosts.address(h)} {hosts.host_key(h)}" for h in hosts.names)
    operator.know("h1")
    with open(operator.known_hosts, "a") as file:
        file.write(f"{hosts.address('h2')} {hosts.host_key('h1')}\n")
    assert "CHANGED" in operator.run("cluster", "up", "-f", path).stderr


def test_ssh_config_gives_names_addresses_users_and_keys(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    hosts = make_netns(2)
    operator = operator_at(hosts)
    entries = [f"Host {h}\n HostName {hosts.address(h)}\n" for h in hosts.names]
    entries.append(f"Host *\n User root\n IdentityFile {operator.key}\n")
    (operator.home / ".ssh" / "config").write_text("".join(entries))
    path = operator.home / "plain.yaml"
    path.write_text(
        json.dumps(
            {
                "name": "plain",
                "install": "none",
                "python": sys.executable,
                "defaults": {"dir": "/srv/mrstream"},
                "hosts": {"h1": {}, "h2": {}},
            }
        )
    )

    operator.good("cluster", "up", "-f", path)

    assert operator.roles("up") == all_roles(operator)
    assert operator.status()["hosts"]["h2"]["address"] == hosts.address("h2")


def test_join_gives_another_user_the_cluster(
    make_hosts: MakeHosts, operator_at: OperatorAt
) -> None:
    hosts = make_hosts(2)
    operator = operator_at(hosts)
    operator.good("cluster", "up", "-f", operator.write_cluster())
    other = Operator(operator.home.parent / "other", hosts)
    config = other.home / ".ssh" / "config"
    config.write_text(
        f"Host boss\n HostName {hosts.address('h1')}\n User root\n IdentityFile {other.key}\n"
    )

    lost = other.refused("cluster", "join", "boss")
    assert "has no cluster in ~/.mrstream: if its cluster.yaml says another `dir`, name" in lost
    said = other.good("cluster", "join", "boss", "--dir", "/srv/mrstream")

    assert "joined cluster t" in said
    assert other.roles("up") == all_roles(other)
    kept = other.home / ".mrstream" / "clusters" / "t" / "identity.json"
    assert kept.stat().st_mode & 0o777 == 0o600


TWENTY_LOGINS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from mrstream.cluster.config.config import load
from mrstream.cluster.hosts.ssh import connect
[host] = load(sys.argv[1]).hosts
def log_in(number):
    with connect(host) as client:
        return client.exec_command(f"echo {number}")[1].read().decode().strip()
with ThreadPoolExecutor(20) as twenty:
    print(*twenty.map(log_in, range(20)))
"""


def test_twenty_logins_succeed_at_one_sshd_that_lets_in_few_at_once(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Fault gate 25: MaxStartups exceeded; logins are few at a time, and dropped ones repeated."""
    hosts = make_netns(1, sshd_extra="MaxStartups 4:40:20")
    operator = operator_at(hosts)
    path = operator.write_cluster()

    ended = subprocess.run(
        [sys.executable, "-c", TWENTY_LOGINS, str(path)],
        env=operator.environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert ended.stdout.split() == [str(number) for number in range(20)], ended.stderr
    log = (hosts.site.directory / "h1.log").read_text()
    assert "MaxStartups" in log, "sshd dropped no login: nothing was tried"
