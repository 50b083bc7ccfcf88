"""`mrstream top` and the pages while masters fail over: who leads, which epoch, what is wrong."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from mrstream.cluster.config.config import LOCK_MASTER
from mrstream.view.source import ClusterSource
from mrstream.view.watch import Watch
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for
from tests.cluster.terminal import Terminal
from tests.cluster.test_top import JOB_MASTER, TOP, WORKER, environment

LOGS = f"{MASTER}@logs"
MORE = "masters: [h1, h2, h3]\nfailover_after: 2s\nlock: {}\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    roles = (MASTER, LOGS, CHUNKSERVER, JOB_MASTER, WORKER, LOCK_MASTER)
    directory, cells = tmp_path_factory.mktemp("led"), {"cells": "{logs: {path: /logs}}"}
    with LocalCluster(directory, 3, roles=roles, dfs=cells, more=MORE) as started:
        yield started


@pytest.fixture
def watch(cluster: LocalCluster) -> Iterator[Watch]:
    source = ClusterSource(cluster.cluster)
    yield Watch(source)
    source.close()


def troubles(watch: Watch) -> list[str]:
    with watch.picture() as picture:
        return [said for view in picture.groups.values() if (said := view.trouble())]


def leader(watch: Watch, group: str) -> tuple[str, int]:
    with watch.picture() as picture:
        view = picture.groups.get(group)
        return (view.leader, view.epoch) if view else ("", 0)


def once(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOP, "--once", *words],
        env=environment(MRSTREAM_HOME=cluster.environment["MRSTREAM_HOME"]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_picture_changes_when_the_leader_of_the_dfs_is_killed(
    cluster: LocalCluster, watch: Watch
) -> None:
    """The operator sees who took over and what the next failure would cost, and the members
    of the lock cell and of cells of the dfs beside them."""
    wait_for(lambda: not troubles(watch) and leader(watch, "dfs")[0], 60, "a group that is well")
    with watch.picture() as picture:
        assert list(picture.groups) == ["dfs", "dfs@logs", "jobs", "lock"]
        assert all(len(view.answering) == 3 for view in picture.groups.values())
    before, epoch = leader(watch, "dfs")
    terminal = Terminal(
        environment(MRSTREAM_HOME=cluster.environment["MRSTREAM_HOME"]), columns=80, lines=24
    )
    try:
        terminal.run(TOP)
        terminal.wait("hosts 3/3")
        terminal.type("2")
        terminal.wait(f"★ {before} leader epoch {epoch}")

        cluster.kill(MASTER, before)
        trouble = f"dfs: {before} does not answer: the next failure stops writes"
        wait_for(lambda: troubles(watch) == [trouble], 60, "the next leader")
        after, later = leader(watch, "dfs")
        assert after != before and later > epoch
        with watch.picture() as picture:
            told = [event.text for event in picture.events if event.text.startswith("dfs: ")]
            assert told[-1] == f"dfs: {after} leads, epoch {later}"
        screen = terminal.wait(f"★ {after} leader epoch {later}")
        assert f"✗ {before} does not answer" in screen and f"✗ {trouble}" in screen
        assert "✗ no dfs master" in screen, screen
        terminal.wait(f"ago: dfs: {after} leads, epoch {later}")

        cluster.start(MASTER, before)
        wait_for(lambda: not troubles(watch), 60, "all to be well again")
        terminal.wait(f"○ {before} shadow 0.")
        terminal.type("q")
    finally:
        terminal.close()


def test_a_group_without_a_quorum_is_said_where_its_master_is_asked_in_vain(
    cluster: LocalCluster, watch: Watch
) -> None:
    wait_for(lambda: not troubles(watch), 60, "groups that are well")
    picture = json.loads(once(cluster, "--json").stdout)["groups"]
    assert {name: group["trouble"] for name, group in picture.items()} == dict.fromkeys(
        ("dfs", "dfs@logs", "jobs", "lock")
    )
    assert picture["lock"]["since"] > 0

    for host in ("h1", "h2"):
        cluster.kill(JOB_MASTER, host)
    wait_for(
        lambda: troubles(watch) == ["jobs: no quorum (1 of 3): changes are refused"], 60, "the loss"
    )
    with watch.picture() as seen:
        assert seen.lost_reason, "the job master does not answer, and the picture says why"
    said = once(cluster)

    assert said.returncode == 1 and not said.stdout
    assert said.stderr.startswith("Trouble: jobs: no quorum (1 of 3): changes are refused\n")
    for host in ("h1", "h2"):
        cluster.start(JOB_MASTER, host)
    wait_for(lambda: not troubles(watch), 60, "all to be well again")
    lines = once(cluster).stdout.splitlines()
    assert sum(line.startswith("jobs ") for line in lines) == 3
    assert not [line for line in lines if line.startswith("Trouble")]


def test_a_switch_is_refused_while_another_command_is_at_work_on_the_hosts(
    cluster: LocalCluster, watch: Watch
) -> None:
    """Decision 20: two administrators at once are kept apart by the agents' lock."""
    from mrstream.cluster.hosts.launcher import Hosts

    before = wait_for(lambda: leader(watch, "lock")[0] or None, 60, "a leader")
    heir = next(host for host in cluster.hosts if host != before)
    with Hosts(cluster.config, ["h3"]) as hosts:
        hosts.open(lock=True)
        assert not hosts.failed
        refused = cluster.mrstream("cluster", "switch", heir, "lock")

    assert refused.returncode != 0
    assert b"h3: another `mrstream cluster` command is at work on this host" in refused.stderr
    done = cluster.mrstream("cluster", "switch", heir, "lock")
    assert done.stdout.startswith(f"{heir} leads after {before}, epoch ".encode()), done.stderr
