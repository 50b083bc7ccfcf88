"""Objects that come in parts: begun, filled, listed, given up; `completing` joins them."""

from __future__ import annotations

import secrets
import time
from urllib.parse import quote

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.client.writer import DfsWriter, create_hidden
from mrstream.dfs.errors import NoSuchFile
from mrstream.dfs.protocol import FileStatus
from mrstream.web.http.ranges import parse_range
from mrstream.web.http.reply import Reply, empty_reply
from mrstream.web.s3 import uploads
from mrstream.web.s3.body import Body
from mrstream.web.s3.call import Call, answer, check_bucket, iso_time
from mrstream.web.s3.checksums import (
    Sums,
    named_algorithm,
    type_for,
)
from mrstream.web.s3.completing import is_number, named
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.facts import Facts, facts_of, head_of
from mrstream.web.s3.putting import (
    Source,
    Storing,
    check_headers,
    copy_range,
)
from mrstream.web.s3.slow import slow_answer
from mrstream.web.s3.uploads import PART_MAX, Part, Upload, part_chunk_bytes, part_path
from mrstream.web.s3.xml import bare, element, person


async def create(call: Call) -> Reply:
    check_headers(call)
    call.path(writes=True)
    if call.key.endswith("/"):
        raise S3Error("InvalidArgument", "a key that ends with / is a directory, and has no bytes")
    bucket_path = call.bucket_path()
    algorithm = named_algorithm(call.header("x-amz-checksum-algorithm"))
    wanted = call.header("x-amz-checksum-type").upper()
    if wanted and not algorithm:
        raise S3Error("InvalidRequest", "x-amz-checksum-type needs x-amz-checksum-algorithm")
    upload = Upload(
        secrets.token_hex(16),
        call.key,
        head_of(call.headers()),
        algorithm,
        type_for(algorithm, wanted) if algorithm else "",
        time.time(),
        call.principal.user,
    )

    def begin(client: DfsClient) -> None:
        check_bucket(client, bucket_path, call.bucket)
        uploads.begin(client, bucket_path, upload)

    await call.ask(begin)
    reply = answer("InitiateMultipartUploadResult", *named(call), element("UploadId", upload.id))
    if algorithm:
        reply = reply.with_headers(
            ("x-amz-checksum-algorithm", algorithm.upper()), ("x-amz-checksum-type", upload.type)
        )
    return reply


def _number(call: Call) -> int:
    number = call.number("partNumber", 0, PART_MAX + 1)
    if not 1 <= number <= PART_MAX:
        raise S3Error(
            "InvalidArgument",
            f"Part number must be an integer between 1 and {PART_MAX}, inclusive",
            ArgumentName="partNumber",
        )
    return number


async def _upload(call: Call) -> Upload:
    """The upload of the request; what writes to it may write its key."""
    call.path(writes=True)
    bucket_path, id = call.bucket_path(), call.request.query.get("uploadId")
    uploads.directory(bucket_path, id)

    def find(client: DfsClient) -> Upload:
        check_bucket(client, bucket_path, call.bucket)
        return uploads.find(client, bucket_path, id, call.key)

    return await call.ask(find)


async def upload_part(call: Call) -> Reply:
    number = _number(call)
    check_headers(call)
    upload = await _upload(call)
    body = Body(call, upload.algorithm)
    path = part_path(call.bucket_path(), upload.id, number)
    chunk_bytes = part_chunk_bytes(body.length_bytes, call.place.dfs.chunk_bytes)

    def begin(client: DfsClient) -> DfsWriter:
        return create_hidden(
            client,
            path,
            overwrite=True,
            chunk_bytes=chunk_bytes,
            first_chunk=body.length_bytes > 0,
            queue_runs=1,
        )

    storing = Storing(body, lambda done, sum: Facts(done.sums.md5().hex(), {}, sum))
    try:
        await call.place.files.store(call.principal.user, call.request, begin, storing)
    except NoSuchFile:
        raise uploads.no_such_upload(upload.id) from None
    told = [("ETag", f'"{body.sums.md5().hex()}"')]
    return empty_reply(200, told + ([storing.checksum.header] if storing.checksum else []))


async def upload_part_copy(call: Call) -> Reply:
    """UploadPartCopy: bytes of an object, by the gateway."""
    number = _number(call)
    upload = await _upload(call)
    source = Source(call)
    wanted = call.header("x-amz-copy-source-range")
    path = part_path(call.bucket_path(), upload.id, number)

    def copy(client: DfsClient) -> tuple[FileStatus, Facts]:
        found, _ = source.look(client)
        start, count = _copied_range(wanted, found.status.length_bytes)
        sums = Sums([upload.algorithm] if upload.algorithm else [])

        def described() -> Facts:
            kept = sums.checksum(upload.algorithm) if upload.algorithm else None
            return Facts(sums.md5().hex(), {}, kept)

        ending = Ending(path, overwrite=True)
        chunk_bytes = part_chunk_bytes(count, call.place.dfs.chunk_bytes)
        status = copy_range(
            client, uploads.directory(call.bucket_path(), upload.id), source.path, found.status,
            ending, sums, described, start, count, chunk_bytes,
        )  # fmt: skip
        return status, facts_of(status, ending.attributes)

    async def work() -> str:
        status, facts = await call.place.files.work(call.principal.user, call.in_bucket(copy))
        told = [element("LastModified", iso_time(status.modified_at_s))]
        told.append(element("ETag", f'"{facts.etag}"'))
        if facts.checksum is not None:
            told.append(element(facts.checksum.element, facts.checksum.value))
        return bare("CopyPartResult", *told)

    return await slow_answer(call, work)


def _copied_range(wanted: str, size: int) -> tuple[int, int]:
    """Which bytes are copied; here a range is exact, and within the source."""
    if not wanted:
        return 0, size
    first, dash, last = wanted.removeprefix("bytes=").partition("-")
    exact = wanted.startswith("bytes=") and dash and is_number(first) and is_number(last)
    if not exact or int(last) < int(first):
        raise S3Error("InvalidArgument", "x-amz-copy-source-range is bytes=FIRST-LAST")
    if int(last) >= size:
        raise S3Error("InvalidRange", f"the range ends behind the source, which has {size} bytes")
    span = parse_range(wanted, size)
    assert span is not None
    return span.start, span.length


async def abort(call: Call) -> Reply:
    upload = await _upload(call)
    bucket_path = call.bucket_path()
    await call.ask(lambda client: uploads.drop(client, bucket_path, upload.id))
    return empty_reply(204)


# --- looking


async def list_parts(call: Call) -> Reply:
    upload = await _upload(call)
    after = call.number("part-number-marker", 0, PART_MAX)
    most = call.number("max-parts", 1000, 1000)
    bucket_path = call.bucket_path()
    found = await call.ask(lambda client: uploads.parts(client, bucket_path, upload.id, after))
    shown = found[:most]
    last = shown[-1].number if shown else after
    return answer(
        "ListPartsResult",
        *named(call),
        element("UploadId", upload.id),
        person("Initiator", upload.owner),
        person("Owner", upload.owner),
        element("StorageClass", "STANDARD"),
        element("PartNumberMarker", after),
        element("NextPartNumberMarker", last),
        element("MaxParts", most),
        element("IsTruncated", len(found) > len(shown)),
        *([element("ChecksumAlgorithm", upload.algorithm.upper())] if upload.algorithm else []),
        *([element("ChecksumType", upload.type)] if upload.algorithm else []),
        *map(_part, shown),
    )


def _part(part: Part) -> str:
    told = [
        element("PartNumber", part.number),
        element("LastModified", iso_time(part.entry.modified_at_s)),
        element("ETag", f'"{part.etag}"'),
        element("Size", part.entry.length_bytes),
    ]
    if part.checksum is not None:
        told.append(element(part.checksum.element, part.checksum.value))
    return element("Part", "", *told)


async def list_uploads(call: Call) -> Reply:
    """ListMultipartUploads."""
    query = call.request.query
    prefix, delimiter = query.get("prefix"), query.get("delimiter")
    key_marker, id_marker = query.get("key-marker"), query.get("upload-id-marker")
    encode = query.get("encoding-type") == "url"
    most = call.number("max-uploads", 1000, 1000)
    bucket_path = call.enter(prefix)

    def find(client: DfsClient) -> list[Upload]:
        check_bucket(client, bucket_path, call.bucket)
        return uploads.all_uploads(client, bucket_path)

    found = [each for each in await call.ask(find) if each.key.startswith(prefix)]
    found = _behind(found, key_marker, id_marker)
    shown: list[Upload] = []
    prefixes: list[str] = []
    is_truncated = False
    for each in found:
        at = each.key.find(delimiter, len(prefix)) if delimiter else -1
        common = each.key[: at + len(delimiter)] if at >= 0 else ""
        if common and common in prefixes[-1:]:
            continue
        if len(shown) + len(prefixes) == most:
            is_truncated = most > 0
            break
        if common:
            prefixes.append(common)
        else:
            shown.append(each)

    def shown_as(name: str, text: str) -> str:
        return element(name, quote(text, safe="/~") if encode else text)

    return answer(
        "ListMultipartUploadsResult",
        element("Bucket", call.bucket),
        shown_as("KeyMarker", key_marker),
        element("UploadIdMarker", id_marker),
        shown_as("Prefix", prefix),
        shown_as("Delimiter", delimiter) if delimiter else "",
        element("EncodingType", "url") if encode else "",
        element("MaxUploads", most),
        element("IsTruncated", is_truncated),
        shown_as("NextKeyMarker", shown[-1].key) if is_truncated and shown else "",
        element("NextUploadIdMarker", shown[-1].id) if is_truncated and shown else "",
        *(
            element(
                "Upload",
                "",
                shown_as("Key", each.key),
                element("UploadId", each.id),
                person("Initiator", each.owner),
                person("Owner", each.owner),
                element("StorageClass", "STANDARD"),
                element("Initiated", iso_time(each.begun_at_s)),
            )
            for each in shown
        ),
        *(element("CommonPrefixes", "", shown_as("Prefix", each)) for each in prefixes),
    )


def _behind(found: list[Upload], key_marker: str, id_marker: str) -> list[Upload]:
    """Those that come after the markers; an id counts only together with its key."""
    if not key_marker:
        return found
    marker = key_marker.encode()
    if not id_marker:
        return [each for each in found if each.key.encode() > marker]
    ids = [each.id for each in found if each.key == key_marker]
    seen = ids[: ids.index(id_marker) + 1] if id_marker in ids else ids
    return [
        each
        for each in found
        if each.key.encode() > marker or (each.key == key_marker and each.id not in seen)
    ]
