"""Complete: the parts of an upload become an object.

One decision of the master, if they fill their chunks; else the gateway puts their bytes together.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import FileReplaced, NoSuchFile, NotADirectory, NotAligned
from mrstream.web.http.reply import Reply
from mrstream.web.s3 import uploads
from mrstream.web.s3.call import Call, check_bucket, read_document
from mrstream.web.s3.checksums import PREFIX, etag_of_parts, of_parts
from mrstream.web.s3.conditions import replacing
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.facts import Facts, facts_of
from mrstream.web.s3.putting import create_below, there
from mrstream.web.s3.slow import slow_answer
from mrstream.web.s3.uploads import PART_MAX, Part, Upload, part_path
from mrstream.web.s3.xml import Element, bare, element

PART_BYTES_MIN = 5 << 20
"""Of every part but the last."""
OBJECT_BYTES_MAX = 5 << 40
LIST_BYTES_MAX = 4 << 20


def named(call: Call) -> list[str]:
    """The bucket and key of a request, as answers tell them."""
    return [element("Bucket", call.bucket), element("Key", call.key)]


def is_number(text: str) -> bool:
    """Is it a whole number that fits into 64 bits?"""
    return text.isascii() and text.isdigit() and len(text) < 19


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The parts that the object is made of, and what is told of it."""

    upload: Upload
    parts: tuple[Part, ...]
    facts: Facts
    length_bytes: int


async def complete(call: Call) -> Reply:
    """CompleteMultipartUpload: one decision of the master, if the parts fill their chunks."""
    path = call.path(writes=True)
    bucket_path, id = call.bucket_path(), call.request.query.get("uploadId")
    uploads.directory(bucket_path, id)
    listed = _listed(await call.body(LIST_BYTES_MAX))
    user = call.principal.user

    def choose(client: DfsClient) -> _Chosen | Facts:
        check_bucket(client, bucket_path, call.bucket)
        done = _done(client, path, id)
        if done is not None:
            # Asked again: the first answer was lost, or the cleaning up was.
            uploads.drop(client, bucket_path, id)
            return done
        upload = uploads.find(client, bucket_path, id, call.key)
        return _chosen(call, upload, listed, uploads.parts(client, bucket_path, id))

    def join(client: DfsClient, chosen: _Chosen) -> None:
        ending = _ending(call, client, path, chosen)
        try:
            client.join(path, [part.entry.file_id for part in chosen.parts], ending)
        except FileReplaced as error:
            # A part, or what was to be replaced?
            if error.details.get("path") == path:
                raise
            raise uploads.no_such_upload(id) from None

    def join_by_bytes(client: DfsClient, chosen: _Chosen) -> None:
        ending = _ending(call, client, path, chosen)
        paths = [part_path(bucket_path, id, part.number) for part in chosen.parts]
        _write_parts(client, bucket_path, ending, list(zip(paths, chosen.parts, strict=True)))

    async def work() -> str:
        chosen = await call.ask(choose)
        if isinstance(chosen, Facts):
            return _completed(call, chosen)
        try:
            await call.ask(lambda client: join(client, chosen))
        except NotAligned:
            await call.place.files.work(user, lambda client: join_by_bytes(client, chosen))
        await call.ask(lambda client: uploads.drop(client, bucket_path, id))
        return _completed(call, chosen.facts)

    return await slow_answer(call, work)


def _ending(call: Call, client: DfsClient, path: str, chosen: _Chosen) -> Ending:
    replaces = replacing(call.header, lambda: there(client, path))
    attributes = chosen.facts.packed(chosen.length_bytes)
    return Ending(path, True, True, replaces, True, attributes)


def _write_parts(
    client: DfsClient, bucket_path: str, ending: Ending, parts: Sequence[tuple[str, Part]]
) -> None:
    """Write all of them into one hidden file, which then takes its place."""
    writer = create_below(client, bucket_path, ending.path)
    writer.ending = ending
    with writer:
        for path, part in parts:
            with DfsReader(client, path, part.entry.file_id) as reader:
                writer.writelines(reader.pieces())


def _done(client: DfsClient, path: str, id: str) -> Facts | None:
    """What the upload became, if it is the object that is there now."""
    try:
        found = client.attributes(path)
    except (NoSuchFile, NotADirectory):
        return None
    facts = facts_of(found.status, found.values)
    return facts if facts.upload == id else None


def _listed(data: bytes) -> list[Element]:
    listed = read_document(data, "CompleteMultipartUpload").all("Part")
    if not 0 < len(listed) <= PART_MAX:
        raise S3Error("MalformedXML", f"an object has 1 to {PART_MAX} parts")
    return listed


def _chosen(call: Call, upload: Upload, listed: list[Element], found: list[Part]) -> _Chosen:
    by_number = {part.number: part for part in found}
    parts: list[Part] = []
    for each in listed:
        number = each.value("PartNumber")
        part = by_number.get(int(number)) if is_number(number) else None
        etag = each.value("ETag").strip('"')
        if part is None or etag != part.etag:
            raise S3Error(
                "InvalidPart",
                f"part {number[:10]} is not there, or its ETag is not {etag[:40]}",
                PartNumber=number[:10],
                ETag=etag[:40],
            )
        _check_sum(each, part)
        if parts and part.number <= parts[-1].number:
            raise S3Error("InvalidPartOrder", "the parts are not in the order of their numbers")
        parts.append(part)
    for part in parts[:-1]:
        if part.entry.length_bytes < PART_BYTES_MIN:
            raise S3Error(
                "EntityTooSmall",
                f"part {part.number} has {part.entry.length_bytes} bytes; every part but the last "
                f"has {PART_BYTES_MIN} at least",
                PartNumber=str(part.number),
                MinSizeAllowed=str(PART_BYTES_MIN),
            )
    lengths = [part.entry.length_bytes for part in parts]
    length_bytes = sum(lengths)
    _check_size(call, length_bytes)
    runs = tuple((size, len(list(group))) for size, group in groupby(lengths))
    checksum, part_sums = None, b""
    if upload.algorithm:
        sums = [part.checksum for part in parts]
        values = [(each.value, size) for each, size in zip(sums, lengths, strict=True) if each]
        checksum = of_parts(upload.algorithm, upload.type, values)
        part_sums = b"".join(base64.b64decode(value) for value, _ in values)
        said = call.header(f"{PREFIX}{upload.algorithm}")
        if said and said != checksum.value:
            raise S3Error("BadDigest", f"the {upload.algorithm} of the parts is {checksum.value}")
    etag = etag_of_parts([bytes.fromhex(part.etag) for part in parts])
    facts = Facts(etag, upload.head, checksum, upload.id, runs, part_sums)
    return _Chosen(upload, tuple(parts), facts, length_bytes)


def _check_sum(listed: Element, part: Part) -> None:
    """Sums that are told again must be those of the parts; they need not be, they were checked."""
    kept = part.checksum
    for child in listed.children:
        if not child.name.startswith("Checksum") or not child.text.strip():
            continue
        if kept is None or (child.name, child.text.strip()) != (kept.element, kept.value):
            raise S3Error("InvalidPart", f"{child.name} of part {part.number} is another")


def _check_size(call: Call, length_bytes: int) -> None:
    if length_bytes > OBJECT_BYTES_MAX:
        raise S3Error("EntityTooLarge", f"an object has {OBJECT_BYTES_MAX} bytes at most")
    said = call.header("x-amz-mp-object-size")
    if said and (not is_number(said) or int(said) != length_bytes):
        raise S3Error("InvalidRequest", f"the parts have {length_bytes} bytes, not {said[:20]}")


def _completed(call: Call, facts: Facts) -> str:
    place = f"{call.request.scheme}://{call.request.host}{quote(call.request.path)}"
    told = [element("Location", place), *named(call), element("ETag", f'"{facts.etag}"')]
    if facts.checksum is not None:
        told.append(element(facts.checksum.element, facts.checksum.value))
        told.append(element("ChecksumType", facts.checksum.type))
    return bare("CompleteMultipartUploadResult", *told)
