"""`lock: {}` in cluster.yaml is all that a cell needs: up starts it, status shows it, down ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local import wait_for
from tests.cluster.machine import switched_s
from tests.cluster.test_local_hosts import Laptop


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path / "laptop")
    yield made
    for pid in made.processes():
        os.kill(pid, signal.SIGKILL)


def test_a_cell_comes_up_with_its_cluster_and_its_files_outlive_a_restart(laptop: Laptop) -> None:
    """CH-08, CH-37: a cluster without the key gets one later, by `up` again."""
    file = laptop.home / "cluster.yaml"
    document = json.loads(file.read_text())
    document["hosts"] = {"h1": document["hosts"]["h1"]}
    file.write_text(json.dumps(document))
    laptop.good("cluster", "up")
    refused = laptop.run("lock", "ls", "/ls/local")
    assert refused.returncode == 1 and "has no lock cell: write `lock: {}`" in refused.stderr
    assert ("h1", "lock.master") not in laptop.roles()

    file.write_text(json.dumps({**document, "lock": {}}))
    laptop.good("cluster", "up")
    assert laptop.roles()["h1", "lock.master"]["detail"] == "serving, epoch 1"
    laptop.good("lock", "mkdir", "/ls/local/kept")
    assert laptop.good("lock", "ls", "/ls/here") == "acl\nkept\n"
    laptop.good("cluster", "down")
    assert laptop.processes() == []

    laptop.good("cluster", "up")
    assert laptop.roles()["h1", "lock.master"]["detail"] == "serving, epoch 2"
    assert laptop.good("lock", "ls", "/ls/local") == "acl\nkept\n"
    laptop.good("cluster", "down", "--purge", "--yes")


def test_a_cell_of_one_becomes_a_cell_of_three_that_outlives_its_leader(laptop: Laptop) -> None:
    """CH-01, CH-05: what one host kept is kept by three; kill -9 of who leads is a pause, no more;
    founding needs every host, or a person's word."""
    file = laptop.home / "cluster.yaml"
    document = {**json.loads(file.read_text()), "lock": {"session": "2s"}}
    file.write_text(json.dumps(document))
    laptop.good("cluster", "up")
    assert laptop.roles()["h1", "lock.master"]["detail"] == "serving, epoch 1"
    laptop.good("lock", "mkdir", "/ls/local/kept")

    # Epochs are counted below: a lease that a busy machine lets lapse would make one more.
    document |= {"masters": ["h1", "h2", "h3"], "failover_after": "10s"}
    file.write_text(json.dumps(document))
    said = laptop.good("cluster", "up")
    assert "WARNING: failover_after" not in said
    assert "h1: founds the group of lock.master" in said
    assert "h3: votes in the group of lock.master" in said
    assert "h3: votes in the group of mapreduce.master" in said
    assert laptop.good("lock", "ls", "/ls/local") == "acl\nkept\n"
    roles = laptop.roles()
    assert roles["h1", "lock.master"]["detail"] == "serving, leader, epoch 2"
    assert roles["h2", "lock.master"]["detail"].startswith("shadow of h1, epoch 2, ")

    status = json.loads(laptop.good("cluster", "status", "--json"))["groups"]["lock"]
    assert (status["leader"], status["epoch"], status["needed"]) == ("h1", 2, 2)
    assert {host: seen["state"] for host, seen in status["members"].items()} == {
        "h1": "leader", "h2": "shadow", "h3": "shadow",
    }  # fmt: skip
    assert "group lock: h1 leads epoch 2; 3 of 3" in laptop.good("cluster", "status")
    switches = [laptop.good("cluster", "switch", "h2", "lock")]
    assert switches[-1].startswith("h2 leads after h1, epoch 3")
    assert "member:    h2, leader" in laptop.good("lock", "cell")
    switches.append(laptop.good("cluster", "switch", "h3", "jobs"))
    assert switches[-1].startswith("h3 leads after h1, epoch 3")
    switches.append(laptop.good("cluster", "switch", "h3", "dfs"))
    assert min(map(switched_s, switches)) < 1.0, switches  # the best of three: cores are shared

    def leaders() -> int:
        first, *lines = laptop.good("cluster", "status").splitlines()
        assert first == "cluster here, master h3"
        return sum(", since " in line and ", epoch 3" in line for line in lines)

    # A dfs master that has just begun to lead says which chunkservers it waits for.
    wait_for(lambda: leaders() == 3, 60.0, "all three to say since when they lead")
    assert "Total jobs:0" in laptop.good("job", "-list")
    assert laptop.good("lock", "ls", "/ls/local") == "acl\nkept\n"

    os.kill(laptop.roles()["h2", "lock.master"]["pid"], signal.SIGKILL)

    def is_told() -> bool:
        doctor = laptop.run("cluster", "doctor").stdout
        return "h2 does not answer" in doctor and "the next failure stops it" in doctor

    wait_for(is_told, 120.0, "another to lead, and the doctor to see it")
    laptop.good("lock", "mkdir", "/ls/local/after")
    laptop.good("cluster", "up")
    assert laptop.good("lock", "ls", "/ls/local") == "acl\nafter\nkept\n"
    assert laptop.roles()["h2", "lock.master"]["detail"].startswith("shadow of h")
    laptop.good("cluster", "down", "--purge", "--yes")
    assert laptop.processes() == []
