"""The monitor over recorded states: every page as a picture, every key as a deed."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Label, RichLog, Static, TabbedContent

from mrstream.mapreduce.snapshot import JobRow, TaskRow
from mrstream.tui.app import Monitor
from mrstream.tui.screens.attempt import AttemptScreen
from mrstream.tui.screens.confirm import Ask, Confirm, Help
from mrstream.tui.screens.files import FilesScreen
from mrstream.tui.screens.hosts import HostsScreen
from mrstream.tui.screens.job import JobScreen
from mrstream.tui.screens.jobs import JobsScreen
from mrstream.tui.screens.report import ReportScreen
from mrstream.tui.widgets.curves import Curves
from mrstream.tui.widgets.key_line import KeyLine
from mrstream.tui.widgets.summary import Summary, Troubles
from mrstream.tui.widgets.table import RowTable
from mrstream.tui.widgets.task_grid import TaskGrid
from mrstream.view.actions import PRIORITIES
from mrstream.view.curves import curves as view_curves
from mrstream.view.curves import time_ticks
from mrstream.view.picture import SilentCell
from tests.support import tui_states
from tests.support.tui_states import JOB, Recorded

WAIT_S_MAX = 60.0
SIZES = [(80, 24), (160, 48)]
STATES: dict[str, Callable[[], Recorded]] = {
    "empty": tui_states.empty,
    "busy": tui_states.busy,
    "failing": tui_states.failing,
    "huge": tui_states.huge,
    "lost": tui_states.lost,
}


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Let the application run until something holds; the deadline is the test's own."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():
            await pilot.pause(0.02)
    await pilot.pause()


async def comes_to(pilot: Pilot[None], look: Callable[[], Any], wanted: Any) -> None:
    """Let the application run until it looks as wanted; what differs is shown if it never does."""
    with contextlib.suppress(TimeoutError):
        await until(pilot, lambda: look() == wanted)
    assert look() == wanted


async def first_picture(pilot: Pilot[None]) -> None:
    monitor = pilot.app
    assert isinstance(monitor, Monitor)
    await until(pilot, lambda: bool(monitor.picture.at_s or monitor.picture.lost_reason))
    await until(pilot, lambda: monitor.picture.lost_reason != "" or monitor.screen.is_mounted)


async def fill_in(pilot: Pilot[None], value: str) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Ask))
    pilot.app.screen.query_one("#answer", Input).value = value
    await pilot.press("enter")


async def answer_yes(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await pilot.press("y")


def keys(*names: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Press keys one after the other once the first picture is there."""

    async def run(pilot: Pilot[None]) -> None:
        await first_picture(pilot)
        for name in names:
            await pilot.press(name)
            await pilot.pause()
        screen = pilot.app.screen
        lost = isinstance(pilot.app, Monitor) and bool(pilot.app.picture.lost_reason)
        if isinstance(screen, JobScreen) and not lost:
            await until(pilot, lambda: screen.picture.job is not None)
            await pilot.pause()
        if isinstance(screen, FilesScreen) and not lost:
            await until(pilot, lambda: bool(screen._entries))
        await pilot.pause()

    return run


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("state", STATES)
def test_the_jobs_page_looks_as_it_did(
    snap_compare: Any, state: str, size: tuple[int, int]
) -> None:
    assert snap_compare(Monitor(STATES[state]()), terminal_size=size, run_before=keys())


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("state", ["busy", "failing", "huge", "lost"])
def test_the_job_page_looks_as_it_did(snap_compare: Any, state: str, size: tuple[int, int]) -> None:
    source = STATES[state]()
    job = "job_1700000000_0005" if state == "failing" else JOB
    assert snap_compare(Monitor(source, job_id=job), terminal_size=size, run_before=keys())


def is_drawn(page: Screen[Any], tab: str) -> bool:
    """Does a tab of the job page show what it has?"""
    match tab:
        case "tasks":
            grid = page.query_one("#maps", TaskGrid)
            return bool(grid._states) and grid._drawn[0] == grid._states
        case "events":
            return bool(page.query_one("#event-log", RichLog).lines)
    return page.query_one(f"#{tab.removesuffix('s')}-table", RowTable).row_count > 0


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("tab", ["tasks", "attempts", "counters", "events"])
def test_the_tabs_of_the_job_page_look_as_they_did(
    snap_compare: Any, tab: str, size: tuple[int, int]
) -> None:
    async def go(pilot: Pilot[None]) -> None:
        await keys()(pilot)
        page = pilot.app.screen
        page.query_one(TabbedContent).active = tab
        await until(pilot, lambda: is_drawn(page, tab))

    assert snap_compare(Monitor(tui_states.huge(), job_id=JOB), terminal_size=size, run_before=go)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("state", STATES)
def test_the_hosts_page_looks_as_it_did(
    snap_compare: Any, state: str, size: tuple[int, int]
) -> None:
    assert snap_compare(Monitor(STATES[state]()), terminal_size=size, run_before=keys("2"))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("state", ["busy", "lost"])
def test_the_files_page_looks_as_it_did(
    snap_compare: Any, state: str, size: tuple[int, int]
) -> None:
    async def go(pilot: Pilot[None]) -> None:
        await keys("3")(pilot)
        await pilot.press("down", "down", "enter")
        screen = pilot.app.screen
        if state != "lost":
            await until(pilot, lambda: bool(screen.query_one("#detail").display))

    assert snap_compare(Monitor(STATES[state]()), terminal_size=size, run_before=go)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("state", ["busy", "failing"])
def test_the_attempt_page_looks_as_it_did(
    snap_compare: Any, state: str, size: tuple[int, int]
) -> None:
    job = "job_1700000000_0005" if state == "failing" else JOB
    attempt = f"attempt_{job[4:]}_m_000003_0"

    async def go(pilot: Pilot[None]) -> None:
        await keys()(pilot)
        pilot.app.push_screen(AttemptScreen(attempt))
        await until(pilot, lambda: isinstance(pilot.app.screen, AttemptScreen))
        log = pilot.app.screen.query_one(RichLog)
        await until(pilot, lambda: state == "failing" or len(log.lines) == 3)
        where = pilot.app.screen.query_one("#where", Static)
        await until(pilot, lambda: str(where.render()).startswith(attempt))

    assert snap_compare(Monitor(STATES[state](), job_id=job), terminal_size=size, run_before=go)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_help_page_looks_as_it_did(snap_compare: Any, size: tuple[int, int]) -> None:
    monitor = Monitor(tui_states.busy())
    assert snap_compare(monitor, terminal_size=size, run_before=keys("question_mark"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_failure_report_looks_as_it_did(snap_compare: Any, size: tuple[int, int]) -> None:
    monitor = Monitor(tui_states.failing(), job_id="job_1700000000_0005")

    async def go(pilot: Pilot[None]) -> None:
        await keys("e")(pilot)
        await until(pilot, lambda: isinstance(pilot.app.screen, ReportScreen))

    assert snap_compare(monitor, terminal_size=size, run_before=go)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("key", ["k", "p"], ids=["yes or no", "a word"])
def test_the_questions_look_as_they_did(snap_compare: Any, key: str, size: tuple[int, int]) -> None:
    async def go(pilot: Pilot[None]) -> None:
        await keys(key)(pilot)
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm | Ask))
        for answer in pilot.app.screen.query(Input):
            answer.cursor_blink = False

    assert snap_compare(Monitor(tui_states.busy()), terminal_size=size, run_before=go)


async def test_a_question_is_read_whole() -> None:
    """The priorities that there are did not fit into its one line, nor would a long path."""
    async with Monitor(tui_states.busy()).run_test(size=(80, 24)) as pilot:
        await keys("p")(pilot)
        await until(pilot, lambda: isinstance(pilot.app.screen, Ask))
        label = pilot.app.screen.query_one(Label)
        words = " ".join(drawn(label))
        window = label.parent

        assert all(priority in words for priority in PRIORITIES), words
        assert isinstance(window, Widget) and label.region in window.content_region


async def test_without_colour_every_sign_is_a_shade_of_grey(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NO_COLOR: states are told apart by their signs alone, which differ (test_palette)."""
    monkeypatch.setenv("NO_COLOR", "1")
    monitor = Monitor(tui_states.failing())
    async with monitor.run_test(size=(160, 48)) as pilot:
        await first_picture(pilot)
        shown = pilot.app.export_screenshot()

    ours = re.sub("<circle [^>]*>", "", shown)  # the buttons of the window around it
    colours = set(re.findall("#([0-9a-f]{6})", ours.lower())) - {"c5c8c6"}  # and its title
    assert not {each for each in colours if len({each[:2], each[2:4], each[4:]}) > 1}


async def test_a_number_key_opens_its_page_from_anywhere() -> None:
    async with Monitor(tui_states.busy()).run_test() as pilot:
        await first_picture(pilot)
        for key, wanted in (("2", HostsScreen), ("3", FilesScreen), ("1", JobsScreen)):
            await pilot.press(key)
            await comes_to(pilot, lambda: type(pilot.app.screen), wanted)


async def test_kill_asks_first_and_no_means_no() -> None:
    source = tui_states.busy()
    async with Monitor(source).run_test() as pilot:
        await first_picture(pilot)
        await pilot.press("k")
        await comes_to(pilot, lambda: type(pilot.app.screen), Confirm)
        await pilot.press("n")
        await comes_to(pilot, lambda: type(pilot.app.screen), JobsScreen)
        assert source.done == []

        await pilot.press("k")
        await answer_yes(pilot)
        await until(pilot, lambda: bool(source.done))

        assert source.done == [f"killed {JOB}"]


async def test_a_click_on_a_key_at_the_bottom_is_the_key() -> None:
    async with Monitor(tui_states.busy()).run_test() as pilot:
        await first_picture(pilot)
        hosts = next(key for key in pilot.app.screen.query_one(KeyLine)._placed if key.key == "2")
        await pilot.click(KeyLine, offset=(hosts.start, hosts.line))
        await until(pilot, lambda: isinstance(pilot.app.screen, HostsScreen))


@pytest.mark.parametrize("page", ["1", "2", "3"])
async def test_every_key_fits_into_eighty_columns(page: str) -> None:
    async with Monitor(tui_states.busy()).run_test(size=(80, 24)) as pilot:
        await keys(page)(pilot)
        placed = pilot.app.screen.query_one(KeyLine)._placed

        assert {"?", "q"} <= {key.sign for key in placed}
        assert all(key.start + key.width <= 80 for key in placed)


async def test_a_job_that_the_master_does_not_know_is_said_and_nothing_breaks() -> None:
    """A master that started anew has forgotten jobs that ended long ago."""
    source = tui_states.busy()
    monitor = Monitor(source, job_id=JOB)
    async with monitor.run_test() as pilot:
        await first_picture(pilot)
        await until(pilot, lambda: monitor.picture.job is not None)
        source.boards.clear()
        await until(pilot, lambda: bool(monitor.picture.job_refusal))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobsScreen))

    assert source.closed


async def test_a_host_is_not_called_up_when_one_of_its_roles_is_gone() -> None:
    """Issue: what is stuck, at a glance; a worker that is up says nothing of the chunkserver."""
    source = tui_states.busy()
    first, *others = source.store.servers
    source.store = replace(source.store, servers=(replace(first, state="dead"), *others))
    async with Monitor(source).run_test(size=(160, 48)) as pilot:
        await keys("2")(pilot)
        table = pilot.app.screen.query_one(RowTable)

        assert str(table.get_row_at(0)[1]) == "✗ no chunkserver"
        detail = str(pilot.app.screen.query_one("#detail", Static).render())
        assert "chunkserver dead" in detail and "worker up" in detail


async def test_what_is_wrong_with_masters_is_a_line_of_its_own_on_every_page() -> None:
    source = tui_states.busy()
    async with Monitor(source).run_test(size=(80, 24)) as pilot:
        await keys()(pilot)
        troubles = pilot.app.screen.query_one(Troubles)
        assert not troubles.display

        source.led = tui_states.failing().led
        await until(pilot, lambda: bool(troubles.display))
        assert [line.strip() for line in drawn(troubles)] == [
            "✗ dfs: h1 does not answer: the next failure stops writes",
            "✗ lock: no quorum (1 of 3): changes are refused",
        ]
        await pilot.press("3")
        await until(pilot, lambda: bool(pilot.app.screen.query_one(Troubles).display))


async def test_who_takes_over_is_said_once_and_not_at_the_first_look() -> None:
    source = tui_states.busy()
    monitor = Monitor(source)
    async with monitor.run_test(size=(80, 24)) as pilot:
        await keys("2")(pilot)
        await until(pilot, lambda: bool(monitor.picture.groups))
        assert [note.message for note in monitor._notifications] == []

        source.led = source.led | tui_states.groups(tui_states.group("dfs.master", "h2", 8))
        await until(pilot, lambda: monitor.picture.groups["dfs"].leader == "h2")
        await until(pilot, lambda: bool(monitor._notifications))
        assert [note.message for note in monitor._notifications] == ["dfs: h2 leads, epoch 8"]
        masters = pilot.app.screen.query_one("#masters", Static)
        await until(pilot, lambda: "★ h2 leader epoch 8" in drawn(masters)[0])


async def test_a_state_that_takes_more_room_than_before_is_read_whole() -> None:
    """Columns kept the width of the first words in them: `✗ no` was all that one saw."""
    source = tui_states.empty()
    async with Monitor(source).run_test(size=(80, 24)) as pilot:
        await keys("2")(pilot)
        table = pilot.app.screen.query_one(RowTable)
        await until(pilot, lambda: "■ up" in drawn(table)[1])

        source.led = tui_states.groups(tui_states.group("dfs.master", "h2", silent=("h1",)))

        await until(pilot, lambda: "✗ no dfs master" in drawn(table)[1])


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_no_badge_of_a_master_is_torn(size: tuple[int, int]) -> None:
    """Names of hosts and cells may be long: a line breaks between two of them."""
    source = tui_states.busy()
    source.led = tui_states.groups(
        *(tui_states.group(role) for role in ("dfs.master", "dfs.master@collections"))
    )
    async with Monitor(source).run_test(size=size) as pilot:
        await keys("2")(pilot)
        masters = pilot.app.screen.query_one("#masters", Static)
        await until(pilot, lambda: bool(masters.display))
        lines = drawn(masters)

    badges = ["★ h1 leader epoch 7", "○ h2 shadow 0.0 s behind", "○ h3 shadow 0.0 s behind"]
    assert [sum(line.count(badge) for line in lines) for badge in badges] == [2, 2, 2]


async def test_read_only_has_no_actions() -> None:
    source = tui_states.busy()
    async with Monitor(source, read_only=True).run_test() as pilot:
        await first_picture(pilot)
        await pilot.press("k")
        await pilot.pause()

        assert isinstance(pilot.app.screen, JobsScreen)


async def test_a_priority_is_checked_before_it_is_sent() -> None:
    source = tui_states.busy()
    async with Monitor(source).run_test() as pilot:
        await first_picture(pilot)
        for wrong in ("urgent", "high"):
            await pilot.press("p")
            await fill_in(pilot, wrong)
            await until(pilot, lambda: not isinstance(pilot.app.screen, Ask))
        await until(pilot, lambda: bool(source.done))

        assert source.done == [f"{JOB} is now HIGH"]


async def test_the_way_from_a_job_to_an_attempts_log_and_back() -> None:
    source = tui_states.busy()
    async with Monitor(source).run_test(size=(160, 48)) as pilot:
        await first_picture(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen))
        job_page = pilot.app.screen
        assert isinstance(job_page, JobScreen)
        await until(pilot, lambda: job_page.picture.job is not None)
        await pilot.press("enter")
        await until(pilot, lambda: job_page.query_one("#attempt-table", RowTable).row_count > 0)
        await pilot.press("slash")
        await pilot.press(*"m_000003")
        await pilot.press("enter")
        await until(pilot, lambda: job_page.query_one("#attempt-table").has_focus)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, AttemptScreen))
        page = pilot.app.screen
        log = page.query_one(RichLog)
        await until(pilot, lambda: len(log.lines) == 3)
        await pilot.press("o")
        await until(pilot, lambda: len(log.lines) == 1)
        await pilot.press("c")
        repeat = f"mrstream -repeat attempt_{JOB[4:]}_m_000003_0"
        await comes_to(pilot, lambda: pilot.app.clipboard, repeat)
        await pilot.press("escape")
        await comes_to(pilot, lambda: type(pilot.app.screen), JobScreen)


async def test_an_attempt_can_be_failed_from_its_page() -> None:
    source = tui_states.busy()
    attempt = f"attempt_{JOB[4:]}_m_000003_0"
    async with Monitor(source).run_test() as pilot:
        await first_picture(pilot)
        pilot.app.push_screen(AttemptScreen(attempt))
        await until(pilot, lambda: isinstance(pilot.app.screen, AttemptScreen))
        await pilot.press("f")
        await answer_yes(pilot)
        await until(pilot, lambda: bool(source.done))

        assert source.done == [f"failed {attempt}"]


async def test_the_failure_report_is_one_key_away() -> None:
    async with Monitor(tui_states.failing(), job_id="job_1700000000_0005").run_test() as pilot:
        await first_picture(pilot)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ReportScreen))


async def test_a_lost_master_keeps_the_last_picture_and_its_return_is_noticed() -> None:
    source = tui_states.busy()
    monitor = Monitor(source)
    async with monitor.run_test(size=(160, 24)) as pilot:
        await first_picture(pilot)
        source.lost = "mapreduce.master at h1:7703 does not answer"
        await until(pilot, lambda: bool(monitor.picture.lost_reason))
        shown = monitor.screen.query_one(RowTable).row_count
        line = str(monitor.screen.query_one(Summary).render())
        source.lost = ""
        await until(pilot, lambda: not monitor.picture.lost_reason)

        assert shown == 3
        assert "NO ANSWER" in line


async def test_files_are_browsed_previewed_and_brought_back() -> None:
    source = tui_states.busy()
    async with Monitor(source).run_test(size=(120, 40)) as pilot:
        await keys("3")(pilot)
        page = pilot.app.screen
        assert isinstance(page, FilesScreen)
        await pilot.press("enter")
        await until(pilot, lambda: page.path == "/in" and len(page._entries) == 2)
        await pilot.press("down", "v")
        await until(pilot, lambda: isinstance(pilot.app.screen, ReportScreen))
        await pilot.press("escape")
        await pilot.press("r")
        await fill_in(pilot, "5")
        await answer_yes(pilot)
        await until(pilot, lambda: bool(source.done))
        await pilot.press("t")
        await until(pilot, lambda: page.in_trash and len(page._entries) == 1)
        await pilot.press("down", "u")
        await answer_yes(pilot)
        await until(pilot, lambda: len(source.done) == 2)

        assert source.done == ["/in/web.log has 5 copies", "/in/old.txt is back"]


async def test_the_trash_names_the_cell_that_does_not_answer_beside_what_others_have() -> None:
    source = tui_states.busy()
    source.silent = [SilentCell("/logs", "cell logs does not answer: h1:7711: refused")]
    async with Monitor(source).run_test(size=(120, 40)) as pilot:
        await keys("3")(pilot)
        page = pilot.app.screen
        assert isinstance(page, FilesScreen)
        await pilot.press("t")
        await until(pilot, lambda: page.in_trash and len(page._entries) == 1)

        assert page.query_one("#detail").display
        said = str(page.query_one("#about", Static).render())
        assert said.startswith("✗ What was deleted below /logs is not shown: cell logs does not")
        source.silent = []
        await pilot.press("f5")
        await until(pilot, lambda: not page.query_one("#detail").display)


async def test_the_filter_narrows_and_escape_clears_it() -> None:
    async with Monitor(tui_states.busy()).run_test(size=(160, 24)) as pilot:
        await first_picture(pilot)
        table = pilot.app.screen.query_one(RowTable)
        await pilot.press("slash", *"word")
        await until(pilot, lambda: table.row_count == 1)
        await pilot.press("escape")
        await until(pilot, lambda: table.row_count == 3)


async def test_sorting_and_help_and_quit() -> None:
    source = tui_states.busy()
    monitor = Monitor(source)
    async with monitor.run_test() as pilot:
        await first_picture(pilot)
        table = pilot.app.screen.query_one(RowTable)

        def names() -> list[str]:
            return [str(table.get_row_at(i)[-1]) for i in range(3)]

        await pilot.press("s")
        await comes_to(pilot, names, ["inverted index", "sort of the web log", "word count"])
        await pilot.press("S")
        await until(pilot, lambda: names()[0] == "word count")
        await pilot.press("question_mark")
        await comes_to(pilot, lambda: type(pilot.app.screen), Help)
        await pilot.press("escape", "q")

    assert source.closed


async def test_a_change_is_drawn_without_building_the_table_again() -> None:
    source = tui_states.busy()
    monitor = Monitor(source, job_id=JOB)
    async with monitor.run_test() as pilot:
        await first_picture(pilot)
        await until(pilot, lambda: monitor.picture.job is not None)
        board = source.boards[JOB]
        before = monitor.picture.job_seen.tasks

        board.tasks.put(TaskRow("m000199", 2, "h1"))
        await until(pilot, lambda: monitor.picture.job_seen.tasks > before)

        assert monitor.picture.job is not None
        found = monitor.picture.job.tasks.get("m000199")
        assert found is not None and found.state == 2


def drawn(widget: Widget) -> list[str]:
    """The lines of a widget as they stand on the screen."""
    height = widget.size.height
    return ["".join(part.text for part in widget.render_line(y)).rstrip() for y in range(height)]


async def job_page(pilot: Pilot[None]) -> JobScreen:
    await first_picture(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, JobScreen)
    await until(pilot, lambda: screen.picture.job is not None)
    return screen


async def test_bars_and_curves_fit_the_window_after_it_was_resized() -> None:
    """Also those of a job of which no news come: they are as in a window that had that size."""

    def shown(screen: JobScreen) -> list[list[str]]:
        return [drawn(screen.query_one(name)) for name in ("#progress", "#curves")]

    looks: dict[tuple[int, int], list[list[str]]] = {}
    for size in SIZES:
        async with Monitor(tui_states.busy(), job_id=JOB).run_test(size=size) as pilot:
            looks[size] = shown(await job_page(pilot))

    async with Monitor(tui_states.busy(), job_id=JOB).run_test(size=SIZES[0]) as pilot:
        screen = await job_page(pilot)
        for size in (SIZES[1], SIZES[0]):
            await pilot.resize_terminal(*size)
            await comes_to(pilot, lambda: shown(screen), looks[size])
    assert looks[SIZES[0]] != looks[SIZES[1]]


async def test_curves_say_their_scale_and_the_time_they_span() -> None:
    async with Monitor(tui_states.busy(), job_id=JOB).run_test(size=(160, 48)) as pilot:
        screen = await job_page(pilot)
        board = screen.picture.job
        assert board is not None
        lines = [line for line in drawn(screen.query_one(Curves)) if line]

        for curve in view_curves(board.rates):
            (title,) = [line for line in lines if line.startswith(curve.label)]
            assert f"top: {curve.peak}" in title and curve.now in title
        first, last = time_ticks(board.rates)
        assert lines[-1].split() == [first, last] and first == "0s"


async def test_a_name_with_brackets_is_shown_as_it_is() -> None:
    """A job may be called anything: its name is no markup."""
    source = tui_states.busy()
    source.jobs.put(JobRow("job_1700000000_0042", "[bold]odd[/] [x]"))
    async with Monitor(source).run_test(size=(160, 24)) as pilot:
        await first_picture(pilot)
        await pilot.press("slash", *"odd")
        table = pilot.app.screen.query_one(RowTable)
        await until(pilot, lambda: table.row_count == 1)
        line = "".join(segment.text for segment in table.render_line(1))

        assert "[bold]odd[/] [x]" in line


async def test_what_users_named_is_text_on_every_page() -> None:
    """A job named `[/zz]` ended everybody's monitor; escape sequences reached the terminal."""
    state = tui_states.hostile()
    async with Monitor(state).run_test(size=(160, 48)) as pilot:
        await first_picture(pilot)
        seen = [pilot.app.export_screenshot()]
        for pressed in (
            ["enter"],
            ["4"],
            ["5"],
            ["escape"],
            ["k"],
            ["n"],
            ["k", "y"],
            ["3"],
            ["t"],
        ):
            await pilot.press(*pressed)
            await pilot.pause()
            seen.append(pilot.app.export_screenshot())
        pilot.app.notify(tui_states.HOSTILE)
        await pilot.pause()
        seen.append(pilot.app.export_screenshot())

    assert sum("zz" in page for page in seen) > 5
    for page in seen:
        assert not set("\x1b\x07\u202e") & set(page)
