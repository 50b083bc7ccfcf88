"""docs/tutorial.md, typed as it stands, on five hosts; and how long the first step may take."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator
from tests.cluster.machine import ROOT, TestHosts

OperatorAt = Callable[[TestHosts], Operator]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def ssh_config(operator: Operator, names: list[str]) -> None:
    """What the reader of the tutorial has: `ssh node01` works without a password."""
    hosts = operator.hosts
    entries = [
        f"Host {n}\n HostName {hosts.address(h)}\n" for n, h in zip(names, hosts.names, strict=True)
    ]
    entries.append(f"Host *\n User root\n IdentityFile {operator.key}\n")
    (operator.home / ".ssh" / "config").write_text("".join(entries))


def type_in(operator: Operator, command: str) -> str:
    environment = dict(operator.environment)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=operator.home,
        env=environment,
        timeout=200,
    )
    assert ended.returncode == 0, f"$ {command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_the_tutorial_works_as_it_is_typed(make_netns: MakeHosts, operator_at: OperatorAt) -> None:
    """From five bare hosts to a running job, each step as one would type it."""
    operator = operator_at(make_netns(5, disk_bytes=4 << 30))
    ssh_config(operator, [f"node{n:02d}" for n in range(1, 6)])
    (yaml,) = re.findall(r"```yaml\n(.*?)```", TUTORIAL, re.S)
    # The hosts of this test share their file system but for /srv, and have no package index.
    extra = f"install: none\npython: {sys.executable}\ndefaults: {{dir: /srv/mrstream}}\n"
    (operator.home / "cluster.yaml").write_text(yaml + extra)
    commands = re.findall(r"^\$ (.*)$", TUTORIAL, re.M)
    assert len(commands) > 10

    said = {command: type_in(operator, command) for command in commands}

    counted = next(s for c, s in said.items() if c.startswith("mrstream -input /tutorial/numbers"))
    assert [line.split() for line in counted.splitlines()] == [["20000", str(d)] for d in range(10)]
    kept = next(s for c, s in said.items() if c.startswith("mrstream dfs -cat"))
    assert sorted(kept.split()) == sorted(counted.split())
    assert "Status: HEALTHY" in said["mrstream dfs -fsck /"]
    assert "cluster lab is well" in said["mrstream cluster doctor"]
    assert "cluster lab is down" in said["mrstream cluster down"]


def test_up_of_five_prepared_hosts_takes_at_most_three_times_five_logins(
    make_netns: MakeHosts, operator_at: OperatorAt
) -> None:
    """Prepared: software and daemons are there, so that the launcher itself is measured, against
    the same machine in the same moment: one quiet moment of ten is enough."""
    hosts = make_netns(5)
    operator = operator_at(hosts)
    path = operator.write_cluster()
    operator.good("cluster", "up", "-f", path)
    login = ["ssh", "-F", "none", "-i", str(operator.key)]
    login += ["-o", f"UserKnownHostsFile={operator.known_hosts}", "-o", "BatchMode=yes"]
    measured: list[tuple[float, float]] = []
    while not any(up_s <= 3 * logins_s for logins_s, up_s in measured):
        assert len(measured) < 10, measured
        began_s = time.perf_counter()
        for name in hosts.names:
            subprocess.run([*login, f"root@{hosts.address(name)}", "true"], check=True)
        between_s = time.perf_counter()
        operator.good("cluster", "up", "-f", path)
        measured.append((between_s - began_s, time.perf_counter() - between_s))
