"""For all inputs: what users' words and programs' stderr become."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from mrstream.streaming.conf.properties import from_wire, to_wire
from mrstream.streaming.records.comparator import (
    BadKeySpec,
    KeyFieldOrder,
    compare,
    field_lengths,
    key_field_order,
    parse_key_specs,
    range_of,
)
from mrstream.streaming.records.key_value import join, rule, split
from mrstream.streaming.records.partitioner import key_field_partition, partition
from mrstream.streaming.task.child import parse_command
from mrstream.streaming.task.reporter import Counter, Reporter, Status, Text, Warning

PIECES = st.sampled_from(
    [b"reporter:", b"counter:", b"status:", b"g,n,1", b"g,n,x", b"\n", b"\r", b"\r\n", b"rep", b"x"]
)
ANY_TEXT = st.binary(max_size=40).map(lambda data: data.decode("utf-8", "surrogateescape"))
KEYS = st.binary(max_size=12) | st.text("0123456789.-\tab", max_size=8).map(str.encode)
SPECS = st.sampled_from(["-k1,1", "-k2", "-k2,2nr", "-n", "-k1.2,2.3", "-k3,2", "-k1,1 -k2,2n"])


def line_by_line(stream: bytes) -> tuple[list[object], bytes]:
    """Return (reporter events, all other bytes) the slow and simple way."""
    events: list[object] = []
    text = b""
    for line in re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", stream):
        bare = line.rstrip(b"\r\n")
        if bare.startswith(b"reporter:"):
            (event,) = Reporter().feed(bare + b"\n")
            events.append(event)
        else:
            text += line
    return events, text


@given(st.lists(PIECES, max_size=30), st.lists(st.integers(0, 200), max_size=8))
def test_stderr_means_the_same_however_it_is_cut(pieces: list[bytes], cuts: list[int]) -> None:
    """Spec 7.5: the stream decides, not the pipe."""
    stream = b"".join(pieces)
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reporter = Reporter()

    found = [
        event
        for start, end in itertools.pairwise(borders)
        for event in reporter.feed(stream[start:end])
    ]
    found += reporter.close()

    events, text = line_by_line(stream)
    assert [e for e in found if isinstance(e, Counter | Status | Warning)] == events
    assert b"".join(e.data for e in found if isinstance(e, Text)) == text


@given(ANY_TEXT)
def test_text_of_any_bytes_crosses_the_wire(text: str) -> None:
    to_wire(text).encode("utf-8")

    assert from_wire(to_wire(text)) == text


@given(st.text("ab '\"", max_size=30))
def test_words_of_a_command_lose_only_quotes_and_blanks_outside(command: str) -> None:
    """Spec 7.1."""
    words = parse_command(command)

    assert all(words)
    letters = [c for c in command if c in "ab"]
    assert [c for word in words for c in word if c in "ab"] == letters


@given(st.binary(max_size=30), st.binary(min_size=1, max_size=2), st.integers(0, 4))
def test_a_record_that_was_cut_joins_to_its_line(
    line: bytes, separator: bytes, fields: int
) -> None:
    by = rule(separator, fields)
    key, value = split(line, by)

    assert join(key, value, separator) == (
        line + b"\n" if key != line else line + separator + b"\n"
    )


@given(SPECS, KEYS, st.integers(1, 9))
def test_a_partition_is_one_of_those_there_are(options: str, key: bytes, reduces: int) -> None:
    assert 0 <= partition(key_field_partition(options), key, reduces) < reduces


@given(SPECS, KEYS)
def test_a_key_with_all_its_fields_ties_with_itself(options: str, key: bytes) -> None:
    """Spec 5.3: only a missing field makes a key less than itself."""
    order = key_field_order(options)
    assert isinstance(order, KeyFieldOrder)
    lengths = [len(key)] if order.whole_key else field_lengths(key, b"\t")
    lacks = any(range_of(spec, len(key), lengths, 1) is None for spec in order.specs)

    assert (compare(order, key, key) == 0) is not lacks


@given(st.text("-knr1234., ", max_size=20))
def test_options_are_read_or_refused_and_nothing_else(options: str) -> None:
    try:
        specs, whole_key = parse_key_specs(options)
    except BadKeySpec:
        return

    assert not whole_key or len(specs) == 1
