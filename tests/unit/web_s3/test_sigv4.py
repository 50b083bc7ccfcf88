"""Signatures: by Amazon's own examples, by botocore's signer, and against whoever changes a bit.

The examples are those of "Authenticating Requests (AWS Signature Version 4)" of the S3 reference.
"""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.web.http.head import Headers, Refused, parse_target
from mrstream.web.s3 import sigv4
from mrstream.web.s3.errors import S3Error

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
ID = "AKIAIOSFODNN7EXAMPLE"
AT_S = 1_369_353_600.0
"""2013-05-24T00:00:00Z."""
SCOPE = f"{ID}/20130524/us-east-1/s3/aws4_request"
GET_HEADERS = [
    ("Host", "examplebucket.s3.amazonaws.com"),
    ("Range", "bytes=0-9"),
    ("x-amz-date", "20130524T000000Z"),
    ("x-amz-content-sha256", sigv4.EMPTY_SHA256),
    (
        "Authorization",
        f"AWS4-HMAC-SHA256 Credential={SCOPE},"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
]
PRESIGNED = (
    "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" + quote(SCOPE, safe="")
    + "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)  # fmt: skip


def is_good(method: str, target: str, headers: list[tuple[str, str]], secret: str = SECRET) -> bool:
    parsed, found = parse_target(target.encode()), Headers(headers)
    claim = sigv4.claim_of(parsed, found)
    assert claim is not None
    return sigv4.verify(claim, secret, method, parsed, found) is not None


def test_the_example_of_a_get() -> None:
    assert is_good("GET", "/test.txt", GET_HEADERS)
    assert not is_good("GET", "/test.txt", GET_HEADERS, SECRET + "x")
    assert not is_good("PUT", "/test.txt", GET_HEADERS)
    assert not is_good("GET", "/test.txt?acl", GET_HEADERS)
    assert not is_good("GET", "/test.tx", GET_HEADERS)


def test_the_example_of_a_listing() -> None:
    headers = [
        *GET_HEADERS[:1],
        *GET_HEADERS[2:4],
        (
            "Authorization",
            f"AWS4-HMAC-SHA256 Credential={SCOPE},"
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date,"
            "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ]
    assert is_good("GET", "/?max-keys=2&prefix=J", headers)
    assert is_good("GET", "/?prefix=J&max-keys=2", headers), "the order is nobody's"


def test_the_example_of_a_presigned_url() -> None:
    headers = [("Host", "examplebucket.s3.amazonaws.com")]
    assert is_good("GET", PRESIGNED, headers)
    assert not is_good("GET", PRESIGNED.replace("86400", "86401"), headers)
    claim = sigv4.claim_of(parse_target(PRESIGNED.encode()), Headers(headers))
    assert claim is not None
    sigv4.check_time(claim, AT_S + 86_400)
    with pytest.raises(S3Error, match="expired"):
        sigv4.check_time(claim, AT_S + 86_401)
    with pytest.raises(S3Error, match="not valid yet"):
        sigv4.check_time(claim, AT_S - 901)


def test_clocks_may_differ_by_a_quarter_of_an_hour() -> None:
    claim = sigv4.claim_of(parse_target(b"/"), Headers(GET_HEADERS))
    assert claim is not None
    for wall_s in (AT_S - 900, AT_S + 900):
        sigv4.check_time(claim, wall_s)
    for wall_s in (AT_S - 901, AT_S + 901):
        with pytest.raises(S3Error) as caught:
            sigv4.check_time(claim, wall_s)
        assert caught.value.code == "RequestTimeTooSkewed"


def test_headers_of_s3_that_are_not_signed_are_refused() -> None:
    headers = Headers([*GET_HEADERS, ("x-amz-acl", "private")])
    claim = sigv4.claim_of(parse_target(b"/"), headers)
    assert claim is not None
    with pytest.raises(S3Error, match="x-amz-acl"):
        sigv4.check_all_signed(claim, headers)


names = st.text(st.characters(min_codepoint=33, blacklist_categories=["Cs"]), min_size=1)
plain = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(
    st.lists(names, min_size=1, max_size=4),
    st.dictionaries(names, names, max_size=4),
    st.dictionaries(st.from_regex("x-amz-meta-[a-z]{1,8}", fullmatch=True), plain, max_size=3),
    st.booleans(),
)
@settings(deadline=None)
def test_what_botocore_signs_is_good_and_nothing_else(
    parts: list[str], query: dict[str, str], meta: dict[str, str], presigned: bool
) -> None:
    path = "/bucket/" + "/".join(quote(part, safe="~") for part in parts)
    if any(part in (".", "..") for part in parts):
        return  # botocore signs another path than it was given
    words = "&".join(f"{quote(n, safe='~')}={quote(v, safe='~')}" for n, v in query.items())
    url = f"https://h1:7731{path}" + (f"?{words}" if words else "")
    request = AWSRequest("PUT", url, headers={} if presigned else meta, data=b"")
    kind: Any = S3SigV4QueryAuth if presigned else S3SigV4Auth
    kind(Credentials(ID, SECRET), "s3", "eu-nowhere-1").add_auth(request)
    target = request.url.removeprefix("https://h1:7731")
    headers = [("Host", "h1:7731"), *request.headers.items()]

    assert is_good("PUT", target, headers)
    assert not is_good("PUT", target, headers, SECRET[:-1])
    assert not is_good("PUT", target.replace("/bucket/", "/bucket2/"), headers)
    assert not is_good("PUT", target, [("Host", "h2:7731"), *headers[1:]])


@given(st.text(max_size=200), st.text(max_size=60), st.sampled_from([0, 1, 2]))
def test_whatever_is_claimed_is_read_or_refused(value: str, other: str, where: int) -> None:
    """Nothing from outside ends in anything but an answer."""
    headers = dict(GET_HEADERS)
    target = b"/k"
    if where == 0:
        headers["Authorization"] = f"AWS4-HMAC-SHA256 {value}"
    elif where == 1:
        headers["Authorization"] = GET_HEADERS[4][1].replace(ID, value)
        headers["x-amz-date"] = other
    else:
        del headers["Authorization"]
        target = PRESIGNED.replace(quote(ID), quote(value)).replace("86400", quote(other)).encode()
    try:
        parsed, found = parse_target(target), Headers(headers.items())
        claim = sigv4.claim_of(parsed, found)
        if claim is not None:
            sigv4.check_time(claim, AT_S)
            assert sigv4.verify(claim, "another", "GET", parsed, found) is None
    except (S3Error, Refused):
        pass


def test_a_date_header_is_a_time_too() -> None:
    when = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
    headers = dict(GET_HEADERS)
    del headers["x-amz-date"]
    headers["Date"] = when.strftime("%a, %d %b %Y %H:%M:%S GMT")
    claim = sigv4.claim_of(parse_target(b"/"), Headers(headers.items()))
    assert claim is not None and claim.at_s == AT_S


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Authorization": "AWS id:signature"}, "InvalidArgument"),
        ({"Authorization": "Basic abc"}, "InvalidArgument"),
        ({"Authorization": "AWS4-HMAC-SHA256 "}, "AuthorizationHeaderMalformed"),
        ({"x-amz-date": "yesterday"}, "AccessDenied"),
        ({"x-amz-date": "20130525T000000Z"}, "AuthorizationHeaderMalformed"),
        ({"x-amz-content-sha256": ""}, "InvalidRequest"),
        ({"x-amz-content-sha256": "x"}, "InvalidArgument"),
    ],
)
def test_what_is_wrong_is_told_by_its_code(change: dict[str, str], code: str) -> None:
    with pytest.raises(S3Error) as caught:
        sigv4.claim_of(parse_target(b"/"), Headers({**dict(GET_HEADERS), **change}.items()))
    assert caught.value.code == code


def test_host_must_be_signed() -> None:
    value = GET_HEADERS[4][1].replace("host;", "")
    with pytest.raises(S3Error, match="host"):
        sigv4.claim_of(
            parse_target(b"/"), Headers({**dict(GET_HEADERS), "Authorization": value}.items())
        )
