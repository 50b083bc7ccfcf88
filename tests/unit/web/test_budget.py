"""Memory of streams: who finds too little waits, in order, and not for ever."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mrstream.web.http.audit import Audit
from mrstream.web.http.budget import Budget, Share
from mrstream.web.http.figures import LABELS_MAX, Figures
from mrstream.web.http.head import Refused
from mrstream.web.http.request import Note
from mrstream.web.http.server import Outcome


async def test_who_asks_first_is_served_first() -> None:
    budget = Budget(10)
    await budget.take(8)
    order: list[str] = []

    async def taker(name: str, size: int) -> None:
        await budget.take(size)
        order.append(name)

    large = asyncio.create_task(taker("large", 9))
    await asyncio.sleep(0)
    small = asyncio.create_task(taker("small", 1))
    await asyncio.sleep(0)
    assert order == []  # the small one would fit, but not before its turn
    budget.give(8)
    await asyncio.gather(large, small)

    assert order == ["large", "small"]
    assert budget.free_bytes == 0


async def test_who_waits_too_long_is_told_to_slow_down() -> None:
    budget = Budget(10, wait_s_max=0.05)
    await budget.take(10)

    with pytest.raises(Refused) as caught:
        await budget.take(1)
    budget.give(10)

    assert (caught.value.status, caught.value.headers) == (503, (("Retry-After", "5"),))
    assert budget.free_bytes == 10


async def test_who_leaves_the_queue_holds_up_nobody() -> None:
    budget = Budget(10)
    await budget.take(5)
    gone = asyncio.create_task(budget.take(10))
    await asyncio.sleep(0)
    behind = asyncio.create_task(budget.take(5))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    await asyncio.wait_for(behind, 60)

    assert budget.free_bytes == 0


async def test_a_share_moves_from_one_budget_to_another_and_is_given_back() -> None:
    whole = Budget(12, wait_s_max=0.05)
    small = whole.split_off(4)
    one, other = Share(), Share()
    await one.move(small, 2)
    await other.move(small, 2)
    await one.move(whole, 7)
    await one.move(whole, 7)
    assert (whole.free_bytes, small.free_bytes) == (1, 2)

    with pytest.raises(Refused):
        await other.move(whole, 7)
    assert (whole.free_bytes, small.free_bytes) == (1, 2)  # what it had it has
    one.end()
    await other.move(whole, 7)
    other.end()
    other.end()

    assert (whole.free_bytes, small.free_bytes) == (8, 4)


async def test_a_crowd_that_holds_all_small_shares_is_served_in_turn() -> None:
    """Out of one budget they would hold all of it, and each wait for the others."""
    whole = Budget(12, wait_s_max=60)
    small = whole.split_off(4)

    async def upload() -> None:
        share = Share()
        await share.move(small, 1)
        await asyncio.sleep(0)
        await share.move(whole, 8)
        share.end()

    await asyncio.gather(*(upload() for _ in range(50)))

    assert (whole.free_bytes, small.free_bytes) == (8, 4)


def outcome(status: int = 200, operation: str = "OPEN", **note: object) -> Outcome:
    made = Note("webhdfs", operation, "etl", "ann", ["/a\nb"])
    return Outcome(1_000_000.5, "id", "127.0.0.1", "GET", "agent", made, status, 1, 2, 0.3)


def test_the_audit_log_has_a_line_of_json_for_each_request(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "a.log"))
    audit.note(outcome())
    audit.note(outcome(403))
    audit.close()

    lines = [json.loads(line) for line in (tmp_path / "a.log").read_text().splitlines()]

    assert [line["status"] for line in lines] == [200, 403]
    assert lines[0] == {
        "at": "1970-01-12T13:46:40.500Z", "id": "id", "from": "127.0.0.1", "face": "webhdfs",
        "operation": "OPEN", "key": "etl", "user": "ann", "paths": ["/a\nb"], "status": 200,
        "in": 1, "out": 2, "seconds": 0.3, "agent": "agent",
    }  # fmt: skip


def test_figures_add_up_and_nobody_can_make_them_many() -> None:
    figures = Figures()
    for _ in range(3):
        figures.note(outcome())
    figures.note(outcome(403))
    for number in range(1000):
        figures.note(outcome(operation=f"X{number}"))

    assert figures.requests["webhdfs", "OPEN", "2xx"] == 3
    assert figures.bytes["webhdfs", "out"] == 2008
    assert sum(figures.seconds["webhdfs"]) == 1004
    assert figures.refused == {"403": 1}
    assert len(figures.requests) <= LABELS_MAX + 1
