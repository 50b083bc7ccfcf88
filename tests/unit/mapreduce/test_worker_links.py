"""What the master sends to workers: the job once a connection, news of segments together."""

from __future__ import annotations

from typing import Any

from mrstream.cluster.wire.messages import Message
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.master.worker_links import WorkerLinks
from mrstream.mapreduce.protocol import RunAttempt, SegmentNews
from tests.unit.mapreduce.test_job_ledger import JOB, ledger_of

MAP = "attempt_1700000000000_0001_m_000000_0"
REDUCE = "attempt_1700000000000_0001_r_000000_0"


class Wire:
    """The far end of a connection."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def push(self, message: Message) -> None:
        self.sent.append(message)


def met(links: WorkerLinks, name: str) -> Wire:
    wire = Wire()
    link = links.meet(name)
    link.connect(wire)  # type: ignore[arg-type]  # all that it needs of a peer is push
    link.bulk_address = f"{name}:7705"
    return wire


def test_the_job_goes_down_a_connection_once() -> None:
    links = WorkerLinks()
    wire = met(links, "h1")
    ledger = ledger_of()

    for _ in range(2):
        links.run("h1", ledger, RunAttempt(MAP, 2), is_map=True)
    again = met(links, "h1")
    links.run("h1", ledger, RunAttempt(MAP, 2), is_map=True)

    assert [bool(order.spec) for order in wire.sent] == [True, False]
    assert [bool(order.spec) for order in again.sent] == [True]


def test_the_first_reduce_of_a_job_on_a_worker_brings_all_places_later_ones_none() -> None:
    """MapReduce §3.2: locations are pushed to workers with in-progress reduce tasks."""
    links = WorkerLinks()
    wire = met(links, "h1")
    ledger = ledger_of()
    ledger.segments[0] = SegmentAt(0, MAP, "h1")

    for _ in range(2):
        links.run("h1", ledger, RunAttempt(REDUCE, 2), is_map=False)

    news = [message for message in wire.sent if isinstance(message, SegmentNews)]
    assert [each.added for each in news] == [(SegmentAt(0, MAP, "h1"),)]
    assert news[0].addresses == {"h1": "h1:7705"}


def test_news_of_one_turn_are_one_message_to_those_who_run_reduces() -> None:
    links = WorkerLinks()
    hears, does_not = met(links, "h1"), met(links, "h2")
    links.run("h1", ledger_of(), RunAttempt(REDUCE, 2), is_map=False)
    hears.sent.clear()

    links.publish(JOB, SegmentAt(0, MAP, "h2"))
    links.withdraw(JOB, 0, MAP)
    links.publish(JOB, SegmentAt(0, MAP[:-1] + "1", "h1"))
    links.abandon(JOB, 1)
    links.tell_news()
    links.tell_news()

    (news,) = hears.sent
    assert [at.attempt_id for at in news.added] == [MAP[:-1] + "1"]
    assert news.withdrawn == (MAP,)
    assert news.abandoned == (1,)
    assert does_not.sent == []
