"""Cookies of signed claims, and links that work once (web/pages/session.py)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.pages.forms import is_token, token_of
from mrstream.web.pages.session import LINK_S, SESSION_S, OneTimeLink, Sessions, cookies_of
from mrstream.web.pages.visit import Visitor

SESSIONS = Sessions(b"secret", "mrstream-1", secure=False)
ANN = Visitor("ann ü;", may_change=True, paths=("/data", "/in"))


def cookie(visitor: Visitor = ANN, now_s: float = 0.0) -> dict[str, str]:
    return cookies_of([SESSIONS.begin(visitor, now_s).split(";")[0]])


def test_who_has_the_cookie_is_the_visitor_until_its_time_is_over() -> None:
    found = SESSIONS.visitor(cookie(), SESSION_S - 1)

    assert found is not None
    assert (found.user, found.may_change, found.paths) == (ANN.user, True, ANN.paths)
    assert SESSIONS.visitor(cookie(), SESSION_S + 1) is None


@given(st.data())
def test_a_cookie_that_was_changed_anywhere_is_none(data: st.DataObject) -> None:
    (name, value), *_ = cookie().items()
    at = data.draw(st.integers(0, len(value) - 1))
    other = data.draw(st.sampled_from("ABCabc0123._-=").filter(lambda sign: sign != value[at]))
    changed = value[:at] + other + value[at + 1 :]

    found = SESSIONS.visitor({name: changed}, 0.0)

    # The last letter of base64 has bits that mean nothing, but the proof is compared as text.
    assert found is None


@given(st.text())
def test_any_cookie_header_is_read_without_harm(header: str) -> None:
    SESSIONS.visitor(cookies_of([header]), 0.0)
    SESSIONS.visitor({SESSIONS.cookie: header}, 0.0)


def test_a_cookie_of_another_secret_is_none() -> None:
    other = Sessions(b"other", SESSIONS.cookie, secure=False)

    assert other.visitor(cookie(), 0.0) is None


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites() -> None:
    made = SESSIONS.begin(ANN, 0.0)
    over_tls = Sessions(b"s", "__Host-mrstream", secure=True).begin(ANN, 0.0)

    assert "HttpOnly" in made and "SameSite=Strict" in made and "Path=/" in made
    assert "Secure" not in made and over_tls.endswith("; Secure")


def test_two_sessions_of_one_user_have_different_tokens() -> None:
    first, second = (SESSIONS.visitor(cookie(), 0.0) for _ in range(2))
    assert first is not None and second is not None

    token = token_of(first, "/act/delete")

    assert is_token(first, "/act/delete", token)
    assert not is_token(first, "/act/kill-job", token)
    assert not is_token(second, "/act/delete", token)
    assert not is_token(first, "/act/delete", "")


def test_a_link_works_once_and_not_for_long() -> None:
    link = OneTimeLink(0.0)
    late = OneTimeLink(0.0)

    assert not link.spend("", 1.0)
    assert not link.spend("ü", 1.0)
    assert link.spend(link.word, 1.0)
    assert not link.spend(link.word, 1.0)
    assert not late.spend(late.word, LINK_S + 1.0)
    assert len(link.word) >= 22  # 128 bits
