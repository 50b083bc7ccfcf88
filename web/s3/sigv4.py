"""AWS Signature Version 4: whose request is this, and is it as it was signed? Without IO.

    signing key = HMAC(HMAC(HMAC(HMAC("AWS4" secret, date), region), "s3"), "aws4_request")
    signature   = HMAC(signing key, "AWS4-HMAC-SHA256" time scope SHA256(canonical request))

In a header or, presigned, in the query. Any region is taken: there is one place here. Whoever has
the secret is asked to `verify`; nothing here knows it.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from mrstream.web.http.head import Headers, Target
from mrstream.web.s3.errors import S3Error

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
STREAMING_UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
SKEW_S_MAX = 15 * 60
EXPIRES_S_MAX = 7 * 86_400
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SECONDS = re.compile(r"-?[0-9]{1,10}")
_HEX = re.compile(r"[0-9a-f]{64}")
_FIELD = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_SCOPE = re.compile(r"([^/\s]{1,128})/([0-9]{8})/([^/\s]{0,64})/s3/aws4_request")
_HEADER_NAMES = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+(;[a-z0-9!#$%&'*+.^_`|~-]+)*")


@dataclass(frozen=True, slots=True)
class Claim:
    """Who says to have signed a request, and how; to be verified."""

    key_id: str
    region: str
    time: str
    """`20261117T193000Z`."""
    signed_headers: tuple[str, ...]
    signature: str
    payload: str
    """What is signed of the body: its SHA-256, or a word."""
    is_presigned: bool
    expires_s: int = 0

    @property
    def scope(self) -> str:
        """What the signing key is good for."""
        return f"{self.time[:8]}/{self.region}/s3/aws4_request"

    @property
    def at_s(self) -> int:
        return calendar.timegm(time.strptime(self.time, "%Y%m%dT%H%M%SZ"))


@dataclass(frozen=True, slots=True)
class Signing:
    """The key of a request that was found good: what follows in its body is signed with it."""

    key: bytes
    claim: Claim

    def text(self, kind: str, *lines: str) -> str:
        """The signature of lines of a kind, within the request's time and scope."""
        whole = "\n".join([kind, self.claim.time, self.claim.scope, *lines])
        return hmac.new(self.key, whole.encode(), hashlib.sha256).hexdigest()


def claim_of(target: Target, headers: Headers) -> Claim | None:
    """Return what a request claims, None if it claims nothing; S3Error if it cannot be."""
    authorization = headers.get("authorization", "")
    if authorization:
        return _from_header(authorization, headers)
    if "X-Amz-Algorithm" in target.query or "X-Amz-Signature" in target.query:
        return _from_query(target, headers)
    if "Signature" in target.query and "AWSAccessKeyId" in target.query:
        raise S3Error("InvalidRequest", f"signature version 2 is not taken; use {ALGORITHM}")
    return None


def _from_header(value: str, headers: Headers) -> Claim:
    kind, _, rest = value.partition(" ")
    if kind != ALGORITHM:
        raise S3Error("InvalidArgument", f"this authorization is not taken; use {ALGORITHM}")
    fields = dict(_FIELD.findall(rest))
    if len(fields) != 3:
        raise S3Error(
            "AuthorizationHeaderMalformed", "Credential, SignedHeaders and Signature are needed"
        )
    when = headers.get("x-amz-date", "") or _rfc_time(headers.get("date", ""))
    payload = headers.get("x-amz-content-sha256", "")
    if not payload:
        raise S3Error("InvalidRequest", "header x-amz-content-sha256 is missing")
    words = (UNSIGNED, STREAMING, STREAMING_TRAILER, STREAMING_UNSIGNED)
    if payload not in words and not _HEX.fullmatch(payload):
        raise S3Error(
            "InvalidArgument", f"x-amz-content-sha256 is {payload[:80]!r}, which is not known"
        )
    code = "AuthorizationHeaderMalformed"
    if not _TIME.fullmatch(when):
        raise S3Error("AccessDenied", "a request is signed with its time, in x-amz-date")
    id, region = _credential(fields["Credential"], when, code)
    names = _signed_headers(fields["SignedHeaders"], code)
    return Claim(id, region, when, names, fields["Signature"], payload, is_presigned=False)


def _from_query(target: Target, headers: Headers) -> Claim:
    query, code = target.query, "AuthorizationQueryParametersError"
    if query.get("X-Amz-Algorithm") != ALGORITHM:
        raise S3Error(code, f"X-Amz-Algorithm must be {ALGORITHM}")
    when, expires = query.get("X-Amz-Date"), query.get("X-Amz-Expires")
    if not _TIME.fullmatch(when):
        raise S3Error(code, "X-Amz-Date must be a time such as 20261117T193000Z")
    if not _SECONDS.fullmatch(expires):
        raise S3Error(code, "X-Amz-Expires must be a number of seconds")
    if not 0 < int(expires) <= EXPIRES_S_MAX:
        raise S3Error("AccessDenied", f"X-Amz-Expires must be 1 to {EXPIRES_S_MAX} seconds")
    id, region = _credential(query.get("X-Amz-Credential"), when, code)
    names = _signed_headers(query.get("X-Amz-SignedHeaders"), code)
    payload = headers.get("x-amz-content-sha256") or query.get("X-Amz-Content-Sha256", UNSIGNED)
    if payload != UNSIGNED and not _HEX.fullmatch(payload):
        raise S3Error("InvalidArgument", "the payload of a presigned request is not streamed")
    signature = query.get("X-Amz-Signature")
    return Claim(id, region, when, names, signature, payload, True, int(expires))


def _credential(text: str, when: str, code: str) -> tuple[str, str]:
    found = _SCOPE.fullmatch(text)
    if found is None:
        raise S3Error(code, "Credential must be ID/DATE/REGION/s3/aws4_request")
    if found[2] != when[:8]:
        raise S3Error(code, f"Credential has the date {found[2]}, and the request {when[:8]}")
    return found[1], found[3]


def _signed_headers(text: str, code: str) -> tuple[str, ...]:
    names = tuple(text.split(";"))
    if not _HEADER_NAMES.fullmatch(text) or list(names) != sorted(set(names)):
        raise S3Error(code, "SignedHeaders must be names in lower case, in order, each once")
    if "host" not in names:
        raise S3Error(code, "SignedHeaders must have host in it")
    return names


def _rfc_time(value: str) -> str:
    """The time of a `Date` header as signatures have it; empty if it is none."""
    if _TIME.fullmatch(value):
        return value
    try:
        return time.strftime("%Y%m%dT%H%M%SZ", time.strptime(value, "%a, %d %b %Y %H:%M:%S GMT"))
    except ValueError:
        return ""


def check_time(claim: Claim, wall_s: float) -> None:
    """Refuse what was signed too long ago, or is not good yet."""
    try:
        at_s = claim.at_s
    except ValueError:
        raise S3Error("AccessDenied", f"{claim.time} is not a time") from None
    if claim.is_presigned:
        if wall_s > at_s + claim.expires_s:
            raise S3Error("AccessDenied", "Request has expired")
        if wall_s < at_s - SKEW_S_MAX:
            raise S3Error("AccessDenied", "Request is not valid yet")
    elif abs(wall_s - at_s) > SKEW_S_MAX:
        raise S3Error(
            "RequestTimeTooSkewed",
            "the clocks differ by more than 15 minutes",
            MaxAllowedSkewMilliseconds="900000",
        )


def check_all_signed(claim: Claim, headers: Headers) -> None:
    """Refuse a request with headers of S3's that anybody on the way could have added."""
    for name in headers:
        if name.startswith("x-amz-") and name not in claim.signed_headers:
            raise S3Error("AccessDenied", f"header {name} is there and was not signed")


def verify(
    claim: Claim, secret: str, method: str, target: Target, headers: Headers
) -> Signing | None:
    """Return what to go on with if the request was signed with this secret, else None."""
    key = f"AWS4{secret}".encode()
    for part in (claim.time[:8], claim.region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signing = Signing(key, claim)
    raw_path = target.raw.partition(b"?")[0].decode("latin-1")
    # Clients sign the path as it should be encoded; a few, as they sent it.
    for path in dict.fromkeys([quote(target.path, safe="/~"), raw_path]):
        canonical = canonical_request(claim, method, path, target.query.pairs, headers)
        # Headers beyond ASCII are signed as the bytes that are sent, by boto3 as UTF-8.
        for said in dict.fromkeys([canonical.encode("latin-1", "replace"), canonical.encode()]):
            hashed = hashlib.sha256(said).hexdigest()
            if hmac.compare_digest(
                signing.text(ALGORITHM, hashed).encode(), claim.signature.encode("utf-8", "replace")
            ):
                return signing
    return None


def canonical_request(
    claim: Claim, method: str, path: str, pairs: Iterable[tuple[str, str]], headers: Headers
) -> str:
    """The request as it is hashed."""
    encoded = sorted(
        (quote(name, safe="~"), quote(value, safe="~"))
        for name, value in pairs
        if not (claim.is_presigned and name == "X-Amz-Signature")
    )
    lines = [method, path, "&".join(f"{name}={value}" for name, value in encoded)]
    for name in claim.signed_headers:
        values = [" ".join(value.split()) for value in headers.all(name)]
        lines.append(f"{name}:{','.join(values)}")
    lines += ["", ";".join(claim.signed_headers), claim.payload]
    return "\n".join(lines)
