"""A browser at the gateway of a real cluster: it walks every page, uploads, kills a job, and sees
both masters die and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from mrstream.cluster.config.config import GATEWAY
from tests.cluster.job_faults import JOB_MASTER, WORKER
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster
from tests.web.conftest import WAIT_MS

ROLES = (MASTER, CHUNKSERVER, JOB_MASTER, WORKER, GATEWAY)
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 1, roles=ROLES, gateway="{hosts: [h1]}", slots=2) as running:
        yield running


def entered(cluster: LocalCluster, browser: Browser, troubles: list[str]) -> Page:
    """A tab that a link let in; whatever a page does that none should do is noted."""
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    tab = context.new_page()
    tab.on("dialog", lambda dialog: troubles.append(f"dialog {dialog.message}"))
    tab.on("pageerror", lambda error: troubles.append(f"error {error}"))
    go(tab, lambda: cluster.mrstream("web", "--on", "h1").stdout.decode().strip())
    return tab


def go(tab: Page, address: str | Callable[[], str]) -> None:
    """Go there; again if another program on this machine made or removed a network meanwhile,
    upon which the browser drops what it does."""
    for attempt in range(10):
        try:
            tab.goto(address if isinstance(address, str) else address())
            return
        except Error as error:
            if "ERR_NETWORK_CHANGED" not in str(error) or attempt == 9:
                raise


def walk(tab: Page, address: str, about: str, names: list[str]) -> None:
    """From tab to tab of one thing; each is there, and is the one that is marked."""
    go(tab, address)
    for name in names:
        tab.get_by_role("navigation", name=about).get_by_role("link", name=name).click()
        here = tab.get_by_role("navigation", name=about).locator("[aria-current=page]")
        expect(here).to_have_text(name)
        assert tab.locator("#main .wrong").count() == 0


def began(cluster: LocalCluster) -> str:
    """A job that writes a line and waits; returns its id."""
    (cluster.directory / "in.txt").write_text("one\n")
    assert cluster.mrstream("dfs", "-put", "in.txt", "/in.txt").returncode == 0
    program = f"import sys,time; print('{EVIL}', file=sys.stderr, flush=True); time.sleep(3600)"
    (cluster.directory / "wait.py").write_text(program)
    done = cluster.mrstream(
        *("-D", f"mapreduce.job.name={EVIL}", "-background", "-input", "/in.txt"),
        *("-output", "/out", "-file", "wait.py", "-mapper", "python3 wait.py"),
    )
    assert done.returncode == 0, done.stderr.decode()
    words = (done.stdout + done.stderr).decode().split()
    return next(word.strip(".:,") for word in words if word.startswith("job_"))


def test_a_day_with_a_real_cluster(cluster: LocalCluster, browser: Browser) -> None:
    troubles: list[str] = []
    job = began(cluster)
    tab = entered(cluster, browser, troubles)
    base = tab.url.rstrip("/").removesuffix("/jobs")

    # Every page, by its links.
    tab.get_by_role("link", name=job.removeprefix("job_")).first.click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text(EVIL)
    go(tab, f"{base}/jobs/{job}/attempts/attempt_{job[4:]}_m_000000_0")
    expect(tab.locator("#log")).to_contain_text(EVIL)
    for name in ("Hosts", "Files", "Trash", "Events", "Keys", "About", "Jobs"):
        tab.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(tab.get_by_role("heading", level=1)).to_be_visible()
    walk(tab, f"{base}/jobs/{job}", "About this job", ["Tasks", "Attempts", "Counters", "Why"])
    walk(tab, f"{base}/files/in.txt", "About this file", ["Chunks", "Story", "Preview"])
    expect(tab.locator("#main pre")).to_have_text("one")
    go(tab, f"{base}/hosts")
    tab.get_by_role("link", name="h1", exact=True).click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("h1")
    expect(tab.locator("#main")).to_contain_text(f"attempt_{job[4:]}_m_000000_0")

    # A file goes up, and is one for every other door.
    go(tab, f"{base}/act/upload?into=/")
    data = bytes(range(256)) * 8192
    tab.get_by_label("Files", exact=True).set_input_files(
        [{"name": f"{EVIL}.bin", "mimeType": "text/html", "buffer": data}]
    )
    tab.get_by_role("button", name="Upload").click()
    expect(tab.locator(".said")).to_have_text(f"uploaded /{EVIL}.bin")
    assert cluster.mrstream("dfs", "-cat", f"/{EVIL}.bin").stdout == data

    # Each master dies: the page says so, keeps what it knew, and goes on when it is back.
    for role, path, known in (
        (JOB_MASTER, f"/jobs/{job}", EVIL),
        (MASTER, "/jobs", job.removeprefix("job_")),
    ):
        go(tab, base + path)
        cluster.kill(role, "h1")
        expect(tab.get_by_role("alert")).to_contain_text("NO ANSWER")
        expect(tab.get_by_text(known).first).to_be_visible()
        cluster.start(role, "h1")
        # Its group is asked every other second, and the page looks as often.
        expect(tab.get_by_role("alert")).to_have_count(0, timeout=20_000)
        expect(tab.get_by_text(known).first).to_be_visible()

    # The job is still there, and ends when it is told to.
    go(tab, f"{base}/jobs/{job}")
    tab.get_by_role("button", name="Kill…").click()
    tab.get_by_role("button", name="Yes").click()
    expect(tab.locator(".said")).to_have_text(f"killed {job}")
    expect(tab.locator("#main")).to_contain_text("killed")
    assert troubles == []
