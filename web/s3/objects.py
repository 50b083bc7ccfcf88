"""Reading and deleting objects."""

from __future__ import annotations

import contextlib

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import (
    DirectoryNotEmpty,
    FileReplaced,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
)
from mrstream.dfs.protocol import ANY_FILE, AttributesReply, Located
from mrstream.web.http.ranges import NotSatisfiable, Span, parse_range
from mrstream.web.http.reply import Reply, empty_reply, range_headers, stream_reply
from mrstream.web.http.streams import SMALL_BYTES
from mrstream.web.s3.call import Call, answer, check_bucket, http_time, read_document
from mrstream.web.s3.conditions import Deleting, is_unchanged, matches
from mrstream.web.s3.errors import S3Error, named
from mrstream.web.s3.facts import BODY, DEFAULT_TYPE, Facts, facts_of, size_of
from mrstream.web.s3.xml import element

DELETED_MAX = 1000
PARTS_SHOWN_MAX = 1000
TRIES = 5
NO_CONDITION = Deleting()
OVERRIDES = {
    "response-content-type": "content-type",
    "response-content-language": "content-language",
    "response-expires": "expires",
    "response-cache-control": "cache-control",
    "response-content-disposition": "content-disposition",
    "response-content-encoding": "content-encoding",
}


def look(client: DfsClient, path: str, key: str) -> tuple[AttributesReply, Facts]:
    """Return the object that has a path, with what is told of it."""
    try:
        found = client.attributes(path)
    except (NoSuchFile, NotADirectory):
        raise _no_such_key(key) from None
    status = found.status
    if status.is_directory != key.endswith("/") or (status.is_directory and not found.values):
        raise _no_such_key(key)
    return found, facts_of(status, found.values)


def locate(
    client: DfsClient, path: str, key: str, *, with_body: bool = True
) -> tuple[Located, Facts]:
    """The same with where its bytes are, in one question to the master."""
    if key.endswith("/") or not with_body:
        seen, facts = look(client, path, key)
        return Located(seen.status, (), seen.values), facts
    try:
        found = client.locate(path, attributes=True)
    except (NoSuchFile, NotADirectory, IsADirectory):
        raise _no_such_key(key) from None
    return found, facts_of(found.status, found.values)


def _no_such_key(key: str) -> NoSuchFile:
    return NoSuchFile(f"there is no object {key[:200]}")


async def head_object(call: Call) -> Reply:
    """HeadObject: as GET without the bytes."""
    return await _get(call, with_body=False)


async def get_object(call: Call) -> Reply:
    """GetObject: the whole, a range, or a part of an object that came in parts."""
    return await _get(call, with_body=True)


async def _get(call: Call, *, with_body: bool) -> Reply:
    path = call.path()
    try:
        found, facts = await call.ask(
            lambda client: locate(client, path, call.key, with_body=with_body)
        )
    except NoSuchFile as error:
        raise S3Error("NoSuchKey", str(error), [("x-amz-delete-marker", "false")]) from None
    status = found.status
    told = [
        ("ETag", f'"{facts.etag}"'),
        ("Last-Modified", http_time(status.modified_at_s)),
    ]
    if is_unchanged(call.header, "", facts.etag, status.modified_at_s):
        return empty_reply(304, told)
    size = size_of(status, found.values)
    span, more = _span(call, facts, size)
    wants_sum = call.header("x-amz-checksum-mode").upper() == "ENABLED"
    if wants_sum and facts.checksum is not None and (span is None or span.is_all):
        told += [facts.checksum.header, ("x-amz-checksum-type", facts.checksum.type)]
    head = _overridden(call, facts.head)
    kind = head.pop("content-type", DEFAULT_TYPE)
    code, ranged = range_headers(span)
    told += [*more, *ranged, *head.items()]
    count = size if span is None else span.length
    start = span.start if span is not None else 0
    if not with_body or status.is_directory or not count:
        data = found.values.get(BODY, b"")[start : start + count] if with_body else b""
        return Reply(code, data, (("Content-Type", kind), *told), length=count)
    # By its id: these headers are of that very file.
    files, user = call.place.files, call.principal.user
    try:
        if count <= SMALL_BYTES:
            data, sent = await files.fetch(user, path, found, start, count)
            return Reply(code, data, (("Content-Type", kind), *told), over=sent)
        reading = await files.open(user, path, status.file_id, found)
    except (FileReplaced, NoSuchFile):
        # Replaced a moment ago, and not kept in the trash: there is another one, or none.
        return await _get(call, with_body=with_body)
    return stream_reply(reading.take(start, count), count, type=kind, status=code, headers=told)


def _span(call: Call, facts: Facts, size: int) -> tuple[Span | None, list[tuple[str, str]]]:
    """Which bytes are asked for: None for all of them."""
    wanted = call.header("range")
    number = call.number("partNumber", 0, 10_001)
    if "partNumber" in call.request.query:
        if wanted:
            raise S3Error("InvalidRequest", "Range and partNumber exclude each other")
        return _part(facts, size, number)
    condition = call.header("if-range")
    if condition and not matches(condition, facts.etag):
        return None, []
    try:
        return parse_range(wanted, size), []
    except NotSatisfiable as error:
        raise S3Error(
            "InvalidRange",
            str(error),
            [("Content-Range", error.content_range())],
            RangeRequested=wanted[:80],
            ActualObjectSize=str(size),
        ) from None


def _part(facts: Facts, size: int, number: int) -> tuple[Span | None, list[tuple[str, str]]]:
    sizes = list(facts.part_sizes())
    if not sizes and "-" in facts.etag and not facts.upload:
        sizes = [size]
    elif not sizes and facts.upload:
        raise S3Error("NotImplemented", "the parts of this object differ too much to be told")
    sizes = sizes or [size]
    if not 1 <= number <= len(sizes):
        raise S3Error("InvalidPart", f"part {number}; the object has {len(sizes)}")
    told = [("x-amz-mp-parts-count", str(len(sizes)))] if facts.upload else []
    if not size:
        return None, told
    start = sum(sizes[: number - 1])
    return Span(start, start + sizes[number - 1], size), told


def _overridden(call: Call, head: dict[str, str]) -> dict[str, str]:
    shown = dict(head)
    for name, header in OVERRIDES.items():
        if name in call.request.query:
            value = call.request.query.get(name)
            if not value.isprintable() or not value.encode("utf-8", "replace").isascii():
                raise S3Error("InvalidArgument", f"{name} cannot be the value of a header")
            shown[header] = value
    return shown


async def get_attributes(call: Call) -> Reply:
    path = call.path()
    found, facts = await call.ask(lambda client: look(client, path, call.key))
    listed = ",".join(call.request.headers.all("x-amz-object-attributes"))
    wanted = {name.strip() for name in listed.split(",") if name.strip()}
    known = {"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"}
    if not wanted or wanted - known:
        raise S3Error(
            "InvalidArgument", f"x-amz-object-attributes are some of {', '.join(sorted(known))}"
        )
    told = []
    if "ETag" in wanted:
        told.append(element("ETag", facts.etag))
    if "Checksum" in wanted and facts.checksum is not None:
        kept = facts.checksum
        value, type = element(kept.element, kept.value), element("ChecksumType", kept.type)
        told.append(element("Checksum", "", value, type))
    if "ObjectParts" in wanted and facts.parts:
        told.append(_parts_told(call, facts))
    if "StorageClass" in wanted:
        told.append(element("StorageClass", "STANDARD"))
    if "ObjectSize" in wanted:
        told.append(element("ObjectSize", size_of(found.status, found.values)))
    reply = answer("GetObjectAttributesResponse", *told)
    return reply.with_headers(("Last-Modified", http_time(found.status.modified_at_s)))


def _parts_told(call: Call, facts: Facts) -> str:
    """The parts of an object, a page of them."""
    sizes, sums = list(facts.part_sizes()), facts.part_checksums()
    after = call.header_number("x-amz-part-number-marker", 0)
    most = call.header_number("x-amz-max-parts", PARTS_SHOWN_MAX)
    shown = list(enumerate(sizes, 1))[after : after + min(most, PARTS_SHOWN_MAX)]
    last = shown[-1][0] if shown else after
    return element(
        "ObjectParts",
        "",
        element("PartsCount", len(sizes)),
        element("PartNumberMarker", after),
        element("NextPartNumberMarker", last),
        element("MaxParts", most),
        element("IsTruncated", last < len(sizes)),
        *(
            element(
                "Part",
                "",
                element("PartNumber", number),
                element("Size", size),
                element(sums[number - 1].element, sums[number - 1].value) if sums else "",
            )
            for number, size in shown
        ),
    )


# --- deleting


def delete_key(
    client: DfsClient, bucket_path: str, path: str, key: str, only: Deleting = NO_CONDITION
) -> None:
    """Delete an object, to the trash by policy; one that is not there is deleted already, whatever
    was said of it: who asks again because no answer came learns that it is done."""
    for _ in range(TRIES):
        try:
            found, facts = look(client, path, key)
        except NoSuchFile:
            return
        status = found.status
        only.check(facts.etag, size_of(status, found.values), status.modified_at_s)
        # What is not to be looked at may be another one by now; what was looked at is this one.
        file_id = status.file_id if only else ANY_FILE
        try:
            if status.is_directory:
                _unmark(client, bucket_path, path, found)
            else:
                client.delete(path, prune_to=bucket_path, file_id=file_id)
            return
        except (NoSuchFile, NotADirectory, FileReplaced):
            continue
    raise S3Error("ConditionalRequestConflict", "the object is being replaced all the time")


def _unmark(client: DfsClient, bucket_path: str, path: str, found: AttributesReply) -> None:
    """A directory is no longer a key; it goes if nothing lies in it."""
    client.set_attributes(path, {}, replace_all=True, file_id=found.status.file_id)
    with contextlib.suppress(DirectoryNotEmpty, NoSuchFile):
        client.delete(path, skip_trash=True, prune_to=bucket_path)


async def delete_object(call: Call) -> Reply:
    only = Deleting(
        call.header("if-match"),
        call.header("x-amz-if-match-size"),
        call.header("x-amz-if-match-last-modified-time"),
    )
    bucket_path = call.bucket_path()
    try:
        path = call.path(writes=True)
    except S3Error as error:
        if error.code != "InvalidArgument":
            raise
        path = ""  # nothing can have this key

    def delete(client: DfsClient) -> None:
        check_bucket(client, bucket_path, call.bucket)
        if path:
            delete_key(client, bucket_path, path, call.key, only)

    await call.ask(delete)
    return empty_reply(204)


async def delete_objects(call: Call) -> Reply:
    """DeleteObjects: up to a thousand; each is told for itself."""
    asked = read_document(await call.body(), "Delete")
    objects = asked.all("Object")
    if not 0 < len(objects) <= DELETED_MAX:
        raise S3Error("MalformedXML", f"1 to {DELETED_MAX} objects are deleted at a time")
    quiet = asked.value("Quiet").lower() == "true"
    bucket_path = call.bucket_path()
    keys: list[tuple[str, str, Deleting]] = []
    told: dict[str, str] = {}
    for each in objects:
        named_key = each.find("Key")
        key = "" if named_key is None else named_key.text
        try:
            if not key:
                raise S3Error("MalformedXML", "an object without its key")
            if each.value("VersionId") not in ("", "null"):
                raise S3Error("NoSuchVersion", "there are no versions here")
            only = Deleting(each.value("ETag"), each.value("Size"), each.value("LastModifiedTime"))
            keys.append((key, call.reach(call.bucket, key, writes=True), only))
        except S3Error as error:
            if error.code != "InvalidArgument":
                told[key] = _not_deleted(key, error)
        except Exception as error:
            told[key] = _not_deleted(key, error)

    def delete(client: DfsClient) -> None:
        check_bucket(client, bucket_path, call.bucket)
        # What lies in a directory before the directory itself: it can go then.
        for key, path, only in sorted(keys, key=lambda each: each[0].count("/"), reverse=True):
            try:
                delete_key(client, bucket_path, path, key, only)
            except Exception as error:
                told[key] = _not_deleted(key, error)

    await call.ask(delete)
    if not quiet:
        for each in objects:
            key = "" if (found := each.find("Key")) is None else found.text
            told.setdefault(key, element("Deleted", "", element("Key", key)))
    return answer("DeleteResult", *told.values())


def _not_deleted(key: str, error: Exception) -> str:
    found = named(error)
    code, words = element("Code", found.code), element("Message", str(found))
    return element("Error", "", element("Key", key), code, words)
