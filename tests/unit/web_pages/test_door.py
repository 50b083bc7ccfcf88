"""The door of the pages on a real socket: who gets in, what is refused, what is brought and taken.

Design of the doors, threats and answers: one test a threat that pages have.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest

from mrstream.view.watch import Watch
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import Request
from mrstream.web.pages.door import POLICY, Door
from mrstream.web.pages.session import OneTimeLink, Sessions
from mrstream.web.pages.visit import Visitor
from tests.support import tui_states
from tests.support.tui_states import JOB, Recorded
from tests.unit.web.raw_http import Answer, Served
from tests.unit.web_pages.reading import Reader
from tests.unit.web_pages.test_multipart import EDGE, form

ATTEMPT = f"attempt_{JOB[4:]}_m_000003_0"
SESSIONS = Sessions(b"secret", "mrstream-1", secure=False)
ANN = Visitor("ann")


class Pages:
    """A door over a recorded state, and a browser that has been let in."""

    def __init__(self, served: Served, state: Recorded, link: OneTimeLink, door: Door) -> None:
        self.served, self.state, self.link, self.door = served, state, link, door
        self.cookie = "Cookie: " + SESSIONS.begin(ANN, time.time()).split(";")[0]

    @property
    def origin(self) -> str:
        return f"Origin: http://127.0.0.1:{self.served.port}"

    def get(self, target: str, *headers: str) -> Answer:
        return self.served.get(target, self.cookie, *headers)

    def post(self, target: str, body: bytes, *headers: str) -> Answer:
        head = self.served.head(
            f"POST {target} HTTP/1.1", "Connection: close", f"Content-Length: {len(body)}", *headers
        )
        return self.served.ask(head + body)

    def submit(self, target: str, *headers: str, **fields: str) -> Answer:
        return self.post(target, urlencode(fields).encode(), self.cookie, self.origin, *headers)

    def token(self, address: str) -> str:
        found = re.search(rb'name="token" value="([0-9a-f]+)"', self.get(address).body)
        assert found is not None, address
        return found[1].decode()

    def upload(self, parts: list[tuple[str, str | None, bytes]], into: str = "/in") -> Answer:
        kind = f"Content-Type: multipart/form-data; boundary={EDGE.decode()}"
        return self.post(f"/upload{into}", form(parts), self.cookie, self.origin, kind)


def serve(state: Recorded, *, read_only: bool = False) -> Iterator[Pages]:
    link = OneTimeLink(time.time())

    async def spend(word: str) -> Visitor | None:
        return ANN if link.spend(word, time.time()) else None

    door = Door(Watch(state), SESSIONS, spend, read_only=read_only)

    async def handler(request: Request) -> Reply:
        return await door(request)

    with Served(handler) as served:
        yield Pages(served, state, link, door)


@pytest.fixture
def pages() -> Iterator[Pages]:
    yield from serve(tui_states.busy())


@pytest.fixture
def read_only() -> Iterator[Pages]:
    yield from serve(tui_states.busy(), read_only=True)


# The way in -----------------------------------------------------------------------------


def test_without_a_cookie_nothing_of_the_cluster_is_told(pages: Pages) -> None:
    for target in ("/", "/jobs", "/files/", "/download/in/web.log", "/about", "/nothing"):
        answer = pages.served.get(target)
        assert answer.status == 401
        assert b"h1" not in answer.body.replace(b"<h1>", b"").replace(b"</h1>", b"")
        assert b"sort" not in answer.body and b"demo" not in answer.body


def test_the_link_lets_one_browser_in_once(pages: Pages) -> None:
    first = pages.served.get(f"/enter?link={pages.link.word}")
    again = pages.served.get(f"/enter?link={pages.link.word}")
    cookie = first.headers["set-cookie"].split(";")[0]

    assert (first.status, first.headers["location"], first.headers["referrer-policy"]) == (
        303, "/", "no-referrer",
    )  # fmt: skip
    assert again.status == 403 and "set-cookie" not in again.headers
    assert pages.served.get("/jobs", f"Cookie: {cookie}").status == 200


def test_a_session_can_be_left(pages: Pages) -> None:
    answer = pages.submit("/leave")

    assert answer.status == 200
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_a_name_that_is_not_ours_gets_nothing(pages: Pages) -> None:
    """DNS rebinding: the stranger's name is in `Host`, with the right cookie or not."""
    message = f"GET /jobs HTTP/1.1\r\nHost: evil.example\r\n{pages.cookie}\r\n\r\n"

    answer = pages.served.ask(message.encode())

    assert answer.status == 421
    assert b"sort" not in answer.body


def test_pages_protect_themselves(pages: Pages) -> None:
    headers = pages.get("/jobs").headers

    assert headers["content-security-policy"] == POLICY
    assert "'unsafe-inline'" not in POLICY and "default-src 'none'" in POLICY
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert not any(name.startswith("access-control") for name in headers)


def test_style_and_script_are_anyones_and_kept_for_ever(pages: Pages) -> None:
    page = Reader(pages.get("/jobs").body.decode())
    sources = [each["href"] for each in page.all("link")] + [
        each["src"] for each in page.all("script")
    ]

    for source in sources:
        answer = pages.served.get(source or "")
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]


# Acting ---------------------------------------------------------------------------------


def test_an_action_asks_and_then_is_done_once(pages: Pages) -> None:
    asked = Reader(pages.get(f"/act/kill-job?job={JOB}").body.decode())
    assert f"Kill {JOB}?" in asked.text
    assert pages.state.done == []

    answer = pages.submit("/act/kill-job", job=JOB, token=pages.token(f"/act/kill-job?job={JOB}"))

    assert answer.status == 303
    assert pages.state.done == [f"killed {JOB}"]
    after = Reader(pages.get(answer.headers["location"]).body.decode())
    assert f"killed {JOB}" in after.text


@pytest.mark.parametrize(
    ("name", "fields", "done"),
    [
        ("priority", {"job": JOB, "value": "high"}, f"{JOB} is now HIGH"),
        ("kill-attempt", {"attempt": ATTEMPT}, f"killed {ATTEMPT}"),
        ("fail-attempt", {"attempt": ATTEMPT}, f"failed {ATTEMPT}"),
        ("mkdir", {"into": "/in", "value": "new"}, "made /in/new"),
        ("rename", {"path": "/in/web.log", "value": "b"}, "/in/web.log is now /in/b"),
        ("replication", {"path": "/in/web.log", "value": "2"}, "/in/web.log has 2 copies"),
        ("delete", {"path": "/in/web.log"}, "/in/web.log is in the trash"),
        ("undelete", {"path": "/in/old.txt"}, "/in/old.txt is back"),
    ],
)
def test_every_action_works(pages: Pages, name: str, fields: dict[str, str], done: str) -> None:
    token = pages.token(f"/act/{name}?{urlencode(fields)}")

    answer = pages.submit(f"/act/{name}", token=token, **fields)

    assert pages.state.done == [done]
    assert answer.status == 303
    assert pages.get(answer.headers["location"]).status in (200, 404)


def test_a_value_that_is_missing_is_asked_for(pages: Pages) -> None:
    page = Reader(pages.get("/act/mkdir?into=%2Fin").body.decode())

    assert "Name of the new directory" in page.text


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("priority", {"job": JOB, "value": "URGENT"}),
        ("replication", {"path": "/in/web.log", "value": "0"}),
        ("mkdir", {"into": "/in", "value": "a/b"}),
        ("mkdir", {"into": "/in/..", "value": "x"}),
        ("kill-job", {}),
        ("explode", {}),
    ],
)
def test_values_are_checked_again_when_something_is_done(
    pages: Pages, name: str, fields: dict[str, str]
) -> None:
    from mrstream.web.pages.forms import token_of
    from mrstream.web.pages.session import cookies_of

    visitor = SESSIONS.visitor(cookies_of([pages.cookie.removeprefix("Cookie: ")]), time.time())
    assert visitor is not None

    answer = pages.submit(f"/act/{name}", token=token_of(visitor, f"/act/{name}"), **fields)

    assert answer.status in (400, 404)
    assert pages.state.done == []


@pytest.mark.parametrize(
    "headers",
    [
        ["Origin: http://evil.example"],
        ["Origin: null"],
        ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-site"],
        [],
    ],
)
def test_a_form_of_a_stranger_is_refused(pages: Pages, headers: list[str]) -> None:
    token = pages.token(f"/act/kill-job?job={JOB}")
    body = urlencode({"job": JOB, "token": token}).encode()

    answer = pages.post("/act/kill-job", body, pages.cookie, *headers)

    assert answer.status == 403
    assert pages.state.done == []


def test_our_origin_does_not_help_a_foreign_site(pages: Pages) -> None:
    token = pages.token(f"/act/kill-job?job={JOB}")

    answer = pages.submit("/act/kill-job", "Sec-Fetch-Site: cross-site", job=JOB, token=token)

    assert answer.status == 403 and pages.state.done == []


def test_a_form_without_its_token_is_refused(pages: Pages) -> None:
    other = pages.token("/act/delete?path=%2Fin%2Fweb.log")

    for token in ("", "0" * 64, other):
        answer = pages.submit("/act/kill-job", job=JOB, token=token)
        assert answer.status == 403
    assert pages.state.done == []


def test_a_get_changes_nothing(pages: Pages) -> None:
    token = pages.token(f"/act/kill-job?job={JOB}")

    pages.get(f"/act/kill-job?job={JOB}&token={token}")

    assert pages.state.done == []


def test_where_nothing_may_be_changed_every_post_is_refused(read_only: Pages) -> None:
    for target in ("/act/kill-job", "/act/delete", "/upload/in", "/anything"):
        assert read_only.submit(target, job=JOB, token="x").status == 403
    assert read_only.get(f"/act/kill-job?job={JOB}").status == 403
    assert b"read-only" in read_only.get("/jobs").body
    assert read_only.state.done == []


def test_nobody_can_make_the_pages_say_something(pages: Pages) -> None:
    answer = pages.get("/jobs?said=call+0900+for+help&proof=00")

    assert b"0900" not in answer.body


def test_the_colours_are_chosen_by_a_form(pages: Pages) -> None:
    answer = pages.submit(
        "/theme", f"Referer: http://127.0.0.1:{pages.served.port}/hosts", to="dark"
    )

    assert (answer.status, answer.headers["location"]) == (303, "/hosts")
    cookie = answer.headers["set-cookie"].split(";")[0]
    page = pages.served.get("/jobs", f"{pages.cookie}; {cookie}")
    assert b'data-theme="dark"' in page.body


def test_the_colours_leave_one_where_one_was(pages: Pages) -> None:
    there = f"Referer: http://127.0.0.1:{pages.served.port}/files/a%20b%C3%BC?view=map"

    assert pages.submit("/theme", there, to="light").headers["location"] == "/files/a%20b%C3%BC"
    assert pages.submit("/theme", "Referer: //evil.example//x", to="x").headers["location"] == "/x"


def test_a_method_that_pages_do_not_have_is_refused(pages: Pages) -> None:
    head = pages.served.head("DELETE /files/in HTTP/1.1", pages.cookie, "Connection: close")

    assert pages.served.ask(head).status == 405


def test_files_on_their_way_share_a_budget_that_is_given_back(pages: Pages) -> None:
    before = pages.door.budget.free_bytes
    form_token = pages.token("/act/upload?into=%2Fin").encode()

    pages.get("/download/in/web.log")
    pages.get("/download/in/none")
    pages.upload([("token", None, form_token), ("file", "a", b"x")])
    pages.upload([("token", None, b"wrong"), ("file", "a", b"x")])

    assert pages.door.budget.free_bytes == before


def test_the_audit_log_is_told_what_was_looked_at_taken_brought_and_done(pages: Pages) -> None:
    token = pages.token("/act/upload?into=%2Fin").encode()
    kill = pages.token(f"/act/kill-job?job={JOB}")
    del pages.served.outcomes[:]

    pages.get("/files/in")
    pages.get("/download/in/web.log")
    pages.get("/nothing/of/ours")
    pages.upload([("token", None, token), ("file", "a", b"x"), ("file", "b", b"y")])
    pages.submit("/act/kill-job", job=JOB, token=kill)
    pages.served.get("/jobs")

    assert [(each.note.operation, each.note.paths) for each in pages.served.outcomes] == [
        ("files", ["/in"]),
        ("download", ["/in/web.log"]),
        ("", []),
        ("upload", ["/in", "/in/a", "/in/b"]),
        ("kill-job", [JOB]),
        ("jobs", []),
    ]
    assert [each.note.user for each in pages.served.outcomes] == ["ann"] * 5 + [""]


# Parts and logs -------------------------------------------------------------------------


def test_a_browser_is_given_what_changed_and_nothing_else(pages: Pages) -> None:
    page = Reader(pages.get("/jobs").body.decode())
    seen = {each["data-part"]: each["data-version"] for _, each in page.tags if "data-part" in each}
    words = f"part={','.join(seen)}&seen={','.join(str(each) for each in seen.values())}"

    same = pages.get(f"/jobs?{words}")
    other = pages.get("/jobs?part=jobs&seen=old")

    assert (same.status, same.body) == (204, b"")
    assert other.status == 200 and other.body.startswith(b'<section id="p-jobs"')


def test_a_log_is_followed_from_an_offset(pages: Pages) -> None:
    key = f"{ATTEMPT} stderr"
    pages.state.logs[key] = b"one\n" + "zwei ü\n".encode()[:-2]
    path = f"/jobs/{JOB}/attempts/{ATTEMPT}/log"

    first = pages.get(f"{path}?from=0")
    pages.state.logs[key] = b"one\n" + "zwei ü\n".encode() + b"\x1b[2J"
    second = pages.get(f"{path}?from={first.headers['x-from']}")

    assert first.body == b"one\nzwei "  # half of a letter waits for the other half
    assert second.body == "ü\n␛[2J".encode()
    assert first.headers["content-type"].startswith("text/plain")


# Files ----------------------------------------------------------------------------------


def test_a_download_is_saved_and_never_shown(pages: Pages) -> None:
    """Files that are HTML or SVG must not become pages of ours."""
    pages.state.contents["/in/web.log"] = b"<script>alert(1)</script>"

    answer = pages.get("/download/in/web.log")

    assert answer.body == b"<script>alert(1)</script>"
    assert answer.headers["content-disposition"].startswith('attachment; filename="web.log"')
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/../etc", "/%2e%2e/x", "//x", "/in/./a"])
def test_a_path_that_leaves_its_tree_is_none(pages: Pages, path: str) -> None:
    for start in ("/files", "/download"):
        assert pages.get(f"{start}{path}").status in (400, 404)


def test_a_file_whose_name_is_a_script_is_a_file(pages: Pages) -> None:
    name = '<script>alert(1)</script>"\r\nSet-Cookie: a=b'
    entry = pages.state.files["/in"][0]
    pages.state.files["/in"].append(replace(entry, path=f"/in/{name}"))

    shown = pages.get("/files/in")
    taken = pages.get(f"/download/in/{quote(name, safe='')}")

    assert b"<script>alert" not in shown.body
    assert taken.status in (200, 404)
    assert "set-cookie" not in taken.headers


def test_files_are_brought_each_whole(pages: Pages) -> None:
    token = pages.token("/act/upload?into=%2Fin")
    big = bytes(range(256)) * 8192

    answer = pages.upload([("token", None, token.encode()), ("file", "a b.bin", big),
                           ("file", "ü.txt", b"")])  # fmt: skip

    assert answer.status == 303
    assert pages.state.contents == {"/in/a b.bin": big, "/in/ü.txt": b""}
    assert pages.state.done == ["upload /in/a b.bin", "upload /in/ü.txt"]
    said = Reader(pages.get(answer.headers["location"]).body.decode()).text
    assert "uploaded /in/a b.bin, /in/ü.txt" in said


def test_a_file_is_replaced_only_if_that_was_ticked(pages: Pages) -> None:
    token = pages.token("/act/upload?into=%2Fin")

    pages.upload([("token", None, token.encode()), ("replace", None, b"yes"), ("file", "a", b"")])

    assert pages.state.done == ["upload /in/a over"]


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([("file", "a", b"x"), ("token", None, b"late")], 403),
        ([("token", None, b"wrong"), ("file", "a", b"x")], 403),
        ([("token", None, b"x" * 5000)], 400),
        ([("token", None, b"TOKEN"), ("file", "..", b"x")], 400),
        ([("token", None, b"TOKEN"), ("file", "", b"")], 400),
    ],
)
def test_an_upload_that_is_not_in_order_leaves_nothing(
    pages: Pages, parts: list[tuple[str, str | None, bytes]], status: int
) -> None:
    token = pages.token("/act/upload?into=%2Fin").encode()

    answer = pages.upload([(n, f, token if body == b"TOKEN" else body) for n, f, body in parts])

    assert answer.status == status
    assert pages.state.contents == {}


def test_an_upload_that_breaks_off_leaves_nothing_of_its_file(pages: Pages) -> None:
    token = pages.token("/act/upload?into=%2Fin").encode()
    whole = form([("token", None, token), ("file", "a", b"whole"), ("file", "b", b"x" * 2_000_000)])
    kind = f"Content-Type: multipart/form-data; boundary={EDGE.decode()}"
    head = pages.served.head(
        "POST /upload/in HTTP/1.1",
        f"Content-Length: {len(whole)}",
        pages.cookie,
        pages.origin,
        kind,
    )

    with pages.served.connect() as connection:
        connection.sendall(head + whole[:-50_000])
    assert pages.state.abandoned.wait(30)

    assert pages.state.contents == {"/in/a": b"whole"}
    assert pages.state.done[-1] == "abandoned /in/b"


def test_an_upload_into_a_place_that_is_not_open_is_refused(pages: Pages) -> None:
    bob = "Cookie: " + SESSIONS.begin(Visitor("bob", paths=("/out",)), time.time()).split(";")[0]
    pages.cookie = bob

    assert pages.get("/act/upload?into=%2Fin").status == 403
    assert pages.upload([("token", None, b"x"), ("file", "a", b"x")]).status == 403
    assert pages.get("/download/in/web.log").status == 403
    assert pages.state.done == []


def test_a_lost_master_is_told_in_words(pages: Pages) -> None:
    pages.state.lost = "dfs.master at h1:7701 refuses the connection"

    answer = pages.get("/files/in")

    assert answer.status == 503
    assert b"refuses the connection" in answer.body
