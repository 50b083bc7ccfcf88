"""Storing objects: PUT, and COPY without copying bytes.

An object has a name that no listing shows until all of it is there and its sums are right; then it
gets its path, its attributes and takes the place of what was there, in one decision of the master.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import unquote

from mrstream.cluster.errors import ClusterError
from mrstream.dfs.chunk import FileId
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import DfsWriter, create_hidden
from mrstream.dfs.errors import BadRequest, CrossesCells, NoSuchFile, NotADirectory, WriterFenced
from mrstream.dfs.protocol import AttributesReply, FileStatus
from mrstream.web.http.reply import Reply, empty_reply
from mrstream.web.s3.body import Body
from mrstream.web.s3.call import Call, check_bucket, iso_time, make_below
from mrstream.web.s3.checksums import Checksum, Sums, named_algorithm
from mrstream.web.s3.conditions import is_unchanged, replacing
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.facts import (
    BODY,
    EMPTY_MD5,
    HEAD,
    MARKER_BYTES_MAX,
    Facts,
    facts_of,
    head_of,
    marker_etag,
)
from mrstream.web.s3.slow import slow_answer
from mrstream.web.s3.xml import bare, element

COPY_SOURCE_PREFIX = "x-amz-copy-source-"
TRIES = 3
REFUSED_HEADERS = {
    "x-amz-server-side-encryption": "encryption by the server",
    "x-amz-server-side-encryption-customer-algorithm": "encryption by the server",
    "x-amz-copy-source-server-side-encryption-customer-algorithm": "encryption by the server",
    "x-amz-tagging": "tags",
    "x-amz-website-redirect-location": "redirects of websites",
    "x-amz-object-lock-mode": "locks of objects",
    "x-amz-object-lock-legal-hold": "locks of objects",
    "x-amz-grant-read": "ACLs",
    "x-amz-grant-write": "ACLs",
    "x-amz-grant-full-control": "ACLs",
    "x-amz-write-offset-bytes": "appending",
}
OWNERS_ACLS = ("private", "bucket-owner-full-control", "bucket-owner-read")
"""What everything has here anyway."""
ACLS = (*OWNERS_ACLS, "public-read", "public-read-write", "authenticated-read",
               "aws-exec-read", "log-delivery-write")  # fmt: skip
"""Words that many clients say with whatever they store; they grant nothing here."""


def check_headers(call: Call) -> None:
    """Refuse what would have to be promised and is not done here."""
    for name, what in REFUSED_HEADERS.items():
        if name in call.request.headers:
            raise S3Error("NotImplemented", f"there is no {what} here ({name})", Header=name)
    acl = call.header("x-amz-acl")
    if acl and acl not in ACLS:
        raise S3Error("InvalidArgument", f"x-amz-acl is {acl[:40]!r}", ArgumentName="x-amz-acl")
    kind = call.header("x-amz-storage-class")
    if kind not in ("", "STANDARD"):
        raise S3Error("InvalidStorageClass", f"storage class {kind[:40]!r}; there is STANDARD")


class Storing:
    """A body on its way into a file: `Watched` of `web/http/streams`."""

    def __init__(self, body: Body, described: Callable[[Body, Checksum | None], Facts]) -> None:
        self._body = body
        self._described = described
        self.checksum: Checksum | None = None

    def pieces(self) -> AsyncIterator[bytes]:
        return self._body.pieces()

    def update(self, data: bytearray) -> None:
        """Sum them up."""
        self._body.update(data)  # type: ignore[arg-type]

    def ending(self, writer: DfsWriter) -> None:
        """Compare, and describe what was stored."""
        self.checksum = self._body.check()
        facts = self._described(self._body, self.checksum)
        writer.ending.attributes = facts.packed(self._body.sums.size_bytes)


async def put_object(call: Call) -> Reply:
    check_headers(call)
    path = call.path(writes=True)
    bucket_path = call.bucket_path()
    head = head_of(call.headers())
    body = Body(call)
    if call.key.endswith("/"):
        return await _put_marker(call, path, head, body)

    def begin(client: DfsClient) -> DfsWriter:
        check_bucket(client, bucket_path, call.bucket)
        replaces = replacing(call.header, lambda: there(client, path))
        writer = create_below(client, bucket_path, path, first_chunk=body.length_bytes > 0)
        writer.ending.replaces = replaces
        writer.ending.keep_replaced = True
        return writer

    storing = Storing(body, lambda done, sum: Facts(done.sums.md5().hex(), head, sum))
    try:
        await call.place.files.store(call.principal.user, call.request, begin, storing)
    except (NoSuchFile, WriterFenced):
        # With its bucket, perhaps; that is to be told then.
        await call.ask(lambda client: check_bucket(client, bucket_path, call.bucket))
        raise
    told = [("ETag", f'"{body.sums.md5().hex()}"')]
    if storing.checksum is not None:
        told += [storing.checksum.header, ("x-amz-checksum-type", storing.checksum.type)]
    return empty_reply(200, told)


def create_below(client: DfsClient, directory: str, path: str, **options: Any) -> DfsWriter:
    """Begin a file that is hidden below a directory, which has to be there: as long as it is
    written that stays, or goes with it, so that the end brings back nothing that was deleted."""
    writer = create_hidden(client, path, overwrite=True, parents=True, queue_runs=1, **options)
    if not writer.status.path.startswith(f"{directory}/"):
        writer.abandon()
        raise NoSuchFile(f"{directory}: is not there any more", path=directory)
    return writer


def there(client: DfsClient, path: str) -> tuple[FileId, str] | None:
    """The id and ETag of the object that has a path, if one has."""
    try:
        found = client.attributes(path)
    except (NoSuchFile, NotADirectory):
        return None
    if found.status.is_directory:
        return None
    return found.status.file_id, facts_of(found.status, found.values).etag


async def _put_marker(call: Call, path: str, head: dict[str, str], body: Body) -> Reply:
    """A key that ends with a slash is a directory with a mark on it; its bytes are on the mark."""
    if body.length_bytes > MARKER_BYTES_MAX:
        raise S3Error(
            "InvalidArgument",
            f"a key that ends with / is a directory, and has {MARKER_BYTES_MAX} bytes at most",
        )
    data = b"".join([piece async for piece in body.pieces()])
    body.update(data)
    checksum = body.check()
    attributes = {HEAD: Facts(EMPTY_MD5, head).packed(0)[HEAD], BODY: data}
    bucket_path = call.bucket_path()

    def make(client: DfsClient) -> None:
        check_bucket(client, bucket_path, call.bucket)
        replacing(call.header, lambda: _marked(client, path))
        make_marker(client, bucket_path, path, attributes)

    await call.ask(make)
    told = [("ETag", f'"{marker_etag(attributes)}"')]
    return empty_reply(200, told + ([checksum.header] if checksum is not None else []))


def _marked(client: DfsClient, path: str) -> tuple[FileId, str] | None:
    try:
        found = client.attributes(path)
    except (NoSuchFile, NotADirectory):
        return None
    marked = found.status.is_directory and found.values
    return (found.status.file_id, marker_etag(found.values)) if marked else None


def make_marker(
    client: DfsClient, bucket_path: str, path: str, attributes: dict[str, bytes]
) -> None:
    """Make a directory that is a key; it goes when it is one no more and nothing lies in it."""
    for attempt in range(TRIES):
        make_below(client, bucket_path, path)
        try:
            client.set_attributes(path, dict(attributes))
            return
        except NoSuchFile:
            # Somebody deleted what lay in it in between, and it went too.
            if attempt == TRIES - 1:
                raise


# --- COPY


def copy_source(call: Call) -> tuple[str, str]:
    """The bucket and key that are to be copied."""
    raw = call.header("x-amz-copy-source")
    name, _, version = raw.partition("?versionId=")
    if version not in ("", "null"):
        raise S3Error("NoSuchVersion", "there are no versions here")
    bucket, _, key = unquote(name, errors="strict").lstrip("/").partition("/")
    if not bucket or not key:
        raise S3Error("InvalidArgument", "x-amz-copy-source is BUCKET/KEY")
    return bucket, key


class Source:
    """What is to be copied: its path, and what is told of it."""

    def __init__(self, call: Call) -> None:
        try:
            self.bucket, self.key = copy_source(call)
        except UnicodeError:
            raise S3Error("InvalidArgument", "x-amz-copy-source is not UTF-8") from None
        self._call = call
        self.path = call.reach(self.bucket, self.key)
        self._bucket_path = call.bucket_path(self.bucket)

    def look(self, client: DfsClient) -> tuple[AttributesReply, Facts]:
        """Return what is there now, if all conditions hold."""
        try:
            found = client.attributes(self.path)
        except (NoSuchFile, NotADirectory):
            check_bucket(client, self._bucket_path, self.bucket)
            raise
        owner = self._call.header("x-amz-source-expected-bucket-owner")
        if owner:
            check_bucket(client, self._bucket_path, self.bucket, owner)
        if found.status.is_directory != self.key.endswith("/") or (
            found.status.is_directory and not found.values
        ):
            raise S3Error("NoSuchKey", f"there is no object {self.key}", Key=self.key)
        facts = facts_of(found.status, found.values)
        modified_at_s = found.status.modified_at_s
        header = self._call.header
        is_unchanged(header, COPY_SOURCE_PREFIX, facts.etag, modified_at_s, copies=True)
        return found, facts


async def copy_object(call: Call) -> Reply:
    """CopyObject: a snapshot of the source that gets the target's path; no byte moves."""
    check_headers(call)
    path = call.path(writes=True)
    source = Source(call)
    directive = call.header("x-amz-metadata-directive") or "COPY"
    if directive not in ("COPY", "REPLACE"):
        raise S3Error("InvalidArgument", "x-amz-metadata-directive is COPY or REPLACE")
    head = head_of(call.headers()) if directive == "REPLACE" else None
    if source.path == path and head is None:
        raise S3Error(
            "InvalidRequest", "an object is copied to itself only with other metadata (REPLACE)"
        )
    wanted = named_algorithm(call.header("x-amz-checksum-algorithm"))
    user = call.principal.user
    if call.key.endswith("/") or source.key.endswith("/"):
        raise S3Error("InvalidArgument", "a key that ends with / is a directory; PUT makes one")

    def copy(client: DfsClient) -> tuple[FileStatus, Facts]:
        check_bucket(client, call.bucket_path(), call.bucket)
        replaces = replacing(call.header, lambda: there(client, path))
        ending = Ending(path, True, True, replaces, True)
        if source.path == path:
            return _describe_anew(client, source, head or {})
        _, facts = source.look(client)
        if wanted and (facts.checksum is None or facts.checksum.algorithm != wanted):
            return _copy_bytes(client, call.bucket_path(), source, ending, head, wanted)
        try:
            return _copy_chunks(client, call.bucket_path(), source, ending, head, user)
        except (BadRequest, CrossesCells):
            # A chunk has its most references, or would be shared by two cells.
            return _copy_bytes(client, call.bucket_path(), source, ending, head, wanted)

    async def work() -> str:
        # Most copies are over at once; bytes are counted as if they were to move.
        status, facts = await call.place.files.work(user, call.in_bucket(copy))
        told = [element("LastModified", iso_time(status.modified_at_s))]
        told.append(element("ETag", f'"{facts.etag}"'))
        if facts.checksum is not None:
            told.append(element(facts.checksum.element, facts.checksum.value))
            told.append(element("ChecksumType", facts.checksum.type))
        return bare("CopyObjectResult", *told)

    return await slow_answer(call, work)


def _describe_anew(
    client: DfsClient, source: Source, head: dict[str, str]
) -> tuple[FileStatus, Facts]:
    found, facts = source.look(client)
    facts = facts.with_head(head)
    changed: dict[str, bytes | None] = dict(facts.packed(found.status.length_bytes))
    file_id = found.status.file_id
    client.set_attributes(source.path, changed, replace_all=True, file_id=file_id)
    return client.stat(source.path), facts


def _copy_chunks(
    client: DfsClient,
    bucket_path: str,
    source: Source,
    ending: Ending,
    head: dict[str, str] | None,
    user: str,
) -> tuple[FileStatus, Facts]:
    hidden = f"{bucket_path}/.mrstream-copy-{secrets.token_hex(8)}"
    for _ in range(TRIES):
        before, facts = source.look(client)
        client.snapshot(source.path, hidden)
        try:
            copied = client.attributes(hidden)
            length = copied.status.length_bytes
            if copied.values == before.values and length == before.status.length_bytes:
                if copied.status.owner != user:
                    client.set_owner(hidden, owner=user)
                facts = facts if head is None else facts.with_head(head)
                ending.attributes = facts.packed(length)
                status = client.join(ending.path, [copied.status.file_id], ending)
                return status, facts_of(status, ending.attributes)
        except BaseException:
            with contextlib.suppress(ClusterError):
                client.delete(hidden, skip_trash=True)
            raise
        client.delete(hidden, skip_trash=True)  # the source was replaced in between
    raise S3Error("ConditionalRequestConflict", "the source is being replaced all the time")


def _copy_bytes(
    client: DfsClient,
    bucket_path: str,
    source: Source,
    ending: Ending,
    head: dict[str, str] | None,
    wanted: str,
) -> tuple[FileStatus, Facts]:
    found, facts = source.look(client)
    sums = Sums([wanted] if wanted else [])
    status = copy_range(client, bucket_path, source.path, found.status, ending, sums, lambda: Facts(
        sums.md5().hex(), facts.head if head is None else head,
        sums.checksum(wanted) if wanted else facts.checksum,
    ))  # fmt: skip
    return status, facts_of(status, ending.attributes)


def copy_range(
    client: DfsClient,
    directory: str,
    path: str,
    found: FileStatus,
    ending: Ending,
    sums: Sums,
    described: Callable[[], Facts],
    start: int = 0,
    length: int = -1,
    chunk_bytes: int = 0,
) -> FileStatus:
    """Write bytes of a file into a new one below a directory, which ends so; sums are of what was
    copied."""
    count = found.length_bytes if length < 0 else length
    writer = create_below(client, directory, ending.path, chunk_bytes=chunk_bytes)
    writer.ending = ending
    with writer, DfsReader(client, path, found.file_id) as reader:
        for piece in reader.pieces(start, count):
            sums.update(piece)  # type: ignore[arg-type]
            writer.write(piece)
        if sums.size_bytes != count:
            raise S3Error("InternalError", f"{sums.size_bytes} bytes of {count} were there")
        ending.attributes = described().packed(count)
    return writer.status
