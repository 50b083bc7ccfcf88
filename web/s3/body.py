"""The body of an object on its way in: decoded, summed up, and compared with what was said."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator

from mrstream.web.s3.aws_chunked import AwsChunked, chunks_of
from mrstream.web.s3.call import Call
from mrstream.web.s3.checksums import Checksum, Sums, decoded, given_sums, named_algorithm
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.sigv4 import UNSIGNED

PUT_BYTES_MAX = 5 << 30
"""Of one PUT; more comes in parts."""


class Body:
    """What a PUT brings. What is wrong with its headers is told before a byte of it is read."""

    def __init__(self, call: Call, algorithm: str = "") -> None:
        """`algorithm`: a sum that is wanted in any case."""
        self._call = call
        payload = call.signing.claim.payload
        self._payload = payload
        trailer = call.header("x-amz-trailer").lower().strip()
        self._trailer = trailer.removeprefix("x-amz-checksum-") if trailer else ""
        self._chunks = chunks_of(call.signing)
        if (
            self._chunks is None
            and "aws-chunked" in call.header("content-encoding")
            and "x-amz-decoded-content-length" in call.request.headers
        ):
            self._chunks = AwsChunked(None, has_trailer=bool(trailer))
        self.length_bytes = self._length()
        md5 = call.header("content-md5")
        self._md5 = (
            decoded(md5, 16, "Content-MD5")
            if md5 or "content-md5" in call.request.headers
            else None
        )
        self._given = given_sums(call.headers())
        if self._trailer:
            if not trailer.startswith("x-amz-checksum-") or not named_algorithm(self._trailer):
                raise S3Error(
                    "InvalidRequest", f"x-amz-trailer names {trailer[:40]!r}, no checksum"
                )
            if self._given:
                raise S3Error("InvalidRequest", "a checksum is in a header or in a trailer")
        named = call.header("x-amz-sdk-checksum-algorithm")
        self.algorithm = next(iter(self._given), "") or self._trailer or named_algorithm(named)
        if algorithm and self.algorithm and algorithm != self.algorithm:
            raise S3Error(
                "InvalidRequest", f"the upload was begun with {algorithm}, not {self.algorithm}"
            )
        self.algorithm = algorithm or self.algorithm
        self.sums = Sums([self.algorithm] if self.algorithm else [])
        is_hashed = self._chunks is None and payload not in (UNSIGNED,)
        self._sha256 = hashlib.sha256() if is_hashed else None

    def _length(self) -> int:
        request = self._call.request
        said = request.headers.get("x-amz-decoded-content-length")
        if self._chunks is None or said is None:
            length = request.length
            if length is None or self._chunks is not None:
                raise S3Error("MissingContentLength", "the length of an object comes before it")
        else:
            if not (said.isascii() and said.isdigit()) or len(said) > 18:
                raise S3Error("InvalidArgument", "x-amz-decoded-content-length is not a number")
            length = int(said)
        if length > PUT_BYTES_MAX:
            raise S3Error(
                "EntityTooLarge",
                f"{length} bytes at once; at most {PUT_BYTES_MAX}: send it in parts",
                ProposedSize=str(length),
                MaxSizeAllowed=str(PUT_BYTES_MAX),
            )
        return length

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the object's own bytes."""
        left = self.length_bytes
        async for piece in self._call.request.pieces():
            for data in (piece,) if self._chunks is None else self._chunks.feed(piece):
                left -= len(data)
                if left < 0:
                    raise S3Error("IncompleteBody", "the body is longer than it said")
                yield data
        if self._chunks is not None:
            self._chunks.end()
        if left:
            raise S3Error("IncompleteBody", f"the body ended {left} bytes before its end")

    def update(self, data: bytes) -> None:
        """Sum up; in a thread."""
        self.sums.update(data)
        if self._sha256 is not None:
            self._sha256.update(data)

    def check(self) -> Checksum | None:
        """All bytes were there: compare what was said of them. Returns the sum to keep."""
        if self._md5 is not None and self._md5 != self.sums.md5():
            raise S3Error("BadDigest", "the MD5 of the body is not the one in Content-MD5")
        if self._sha256 is not None and not hmac.compare_digest(
            self._sha256.hexdigest(), self._payload
        ):
            raise S3Error(
                "XAmzContentSHA256Mismatch",
                "the SHA-256 of the body is not the one that was signed",
            )
        given = dict(self._given)
        if self._chunks is not None and self._trailer:
            given = given_sums(self._chunks.trailers.items())
            if self._trailer not in given:
                raise S3Error("InvalidRequest", "the trailer that was announced did not come")
        for algorithm, value in given.items():
            if self.sums.get(algorithm) != value:
                raise S3Error(
                    "BadDigest", f"the {algorithm} of the body is not the one that was sent"
                )
        return self.sums.checksum(self.algorithm) if self.algorithm else None
