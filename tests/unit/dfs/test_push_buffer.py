"""Pushed data waits in a bounded buffer (GFS §3.1 step 3, GFS-42)."""

from __future__ import annotations

import pytest

from mrstream.cluster.errors import Overloaded
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.errors import BadRequest, DataNotPushed


def push(buffer: PushBuffer, data_id: bytes, size: int) -> None:
    data = buffer.begin(size)
    data[:] = data_id * size
    buffer.keep(data_id, data)


def test_data_stays_until_it_is_forgotten() -> None:
    buffer = PushBuffer(100)
    push(buffer, b"a", 10)

    assert buffer.get(b"a", 10) == b"a" * 10
    assert buffer.get(b"a", 10) == b"a" * 10
    buffer.forget(b"a")
    with pytest.raises(DataNotPushed):
        buffer.get(b"a", 10)
    assert buffer.used_bytes == 0


def test_the_least_recently_used_goes_first() -> None:
    buffer = PushBuffer(100)
    for name in (b"a", b"b", b"c"):
        push(buffer, name, 30)
    buffer.get(b"a", 30)

    push(buffer, b"d", 30)

    with pytest.raises(DataNotPushed):
        buffer.get(b"b", 30)
    assert [len(buffer.get(name, 30)) for name in (b"a", b"c", b"d")] == [30, 30, 30]


def test_what_is_on_its_way_counts_and_is_never_thrown_out() -> None:
    buffer = PushBuffer(100)
    arriving = buffer.begin(80)

    with pytest.raises(Overloaded, match="80 bytes are being pushed"):
        buffer.begin(30)
    buffer.drop(arriving)
    buffer.keep(b"x", buffer.begin(100))

    assert buffer.used_bytes == 100


def test_a_wrong_size_is_refused() -> None:
    buffer = PushBuffer(100)
    push(buffer, b"a", 10)

    with pytest.raises(BadRequest, match="101 bytes"):
        buffer.begin(101)
    with pytest.raises(BadRequest, match="10 bytes, the request says 11"):
        buffer.get(b"a", 11)
