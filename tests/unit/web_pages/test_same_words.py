"""One snapshot in the terminal and in the browser: the same rows and words in the same order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from textual.pilot import Pilot
from textual.widgets import Static, TabbedContent

from mrstream.tui.app import Monitor
from mrstream.tui.screens.job import JobScreen
from mrstream.tui.widgets.summary import Summary, Troubles
from mrstream.tui.widgets.table import RowTable
from tests.support import tui_states
from tests.support.tui_states import Recorded
from tests.unit.web_pages.reading import read

WIDE = (220, 60)
BAR = "█▉▊▋▌▍▎▏░━╸╺─ "


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():
            await pilot.pause(0.02)
    await pilot.pause()


def terminal_rows(table: RowTable) -> list[list[str]]:
    """The rows of a table in the terminal, without bars."""
    rows = []
    for key in table.rows:
        rows.append([" ".join(str(cell).strip(BAR).split()) for cell in table.get_row(key)])
    return rows


async def shown(
    state: Recorded, keys: str, *, job: str = "", tab: str = ""
) -> tuple[str, list[list[str]]]:
    """What the terminal shows after these keys: the summary line, and the rows of the table."""
    monitor = Monitor(state, job_id=job)
    async with monitor.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: bool(monitor.picture.at_s))
        for key in keys:
            await pilot.press(key)
        if job:
            await until(
                pilot,
                lambda: isinstance(monitor.screen, JobScreen) and monitor.picture.job is not None,
            )
            monitor.screen.query_one("#tabs", TabbedContent).active = tab
        tables = [each for each in monitor.screen.query(RowTable) if each.id == (tab or each.id)]
        name = {"attempts": "attempt-table", "counters": "counter-table"}.get(tab)
        table = monitor.screen.query_one(f"#{name}", RowTable) if name else tables[0]
        await until(pilot, lambda: table.row_count > 0)
        said = str(monitor.screen.query_one(Summary).render())
        if job:
            where = str(monitor.screen.query_one("#where", Static).render())
            said = f"{said} {where}"
        return said, terminal_rows(table)


def browser_rows(state: Recorded, path: str, columns: int) -> list[list[str]]:
    rows = read(state, path).rows
    titles = max(at for at, row in enumerate(rows) if row[0] in ("State", "Host", "Name", "Group"))
    return [row[:columns] for row in rows[titles + 1 :]]


@pytest.mark.parametrize("name", ["busy", "failing"])
async def test_jobs_are_told_in_the_same_words(name: str) -> None:
    state: Recorded = getattr(tui_states, name)()

    said, terminal = await shown(state, "1")
    browser = browser_rows(state, "/jobs", 10)

    assert browser == terminal
    for word in said.split():
        if word not in ("│", "·", "|", "mrstream", "top"):
            assert word.strip("│·|") in read(state, "/jobs").text


async def test_hosts_are_told_in_the_same_words() -> None:
    state = tui_states.busy()

    _, terminal = await shown(state, "2")

    assert browser_rows(state, "/hosts", 10) == terminal


async def test_masters_are_told_in_the_same_words() -> None:
    state = tui_states.failing()
    monitor = Monitor(state)
    async with monitor.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: bool(monitor.picture.at_s))
        await pilot.press("2")
        await until(pilot, lambda: bool(monitor.screen.query("#masters")))
        masters = str(monitor.screen.query_one("#masters", Static).render())
        wrong = str(monitor.screen.query_one(Troubles).render())
    page = read(state, "/hosts")

    said = [words.strip() for line in masters.splitlines() for words in line.split("  ")]
    assert len(said) == 3 + 9 + 2 + 1, "groups, badges, how long two have been led, who came last"
    assert set(said) <= set(page.words)
    assert len(wrong.splitlines()) == 2 and set(wrong.splitlines()) <= set(page.words)


async def test_files_are_told_in_the_same_words() -> None:
    state = tui_states.busy()

    _, terminal = await shown(state, "3")

    assert browser_rows(state, "/files/", 6) == terminal


@pytest.mark.parametrize(("tab", "columns"), [("attempts", 10), ("counters", 3)])
async def test_a_job_is_told_in_the_same_words(tab: str, columns: int) -> None:
    state = tui_states.failing()
    job = "job_1700000000_0005"

    said, terminal = await shown(state, "", job=job, tab=tab)
    page = read(state, f"/jobs/{job}/{tab}")

    assert browser_rows(state, f"/jobs/{job}/{tab}", columns) == terminal
    assert "✗ failed" in said and "✗ failed" in page.text
