"""Answers as values: nothing that somebody else wrote becomes a header."""

from __future__ import annotations

from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.http.limits import Limits, Pace
from mrstream.web.http.reply import Reply, attachment, json_reply, redirect_reply


@pytest.mark.parametrize("bad", ["a\r\nX: y", "a\nb", "a\0", "\u2603", "\x7f"])
def test_a_header_cannot_be_split(bad: str) -> None:
    with pytest.raises(ValueError):
        redirect_reply(303, bad)
    with pytest.raises(ValueError):
        Reply(200, b"", ((bad, "x"),))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_file_name_can_be_saved_under(name: str) -> None:
    """RFC 6266: the encoded form gives the name back, the plain one is harmless."""
    header, value = attachment(name)
    message = Message()
    message[header] = value

    Reply(200, b"", ((header, value),))

    assert message.get_filename() is not None
    plain = value.split('"')[1]
    assert plain.isascii() and "/" not in plain and "\\" not in plain


def test_json_is_ascii_and_keeps_what_it_says() -> None:
    assert json_reply({"a": "\u2603\ud800"}).body == b'{"a":"\\u2603\\ud800"}'


def test_what_moves_too_slowly_is_seen() -> None:
    pace = Pace(Limits(pace_bytes_per_s=10, pace_s=6))

    assert pace.moved(59, 5.9)
    assert pace.patience_s == pytest.approx(0.1)
    assert pace.moved(1, 10.0)  # sixty in all: fast enough, a new window
    assert pace.patience_s == 6
    assert not pace.moved(59, 6.0)
