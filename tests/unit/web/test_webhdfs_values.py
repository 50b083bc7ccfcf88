"""WebHDFS without a cluster: parameters, tokens and values as Hadoop writes them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.http.head import Query, Refused
from mrstream.web.webhdfs import answers, delegation
from mrstream.web.webhdfs.delegation import Token, write_vlong
from mrstream.web.webhdfs.parameters import CHUNK_SIZES, MIB, Parameters

SECRET = b"d" * 32
TOKEN = Token("ann", "MRETL", 1_700_000_000_000, 1_700_086_400_000, 7)


def parameters(**pairs: str) -> Parameters:
    return Parameters(Query(list(pairs.items())))


def test_names_are_read_in_any_case_and_null_is_nothing() -> None:
    found = parameters(OverWrite="TRUE", Offset="5", length="null", PERMISSION="1777")

    assert found.flag("overwrite", False)
    assert (found.whole("offset", 0), found.whole("length", 9)) == (5, 9)
    assert found.mode("permission", 0o755) == 0o1777
    assert found.mode("missing", 0o755) == 0o755


@pytest.mark.parametrize(
    ("read", "value"),
    [("flag", "yes"), ("whole", "-1"), ("whole", "1e3"), ("whole", "9" * 30), ("whole", "٣"),
     ("mode", "888"), ("mode", "7777"), ("mode", "-1"), ("mode", "")],
)  # fmt: skip
def test_what_hadoop_would_not_take_is_not_taken(read: str, value: str) -> None:
    if value == "":
        return
    with pytest.raises(Refused) as caught:
        getattr(parameters(x=value), read)("x", 0)

    assert caught.value.status == 400
    assert 'webhdfs parameter "x"' in caught.value.words


@given(st.integers(0, 1 << 40))
def test_a_block_size_becomes_one_of_ours(wanted: int) -> None:
    """§0.1: strangers cannot fill the master's table of chunk sizes."""
    size = parameters(blocksize=str(wanted)).chunk_bytes(64 * MIB)

    assert size == 0 if wanted in (0, 64 * MIB) else size in CHUNK_SIZES
    assert size <= max(wanted, CHUNK_SIZES[0])


def test_a_token_reads_back_and_ends_with_its_secret() -> None:
    text = delegation.encode(TOKEN, SECRET, "h1:7730")
    plain = delegation.encode(TOKEN, SECRET, "h1:7730", "http")

    assert delegation.decode(text, SECRET) == delegation.decode(plain, SECRET) == TOKEN
    assert delegation.decode(text, b"e" * 32) is None
    assert "=" not in text and "+" not in text and "/" not in text


def test_a_token_is_laid_out_as_hadoop_does() -> None:
    """Token.write: identifier and password behind their lengths, kind and service as Text."""
    text = delegation.encode(TOKEN, SECRET, "h1:7730", "http")
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    identifier = TOKEN.identifier()

    assert packed[0] == len(identifier) and packed[1 : 1 + len(identifier)] == identifier
    assert identifier.startswith(b"\x00\x03ann\x05MRETL\x00")
    assert packed.endswith(b"\x12WEBHDFS delegation\x07h1:7730")


@pytest.mark.parametrize(
    ("value", "packed"),
    [(0, "00"), (127, "7f"), (-112, "90"), (128, "8f80"), (255, "8fff"), (256, "8e0100"),
     (-113, "8770"), (1_700_000_000_000, "8a018bcfe56800"), (-(1 << 63), "807fffffffffffffff")],
)  # fmt: skip
def test_numbers_are_as_writable_utils_writes_them(value: int, packed: str) -> None:
    """WritableUtils.writeVLong."""
    assert write_vlong(value).hex() == packed


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_number_reads_back(value: int) -> None:
    assert delegation._Reader(write_vlong(value)).vlong() == value


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_no_token_of_ours(data: bytes) -> None:
    assert delegation.decode(data.decode("latin-1"), SECRET) is None
    assert delegation.decode(base64.urlsafe_b64encode(data).decode(), SECRET) is None


@given(st.integers(0), st.integers(1, 255))
def test_a_token_that_was_changed_anywhere_is_none(at: int, by: int) -> None:
    text = delegation.encode(TOKEN, SECRET, "")
    packed = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    packed[at % len(packed)] ^= by
    found = delegation.decode(base64.urlsafe_b64encode(packed).rstrip(b"=").decode(), SECRET)

    # The service at its end is where a client means to use it: nothing hangs on it here.
    assert found is None or at % len(packed) >= len(packed) - 1


@given(st.binary())
def test_attributes_read_back_in_every_encoding_that_keeps_bytes(value: bytes) -> None:
    for encoding in (answers.HEX, answers.BASE64):
        assert answers.decode_xattr(answers.encode_xattr(value, encoding)) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_attributes_read_back_as_text(value: str) -> None:
    assert (
        answers.decode_xattr(answers.encode_xattr(value.encode(), answers.TEXT)) == value.encode()
    )


@pytest.mark.parametrize("text", ["0xzz", "0x1", "0s!", "0sQQ"])
def test_what_is_no_value_of_an_attribute_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        answers.decode_xattr(text)
