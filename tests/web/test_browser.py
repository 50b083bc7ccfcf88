"""The pages in a real browser: seen, heard, typed at; live, and with scripts switched off."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, expect

from mrstream.mapreduce.simulation import ClusterPlan, SimulatedCluster, Workload
from mrstream.mapreduce.snapshot import EventRow
from mrstream.view.demo import DemoSource
from tests.support import tui_states
from tests.support.tui_states import JOB, NOW_S
from tests.web.conftest import Show, Shown

ATTEMPT = f"attempt_{JOB[4:]}_m_000003_0"
PAGES = [
    "/jobs",
    f"/jobs/{JOB}",
    f"/jobs/{JOB}/tasks?state=running",
    f"/jobs/{JOB}/attempts?find=running",
    f"/jobs/{JOB}/counters",
    f"/jobs/{JOB}/failure",
    f"/jobs/{JOB}/attempts/{ATTEMPT}",
    "/hosts",
    "/hosts/h7",
    "/files/in",
    "/files/in/web.log?view=chunks",
    "/trash",
    "/events?find=map+1",
    "/keys",
    "/about",
    f"/act/kill-job?job={JOB}",
    "/act/upload?into=/in",
]
COLOURFUL = (f"/jobs/{JOB}", "/hosts", "/files/in")
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
AXE = Axe()


def judged(page: Page, *, contrast: bool = True) -> list[str]:
    """What axe-core finds wrong that is more than a trifle."""
    rules = {} if contrast else {"rules": {"color-contrast": {"enabled": False}}}
    found = AXE.run(page, options={"resultTypes": ["violations"], **rules}).response["violations"]
    return [
        f"{each['impact']} {each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical", "moderate")
    ]


def small() -> DemoSource:
    """A simulated cluster whose time stands still."""
    plan, work = ClusterPlan(hosts=10), Workload(maps=40, reduces=8)
    source = DemoSource(SimulatedCluster(plan, work, 1), speed=0.0)
    source.advance_to(60.0)
    return source


def test_the_judge_finds_what_is_wrong(browser: Browser) -> None:
    tab = browser.new_page()

    tab.set_content(
        "<html><body><input><p style='color:#ccc;background:#fff'>faint</p></body></html>"
    )

    assert {"label", "color-contrast"} <= {each.split()[1].rstrip(":") for each in judged(tab)}
    tab.close()


# Seen ------------------------------------------------------------------------------------


def test_everyone_can_use_every_page(show: Show) -> None:
    """axe-core in light and dark; on a phone nothing is wider than the phone."""
    served = show(tui_states.failing())
    tab = served.tab(color_scheme="light", viewport=DESK)

    wrong = []
    for path in PAGES:
        tab.goto(served.base + path)
        # Contrast takes the judge longest. The pages share one style sheet, whose colours have a
        # test of their own: where most of them are seen, they are looked at here, too.
        has_colours = path in COLOURFUL
        wrong += [f"{path}: {each}" for each in judged(tab, contrast=has_colours)]
        if has_colours:
            tab.emulate_media(color_scheme="dark")
            wrong += [f"{path}: dark: {each}" for each in judged(tab)]
            tab.emulate_media(color_scheme="light")
        tab.set_viewport_size(PHONE)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        if wide > PHONE["width"]:
            wrong.append(f"{path}: {wide} points wide on a phone")
        tab.set_viewport_size(DESK)

    assert wrong == []


def test_fifteen_thousand_tasks_are_drawn_and_each_row_leads_to_its_tasks(show: Show) -> None:
    served = show(tui_states.huge())
    tab = served.tab(viewport={"width": 1280, "height": 900})

    tab.goto(f"{served.base}/jobs/{JOB}")
    grids = tab.locator("svg.grid")

    assert grids.count() == 2
    assert grids.first.locator("path").count() <= 7
    row = grids.first.locator("a").nth(2)
    assert row.get_attribute("aria-label") == "maps 1,024 to 1,535"
    row.focus()
    tab.keyboard.press("Enter")
    expect(tab.locator("tbody th").nth(3)).to_have_text("m001024")


def test_the_colours_are_switched_without_a_script(show: Show) -> None:
    served = show(tui_states.busy())
    tab = served.tab(color_scheme="light", java_script_enabled=False)
    tab.goto(f"{served.base}/hosts")

    tab.get_by_role("button", name="Dark").click()

    assert tab.url == f"{served.base}/hosts"
    assert tab.locator("html").get_attribute("data-theme") == "dark"


# Live ------------------------------------------------------------------------------------


def test_a_page_goes_on_by_itself_and_the_keyboard_stays_where_it_is(show: Show) -> None:
    state = tui_states.busy()
    served = show(state)
    tab = served.tab()
    tab.goto(f"{served.base}/jobs")
    link = tab.get_by_role("link", name="1700000000_0007")
    link.focus()
    row = state.jobs.get(JOB)
    assert row is not None

    state.jobs.put(msgspec.structs.replace(row, name="renamed while it ran"))

    expect(tab.get_by_text("renamed while it ran")).to_be_visible(timeout=30_000)
    assert tab.evaluate("document.activeElement.getAttribute('href')") == f"/jobs/{JOB}"


def test_a_log_grows_as_it_is_written(show: Show) -> None:
    state = tui_states.busy()
    served = show(state)
    tab = served.tab()
    tab.goto(f"{served.base}/jobs/{JOB}/attempts/{ATTEMPT}")
    expect(tab.locator("#log")).to_contain_text("still reading")

    state.logs[f"{ATTEMPT} stderr"] += b"<b>one more line</b>\n"

    expect(tab.locator("#log")).to_contain_text("<b>one more line</b>", timeout=30_000)
    assert tab.locator("#log b").count() == 0


def test_a_master_that_went_away_is_said_and_the_picture_stays(show: Show) -> None:
    state = tui_states.busy()
    served = show(state)
    tab = served.tab()
    tab.goto(f"{served.base}/jobs")

    state.lost = "mapreduce.master at h1:7703 refuses the connection"

    expect(tab.get_by_role("alert")).to_contain_text("NO ANSWER", timeout=30_000)
    expect(tab.get_by_text("sort of the web log")).to_be_visible()


# Doing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_a_job_is_killed_after_a_question(show: Show, scripts: bool) -> None:
    state = tui_states.busy()
    served = show(state)
    tab = served.tab(java_script_enabled=scripts)
    tab.goto(f"{served.base}/jobs/{JOB}")

    tab.get_by_role("button", name="Kill…").click()
    assert state.done == []
    tab.get_by_role("button", name="Yes").click()

    expect(tab.locator(".said")).to_have_text(f"killed {JOB}")
    assert state.done == [f"killed {JOB}"]


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_files_go_up_come_down_and_come_back_from_the_trash(
    show: Show, scripts: bool, tmp_path: Path
) -> None:
    served = show(small())
    tab = served.tab(java_script_enabled=scripts, accept_downloads=True)
    data = bytes(range(256)) * 64 * 1024
    (tmp_path / "a b <i>.bin").write_bytes(data)
    tab.goto(f"{served.base}/files/examples")

    tab.get_by_role("button", name="Upload…").click()
    tab.get_by_label("Files", exact=True).set_input_files(tmp_path / "a b <i>.bin")
    tab.get_by_role("button", name="Upload").click()
    expect(tab.locator(".said")).to_have_text("uploaded /examples/a b <i>.bin")
    tab.get_by_role("link", name="a b <i>.bin").click()
    with tab.expect_download() as taken:
        tab.get_by_role("link", name="Download").click()
    with open(taken.value.path(), "rb") as file:
        assert file.read() == data
    tab.get_by_role("button", name="Delete…").click()
    tab.get_by_role("button", name="Yes").click()
    tab.goto(f"{served.base}/trash")
    tab.get_by_role("link", name="Bring back").click()
    tab.get_by_role("button", name="Yes").click()

    expect(tab.locator(".said")).to_have_text("/examples/a b <i>.bin is back")


def test_an_upload_that_is_refused_says_why(show: Show) -> None:
    served = show(small())
    tab = served.tab()
    tab.goto(f"{served.base}/act/upload?into=/examples")

    tab.get_by_label("Files", exact=True).set_input_files(
        [{"name": "web.log", "mimeType": "text/plain", "buffer": b"x" * 100_000}]
    )
    tab.get_by_role("button", name="Upload").click()

    expect(tab.locator(".wrong")).to_have_text("/examples/web.log: it is there already")
    served.troubles.clear()  # the browser notes the 400 as an error of its own


def test_names_that_are_scripts_do_nothing(show: Show) -> None:
    state = tui_states.busy()
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    row = state.jobs.get(JOB)
    assert row is not None
    state.jobs.put(msgspec.structs.replace(row, name=evil))
    state.boards[JOB].job = msgspec.structs.replace(row, name=evil)
    state.boards[JOB].events.append(EventRow(NOW_S, evil))
    served = show(state)
    tab = served.tab()

    for path in ("/jobs", f"/jobs/{JOB}", "/events"):
        tab.goto(served.base + path)
        expect(tab.get_by_text(evil).first).to_be_visible()

    assert tab.evaluate("document.images.length") == 0


# Strangers -------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[tuple[list[str], str]]:
    """A web site of somebody else on this very machine: same address, another port."""
    page = [""]

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page[0].encode())

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield page, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_strangers_page_can_neither_act_nor_look_nor_frame(
    show: Show, stranger: tuple[list[str], str]
) -> None:
    """A browser sends our cookie along, since another port is the same site: `Origin` tells."""
    state = tui_states.busy()
    served: Shown = show(state)
    page, site = stranger
    tab = served.tab()
    tab.goto(f"{served.base}/jobs")
    page[0] = (
        f'<form method=post action="{served.base}/act/kill-job"><input name=job value="{JOB}">'
        f'<button>win</button></form><iframe src="{served.base}/jobs"></iframe>'
        f'<img src="{served.base}/jobs">'
    )

    tab.goto(site)
    read = tab.evaluate(f"fetch('{served.base}/jobs').then(r => r.text()).catch(() => 'refused')")
    framed = tab.frames[1].url if len(tab.frames) > 1 else ""
    tab.get_by_role("button", name="win").click()

    assert "does not come from a page of ours" in tab.content()
    assert read == "refused"
    assert framed.startswith("chrome-error://") or not framed
    assert state.done == []
    served.hosts.discard(site.split("/")[2])
    served.troubles.clear()  # the browser tells what it refused
