"""What is told of an object beside its bytes, as attributes of its file; without IO.

See docs/formats/doors.md. Files that were made or changed elsewhere have none, or an ETag of a
length that is no longer theirs: they get one from their id, length and time that nobody takes for
an MD5.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from mrstream.dfs.chunk import FileId
from mrstream.dfs.protocol import FileStatus
from mrstream.web.s3.checksums import SIZES, Checksum
from mrstream.web.s3.errors import S3Error

ETAG = "s3.etag"
HEAD = "s3.head"
SUM = "s3.sum"
UPLOAD = "s3.upload"
PARTS = "s3.parts"
PART_SUMS = "s3.sums"
KEY = "s3.key"
BEGUN = "s3.begun"
BODY = "s3.body"
"""The few bytes of a key that ends with a slash: a directory has no others."""

MARKER_BYTES_MAX = 1024

META = "x-amz-meta-"
META_BYTES_MAX = 2048
FACTS_BYTES_MAX = 3900
"""Less than the dfs keeps for a file, so that what is too much is refused before the body."""
PARTS_BYTES_MAX = 256
CONTENT_HEADERS = (
    "content-type",
    "content-encoding",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
)
DEFAULT_TYPE = "binary/octet-stream"
EMPTY_MD5 = "d41d8cd98f00b204e9800998ecf8427e"
FOREIGN = "-0"
"""Ends the ETag of bytes that were not stored through S3: it belongs to this file alone."""
_decode_head = msgspec.msgpack.Decoder(dict[str, str]).decode
_decode_parts = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode


@dataclass(frozen=True, slots=True)
class Facts:
    """What is told of one object."""

    etag: str
    head: dict[str, str] = field(default_factory=dict)
    """Content headers and `x-amz-meta-*`, by name in lower case."""
    checksum: Checksum | None = None
    upload: str = ""
    """The upload in parts that made it."""
    parts: tuple[tuple[int, int], ...] = ()
    """Lengths of its parts, and how many have each."""
    part_sums: bytes = b""
    """The sums of its parts, one behind the other; of few, or of many that are short."""

    def packed(self, length_bytes: int) -> dict[str, bytes]:
        """As attributes of a file so long."""
        values = {HEAD: msgspec.msgpack.encode(self.head)}
        if not self.etag.endswith(FOREIGN):
            values[ETAG] = length_bytes.to_bytes(8, "big") + self.etag.encode()
        if self.checksum is not None:
            told = self.checksum
            values[SUM] = f"{told.algorithm} {told.type} {told.value}".encode()
        if self.upload:
            values[UPLOAD] = self.upload.encode()
        if self.parts:
            packed = msgspec.msgpack.encode(self.parts)
            if len(packed) <= PARTS_BYTES_MAX:
                values[PARTS] = packed
                if 0 < len(self.part_sums) <= FACTS_BYTES_MAX - sum(map(len, values.values())):
                    values[PART_SUMS] = self.part_sums
        return values

    def with_head(self, head: dict[str, str]) -> Facts:
        """The same with other headers."""
        return replace(self, head=head)

    def part_sizes(self) -> Iterator[int]:
        """The length of each part."""
        for size, count in self.parts:
            yield from [size] * count

    def part_checksums(self) -> list[Checksum]:
        """The sum of each part, if they are known."""
        if self.checksum is None or not self.part_sums:
            return []
        algorithm, size = self.checksum.algorithm, SIZES[self.checksum.algorithm]
        return [
            Checksum(algorithm, base64.b64encode(self.part_sums[at : at + size]).decode())
            for at in range(0, len(self.part_sums), size)
        ]


def facts_of(status: FileStatus, values: Mapping[str, bytes]) -> Facts:
    """Return what is told of a file or, a marker, of a directory."""
    if status.is_directory:
        return Facts(marker_etag(values), _head(values))
    etag = etag_of(status.file_id, status.length_bytes, status.modified_at_s, values)
    if etag.endswith(FOREIGN):
        # Sums of bytes that were there before say nothing of those that are there now.
        return Facts(etag, _head(values))
    checksum = None
    if SUM in values:
        algorithm, type, value = values[SUM].decode().split(" ")
        checksum = Checksum(algorithm, value, type)
    parts = tuple(_decode_parts(values[PARTS])) if PARTS in values else ()
    upload, sums = values.get(UPLOAD, b"").decode(), values.get(PART_SUMS, b"")
    return Facts(etag, _head(values), checksum, upload, parts, sums)


def marker_etag(values: Mapping[str, bytes]) -> str:
    """The ETag of a key that ends with a slash."""
    body = values.get(BODY)
    return hashlib.md5(body, usedforsecurity=False).hexdigest() if body else EMPTY_MD5


def size_of(status: FileStatus, values: Mapping[str, bytes]) -> int:
    return len(values.get(BODY, b"")) if status.is_directory else status.length_bytes


def _head(values: Mapping[str, bytes]) -> dict[str, str]:
    return _decode_head(values[HEAD]) if HEAD in values else {}


def etag_of(
    file_id: FileId, length_bytes: int, modified_at_s: float, values: Mapping[str, bytes]
) -> str:
    """The ETag that was stored with these bytes, or one that names this state of the file."""
    stored = values.get(ETAG, b"")
    if len(stored) > 8 and int.from_bytes(stored[:8], "big") == length_bytes:
        return stored[8:].decode()
    state = (length_bytes << 24) ^ int(modified_at_s * 1000)
    return f"{file_id & (2**64 - 1):016x}{state & (2**64 - 1):016x}{FOREIGN}"


def head_of(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what is kept of the headers of a request; refused if it is too much."""
    kept: dict[str, str] = {}
    meta_bytes = 0
    for name, value in headers:
        name = name.lower()
        if name.startswith(META):
            meta_bytes += len(name) - len(META) + len(value)
        elif name == "content-encoding":
            # That of the way here is no property of the object.
            codings = [part.strip() for part in value.split(",")]
            if "aws-chunked" in codings:
                value = ", ".join(part for part in codings if part and part != "aws-chunked")
        elif name not in CONTENT_HEADERS:
            continue
        if value or name.startswith(META):
            kept[name] = value
    if meta_bytes > META_BYTES_MAX:
        raise S3Error(
            "MetadataTooLarge",
            f"x-amz-meta-* have {meta_bytes} bytes; at most {META_BYTES_MAX}",
        )
    if len(msgspec.msgpack.encode(kept)) > FACTS_BYTES_MAX - PARTS_BYTES_MAX - 256:
        raise S3Error("MetadataTooLarge", "the headers of an object have too many bytes")
    return kept
