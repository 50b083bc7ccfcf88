"""Backups of a running cluster, and the way back when every log is gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local import wait_for
from tests.cluster.test_local_hosts import Laptop

HOSTS = ("h1", "h2", "h3")


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path / "laptop", guard=True)
    yield made
    for _ in range(2):  # guards first: what they would have started is gone after that
        for pid in made.processes():
            os.kill(pid, signal.SIGKILL)


def test_all_logs_are_gone_and_a_backup_brings_three_masters_back(laptop: Laptop) -> None:
    """CH-07: names of before the backup are there, bytes and all; later ones were given up."""
    file = laptop.home / "cluster.yaml"
    document = json.loads(file.read_text())
    # No lead is lost here: a lease that a busy machine lets lapse would move it from h2.
    document |= {"masters": list(HOSTS), "failover_after": "10s", "lock": {}}
    document["backup"] = {"to": str(laptop.home / "by-itself"), "every": "1h"}
    file.write_text(json.dumps(document))
    laptop.good("cluster", "up")
    (laptop.home / "words").write_text("kept\n" * 1000)
    laptop.good("dfs", "-put", "words", "/before")
    laptop.good("lock", "mkdir", "/ls/local/before")
    said = laptop.good("cluster", "backup", "backups")
    path = said.rpartition("proven: ")[2].strip()
    assert os.path.isdir(path)
    laptop.good("dfs", "-put", "words", "/after")

    # Each host has also made one by itself, soon after `up`.
    wait_for(
        lambda: all(any((laptop.home / "by-itself" / host).glob("here-*")) for host in HOSTS),
        180.0, "a backup of each host",
    )  # fmt: skip

    wrong = laptop.run("cluster", "restore", "--master", "h2", "--yes")
    assert wrong.returncode == 1 and "a majority of masters has its log" in wrong.stderr
    laptop.good("cluster", "down")
    for host in HOSTS:
        for role in ("dfs.master", "lock.master", "mapreduce.master"):
            shutil.rmtree(laptop.home / host / "here" / host / role, ignore_errors=True)

    laptop.good("cluster", "restore", "--master", "h2", "--from", path, "--yes")

    assert laptop.good("dfs", "-cat", "/before") == "kept\n" * 1000
    assert laptop.run("dfs", "-test", "-e", "/after").returncode == 1
    assert laptop.good("lock", "ls", "/ls/local") == "acl\nbefore\n"
    laptop.good("dfs", "-put", "words", "/new")
    groups = json.loads(laptop.good("cluster", "status", "--json"))["groups"]
    for group in groups.values():
        assert sorted(group["voters"]) == list(HOSTS) and group["leader"] == "h2"
    laptop.good("cluster", "down", "--purge", "--yes")
    assert laptop.processes() == []
