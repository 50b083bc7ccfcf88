"""The head of a request: every byte has one meaning, or is refused."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.http.head import (
    Headers,
    Query,
    Refused,
    parse_headers,
    parse_host,
    parse_query,
    parse_target,
)
from mrstream.web.http.hosts import Hosts

plain = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(path=plain, pairs=st.lists(st.tuples(plain, plain), max_size=8))
def test_what_a_client_encodes_once_is_what_we_read(
    path: str, pairs: list[tuple[str, str]]
) -> None:
    raw = f"/{quote(path, safe='/')}?{urlencode(pairs)}".encode()

    target = parse_target(raw)

    assert target.path == f"/{path}"
    assert list(target.query.pairs) == pairs or ("", "") in pairs


@given(st.binary())
def test_any_bytes_are_a_target_or_a_refusal(raw: bytes) -> None:
    try:
        target = parse_target(b"/" + raw)
    except Refused as refused:
        assert refused.status == 400
    else:
        assert target.path.startswith("/") and "\0" not in target.path
        target.path.encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"http://other.example/x",
        b"*",
        b"",
        b"x",
        b"/a b",
        b"/a#b",
        b"/a\x00b",
        b"/a\nb",
        b"/%00",
        b"/%",
        b"/%2",
        b"/%zz",
        b"/%c0%ae%c0%ae/secret",
        b"/%e0%80%af",
        b"/%ff",
        b"/\xc0\xae",
        b"/?a=%00",
        b"/?%ff=1",
        b"/%ed%a0%80",
    ],
)
def test_what_has_no_single_meaning_is_refused(raw: bytes) -> None:
    """Overlong UTF-8, NUL, half a percent sign, surrogates, absolute and asterisk form."""
    with pytest.raises(Refused) as caught:
        parse_target(raw)

    assert caught.value.status == 400


def test_a_target_is_decoded_once() -> None:
    assert parse_target(b"/%252e%252e/a%2Fb").path == "/%2e%2e/a/b"


def test_a_parameter_with_two_values_is_refused_when_one_is_asked_for() -> None:
    query = parse_query(b"op=OPEN&op=DELETE&&a=1&a=1")

    assert query.all("op") == ["OPEN", "DELETE"]
    with pytest.raises(Refused):
        query.get("op")
    assert query.get("a") == "1"
    assert "b" not in query


def test_names_of_parameters_can_be_read_in_any_case() -> None:
    assert Query([("Op", "x")]).folded().get("op") == "x"


def test_too_many_parameters_are_refused() -> None:
    with pytest.raises(Refused):
        parse_query(b"&".join([b"a=1"] * 101))


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=8))
def test_any_bytes_are_headers_or_a_refusal(raw: list[tuple[bytes, bytes]]) -> None:
    try:
        headers = parse_headers(raw, 64)
    except Refused as refused:
        assert refused.status in {400, 431}
    else:
        for name in headers:
            assert not any(sign in value for value in headers.all(name) for sign in "\r\n\0")


def test_headers_are_counted() -> None:
    parse_headers([(b"a", b"1")] * 64, 64)

    with pytest.raises(Refused) as caught:
        parse_headers([(b"a", b"1")] * 65, 64)
    assert caught.value.status == 431


def test_a_header_that_is_there_twice_is_refused_when_one_is_asked_for() -> None:
    headers = Headers([("Range", "bytes=0-1"), ("RANGE", "bytes=2-3"), ("A", "b")])

    assert headers.get("a") == "b"
    assert headers.get("c") is None
    with pytest.raises(Refused):
        headers.get("range")


@pytest.mark.parametrize(
    ("value", "name", "port"),
    [
        ("H1:7730", "h1", 7730),
        ("127.0.0.1", "127.0.0.1", None),
        ("[::1]:80", "::1", 80),
        ("[0:0:0:0:0:0:0:1]", "::1", None),
        ("a-b.example:443", "a-b.example", 443),
    ],
)
def test_hosts_are_read(value: str, name: str, port: int | None) -> None:
    assert parse_host(value) == (name, port)


@pytest.mark.parametrize(
    "value",
    ["", ":80", "a:", "a:b", "a:0", "a:99999", "a:+1", "a:١", "a@b", "a/b", "[::1", "[::1]x", "[x]",
     "[::1]:", "a b", "a,b", "-a", "a?b"],
)  # fmt: skip
def test_what_is_no_host_is_refused(value: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_host(value)

    assert caught.value.status == 400


@given(st.text())
def test_any_text_is_a_host_or_a_refusal(value: str) -> None:
    try:
        name, port = parse_host(value)
    except Refused:
        return
    assert name and (port is None or 0 < port < 65536)


def test_only_our_own_names_are_ours() -> None:
    hosts = Hosts(["Files.Lab.example"])
    hosts.add("127.0.0.1", 7730)
    hosts.add("h1", 7730)

    assert hosts.check(["h1:7730"], 80) == "h1:7730"
    assert hosts.check(["files.lab.example"], 80) == "files.lab.example"
    assert hosts.check(["files.lab.example:8443"], 80) == "files.lab.example:8443"
    for stranger in ["evil.example:7730", "h1", "h1:80", "127.0.0.1:7731", "h1.evil.example:7730"]:
        with pytest.raises(Refused) as caught:
            hosts.check([stranger], 80)
        assert caught.value.status == 421
    for count in ([], ["h1:7730", "h1:7730"]):
        with pytest.raises(Refused) as caught:
            hosts.check(count, 80)
        assert caught.value.status == 400
