"""A new version over a cluster that runs an older one: nothing is lost, nothing is left running."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mrstream.cluster.agent.guard import ROLE as GUARD
from mrstream.cluster.config.config import DFS_MASTER, HOST_ROLES, MAPREDUCE_MASTER
from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts

OperatorAt = Callable[[TestHosts], Operator]
MASTER_ROLES = (DFS_MASTER, MAPREDUCE_MASTER)
RELEASES = Path(__file__).parent / "releases"
BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")


@dataclasses.dataclass
class Older:
    """The same person with an older version at hand, which needs the same libraries."""

    operator: Operator
    place: Path

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command of that version."""
        code = "import sys; from streaming.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *map(str, words)],
            env={**self.operator.environment, "PYTHONPATH": str(self.place)},
            cwd=self.operator.home, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip

    def good(self, *words: str | Path) -> str:
        """Run a command of that version, which must succeed."""
        ended = self.run(*words)
        assert ended.returncode == 0, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def python(self) -> str:
        """Give a Python for the hosts that has that version, and needs no installing."""
        python = self.place / "bin" / "python"
        python.parent.mkdir(exist_ok=True)
        python.write_text(f'#!/bin/sh\nPYTHONPATH={self.place} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return str(python)


def stored(hosts: TestHosts, host: str) -> str:
    """Digests of all that the dfs keeps on a host's disk: log, checkpoints, chunks."""
    script = "find /srv/mrstream -path '*/dfs.*/*' -type f ! -name '*.lock' -print0"
    return hosts.run(host, "sh", "-c", f"{script} | sort -z | xargs -0 sha256sum")


def modules_run(hosts: TestHosts) -> set[str]:
    """What is run with `-m` on any of the hosts."""
    script = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
    said = "".join(hosts.run(host, "sh", "-c", script) for host in hosts.names)
    return set(re.findall(r" -m (\S+) --host ", said))


@pytest.fixture
def older(tmp_path: Path) -> Callable[[Operator], Older]:
    """The last version that installed five packages instead of one (`python -m dfs.master`)."""
    with tarfile.open(RELEASES / "five-names.tar.xz") as archive:
        archive.extractall(tmp_path / "older", filter="data")
    return lambda operator: Older(operator, tmp_path / "older")


def test_up_replaces_a_running_older_version_and_keeps_its_data(
    make_netns: MakeHosts, operator_at: OperatorAt, older: Callable[[Operator], Older]
) -> None:
    """Role names, state directories and logs are the same; only the module is called otherwise, so
    that the daemons of before must be known by their old names."""
    hosts = make_netns(1, disk_bytes=3 << 30)
    operator = operator_at(hosts)
    before = older(operator)
    path = operator.write_cluster(install="wheelhouse", python=BARE_PYTHON, masters=None)
    before.good("cluster", "up", "-f", path)
    content = os.urandom(3_000_000)
    (operator.home / "f").write_bytes(content)
    (operator.home / "text").write_text("to be or not to be\n" * 1000)
    before.good("dfs", "-put", "f", "text", "/")
    words = ["-input", "/text", "-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c"]
    before.good(*words, "-output", "/out")
    counted = before.good("dfs", "-cat", "/out/part-*")
    listed = before.good("dfs", "-ls", "-R", "/")
    status = json.loads(before.good("cluster", "status", "--json"))
    assert modules_run(hosts) == {*MASTER_ROLES, *HOST_ROLES}

    said = operator.good("cluster", "up", "-f", path, timeout_s=280)

    ran = sum(len(known["roles"]) for known in status["hosts"].values())
    assert said.count("ran another build; it is started anew") == ran
    roles = (*MASTER_ROLES, *HOST_ROLES, GUARD)
    assert modules_run(hosts) == {f"mrstream.{role}" for role in roles}
    assert operator.good("dfs", "-ls", "-R", "/") == listed
    operator.good("dfs", "-get", "/f", "back")
    assert (operator.home / "back").read_bytes() == content
    operator.good(*words, "-output", "/again")
    assert operator.good("dfs", "-cat", "/again/part-*") == counted
    assert sorted(operator.status()) == sorted([*status, "groups", "log_copies"])
    assert "no process is left" in operator.good("cluster", "down")


def test_up_makes_a_group_of_three_of_an_older_versions_lone_master(
    make_netns: MakeHosts, operator_at: OperatorAt, older: Callable[[Operator], Older]
) -> None:
    """The log of before is that of the first member; the other two get it from there, and the
    copies that the older version kept are gone."""
    hosts = make_netns(3)
    operator = operator_at(hosts)
    before = older(operator)
    path = operator.write_cluster(python=before.python(), masters=None)
    before.good("cluster", "up", "-f", path)
    (operator.home / "f").write_bytes(content := os.urandom(300_000))
    before.good("dfs", "-put", "f", "/f")
    assert [host for host in hosts.names if list(hosts.disk(host).glob("**/log-copies"))]

    operator.good("cluster", "up", "-f", operator.write_cluster(masters=None), timeout_s=240)

    after = operator.status()
    assert all(known["roles"].keys() >= {*MASTER_ROLES} for known in after["hosts"].values())
    for group in after["groups"].values():
        assert (group["leader"], len(group["voters"])) == ("h1", 3)
    assert not [host for host in hosts.names if list(hosts.disk(host).glob("**/log-copies"))]
    operator.good("dfs", "-get", "/f", "back")
    assert (operator.home / "back").read_bytes() == content


def test_down_of_this_version_ends_a_running_older_one(
    make_netns: MakeHosts, operator_at: OperatorAt, older: Callable[[Operator], Older]
) -> None:
    hosts = make_netns(1)
    operator = operator_at(hosts)
    before = older(operator)
    path = operator.write_cluster(python=before.python(), masters=None)
    before.good("cluster", "up", "-f", path)
    assert modules_run(hosts) == {*MASTER_ROLES, *HOST_ROLES}

    assert "no process is left" in operator.good("cluster", "down")
    assert hosts.processes("h1") == []


def test_the_way_back_is_refused_before_anything_is_touched(
    make_netns: MakeHosts, operator_at: OperatorAt, older: Callable[[Operator], Older]
) -> None:
    """Gate 27: what this version wrote an older one does not understand. It says so and leaves all
    of it as it is, and this version goes on with it."""
    hosts = make_netns(1)
    operator = operator_at(hosts)
    before = older(operator)
    theirs = {"python": before.python(), "masters": None}
    before.good("cluster", "up", "-f", operator.write_cluster(**theirs))
    (operator.home / "f").write_bytes(content := os.urandom(300_000))
    before.good("dfs", "-put", "f", "/old")
    before.good("cluster", "down")
    operator.good("cluster", "up", "-f", operator.write_cluster(masters=None))
    operator.good("dfs", "-put", "f", "/new")
    operator.good("cluster", "down")
    kept = stored(hosts, "h1")

    back = before.run("cluster", "up", "-f", operator.write_cluster(**theirs))
    before.run("cluster", "down")

    assert back.returncode == 1 and "is of a newer version" in back.stderr, back
    assert stored(hosts, "h1") == kept and "oplog" in kept and "chunks" in kept
    operator.good("cluster", "up", "-f", operator.write_cluster(masters=None))
    for name in ("old", "new"):
        operator.good("dfs", "-get", f"/{name}", name)
        assert (operator.home / name).read_bytes() == content
