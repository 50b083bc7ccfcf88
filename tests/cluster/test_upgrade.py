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
from mrstream.cluster.config.config import HOST_ROLES, MASTER_ROLES
from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts

OperatorAt = Callable[[TestHosts], Operator]
RELEASES = Path(__file__).parent / "releases"
BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")


@dataclasses.dataclass
class Older:
    """The same person with an older version at hand, which needs the same libraries."""

    operator: Operator
    place: Path

    def good(self, *words: str | Path) -> str:
        """Run a command of that version, which must succeed."""
        code = "import sys; from streaming.cli import main; sys.exit(main())"
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code, *map(str, words)],
            env={**self.operator.environment, "PYTHONPATH": str(self.place)},
            cwd=self.operator.home, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        assert ended.returncode == 0, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout


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
    hosts = make_netns(3, disk_bytes=3 << 30)
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
    assert operator.good("dfs", "-cat", "/again/part-*") == before.good(
        "dfs", "-cat", "/out/part-*"
    )
    after = operator.status()
    assert sorted(after) == sorted([*status, "groups", "log_copies"])
    # The log of the lone master has become that of three, and the copies of it are gone.
    assert all(known["roles"].keys() >= {*MASTER_ROLES} for known in after["hosts"].values())
    for group in after["groups"].values():
        assert (group["leader"], len(group["voters"])) == ("h1", 3)
    assert not [host for host in hosts.names if list(hosts.disk(host).glob("**/log-copies"))]
    assert "no process is left" in operator.good("cluster", "down")


def test_down_of_this_version_ends_a_running_older_one(
    make_netns: MakeHosts, operator_at: OperatorAt, older: Callable[[Operator], Older]
) -> None:
    hosts = make_netns(1)
    operator = operator_at(hosts)
    before = older(operator)
    python = before.place / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={before.place} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    path = operator.write_cluster(python=str(python), masters=None)
    before.good("cluster", "up", "-f", path)
    assert modules_run(hosts) == {*MASTER_ROLES, *HOST_ROLES}

    assert "no process is left" in operator.good("cluster", "down")
    assert hosts.processes("h1") == []
