"""Sums over bodies: MD5 for the ETag, and those that clients send and ask for. Without IO."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from awscrt import checksums as crc

from mrstream.web.s3.errors import S3Error

PREFIX = "x-amz-checksum-"
COMPOSITE = "COMPOSITE"
FULL_OBJECT = "FULL_OBJECT"


class Sum(Protocol):
    def update(self, data: bytes, /) -> None:
        """Take more bytes."""

    def digest(self) -> bytes:
        """The sum of all of them."""


class _Crc:
    def __init__(self, step: Callable[[Any, int], int], size_bytes: int) -> None:
        self._step = step
        self._size_bytes = size_bytes
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = self._step(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size_bytes, "big")


MAKERS: Mapping[str, Callable[[], Sum]] = {
    "crc32": lambda: _Crc(crc.crc32, 4),
    "crc32c": lambda: _Crc(crc.crc32c, 4),
    "crc64nvme": lambda: _Crc(crc.crc64nvme, 8),
    "sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "sha256": hashlib.sha256,
}
SIZES = {"crc32": 4, "crc32c": 4, "crc64nvme": 8, "sha1": 20, "sha256": 32}
_COMBINE: Mapping[str, Callable[[int, int, int], int]] = {
    "crc32": crc.combine_crc32,
    "crc32c": crc.combine_crc32c,
    "crc64nvme": crc.combine_crc64nvme,
}


@dataclass(frozen=True, slots=True)
class Checksum:
    """The sum of an object as it is told: `value` in base64, of several parts with `-N`."""

    algorithm: str
    value: str
    type: str = FULL_OBJECT

    @property
    def header(self) -> tuple[str, str]:
        return f"{PREFIX}{self.algorithm}", self.value

    @property
    def element(self) -> str:
        """The name of its element in XML."""
        return f"Checksum{self.algorithm.upper()}"


def decoded(value: str, size_bytes: int, what: str, code: str = "InvalidDigest") -> bytes:
    """Return the bytes of a sum in base64."""
    try:
        data = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != size_bytes:
        raise S3Error(code, f"{what} is not {size_bytes} bytes in base64")
    return data


def named_algorithm(value: str) -> str:
    """Return one of ours by its name in any case; empty for none."""
    found = value.lower()
    if found and found not in MAKERS:
        raise S3Error("InvalidRequest", f"checksum algorithm {value[:40]!r} is not known")
    return found


def given_sums(headers: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """Return the sums that a request names in its headers (or in its trailers)."""
    found = {}
    for name, value in headers:
        algorithm = name.lower().removeprefix(PREFIX)
        if not name.lower().startswith(PREFIX) or algorithm in ("algorithm", "type", "mode"):
            continue
        if algorithm not in MAKERS:
            raise S3Error("InvalidRequest", f"header {name} names no algorithm that is known")
        found[algorithm] = decoded(value, SIZES[algorithm], name, "BadDigest")
    if len(found) > 1:
        raise S3Error("InvalidRequest", "a request has one checksum at most")
    return found


class Sums:
    """All sums of one body: MD5 always, others as they are wanted."""

    def __init__(self, algorithms: Iterable[str]) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._others = {name: MAKERS[name]() for name in dict.fromkeys(algorithms)}
        self.size_bytes = 0

    def update(self, data: bytes) -> None:
        """Take more bytes; large ones let other threads go on meanwhile."""
        self._md5.update(data)
        for each in self._others.values():
            each.update(data)
        self.size_bytes += len(data)

    def md5(self) -> bytes:
        return self._md5.digest()

    def get(self, algorithm: str) -> bytes:
        return self._others[algorithm].digest()

    def checksum(self, algorithm: str) -> Checksum:
        return Checksum(algorithm, base64.b64encode(self.get(algorithm)).decode())


def type_for(algorithm: str, wanted: str) -> str:
    """Return how the sum of an object in parts is made: of all bytes, or of the parts' sums."""
    if not wanted:
        return FULL_OBJECT if algorithm == "crc64nvme" else COMPOSITE
    possible = (FULL_OBJECT,) if algorithm == "crc64nvme" else (COMPOSITE, FULL_OBJECT)
    if algorithm.startswith("sha"):
        possible = (COMPOSITE,)
    if wanted not in possible:
        raise S3Error("InvalidRequest", f"{algorithm} cannot be of the type {wanted[:40]!r}")
    return wanted


def of_parts(algorithm: str, type: str, parts: Sequence[tuple[str, int]]) -> Checksum:
    """Return the sum of an object from those of its parts (in base64, with their lengths)."""
    sums = [decoded(value, SIZES[algorithm], "the checksum of a part") for value, _ in parts]
    if type == COMPOSITE:
        whole = MAKERS[algorithm]()
        whole.update(b"".join(sums))
        value = base64.b64encode(whole.digest()).decode()
        return Checksum(algorithm, f"{value}-{len(parts)}", COMPOSITE)
    total = int.from_bytes(sums[0], "big")
    for found, (_, size_bytes) in zip(sums[1:], parts[1:], strict=True):
        total = _COMBINE[algorithm](total, int.from_bytes(found, "big"), size_bytes)
    value = base64.b64encode(total.to_bytes(SIZES[algorithm], "big")).decode()
    return Checksum(algorithm, value, FULL_OBJECT)


def etag_of_parts(md5s: Sequence[bytes]) -> str:
    """The ETag of an object in parts: the MD5 of their MD5s, and how many there are."""
    return f"{hashlib.md5(b''.join(md5s), usedforsecurity=False).hexdigest()}-{len(md5s)}"
