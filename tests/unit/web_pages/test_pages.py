"""Every page over recorded states: what it says, what it must not say, and how large it is."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.mapreduce.snapshot import BACKUP, COMMITTED, FAILED, RUNNING, EventRow
from mrstream.view.picture import FileEntry, SilentCell
from mrstream.web.pages import grid_svg, layout, routes
from mrstream.web.pages.visit import NoSuchPage, OutOfBounds, Visitor
from tests.support import tui_states
from tests.support.tui_states import JOB, Recorded
from tests.unit.web_pages.reading import Reader, html_of, read, visit_of

ATTEMPT = f"attempt_{JOB[4:]}_m_000003_0"
PATHS = [
    "/jobs",
    f"/jobs/{JOB}",
    f"/jobs/{JOB}/tasks",
    f"/jobs/{JOB}/attempts",
    f"/jobs/{JOB}/counters",
    f"/jobs/{JOB}/events",
    f"/jobs/{JOB}/failure",
    f"/jobs/{JOB}/attempts/{ATTEMPT}",
    "/hosts",
    "/hosts/h7",
    "/files/",
    "/files/in",
    "/files/in/web.log",
    "/trash",
    "/events",
    "/keys",
    "/about",
]
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
STATES: dict[str, Callable[[], Recorded]] = {
    "busy": tui_states.busy,
    "failing": tui_states.failing,
    "huge": tui_states.huge,
}


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


# In order -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", sorted(STATES))
def test_a_page_is_in_order(name: str, path: str) -> None:
    """One heading, tables with captions and scopes, labelled boxes, ids once, nothing foreign."""
    page = read(STATES[name](), path)

    assert page.wrong == []
    assert len(page.all("h1")) == 1
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(each.get("scope") in ("col", "row") for each in page.all("th"))
    ids = [each["id"] for _, each in page.tags if "id" in each]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        for link in (attributes.get("href"), attributes.get("src"), attributes.get("action")):
            assert link is None or (link[0] in "/#" and not link.startswith("//"))


def test_every_link_of_every_page_leads_to_a_page() -> None:
    state = tui_states.failing()
    to_do, seen = ["/jobs"], set[str]()

    while to_do:
        address = to_do.pop()
        shape = "".join("#" if sign.isdigit() else sign for sign in address)
        if shape in seen:
            continue
        seen.add(shape)
        there = urlsplit(address)
        words = dict(parse_qsl(there.query))
        try:
            page = read(state, unquote(there.path), **words)
        except UserError as error:
            # Recorded states know the boards of two jobs only, and of no file below /logs.
            assert "is not shown" in str(error) or address == "/files/logs", address
            continue
        for link in page.links:
            if not link.startswith(("#", "/download", "/static")) and "failure.txt" not in link:
                to_do.append(link)

    assert len(seen) > 40


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_cluster_has_pages_too(path: str) -> None:
    state = tui_states.empty()
    try:
        page = read(state, path)
    except (UserError, NoSuchPage):
        return

    assert page.wrong == []


def test_a_lost_master_is_said_at_the_top_and_the_page_is_there() -> None:
    state = tui_states.lost()

    page = read(state, "/jobs")

    assert "✗ NO ANSWER for 0s: mapreduce.master at h1:7703 refuses the connection" in page.text
    assert "`mrstream cluster doctor` says why" in page.text
    with pytest.raises(Unavailable):
        read(state, f"/jobs/{JOB}")


# What a page says -----------------------------------------------------------------------


def test_a_job_shows_curves_grids_remarks_and_what_failed() -> None:
    page = read(tui_states.failing(), "/jobs/job_1700000000_0005")

    assert "✗ failed" in page.text and "map 3 failed four times" in page.text
    assert "exit code 1: the program says it failed" in page.text
    assert "maps 200" in page.text and "1 failed" in page.text
    assert len(page.all("polyline")) == 3
    assert "input 57M/s peak 229M/s" in page.text


def test_the_numbers_of_the_curves_are_there_to_read() -> None:
    page = read(tui_states.busy(), f"/jobs/{JOB}")

    rows = [row for row in page.rows if row and row[0] == "4:57"]

    assert rows and len(rows[0]) == 4


def test_the_facts_of_the_papers_table_stand_below_the_counters() -> None:
    page = read(tui_states.busy(), f"/jobs/{JOB}/counters")

    assert "Worker deaths 1" in page.text and "Completion time" in page.text


def test_tasks_can_be_chosen_by_state_and_kind() -> None:
    page = read(tui_states.busy(), f"/jobs/{JOB}/tasks", kind="m", state="backup")

    assert [row[1] for row in page.rows[-2:]] == ["Task", "m000003"]


def test_a_long_list_has_pages() -> None:
    first = read(tui_states.huge(), f"/jobs/{JOB}/tasks", kind="m")
    last = read(tui_states.huge(), f"/jobs/{JOB}/tasks", kind="m", page="75")

    assert "1 to 200 of 15,000" in first.text
    assert last.rows[-1][1] == "m014999"
    assert "14,801 to 15,000 of 15,000" in last.text


def test_the_log_of_an_attempt_and_how_to_repeat_it() -> None:
    page = read(tui_states.busy(), f"/jobs/{JOB}/attempts/{ATTEMPT}")

    assert "warning: odd line 17" in page.text
    assert f"mrstream -repeat {ATTEMPT}" in page.text


def test_a_long_log_shows_its_end_and_the_ways_to_all_of_it() -> None:
    """Without a script, too: every byte of it is on some page."""
    state = tui_states.busy()
    lines = [b"line %07d ends here\n" % number for number in range(40_000)]
    whole = state.logs[f"{ATTEMPT} stderr"] = b"".join(lines)
    path = f"/jobs/{JOB}/attempts/{ATTEMPT}"

    page = read(state, path)
    assert "line 0039999" in page.text and "line 0000000" not in page.text
    assert f"of {len(whole):,}" in page.text

    start, seen = 0, ""
    while start < len(whole):
        html = html_of(state, path, **{"from": str(start)})
        found = re.search(r'<pre[^>]*data-from="(\d+)"[^>]*>([^<]*)</pre>', html)
        assert found is not None
        seen, start = seen + found[2], int(found[1])
        assert (f"from={start}" in html) == (start < len(whole)), "the way on"
    assert seen == whole.decode()
    assert "Parts of this log" not in html_of(tui_states.busy(), path), "a short one is one page"


def test_a_quarantined_host_says_why() -> None:
    page = read(tui_states.busy(), "/hosts/h7")

    assert "quarantined: 6 attempts failed here in a row" in page.text


def test_where_the_chunks_of_a_file_are() -> None:
    page = read(tui_states.busy(), "/files/in/web.log", view="chunks")

    assert "✗ chunk 1 (1002): under-replicated" in page.text
    assert ["h1", "1 of 3", ""] in page.rows


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\ntwo\n", "one two"),
        (b"\x00\x01MZ", "00000000 00 01 4d 5a"),
        ("für".encode()[:2], "f"),
        (b"", "This file is empty."),
        (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_a_preview_is_text_or_numbers_and_nothing_else(data: bytes, shown: str) -> None:
    state = tui_states.busy()
    state.contents["/in/web.log"] = data

    page = read(state, "/files/in/web.log")

    assert shown in page.text
    assert [each.get("src", "")[:8] for each in page.all("script")] == ["/static/"]


def test_events_of_all_jobs_stand_together_the_last_first() -> None:
    state = tui_states.failing()
    state.boards["job_1700000000_0005"].events.append(EventRow(tui_states.NOW_S, "h3 was lost"))

    page = read(state, "/events")

    assert page.rows[1] == ["0s", "parse", "h3 was lost"]


def test_who_took_over_the_lead_is_an_event_that_leads_to_the_hosts() -> None:
    page = read(tui_states.failing(), "/events", find="leads")

    assert page.rows[1:] == [
        ["3:07", "masters", "dfs: h2 leads, epoch 8"],
        ["3:07", "masters", "jobs: h2 leads, epoch 3"],
    ]
    assert page.links.count("/hosts") == 1 + 2, "in the line of pages, and of each event"


def test_a_host_says_what_its_masters_are() -> None:
    words = read(tui_states.failing(), "/hosts/h1").text

    assert "dfs does not answer; jobs shadow 0.0 s behind; lock does not answer" in words


def test_what_is_not_there_is_refused_in_words() -> None:
    state = tui_states.busy()

    for path in ("/nothing", "/jobs/job_1_0001", "/hosts/h99", "/files/none", "/files/a/../b"):
        with pytest.raises(ClusterError):
            read(state, path)
    with pytest.raises(NoSuchPage, match="no attempt"):
        read(state, f"/jobs/{JOB}/attempts/attempt_1_0001_m_000000_0")


def test_a_job_of_long_ago_has_its_pages() -> None:
    state = tui_states.failing()
    state.past["job_1700000000_0005"] = state.boards.pop("job_1700000000_0005")

    for tab in ("", "/tasks", "/attempts", "/counters", "/events", "/failure"):
        page = read(state, f"/jobs/job_1700000000_0005{tab}")
        assert page.wrong == [] and "✗ failed" in page.text


# What a page must not do ----------------------------------------------------------------


def hostile() -> Recorded:
    """A cluster all of whose words were written by an enemy of the reader."""
    state = tui_states.failing()
    job = state.boards[JOB].job
    named = replace_job(job, name=HOSTILE, diagnosis=HOSTILE, output=HOSTILE, user=HOSTILE)
    state.jobs.put(named)
    board = state.boards[JOB]
    board.job = named
    board.counters = {HOSTILE: {HOSTILE: 1}}
    board.events.append(EventRow(0.0, HOSTILE))
    row = board.attempts.get(ATTEMPT)
    assert row is not None
    changes = {"status": HOSTILE, "diagnosis": HOSTILE, "state": "failed", "host": HOSTILE}
    board.attempts.put(replace_row(row, **changes))
    host = state.hosts.get("h7")
    assert host is not None
    state.hosts.put(replace_row(host, reason=HOSTILE, rack=HOSTILE, running=(HOSTILE,)))
    state.files["/in"].append(FileEntry(f"/in/{HOSTILE}", False, 1, 1, HOSTILE, "", 0, 0.0))
    state.deleted.append(FileEntry(f"/in/{HOSTILE}", False, 1, 1, "", "", 0, 0.0))
    state.logs[f"{ATTEMPT} stderr"] = HOSTILE.encode() + b"\x1b]0;x\x07"
    state.cluster = HOSTILE
    return state


def replace_job(job: object, **changes: object) -> object:
    import msgspec

    return msgspec.structs.replace(job, **changes)


replace_row = replace_job


@pytest.mark.parametrize("path", PATHS)
def test_scripts_in_names_words_and_logs_stay_text(path: str) -> None:
    """No element is there that is not in a harmless page, and no attribute either."""
    harmless = read(tui_states.failing(), path)
    page = read(hostile(), path)

    assert page.wrong == []
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in harmless.tags} | {
        "ul",
        "li",
        "strong",
    }
    assert "img" not in {tag for tag, _ in page.tags}
    assert len(page.all("script")) == 1
    assert HOSTILE.split("'")[0] in page.text


def test_a_visitor_who_may_only_look_is_shown_no_form_that_changes() -> None:
    looker = Visitor("bob", b"s", may_change=False)

    for path in PATHS:
        page = read(tui_states.busy(), path, looker)
        actions = [each.get("action") or "" for each in page.all("form")]
        assert not any(action.startswith(("/act", "/upload")) for action in actions), path
        assert not any(link.startswith("/act") for link in page.links), path


def test_nothing_outside_a_visitors_trees_is_named() -> None:
    """G3."""
    state = tui_states.busy()
    ann = Visitor("ann", b"s", paths=("/in",))

    with pytest.raises(OutOfBounds):
        read(state, "/files/", ann)
    with pytest.raises(OutOfBounds):
        read(state, "/act/delete", ann, path="/readme.txt")
    with pytest.raises(OutOfBounds):
        read(state, "/act/rename", ann, path="/in/web.log", value="/out/x")
    for page in ("/jobs", "/events", "/hosts", "/hosts/h1", "/keys"):
        with pytest.raises(OutOfBounds):
            read(state, page, ann)
    state.deleted.append(replace(state.deleted[0], path="/secret/plan"))
    assert "secret" not in read(state, "/trash", ann).text
    assert "web.log" in read(state, "/files/in", ann).text
    assert not ann.may_see("/input")


def test_the_trash_shows_what_cells_that_answer_have_and_names_those_that_do_not() -> None:
    """It showed the error alone, and nothing could be brought back anywhere."""
    state = tui_states.busy()
    state.silent = [SilentCell("/logs", "cell logs does not answer: h1:7711: refused")]

    shown = read(state, "/trash").text
    of_logs = read(state, "/trash", Visitor("ann", b"s", paths=("/logs/ann",))).text
    of_in = read(state, "/trash", Visitor("ann", b"s", paths=("/in",))).text

    line = "What was deleted below /logs is not shown: cell logs does not answer: h1:7711: refused"
    assert "/in/old.txt" in shown and line in shown
    assert line in of_logs and "The trash is empty" not in of_logs
    assert "/in/old.txt" in of_in and "logs" not in of_in, "G3"


# Size and speed -------------------------------------------------------------------------


def test_the_page_of_fifteen_thousand_tasks_is_small() -> None:
    html = html_of(tui_states.huge(), f"/jobs/{JOB}").encode()

    assert len(gzip.compress(html, 5)) <= 80_000
    assert len(html) <= 300_000


def test_a_grid_of_the_worst_kind_is_small() -> None:
    """No two neighbours are in the same state: nothing can be joined."""
    kinds = (COMMITTED, RUNNING, FAILED, BACKUP)
    states = bytes(kinds[(n // 4) % 4] for n in range(15_000))

    drawing = grid_svg.drawn("maps", "m", states, "/jobs/j/tasks").encode()

    assert len(drawing) <= 120_000
    assert len(gzip.compress(drawing, 5)) <= 25_000


def test_a_grid_as_it_usually_is_takes_little() -> None:
    states = bytes(COMMITTED if n < 9000 or n % 97 == 0 else RUNNING for n in range(15_000))

    drawing = grid_svg.drawn("maps", "m", states, "/jobs/j/tasks").encode()

    assert len(drawing) <= 60_000
    assert len(gzip.compress(drawing, 5)) <= 12_000
    paths = Reader(drawing.decode()).all("path")
    assert [each["class"] for each in paths] == ["t-running s-yellow", "t-done s-sky"]


def test_a_part_that_did_not_change_is_not_drawn() -> None:
    visit = visit_of(tui_states.huge())
    page = routes.page(visit, f"/jobs/{JOB}")
    whole = Reader(str(layout.whole(page, visit)))
    seen = {
        each["data-part"]: each["data-version"] for _, each in whole.tags if "data-part" in each
    }

    def fails() -> None:
        raise AssertionError("drawn")

    body = tuple(
        replace(part, draw=fails) if getattr(part, "name", "") in ("grids", "curves") else part
        for part in page.body
    )
    nothing = layout.changed(replace(page, body=body), visit, list(seen), list(seen.values()))
    other = layout.changed(page, visit, ["grids"], ["none"])

    assert nothing == ""
    assert other.startswith('<section id="p-grids"')
    assert set(seen) == {"summary", "head", "curves", "grids", "failed", "happened"}


def test_keys_tell_rights_and_ends_and_nothing_to_come_in_with() -> None:
    shown = read(tui_states.busy(), "/keys")

    assert [row[:4] for row in shown.rows[1:]] == [
        ["<b>old", "bob", "look", "/"],
        ["etl", "ann", "look and change", "/in, /logs"],
        ["grafana", "eve", "look", "/"],
    ]
    assert [row[5].split(" ")[0] for row in shown.rows[1:]][:2] == ["✗", "never"]
    found = read(tui_states.busy(), "/keys", find="/LOGS")
    assert [row[0] for row in found.rows[1:]] == ["etl"]
