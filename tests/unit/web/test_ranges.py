"""The arithmetic of `Range`, against a slice of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.http.ranges import NotSatisfiable, Span, parse_range

numbers = st.integers(0, 40)


@given(first=st.none() | numbers, last=st.none() | numbers, size=st.integers(0, 30))
def test_a_range_is_the_slice_that_the_rfc_says(
    first: int | None, last: int | None, size: int
) -> None:
    """RFC 9110 §14.1.2, by another formula."""
    whole = bytes(range(size))
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if (first is None and last is None) or (
        first is not None and last is not None and last < first
    ):
        assert parse_range(header, size) is None
        return
    if first is None:
        assert last is not None
        wanted = whole[-last:] if last else b""
    else:
        wanted = whole[first:] if last is None else whole[first : last + 1]
    if not wanted:
        with pytest.raises(NotSatisfiable) as caught:
            parse_range(header, size)
        assert caught.value.content_range() == f"bytes */{size}"
        return

    span = parse_range(header, size)

    assert span is not None
    assert whole[span.start : span.stop] == wanted
    assert span.content_range() == f"bytes {wanted[0]}-{wanted[-1]}/{size}"


@given(st.text(), st.integers(0, 1 << 62))
def test_any_text_is_a_range_or_is_ignored(value: str, size: int) -> None:
    try:
        span = parse_range(value, size)
    except NotSatisfiable:
        return
    assert span is None or 0 <= span.start < span.stop <= size


@pytest.mark.parametrize(
    "value",
    [None, "", "bytes", "bytes=", "bytes=a-b", "lines=0-1", "bytes=0-1,4-5", "bytes=1", "bytes=--1",
     "bytes=99999999999999999999999-", "bytes=5-4"],
)  # fmt: skip
def test_what_a_server_may_ignore_is_ignored(value: str | None) -> None:
    assert parse_range(value, 10) is None


def test_a_span_knows_whether_it_is_all() -> None:
    assert Span(0, 10, 10).is_all
    assert not Span(1, 10, 10).is_all
