"""Secrets that follow from one, and claims that nobody else can have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.http.tokens import key_secret, new_key_id, sign, verify

SECRET = b"s" * 32


def test_a_key_has_an_id_of_its_own_and_the_same_secret_everywhere() -> None:
    ids = {new_key_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(len(id) == 20 and id.startswith("MR") and id.isalnum() for id in ids)
    assert key_secret(SECRET, "MRA") == key_secret(SECRET, "MRA")
    assert key_secret(SECRET, "MRA") != key_secret(SECRET, "MRB")
    assert key_secret(SECRET, "MRA") != key_secret(b"t" * 32, "MRA")
    assert len(key_secret(SECRET, "MRA")) == 40


WORDS = st.text(max_size=20)
"""Claims are short: at most 4,096 characters when they are signed, up to 16 for each of these."""


@given(
    st.dictionaries(WORDS, WORDS | st.integers(-(1 << 63), 1 << 63), max_size=5), st.floats(1, 1e9)
)
def test_claims_are_good_until_their_end(claims: dict[str, str | int], until_s: float) -> None:
    text = sign(SECRET, "session", claims, until_s)

    found = verify(SECRET, "session", text, int(until_s) - 1)

    assert found == {**claims, "until": int(until_s)}
    assert verify(SECRET, "session", text, int(until_s)) is None
    assert verify(SECRET, "link", text, 0.0) is None
    assert verify(b"t" * 32, "session", text, 0.0) is None


@given(st.text())
def test_any_text_is_no_claim_of_ours(text: str) -> None:
    assert verify(SECRET, "session", text, 0.0) is None


@given(st.integers(0), st.integers(1, 255))
def test_a_claim_that_was_changed_anywhere_is_none(at: int, by: int) -> None:
    text = bytearray(sign(SECRET, "session", {"user": "ann"}, 100.0).encode())
    text[at % len(text)] ^= by

    assert verify(SECRET, "session", text.decode("latin-1"), 0.0) is None


@pytest.mark.parametrize("text", ["", ".", "a.b", "=.=", "é.é", "A" * 5000 + "." + "A" * 43])
def test_nonsense_is_no_claim(text: str) -> None:
    assert verify(SECRET, "session", text, 0.0) is None
