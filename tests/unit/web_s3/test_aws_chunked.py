"""`aws-chunked` bodies: Amazon's example, any cut, and whatever a stranger may send."""

from __future__ import annotations

import contextlib
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.s3.aws_chunked import AwsChunked
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.sigv4 import Claim, Signing

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
EXAMPLE = (
    b"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n"
    + b"a" * 65_536
    + b"\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
    b"\r\n" + b"a" * 1024
    + b"\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"
    b"\r\n\r\n"
)  # fmt: skip


def signing() -> Signing:
    key = f"AWS4{SECRET}".encode()
    for part in ("20130524", "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    claim = Claim("id", "us-east-1", "20130524T000000Z", ("host",), SEED, "", is_presigned=False)
    return Signing(key, claim)


def decode(decoder: AwsChunked, data: bytes, cut: int = 1 << 20) -> bytes:
    got = b""
    for start in range(0, len(data), cut):
        got += b"".join(decoder.feed(data[start : start + cut]))
    decoder.end()
    return got


def unsigned(data: bytes, size: int, trailer: bytes = b"x-amz-checksum-crc32:AAAAAA==") -> bytes:
    body = b""
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        body += b"%x\r\n%s\r\n" % (len(piece), piece)
    return body + b"0\r\n" + (trailer + b"\r\n" if trailer else b"") + b"\r\n"


@pytest.mark.parametrize("cut", [1 << 20, 1000, 7])
def test_the_example_of_a_signed_upload(cut: int) -> None:
    assert decode(AwsChunked(signing(), has_trailer=False), EXAMPLE, cut) == b"a" * 66_560


@pytest.mark.parametrize("at", [80, 90, 65_700, len(EXAMPLE) - 10])
def test_one_bit_that_differs_is_seen(at: int) -> None:
    changed = bytearray(EXAMPLE)
    changed[at] ^= 1
    with pytest.raises(S3Error):
        decode(AwsChunked(signing(), has_trailer=False), bytes(changed))


def test_nothing_of_a_chunk_is_given_before_its_signature_is_right() -> None:
    changed = bytearray(EXAMPLE)
    changed[60_000] ^= 1
    decoder = AwsChunked(signing(), has_trailer=False)
    with pytest.raises(S3Error) as caught:
        assert list(decoder.feed(bytes(changed))) == []
    assert caught.value.code == "SignatureDoesNotMatch"


def test_a_signed_trailer() -> None:
    """Chained behind the last chunk; its lines are hashed as name:value and a line feed."""
    made = signing()
    empty = hashlib.sha256(b"").hexdigest()
    last = made.text("AWS4-HMAC-SHA256-PAYLOAD", SEED, empty, empty)
    hashed = hashlib.sha256(b"x-amz-checksum-crc32c:sOO8/Q==\n").hexdigest()
    proof = made.text("AWS4-HMAC-SHA256-TRAILER", last, hashed)

    def body(value: str, signature: str) -> bytes:
        return (
            f"0;chunk-signature={last}\r\nx-amz-checksum-crc32c:{value}\r\n"
            f"x-amz-trailer-signature:{signature}\r\n\r\n"
        ).encode()

    decoder = AwsChunked(made, has_trailer=True)
    assert decode(decoder, body("sOO8/Q==", proof)) == b""
    assert decoder.trailers == {"x-amz-checksum-crc32c": "sOO8/Q=="}
    for wrong in (body("sOO8/A==", proof), body("sOO8/Q==", "0" * 64)):
        with pytest.raises(S3Error):
            decode(AwsChunked(made, has_trailer=True), wrong)


@given(st.binary(max_size=2000), st.integers(1, 700), st.integers(1, 900))
def test_any_cut_gives_the_same_bytes(data: bytes, size: int, cut: int) -> None:
    decoder = AwsChunked(None, has_trailer=True)
    assert decode(decoder, unsigned(data, size), cut) == data
    assert decoder.trailers == {"x-amz-checksum-crc32": "AAAAAA=="}


@given(st.binary(max_size=300), st.integers(0, 400), st.binary(max_size=8))
def test_what_is_cut_off_or_changed_is_refused_or_harmless(
    data: bytes, at: int, other: bytes
) -> None:
    whole = unsigned(data, 50)
    cut = whole[: min(at, len(whole) - 3)]
    with pytest.raises(S3Error):
        decode(AwsChunked(None, has_trailer=True), cut + b"\x00")
    with contextlib.suppress(S3Error):
        decode(AwsChunked(None, has_trailer=True), whole[:at] + other + whole[at:], 13)


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n",
        b"-1\r\n",
        b"5\r\nabcdeXX0\r\n\r\n",
        b"5;chunk-signature=00\r\nabcde\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"0\r\n\r\nmore",
        b"0\r\nname\r\n\r\n",
        b"a" * 10_000,
    ],
)
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(S3Error):
        decode(AwsChunked(None, has_trailer=True), body)


def test_a_trailer_that_was_not_announced_is_refused() -> None:
    with pytest.raises(S3Error):
        decode(AwsChunked(None, has_trailer=False), unsigned(b"x", 1))
