"""Guards of a real cluster: what ends comes back; masters that are lost are replaced."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.journal.format import RECORD_HEADER
from mrstream.cluster.journal.group_recovery import HEADER_BYTES
from tests.cluster.local import wait_for
from tests.cluster.test_local_hosts import Laptop

LIMIT_S = 180.0
"""Only a net: a crowded machine takes long, a broken one for ever."""


class Guarded(Laptop):
    """A laptop whose cluster has guards."""

    def write(self, count: int, **changes: Any) -> None:
        file = self.home / "cluster.yaml"
        document = json.loads(file.read_text())
        first = document["hosts"]["h1"]["address"].rpartition(".")[0]
        document["hosts"] = {
            f"h{n}": {"address": f"{first}.{n}", "dir": f"{self.home}/h{n}"}
            for n in range(1, count + 1)
        }
        file.write_text(json.dumps({**document, **changes}))

    def place(self, host: str) -> Path:
        return self.home / host / "here" / host

    def group(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("cluster", "status", "--json").stdout)
        return dict(found["groups"]["dfs"])

    def states(self) -> dict[str, str]:
        return {host: one["state"] for host, one in self.group()["members"].items()}


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path / "laptop", guard=True)
    yield made
    for _ in range(2):  # guards first: what they would have started is gone after that
        for pid in made.processes():
            os.kill(pid, signal.SIGKILL)


def test_what_ends_comes_back_a_dead_guard_is_told_and_down_leaves_nothing(
    laptop: Guarded,
) -> None:
    laptop.write(1)
    laptop.good("cluster", "up")
    assert laptop.good("cluster", "doctor") == "cluster here is well\n"
    pid = laptop.roles()["h1", "mapreduce.worker"]["pid"]
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        role = laptop.roles()["h1", "mapreduce.worker"]
        return role["ready"] and role["pid"] != pid

    wait_for(is_back, LIMIT_S, "the guard to start it again")
    assert "h1: its guard has started mapreduce.worker again, once" in laptop.good(
        "cluster", "status"
    )
    guard = json.loads((laptop.place("h1") / "run" / "cluster.agent.guard.json").read_text())
    os.kill(guard["pid"], signal.SIGKILL)
    assert "h1 has no guard: `mrstream cluster up` starts it" in laptop.good("cluster", "status")
    told = laptop.run("cluster", "doctor")
    assert told.returncode == 1 and "h1: no guard runs" in told.stdout
    laptop.good("cluster", "up")
    laptop.good("cluster", "down")
    assert laptop.processes() == []


def comes_back(laptop: Guarded, host: str, before: int) -> None:
    """Wait until a master that was killed is a member that votes again."""

    def is_back() -> bool:
        pid = laptop.roles()[host, "dfs.master"]["pid"]
        return pid not in (None, before) and laptop.states()[host] in ("shadow", "leader")

    wait_for(is_back, LIMIT_S, f"{host} to be a member again")


def test_masters_without_a_log_rejoin_by_themselves_and_a_lost_host_is_replaced(
    laptop: Guarded,
) -> None:
    """CH-05: nobody types anything for the first two; one command does the third."""
    laptop.write(
        4, masters=["h1", "h2", "h3"], failover_after="1s", dfs={"dead_after": "3s"},
    )  # fmt: skip
    said = laptop.good("cluster", "up")
    assert ": WARNING: failover_after is 1s: a busy host may lose the lead" in said
    (laptop.home / "words").write_text("kept\n")
    laptop.good("dfs", "-put", "words", "/kept")
    assert sorted(laptop.states()) == ["h1", "h2", "h3"]  # who leads, with so short a lease, varies

    before = {host: laptop.roles()[host, "dfs.master"]["pid"] for host in ("h2", "h3")}
    shutil.rmtree(laptop.place("h3") / "dfs.master")
    os.kill(before["h3"], signal.SIGKILL)
    comes_back(laptop, "h3", before["h3"])
    logs = laptop.place("h2") / "dfs.master" / "oplog"
    log = next(logs.glob("log-*"))
    os.kill(before["h2"], signal.SIGKILL)
    whole = bytearray(log.read_bytes())
    whole[HEADER_BYTES + RECORD_HEADER.size] ^= 1  # later records know that this one was durable
    log.write_bytes(whole)
    comes_back(laptop, "h2", before["h2"])
    assert len(list(logs.parent.glob("oplog.damaged-*"))) == 1
    assert len(laptop.group()["voters"]) == 3

    for _ in range(2):
        for pid in laptop.processes():
            if str(laptop.place("h1")).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(laptop.home / "h1")
    (laptop.home / "h1").write_text("no directory: this host cannot be used")
    laptop.run("cluster", "down")
    ended = laptop.run("cluster", "up")
    assert ended.returncode == 0, ended.stderr
    assert "h1: FAILED: " in ended.stderr and "2 of 3 masters are up, and 2 must be" in ended.stderr
    assert laptop.good("dfs", "-cat", "/kept") == "kept\n"
    (laptop.home / "h1").unlink()
    said = laptop.good("cluster", "remove", "h1", "--lost")
    assert "h4: takes the place of h1 in masters" in said
    wait_for(lambda: sorted(laptop.states()) == ["h2", "h3", "h4"], LIMIT_S, "the new list")
    assert sorted(laptop.group()["voters"]) == ["h2", "h3", "h4"]
    assert laptop.good("dfs", "-cat", "/kept") == "kept\n"
    laptop.good("cluster", "down", "--purge", "--yes")
    assert laptop.processes() == []
