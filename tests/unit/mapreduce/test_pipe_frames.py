"""Frames on an attempt's pipe (mapreduce/attempt/pipe_frames.py): any cut, any end."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.cluster.errors import Speechless
from mrstream.mapreduce.attempt.pipe_frames import FRAME_BYTES_MAX, Cutter, framed, receive


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 50))
def test_bodies_survive_any_cut(bodies: list[bytes], size: int) -> None:
    data = b"".join(map(framed, bodies))
    cutter = Cutter()

    found = [
        body
        for start in range(0, len(data), size)
        for body in cutter.feed(data[start : start + size])
    ]

    assert found == bodies


def test_a_body_that_nobody_would_say_is_refused_before_it_is_awaited() -> None:
    with pytest.raises(Speechless, match="announces"):
        list(Cutter().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "little")))


@pytest.mark.parametrize("sent", [b"", framed(b"order")[:2], framed(b"order")[:-1]])
def test_who_is_gone_in_the_middle_of_a_body_has_said_nothing(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(sent)
    theirs.close()
    with ours:
        assert receive(ours) == b""


def test_a_body_is_awaited_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(framed(b"order") + framed(b"next"))

        assert (receive(ours), receive(ours)) == (b"order", b"next")
