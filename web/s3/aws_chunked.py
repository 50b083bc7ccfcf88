"""`aws-chunked`: a body in chunks that may each be signed, with headers behind the last. No IO.

    body    = *chunk last *trailer CRLF
    chunk   = size-in-hex [";chunk-signature=" 64 hex] CRLF data CRLF
    last    = the same of size 0, without data and its CRLF
    trailer = name ":" value CRLF

Feed it bytes, get the data; `end` says whether all of it was there. Nothing is given out of a
signed chunk before its signature is seen to be right, so a chunk is held whole: 16 MiB at most.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator

from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.sigv4 import (
    EMPTY_SHA256,
    STREAMING,
    STREAMING_TRAILER,
    STREAMING_UNSIGNED,
    Signing,
)

LINE_BYTES_MAX = 8192
SIGNED_CHUNK_BYTES_MAX = 16 << 20
TRAILERS_MAX = 16
_HEAD = re.compile(rb"([0-9a-fA-F]{1,12})(?:;chunk-signature=([0-9a-f]{64}))?")
_TRAILER = re.compile(rb"([A-Za-z0-9-]{1,100})[ \t]*:[ \t]*([\x21-\x7e]*)[ \t]*")
_CHUNK = "AWS4-HMAC-SHA256-PAYLOAD"
_TRAILER_KIND = "AWS4-HMAC-SHA256-TRAILER"


def chunks_of(signing: Signing) -> AwsChunked | None:
    """Return what decodes the body of a request that was signed so; None: it is as it is."""
    payload = signing.claim.payload
    if payload not in (STREAMING, STREAMING_TRAILER, STREAMING_UNSIGNED):
        return None
    is_signed = payload != STREAMING_UNSIGNED
    return AwsChunked(signing if is_signed else None, has_trailer=payload != STREAMING)


class AwsChunked:
    """Decodes one body."""

    def __init__(self, signing: Signing | None, *, has_trailer: bool) -> None:
        """With `signing` every chunk, and the trailer, must be signed after the one before."""
        self._signing = signing
        self._has_trailer = has_trailer
        self._signature = signing.claim.signature if signing is not None else ""
        self._held = bytearray()
        self._left = 0
        self._state = "head"
        self._chunk_signature = ""
        self._trailer_lines = b""
        self.trailers: dict[str, str] = {}
        """By name in lower case; all of them when `end` has returned."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the body; give those of what it carries."""
        self._held += data
        while self._held:
            if self._state == "head":
                line = self._line()
                if line is None:
                    return
                self._begin(line)
            elif self._state == "data":
                piece = self._data()
                if piece is None:
                    return
                if piece:
                    yield piece
            elif self._state == "after data":
                if len(self._held) < 2:
                    return
                if self._held[:2] != b"\r\n":
                    raise _wrong("a chunk does not end where it says")
                del self._held[:2]
                self._state = "head"
            elif self._state == "trailer":
                line = self._line()
                if line is None:
                    return
                self._trailer(line)
            else:
                raise _wrong("bytes follow the end")

    def end(self) -> None:
        """The body is over: refuse it unless all was there."""
        # Some writers leave out the empty line at the very end.
        if self._state == "trailer" and not self._held:
            self._trailer(b"")
        if self._state != "over":
            raise S3Error("IncompleteBody", "the body ended before its last chunk")

    def _line(self) -> bytes | None:
        at = self._held.find(b"\r\n")
        if at > LINE_BYTES_MAX or (at < 0 and len(self._held) > LINE_BYTES_MAX):
            raise _wrong("a line is too long")
        if at < 0:
            return None
        line = bytes(self._held[:at])
        del self._held[: at + 2]
        return line

    def _begin(self, line: bytes) -> None:
        found = _HEAD.fullmatch(line)
        if found is None or (self._signing is not None) != (found[2] is not None):
            raise _wrong("the head of a chunk is not one")
        self._left = int(found[1], 16)
        self._chunk_signature = (found[2] or b"").decode()
        if self._signing is not None and self._left > SIGNED_CHUNK_BYTES_MAX:
            raise _wrong(f"a signed chunk may have {SIGNED_CHUNK_BYTES_MAX} bytes at most")
        if self._left:
            self._state = "data"
            return
        self._check_chunk(b"")
        # Without a trailer the end is an empty line, as with one that has nothing in it.
        self._state = "trailer"

    def _data(self) -> bytes | None:
        if self._signing is not None and len(self._held) < self._left:
            return None
        piece = bytes(self._held[: self._left])
        del self._held[: len(piece)]
        self._left -= len(piece)
        if not self._left:
            self._check_chunk(piece)
            self._state = "after data"
        return piece

    def _check_chunk(self, data: bytes) -> None:
        if self._signing is None:
            return
        hashed = hashlib.sha256(data).hexdigest()
        self._check(self._chunk_signature, _CHUNK, EMPTY_SHA256, hashed)

    def _check(self, given: str, kind: str, *lines: str) -> None:
        assert self._signing is not None
        right = self._signing.text(kind, self._signature, *lines)
        if not hmac.compare_digest(right.encode(), given.encode()):
            raise S3Error("SignatureDoesNotMatch", "a chunk of the body is not as it was signed")
        self._signature = right

    def _trailer(self, line: bytes) -> None:
        if not line:
            self._state = "over"
            if self._signing is not None and self._has_trailer:
                hashed = hashlib.sha256(self._trailer_lines).hexdigest()
                given = self.trailers.pop("x-amz-trailer-signature", "")
                self._check(given, _TRAILER_KIND, hashed)
            return
        found = _TRAILER.fullmatch(line)
        if found is None or not self._has_trailer or len(self.trailers) >= TRAILERS_MAX:
            raise _wrong("what follows the last chunk is no trailer that was announced")
        name, value = found[1].decode().lower(), found[2].decode()
        if name in self.trailers:
            raise _wrong(f"trailer {name} is there twice")
        if name != "x-amz-trailer-signature":
            self._trailer_lines += f"{name}:{value}\n".encode()
        self.trailers[name] = value


def _wrong(why: str) -> S3Error:
    return S3Error("InvalidRequest", f"the aws-chunked body cannot be read: {why}")
