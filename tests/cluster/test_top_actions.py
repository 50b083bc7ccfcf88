"""Every action of the monitor, done by its keys to a real three-host cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, RichLog

from mrstream.cluster.config.config import Cluster
from mrstream.dfs.client import writer
from mrstream.tui.app import Monitor
from mrstream.tui.screens.attempt import AttemptScreen
from mrstream.tui.screens.confirm import Ask, Confirm
from mrstream.tui.screens.files import FilesScreen
from mrstream.tui.screens.job import JobScreen
from mrstream.tui.screens.report import ReportScreen
from mrstream.tui.widgets.table import RowTable
from mrstream.view.source import ClusterSource
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster

ROLES = (MASTER, CHUNKSERVER, "mapreduce.master", "mapreduce.worker")
ROOT = str(Path(__file__).parent.parent.parent)
# Waits for ever: whoever watches decides when it ends.
PATIENT = "bash -c 'echo here I am >&2; cat; exec sleep 600'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("actions"), 3, roles=ROLES) as started:
        with writer.create(started.client(), "/in/words.txt") as file:
            file.write(b"to be or not to be\n" * 100)
        yield started


@pytest.fixture
def job(cluster: LocalCluster) -> Iterator[subprocess.Popen[bytes]]:
    """A job that does not end by itself."""
    code = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
    words = ["-input", "/in/words.txt", "-mapper", PATIENT, "-numReduceTasks", "0"]
    started = subprocess.Popen(
        [sys.executable, "-c", code, "-D", "mapreduce.job.name=patient", *words],
        env={**cluster.environment, "PYTHONPATH": ROOT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield started
    started.terminate()
    started.wait(60)


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await pilot.pause(0.05)
    await pilot.pause()


async def answer(pilot: Pilot[None], key: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await pilot.press(key)
    await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))


async def fill_in(pilot: Pilot[None], value: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Ask))
    pilot.app.screen.query_one("#answer", Input).value = value
    await pilot.press("enter")


def job_state(monitor: Monitor) -> str:
    rows = sorted(monitor.picture.jobs, key=lambda row: row.key)
    return rows[-1].state if rows else ""


async def test_an_attempt_is_followed_and_killed_and_the_job_ended(
    cluster: LocalCluster, job: subprocess.Popen[bytes]
) -> None:
    monitor = Monitor(ClusterSource(cluster.cluster))
    async with monitor.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: job_state(monitor) == "running")
        await pilot.press("p")
        await fill_in(pilot, "high")
        await until(pilot, lambda: any(row.priority == "HIGH" for row in monitor.picture.jobs))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen))
        await pilot.press("enter")
        table = pilot.app.screen.query_one("#attempt-table", RowTable)
        await until(pilot, lambda: table.row_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, AttemptScreen))
        log = pilot.app.screen.query_one(RichLog)
        await until(pilot, lambda: any("here I am" in line.text for line in log.lines))
        await pilot.press("o")
        await until(pilot, lambda: any("to be or not" in line.text for line in log.lines))
        await pilot.press("k")
        await answer(pilot, "y")
        await pilot.press("escape")
        await until(pilot, lambda: table.row_count == 2)  # it runs again, at no cost
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ReportScreen))
        await pilot.press("escape")
        await pilot.press("1")
        await pilot.pause()
        await pilot.press("k")
        await answer(pilot, "y")
        await until(pilot, lambda: job_state(monitor) == "killed")

    assert job.wait(60) == 1


async def test_files_are_shown_copied_more_often_and_brought_back(cluster: LocalCluster) -> None:
    client = cluster.client()
    with writer.create(client, "/in/old.txt") as file:
        file.write(b"old\n")
    client.delete("/in/old.txt")
    monitor = Monitor(ClusterSource(cluster.cluster))
    async with monitor.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: bool(monitor.picture.storage.servers))
        await pilot.press("3")
        await until(pilot, lambda: isinstance(pilot.app.screen, FilesScreen))
        page = pilot.app.screen
        assert isinstance(page, FilesScreen)
        await until(pilot, lambda: any(entry.path == "/in" for entry in page._entries))
        page._go("/in")
        await until(pilot, lambda: [entry.name for entry in page._entries] == ["words.txt"])
        await pilot.press("down", "m")
        await until(pilot, lambda: bool(page.query_one("#detail").display))
        await pilot.press("v")
        await until(pilot, lambda: isinstance(pilot.app.screen, ReportScreen))
        await pilot.press("escape")
        await pilot.press("r")
        await fill_in(pilot, "2")
        await answer(pilot, "y")
        await until(pilot, lambda: client.stat("/in/words.txt").replication == 2)
        await pilot.press("t")
        await until(pilot, lambda: page.in_trash and len(page._entries) == 1)
        await pilot.press("down", "u")
        await answer(pilot, "y")

        def is_back() -> bool:
            return "/in/old.txt" in [status.path for status in client.list("/in")]

        await until(pilot, is_back)


def test_a_monitor_follows_masters_that_were_moved(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cluster restore` writes down where they are now; whoever watched need not start again."""
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    before = replace(cluster.config, master="h2")  # where nobody answers any more
    source = ClusterSource(Cluster(before, cluster.secret))
    try:
        assert source.snapshot(0, 0).at_s > 0
        assert source.storage().servers
        assert source.masters == ("h1", "h1")
    finally:
        source.close()
