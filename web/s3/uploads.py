"""Uploads in parts, as files: one directory each, hidden in the bucket, one file a part.

    BUCKET/.mrstream-uploads/ID/00001 …

What the upload is for is told by attributes of its directory, what a part is by those of its file.
The master drops an upload that nobody touched for a week.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import NoSuchFile, NotADirectory
from mrstream.dfs.protocol import KeyEntry
from mrstream.web.s3.call import make_below
from mrstream.web.s3.checksums import Checksum
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.facts import BEGUN, ETAG, HEAD, KEY, SUM, etag_of
from mrstream.web.s3.names import UPLOADS

PART_MAX = 10_000
MIB = 1 << 20
CHUNK_SIZES = tuple(mib * MIB for mib in (64, 50, 40, 32, 25, 20, 16, 10, 8, 5))
"""Of parts: few enough that the table of sizes never fills."""
_ID = re.compile("[0-9a-f]{32}")
_decode_head = msgspec.msgpack.Decoder(dict[str, str]).decode


def part_chunk_bytes(length_bytes: int, default_bytes: int) -> int:
    """The chunk size with which parts of this length can be joined without moving a byte: one that
    they fill; 0: the cluster's own, for lengths that fill none (a last part)."""
    if not length_bytes or length_bytes % default_bytes == 0:
        return 0
    return next((size for size in CHUNK_SIZES if length_bytes % size == 0), 0)


@dataclass(frozen=True, slots=True)
class Upload:
    id: str
    key: str
    head: dict[str, str]
    algorithm: str
    """Of the sums of its parts; empty: none were asked for."""
    type: str
    begun_at_s: float
    owner: str

    def packed(self) -> dict[str, bytes]:
        """As attributes of its directory."""
        return {
            KEY: self.key.encode(),
            HEAD: msgspec.msgpack.encode(self.head),
            BEGUN: f"{self.begun_at_s:.3f}".encode(),
            SUM: f"{self.algorithm} {self.type}".encode(),
        }


@dataclass(frozen=True, slots=True)
class Part:
    number: int
    entry: KeyEntry

    @property
    def etag(self) -> str:
        """The MD5 of its bytes."""
        entry = self.entry
        return etag_of(entry.file_id, entry.length_bytes, entry.modified_at_s, entry.attributes)

    @property
    def checksum(self) -> Checksum | None:
        """The sum that came with it."""
        if SUM not in self.entry.attributes:
            return None
        algorithm, type, value = self.entry.attributes[SUM].decode().split(" ")
        return Checksum(algorithm, value, type)


def directory(bucket_path: str, id: str) -> str:
    """Where an upload is; an id that is none is of no upload."""
    if not _ID.fullmatch(id):
        raise no_such_upload(id)
    return f"{bucket_path}/{UPLOADS}/{id}"


def part_path(bucket_path: str, id: str, number: int) -> str:
    return f"{directory(bucket_path, id)}/{number:05}"


def no_such_upload(id: str) -> S3Error:
    """It is over, or never was."""
    return S3Error("NoSuchUpload", "there is no such upload; it may be over", UploadId=id[:100])


def begin(client: DfsClient, bucket_path: str, upload: Upload) -> None:
    path = directory(bucket_path, upload.id)
    make_below(client, bucket_path, path)
    client.set_attributes(path, dict(upload.packed()))


def find(client: DfsClient, bucket_path: str, id: str, key: str) -> Upload:
    """Return the upload of that id, if it is for this key."""
    try:
        found = client.attributes(directory(bucket_path, id))
    except (NoSuchFile, NotADirectory):
        raise no_such_upload(id) from None
    upload = _unpacked(id, found.status.owner, found.values)
    if upload is None or upload.key != key:
        raise no_such_upload(id)
    return upload


def _unpacked(id: str, owner: str, values: Mapping[str, bytes]) -> Upload | None:
    if KEY not in values:
        return None  # begun a moment ago, or left behind by somebody who died in between
    algorithm, _, type = values[SUM].decode().partition(" ")
    begun_at_s = float(values[BEGUN])
    head = _decode_head(values[HEAD])
    return Upload(id, values[KEY].decode(), head, algorithm, type, begun_at_s, owner)


def parts(client: DfsClient, bucket_path: str, id: str, after: int = 0) -> list[Part]:
    """Return the parts that are there behind a number, in order."""
    found: list[Part] = []
    position = f"{after:05}" if after else ""
    while True:
        try:
            page = client.find_keys(
                directory(bucket_path, id), "", position, attributes=(ETAG, SUM)
            )
        except (NoSuchFile, NotADirectory):
            raise no_such_upload(id) from None
        found += [Part(int(entry.key), entry) for entry in page.entries if entry.key.isdigit()]
        if not page.next:
            return found
        position = page.next


def all_uploads(client: DfsClient, bucket_path: str) -> list[Upload]:
    """Return the uploads under way in a bucket, by key, then by when they were begun."""
    found: list[Upload] = []
    position, root = "", f"{bucket_path}/{UPLOADS}"
    while True:
        try:
            page = client.find_keys(
                root, "", position, by_directory=True, attributes=(KEY, HEAD, BEGUN, SUM)
            )
        except NoSuchFile:
            return []
        for entry in page.entries:
            upload = _unpacked(entry.key.rstrip("/"), entry.owner, entry.attributes)
            if upload is not None:
                found.append(upload)
        if not page.next:
            break
        position = page.next
    return sorted(found, key=lambda each: (each.key.encode(), each.begun_at_s, each.id))


def drop(client: DfsClient, bucket_path: str, id: str) -> None:
    """An upload is over: what is left of it goes for good."""
    try:
        client.delete(directory(bucket_path, id), recursive=True, skip_trash=True)
        client.delete(f"{bucket_path}/{UPLOADS}", skip_trash=True)
    except (NoSuchFile, OSError):
        return  # others are under way
