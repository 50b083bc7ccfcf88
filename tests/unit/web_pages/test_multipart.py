"""Files out of a form, however the bytes are cut (web/pages/multipart.py)."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.pages.multipart import (
    HEAD_BYTES_MAX,
    PARTS_MAX,
    BadForm,
    Multipart,
    PartBegins,
    PartBytes,
    PartEnds,
    boundary_of,
)

EDGE = b"----Edge7MA4"
Part = tuple[str, str | None, bytes]


def form(parts: list[Part], edge: bytes = EDGE) -> bytes:
    """A form as browsers write it."""
    out = b""
    for name, filename, body in parts:
        out += b"--" + edge + b'\r\nContent-Disposition: form-data; name="' + name.encode() + b'"'
        if filename is not None:
            safe = filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
            out += b'; filename="' + safe.encode() + b'"\r\nContent-Type: text/plain'
        out += b"\r\n\r\n" + body + b"\r\n"
    return out + b"--" + edge + b"--\r\n"


def parsed(data: bytes, cuts: list[int]) -> list[Part]:
    found: list[Part] = []
    reader = Multipart(EDGE)
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(borders):
        for event in reader.feed(data[start:stop]):
            match event:
                case PartBegins(name, filename):
                    found.append((name, filename, b""))
                case PartBytes(piece):
                    name, filename, body = found[-1]
                    found[-1] = (name, filename, body + piece)
                case PartEnds():
                    pass
    reader.finish()
    return found


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"%\r\n'), max_size=20)
# Bodies full of what boundaries are made of.
BODIES = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([b"\r", b"\n", b"--", EDGE, EDGE[:5], b"\r\n--", b"x"])).map(b"".join),
).filter(lambda body: b"\r\n--" + EDGE not in b"\r\n" + body + b"\r\n")


@given(st.lists(st.tuples(NAMES, st.none() | NAMES, BODIES), max_size=5), st.lists(st.integers(0)))
def test_a_form_is_the_same_however_it_is_cut(parts: list[Part], cuts: list[int]) -> None:
    assert parsed(form(parts), cuts) == parts


@given(st.lists(st.tuples(NAMES, st.none() | NAMES, BODIES), min_size=1, max_size=3), st.data())
def test_a_form_that_is_cut_off_is_no_form(parts: list[Part], data: st.DataObject) -> None:
    whole = form(parts)
    end = data.draw(st.integers(0, len(whole) - 5))

    with pytest.raises(BadForm):
        parsed(whole[:end], [])


@given(st.binary(max_size=500))
def test_any_bytes_are_a_form_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadForm):
        parsed(b"--" + EDGE + data, [1, 7])


def test_a_name_with_quotes_comes_back() -> None:
    assert parsed(form([("file", 'a"b.txt', b"x")]), [])[0][1] == 'a"b.txt'


def test_what_it_holds_is_bounded() -> None:
    reader = Multipart(EDGE)
    list(reader.feed(form([("file", "a", b"")])[: -len(EDGE) - 8]))
    for _ in range(100):
        list(reader.feed(b"\r" * 1000))
        assert len(reader._held) < 2 * len(EDGE) + 1100

    with pytest.raises(BadForm, match="more than"):
        list(Multipart(EDGE).feed(b"--" + EDGE + b"\r\n" + b"x" * (HEAD_BYTES_MAX + 1)))
    with pytest.raises(BadForm, match="more than"):
        list(Multipart(EDGE).feed(form([("a", None, b"")] * (PARTS_MAX + 1))))


@pytest.mark.parametrize(
    ("kind", "edge"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('multipart/form-data; boundary="a b"', None),
        ('Multipart/Form-Data; charset=utf-8; boundary="abc"', b"abc"),
        ("text/plain", None),
        ("", None),
    ],
)
def test_the_boundary_is_read_from_the_header(kind: str, edge: bytes | None) -> None:
    if edge is not None:
        assert boundary_of(kind) == edge
        return
    with pytest.raises(BadForm):
        boundary_of(kind)
