"""mapreduce.attempt.attempt_report: what an attempt tells comes out of a pipe as it went in."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.attempt.attempt_report import (
    AttemptNews,
    Decoder,
    Done,
    Failed,
    Failure,
    Message,
    Noted,
    Said,
    send,
)
from mrstream.mapreduce.program.flow import InputRange

MESSAGES: list[Message] = [
    AttemptNews("attempt_1_0001_m_000000_0", 0.5, 10, 20, "map", "busy", {"g": {"n": 1}}),
    Said(b"\xff not text"),
    Noted("WARN", "odd"),
    Failed(Failure("why", "map", "cmd", 3, ("a", "b"), InputRange("f", 0, 1, 2, 3))),
    Done({"g": {"n": 2}}, segment_bytes=5, largest_key=b"k", largest_key_records=7),
]


@given(st.integers(1, 100))
def test_messages_survive_any_cut_of_the_pipe(size: int) -> None:
    reader, writer = os.pipe()
    for message in MESSAGES:
        send(writer, message)
    os.close(writer)
    decoder = Decoder()

    found = []
    while data := os.read(reader, size):
        found += decoder.feed(data)
    os.close(reader)

    assert found == MESSAGES
