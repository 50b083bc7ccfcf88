"""One attempt: what its program writes, as it writes it; and how to repeat it."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.view import attempts
from mrstream.web.pages.markup import element, joined, url
from mrstream.web.pages.parts import Part, button, facts, link
from mrstream.web.pages.visit import NoSuchPage, Page, Visit

STREAMS = ("stderr", "stdout")
LOG_BYTES_MAX = 256 * 1024
"""Of a log on a page: its end, unless another place was asked for."""


def page(visit: Visit, job_id: str, attempt_id: str) -> Page:
    stream = visit.one_of("stream", STREAMS)
    path = f"/jobs/{job_id}/attempts/{attempt_id}"
    with visit.watch.job(job_id) as (board, _):
        if board.attempts.get(attempt_id) is None:
            raise NoSuchPage(f"{job_id} has no attempt {attempt_id}")
        name = board.job.name or job_id

    def head() -> Markup:
        with visit.watch.job(job_id) as (board, _):
            row = board.attempts.get(attempt_id)
            lines = attempts.about(row, visit.now_s) if row else []
        return joined(element("p", line) for line in lines)

    repeat = element(
        "p",
        "repeat it with ",
        element("code", attempts.repeat_command(attempt_id), id="repeat"),
        " ",
        element("button", "Copy", type="button", data_copy="repeat", hidden=True),
    )
    acts = joined()
    if visit.visitor.may_change:
        acts = element(
            "div",
            button("Kill…", "/act/kill-attempt", cls="danger", attempt=attempt_id),
            button("Fail…", "/act/fail-attempt", cls="danger", attempt=attempt_id),
            cls="acts",
        )
    log = _log(visit, attempt_id, stream, path)
    return Page(
        attempt_id,
        (Part("head", head), repeat, acts, log),
        here="Jobs",
        every_s=2,
        back=(
            ("Jobs", "/jobs"),
            (name, f"/jobs/{job_id}"),
            ("Attempts", f"/jobs/{job_id}/attempts"),
        ),
    )


def log_piece(visit: Visit, attempt_id: str) -> tuple[bytes, int]:
    """Return what was written since an offset, in whole characters, and the next offset."""
    stream, start = visit.one_of("stream", STREAMS), visit.number("from", 0)
    data = visit.source.log(attempt_id, stream, start)[:LOG_BYTES_MAX]
    whole = data[: _whole_bytes(data)]
    return whole, start + len(whole)


def _log(visit: Visit, attempt_id: str, stream: str, path: str) -> Markup:
    length = visit.source.log_bytes(attempt_id, stream)
    last = max(0, length - LOG_BYTES_MAX)
    start = min(visit.number("from", last), length)
    data = visit.source.log(attempt_id, stream, start)[:LOG_BYTES_MAX]
    shown = data[: _whole_bytes(data)]
    after = start + len(shown)
    tabs = [
        element(
            "li",
            element("a", each, href=url(path, stream=each), aria_current=each == stream and "page"),
        )
        for each in STREAMS
    ]
    size = facts([("written so far", f"{after:,} bytes" if after else "nothing")])
    ways: Markup | None = None
    if start or after < length:
        before = max(0, start - LOG_BYTES_MAX)
        ways = element(
            "nav",
            link("← before", path, stream=stream, **{"from": before}) if start else None,
            element("span", f"bytes {start:,} to {after:,} of {length:,}"),
            link("after →", path, stream=stream, **{"from": after}) if after < length else None,
            link("the beginning", path, stream=stream, **{"from": 0}) if start else None,
            link("the end", path, stream=stream) if after < length else None,
            cls="pager",
            aria_label="Parts of this log",
        )
    return joined(
        element("nav", element("ul", tabs), cls="tabs", aria_label="What it writes"),
        ways,
        element(
            "pre",
            shown.decode("utf-8", "replace"),
            id="log",
            tabindex=0,
            aria_label=f"{stream} of {attempt_id}",
            data_log=url(f"{path}/log", stream=stream),
            data_from=after,
        ),
        element("noscript", size),
    )


def _whole_bytes(data: bytes) -> int:
    """Return how many bytes end with a whole character: a cut one comes whole with the next
    piece."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < needed else len(data)
        if byte < 0x80:
            break
    return len(data)
