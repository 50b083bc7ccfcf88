"""One operation of S3 under way: who asks for what, and the file system that it is asked of."""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from mrstream.cluster.config.config import DfsConfig
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import FileExists, NoSuchFile, NotADirectory
from mrstream.dfs.metadata.paths import join_path, split_path
from mrstream.dfs.protocol import FileStatus
from mrstream.web.http.access import Principal
from mrstream.web.http.reply import Reply, xml_reply
from mrstream.web.http.request import Request
from mrstream.web.http.streams import Files
from mrstream.web.s3.aws_chunked import chunks_of
from mrstream.web.s3.checksums import decoded
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.names import check_bucket_name, check_key, key_fault
from mrstream.web.s3.sigv4 import UNSIGNED, Signing
from mrstream.web.s3.xml import Element, NotXml, document, parse

T = TypeVar("T")

TIMES_KEPT = 4096
"""Keys that were stored together have few of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """What all calls of a door share."""

    files: Files
    dfs: DfsConfig
    door_secret: bytes
    root: str
    """The directory of the buckets, `/` or without a slash at its end."""
    underway: set[asyncio.Task[str]] = field(default_factory=set)
    """Work that outlives the connection of whoever asked for it."""


@dataclass(frozen=True, slots=True)
class Call:
    """What an operation works with."""

    request: Request
    principal: Principal
    signing: Signing
    place: Place
    bucket: str
    key: str

    # --- paths

    def bucket_path(self, bucket: str = "") -> str:
        name = bucket or self.bucket
        check_bucket_name(name)
        return f"{self.place.root.rstrip('/')}/{name}"

    def path(self, *, writes: bool = False) -> str:
        """The path of the request's key, if anything can have it and the principal may go there."""
        return self.reach(self.bucket, self.key, writes=writes)

    def reach(self, bucket: str, key: str, *, writes: bool = False) -> str:
        """The path of a key, if anything can have it and the principal may go there."""
        path = f"{self.bucket_path(bucket)}/{key}"
        if not writes and (key_fault(key) or len(path) > 4000):
            raise NoSuchFile(f"{key[:200]!r}: nothing can have this key")
        check_key(key)
        parts = split_path(path)
        self.request.note.paths.append(join_path(parts))
        self.principal.check(parts, writes=writes)
        return join_path(parts)

    def enter(self, prefix: str = "", *, writes: bool = False) -> str:
        """The directory of the bucket, if the principal may see what begins with the prefix."""
        path = self.bucket_path()
        above = [name for name in prefix.split("/")[:-1] if name and name not in (".", "..")]
        parts = (*split_path(path), *(name.encode("utf-8", "replace") for name in above))
        self.request.note.paths.append(path)
        self.principal.check(parts, writes=writes)
        return path

    def may_see_bucket(self, bucket: str) -> bool:
        """Does anything that the principal reaches lie in the bucket?"""
        parts = split_path(self.bucket_path(bucket))
        if self.principal.reaches(parts):
            return True
        reached = (split_path(path) for path in self.principal.paths)
        return any(path[: len(parts)] == parts for path in reached)

    # --- the file system

    async def ask(self, work: Callable[[DfsClient], T]) -> T:
        """Do something short with the principal's client; NoSuchBucket if there is none."""
        return await self.place.files.ask(self.principal.user, self.in_bucket(work))

    def in_bucket(self, work: Callable[[DfsClient], T]) -> Callable[[DfsClient], T]:
        """The same work, which tells a bucket that is missing from a key that is."""

        def told(client: DfsClient) -> T:
            try:
                return work(client)
            except (NoSuchFile, NotADirectory):
                if self.bucket:
                    check_bucket(client, self.bucket_path(), self.bucket)
                raise

        return told

    async def check_owner(self) -> None:
        """Refuse a bucket of somebody else's than the request says (a name typed wrongly)."""
        said = self.header("x-amz-expected-bucket-owner")
        if said:
            path = self.bucket_path()
            await self.ask(lambda client: check_bucket(client, path, self.bucket, said))

    # --- the request

    async def body(self, bytes_max: int = 0) -> bytes:
        """A small body, if it is the one that was signed."""
        data = await self.request.body(bytes_max)
        payload = self.signing.claim.payload
        chunks = chunks_of(self.signing)
        if chunks is not None:
            data = b"".join(chunks.feed(data))
            chunks.end()
        elif payload != UNSIGNED and hashlib.sha256(data).hexdigest() != payload:
            raise S3Error("XAmzContentSHA256Mismatch", "the body is not the one that was signed")
        if "content-md5" in self.request.headers:
            said = decoded(self.header("content-md5"), 16, "Content-MD5")
            if said != hashlib.md5(data, usedforsecurity=False).digest():
                raise S3Error("BadDigest", "the MD5 of the body is not the one in Content-MD5")
        return data

    def header(self, name: str) -> str:
        """A header, empty if it is not there."""
        return self.request.headers.get(name, "")

    def headers(self) -> Iterator[tuple[str, str]]:
        """All headers; one that came twice as one value."""
        for name in self.request.headers:
            yield name, ",".join(self.request.headers.all(name))

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number of the query, at most so large."""
        return min(_whole(name, self.request.query.get(name), default), most)

    def header_number(self, name: str, default: int) -> int:
        return _whole(name, self.header(name), default)


def _whole(name: str, value: str, default: int) -> int:
    if not value:
        return default
    if not (value.isascii() and value.isdigit()) or len(value) > 10:
        raise S3Error(
            "InvalidArgument",
            f"{name} is {value[:40]!r}, not a whole number",
            ArgumentName=name,
            ArgumentValue=value[:40],
        )
    return int(value)


def check_bucket(client: DfsClient, path: str, name: str, owner: str = "") -> FileStatus:
    """Return the directory of a bucket (that belongs to `owner`), or say that it is missing."""
    try:
        status = client.stat(path)
    except (NoSuchFile, NotADirectory):
        status = None
    if status is None or not status.is_directory:
        raise S3Error("NoSuchBucket", f"there is no bucket {name}", BucketName=name)
    if owner and status.owner != owner:
        raise S3Error("AccessDenied", f"bucket {name} does not belong to {owner[:80]!r}")
    return status


def make_below(client: DfsClient, bucket_path: str, path: str) -> None:
    """Make a directory, and those above it up to the bucket. That has to be there: `parents` would
    bring back one that was deleted a moment ago."""
    names = path[len(bucket_path) + 1 :].split("/")
    try:
        _make_one(client, path)
    except NoSuchFile:
        for depth in range(1, len(names) + 1):
            _make_one(client, "/".join((bucket_path, *names[:depth])))


def _make_one(client: DfsClient, path: str) -> None:
    try:
        client.make_directory(path, implicit=True)
    except FileExists:
        if not client.stat(path).is_directory:
            raise NotADirectory(f"{path}: is a file, not a directory", path=path) from None


def read_document(data: bytes, root: str) -> Element:
    """The body of a request as XML."""
    try:
        return parse(data, root)
    except NotXml as error:
        raise S3Error("MalformedXML", str(error)) from None


def answer(root: str, *children: str, status: int = 200) -> Reply:
    return xml_reply(document(root, *children), status)


def iso_time(at_s: float) -> str:
    """A time as XML has it: whole seconds, as headers tell them."""
    return _iso_time(int(at_s))


@lru_cache(maxsize=TIMES_KEPT)
def _iso_time(at_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at_s))


def http_time(at_s: float) -> str:
    return email.utils.formatdate(int(at_s), usegmt=True)


def parse_http_time(value: str) -> int | None:
    """A time of a header; None for what is none."""
    try:
        return int(email.utils.parsedate_to_datetime(value).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None
