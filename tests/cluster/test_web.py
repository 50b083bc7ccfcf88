"""The pages over a real cluster: a job is followed, moved and killed; files go in, out and back."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from mrstream.cluster.wire.network import new_event_loop
from mrstream.view.source import ClusterSource
from mrstream.view.watch import Watch
from mrstream.web.local import LocalPages
from mrstream.web.rest.door import Rest
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster

ROLES = (MASTER, CHUNKSERVER, "mapreduce.master", "mapreduce.worker")
ROOT = str(Path(__file__).parent.parent.parent)
PATIENT = "bash -c 'echo here I am >&2; cat; exec sleep 600'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("web"), 3, roles=ROLES) as started:
        yield started


class Tab:
    """A browser without a window."""

    def __init__(self, link: str) -> None:
        self.base = link.partition("/enter")[0]
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Origin"] = self.base
        self.at = self._session.get(link)

    def open(self, path: str) -> str:
        self.at = self._session.get(self.base + path, timeout=60)
        return self.at.text

    def bytes_of(self, path: str) -> bytes:
        return self._session.get(self.base + path, timeout=60).content

    def act(self, name: str, **fields: str) -> str:
        """Say yes to what a page asks."""
        asked = self._session.get(f"{self.base}/act/{name}", params=fields, timeout=60).text
        fields["token"] = self._token(asked)
        self.at = self._session.post(f"{self.base}/act/{name}", fields, timeout=60)
        return self.at.text

    def upload(self, into: str, name: str, data: bytes) -> str:
        asked = self.open(f"/act/upload?into={into}")
        self.at = self._session.post(
            f"{self.base}/upload{into}",
            data={"token": self._token(asked)},
            files={"file": (name, data)},
            timeout=60,
        )
        return self.at.text

    def until(self, path: str, holds: Callable[[str], object]) -> str:
        """Load a page until something holds."""
        deadline_s = time.monotonic() + 60
        while not holds(text := self.open(path)):
            assert time.monotonic() < deadline_s, text
        return text

    @staticmethod
    def _token(page: str) -> str:
        found = re.search(r'name="token" value="([0-9a-f]+)"', page)
        assert found is not None, page
        return found[1]


@pytest.fixture
def tab(cluster: LocalCluster) -> Iterator[Tab]:
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    pages = LocalPages(ClusterSource(cluster.cluster))
    opened = asyncio.run_coroutine_threadsafe(pages.open(), loop).result(60)
    yield Tab(opened.link)
    asyncio.run_coroutine_threadsafe(pages.close(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def job(cluster: LocalCluster, tab: Tab) -> Iterator[subprocess.Popen[bytes]]:
    """A job that does not end by itself, on what the pages brought."""
    if "there already" not in tab.upload("/", "words.txt", b"to be or not to be\n" * 100):
        assert tab.at.status_code == 200
    code = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"
    words = ["-input", "/words.txt", "-mapper", PATIENT, "-numReduceTasks", "0"]
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


def test_a_job_is_followed_moved_and_killed(
    cluster: LocalCluster, job: subprocess.Popen[bytes], tab: Tab
) -> None:
    """MapReduce §4.8 (MR-33): over HTTP, with each attempt's output and what its host ran."""
    text = tab.until("/jobs", lambda text: "▸ running" in text)
    found = re.search(r"/jobs/(job_\d+_\d+)", text)
    assert found is not None
    job_id = found[1]

    assert f"{job_id} is now HIGH" in tab.act("priority", job=job_id, value="HIGH")
    assert "priority HIGH" in tab.until(f"/jobs/{job_id}", lambda text: "priority HIGH" in text)
    attempts = tab.until(f"/jobs/{job_id}/attempts", lambda text: "attempt_" in text)
    first = re.search(r"attempt_\d+_\d+_m_\d+_\d+", attempts)
    assert first is not None
    log = f"/jobs/{job_id}/attempts/{first[0]}"
    tab.until(log, lambda text: "here I am" in text)
    tab.until(f"{log}?stream=stdout", lambda text: "to be or not to be" in text)
    host = re.search(r"running on (h\d)", tab.open(log))
    assert host is not None and first[0] in tab.open(f"/hosts/{host[1]}")
    assert f"killed {first[0]}" in tab.act("kill-attempt", attempt=first[0])
    tab.until(f"/jobs/{job_id}/attempts", lambda text: "✗ killed" in text and "▸ running" in text)
    assert "patient" in tab.open("/events") and "killed on" in tab.open("/events")
    assert f"killed {job_id}" in tab.act("kill-job", job=job_id)

    tab.until(f"/jobs/{job_id}", lambda text: "✗ killed" in text)
    assert job.wait(60) == 1
    source = ClusterSource(cluster.cluster)
    rest = Rest(Watch(source), lambda request: asyncio.sleep(0))
    told = rest._history(["mapreduce", "jobs", job_id], {})["job"]
    metrics = bytes(rest._metrics().body).decode()  # type: ignore[arg-type]
    source.close()
    assert (told["state"], told["name"], told["killedMapAttempts"] >= 1) == (
        "KILLED",
        "patient",
        True,
    )
    assert 'mrstream_jobs{state="killed"} 1.0' in metrics
    assert "mrstream_attempts_failed_total" in metrics


def test_files_go_in_and_out_and_come_back(cluster: LocalCluster, tab: Tab) -> None:
    data = bytes(range(256)) * 20_000
    assert "made /pages" in tab.act("mkdir", into="/", value="pages")

    assert "uploaded /pages/a b.bin" in tab.upload("/pages", "a b.bin", data)
    assert "it is there already" in tab.upload("/pages", "a b.bin", b"other")
    assert tab.at.status_code == 400

    assert tab.bytes_of("/download/pages/a%20b.bin") == data
    assert "one column a chunk" in tab.open("/files/pages/a%20b.bin?view=chunks")
    assert "00000010  10 11" in tab.open("/files/pages/a%20b.bin")
    assert "is now /pages/c.bin" in tab.act("rename", path="/pages/a b.bin", value="c.bin")
    assert "2 copies" in tab.act("replication", path="/pages/c.bin", value="2")
    assert "in the trash" in tab.act("delete", path="/pages/c.bin")
    assert tab.open("/files/pages/c.bin") and tab.at.status_code == 404
    assert "/pages/c.bin" in tab.open("/trash")
    assert "is back" in tab.act("undelete", path="/pages/c.bin")
    assert tab.bytes_of("/download/pages/c.bin") == data
    assert "4.9M" in tab.open("/files/?view=space")
    assert "/pages/c.bin" in tab.open("/files/pages/c.bin?view=story")


def test_an_upload_that_breaks_off_leaves_nothing(cluster: LocalCluster, tab: Tab) -> None:
    client = cluster.client()
    source = ClusterSource(cluster.cluster)

    upload = source.upload("/half")
    upload.write(b"x" * 1000)
    upload.abandon()

    assert "/half" not in [entry.path for entry in client.list("/")]
    assert not [entry.path for entry in client.list("/") if "COPYING" in entry.path]
    source.close()
