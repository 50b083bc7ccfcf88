"""streaming/task/reporter.py: reporter lines out of stderr."""

from __future__ import annotations

import itertools
import random

import pytest

from mrstream.streaming.task.reporter import (
    REPORTER_LINE_BYTES_MAX,
    Counter,
    Event,
    Reporter,
    Status,
    Text,
    Warning,
)


def events(*blobs: bytes, prefix: bytes = b"reporter:") -> list[Event]:
    reporter = Reporter(prefix)
    found = [event for blob in blobs for event in reporter.feed(blob)]
    return [*found, *reporter.close()]


def joined(found: list[Event]) -> list[Event]:
    """Return the events with neighbouring texts made one."""
    result: list[Event] = []
    for event in found:
        if isinstance(event, Text) and result and isinstance(result[-1], Text):
            result[-1] = Text(result[-1].data + event.data)
        else:
            result.append(event)
    return result


def test_counters_and_status_are_cut_out_of_the_text_around_them() -> None:
    """Spec 7.5."""
    found = events(b"hello\nreporter:counter:g,n,2\nworld\nreporter:status: busy \nend")

    assert found == [
        Text(b"hello\n"),
        Counter("g", "n", 2),
        Text(b"world\n"),
        Status("busy"),
        Text(b"end"),
    ]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"reporter:counter:g,n,-3", Counter("g", "n", -3)),
        (b"reporter:counter: g , n ,3  ", Counter("g ", " n ", 3)),
        (b"reporter:counter:g,n,3,,", Counter("g", "n", 3)),
        (
            b"reporter:counter:a,b, -2",
            Warning("Cannot parse counter increment ' -2' from line: reporter:counter:a,b, -2"),
        ),
        (
            b"reporter:counter:bad,only2",
            Warning("Cannot parse counter line: reporter:counter:bad,only2"),
        ),
        (b"reporter:other:zzz", Warning("Cannot parse reporter line: reporter:other:zzz")),
        (b"reporter:counter:g,n,9223372036854775807", Counter("g", "n", 2**63 - 1)),
        (
            b"reporter:counter:g,n,9223372036854775808",
            Warning(
                "Cannot parse counter increment '9223372036854775808' from line: "
                "reporter:counter:g,n,9223372036854775808"
            ),
        ),
    ],
)
def test_a_reporter_line_is_read_as_hadoop_reads_it(line: bytes, event: Event) -> None:
    """Spec 7.5; case counter_user."""
    assert events(line + b"\n") == [event]


def test_the_prefix_counts_only_at_the_start_of_a_line() -> None:
    found = events(b" reporter:status:x\nReporter:status:y\nsee reporter:status:z\n")

    assert [type(event) for event in found] == [Text]


def test_a_last_line_without_its_end_counts() -> None:
    assert events(b"reporter:counter:g,n,1") == [Counter("g", "n", 1)]


def test_names_that_are_too_long_are_cut_to_one_less_than_allowed() -> None:
    """Case counter_long_names."""
    (event,) = events(b"reporter:counter:%s,%s,1\n" % (b"G" * 200, b"c" * 100))

    assert event == Counter("G" * 127, "c" * 63, 1)


def test_however_the_stream_is_cut_into_blobs_the_events_are_the_same() -> None:
    """A pipe gives bytes, not lines: CR LF, prefixes and lines are torn anywhere."""
    stream = (
        b"repo\nreporter:counter:g,a,1\r\nx\rreporter:status:s\rreporterX\n\nreporter:"
        b"counter:g,b,2\nrep\rreporter:counter:g,c,3\r\n\nreporter:"
    )
    whole = joined(events(stream))
    chance = random.Random(7)

    for _ in range(300):
        cuts = sorted(chance.sample(range(len(stream)), chance.randint(1, 12)))
        borders = [0, *cuts, len(stream)]
        blobs = [stream[i:j] for i, j in itertools.pairwise(borders)]
        assert joined(events(*blobs)) == whole


def test_an_endless_reporter_line_is_text_and_is_not_kept_in_memory() -> None:
    reporter = Reporter()
    text = 0

    for _ in range(100):
        blob = b"reporter:counter:" + b"x" * 10_000
        text += sum(len(e.data) for e in reporter.feed(blob) if isinstance(e, Text))
        assert len(reporter._held) <= REPORTER_LINE_BYTES_MAX

    assert text > 900_000


def test_another_prefix_makes_the_usual_one_plain_text() -> None:
    """Case counter_prefix."""
    found = events(b"hs>counter:g,n,1\nreporter:counter:g,old,1\n", prefix=b"hs>")

    assert found == [Counter("g", "n", 1), Text(b"reporter:counter:g,old,1\n")]
