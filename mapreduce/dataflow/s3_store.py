"""An object store that speaks S3, as far as files and commits need it: one bucket, through boto3.

Every refusal becomes one clear line (`ObjectStoreError`). Where the store is, and whose keys are
used, boto3 finds out itself: AWS's own variables and files. Uploads are completed and aborted so
that each may be asked for again. Knows keys and bytes; nothing of files, jobs or commits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mrstream.cluster.config import extras
from mrstream.cluster.errors import Unavailable, UserError

OWNER = "mrstream-owner"
"""The name, among an object's own metadata, of who uploaded it."""
PARTS_MAX = 10_000
TRIES_MAX = 6
"""Of one request, with pauses that grow."""
AT_ONCE_MAX = 16
"""Requests at a time, where many objects are concerned."""
_DELETED_AT_ONCE = 1000
_MISSING = ("404", "NoSuchKey", "NoSuchBucket", "NotFound")
_CHANGED = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict")
_GONE = "NoSuchUpload"
_TROUBLE = 500
"""Statuses from here on are the store's own fault."""


class ObjectStoreError(UserError, OSError):
    """The store refused."""


class StoreUnreachable(Unavailable, OSError):
    """The store does not answer, or has trouble of its own, also after some tries."""


class NoSuchObject(ObjectStoreError, FileNotFoundError):
    """There is no object of this key, or no such bucket."""


class OtherObject(ObjectStoreError):
    """A condition of a request does not hold: the object is another one, or there is one."""


class NoSuchUpload(ObjectStoreError):
    """An upload was completed or aborted before."""


class Object(msgspec.Struct, frozen=True):
    key: str
    length: int
    etag: str


class Part(msgspec.Struct, frozen=True):
    """A part that was uploaded: what the store calls it, and its sum."""

    etag: str
    crc32: str = ""


class Upload(msgspec.Struct, frozen=True):
    """An upload with all its parts there, to be completed: then, and not before, its object is."""

    key: str
    upload_id: str
    owner: str
    parts: tuple[Part, ...]


class Store:
    """One bucket."""

    def __init__(self, bucket: str) -> None:
        """Nothing is imported or reached before the first request."""
        self.bucket = bucket

    # --- objects

    def exists(self) -> bool:
        try:
            self.call("head_bucket")
        except NoSuchObject:
            return False
        return True

    def head(self, key: str) -> dict[str, Any] | None:
        """Return what is told of an object, or None."""
        try:
            return self.call("head_object", Key=key)
        except NoSuchObject:
            return None

    def get(self, key: str) -> bytes:
        """Return a small object whole."""
        body: bytes = self.call("get_object", Key=key)["Body"].read()
        return body

    def put(self, key: str, data: bytes, *, only_new: bool = False) -> None:
        """Store a small object; `OtherObject` if it shall be new and is not."""
        condition = {"IfNoneMatch": "*"} if only_new else {}
        self.call("put_object", Key=key, Body=data, **condition)

    def below(self, prefix: str) -> Iterator[Object]:
        """Yield all objects whose keys begin so, in the order of keys."""
        for page in self._pages(Prefix=prefix):
            yield from (_object(entry) for entry in page.get("Contents", ()))

    def level(self, prefix: str) -> tuple[list[Object], list[str]]:
        """Return the objects of one directory, and the prefixes of those in it."""
        objects: list[Object] = []
        prefixes: list[str] = []
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            objects += [_object(entry) for entry in page.get("Contents", ())]
            prefixes += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
        return objects, prefixes

    def has_below(self, prefix: str) -> bool:
        """Whether the key of any object begins so."""
        try:
            return bool(self.call("list_objects_v2", Prefix=prefix, MaxKeys=1).get("Contents"))
        except NoSuchObject:
            return False

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are fine."""
        wanted = [{"Key": key} for key in keys]
        for start in range(0, len(wanted), _DELETED_AT_ONCE):
            batch = wanted[start : start + _DELETED_AT_ONCE]
            answer = self.call("delete_objects", Delete={"Objects": batch, "Quiet": True})
            for error in answer.get("Errors", ()):
                raise ObjectStoreError(
                    f"s3://{self.bucket}/{error['Key']} cannot be deleted: {error.get('Code')}: "
                    f"{error.get('Message')}"
                )

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the bucket; the new one is there whole or not at all."""
        self._guarded(target, "copy", {"Bucket": self.bucket, "Key": source}, self.bucket, target)

    # --- uploads in parts

    def begin(self, key: str, owner: str) -> str:
        """Begin an upload, and give its id."""
        answer = self.call(
            "create_multipart_upload", Key=key, ChecksumAlgorithm="CRC32", Metadata={OWNER: owner}
        )
        return str(answer["UploadId"])

    def upload(self, key: str, upload_id: str, number: int, data: bytes) -> Part:
        """Upload a part; they count from 1."""
        answer = self.call(
            "upload_part",
            Key=key,
            UploadId=upload_id,
            PartNumber=number,
            Body=data,
            ChecksumAlgorithm="CRC32",
        )
        return Part(str(answer["ETag"]), str(answer.get("ChecksumCRC32", "")))

    def complete(self, upload: Upload) -> None:
        """Make the object of an upload appear; one that was completed before is fine."""
        parts = []
        for number, part in enumerate(upload.parts, start=1):
            entry: dict[str, Any] = {"PartNumber": number, "ETag": part.etag}
            if part.crc32:
                entry["ChecksumCRC32"] = part.crc32
            parts.append(entry)
        try:
            self.call(
                "complete_multipart_upload",
                Key=upload.key,
                UploadId=upload.upload_id,
                MultipartUpload={"Parts": parts},
            )
        except NoSuchUpload:
            there = self.head(upload.key)
            if there is None or there.get("Metadata", {}).get(OWNER) != upload.owner:
                raise

    def abort(self, key: str, upload_id: str) -> None:
        """Throw away an upload; one that is gone is fine."""
        try:
            self.call("abort_multipart_upload", Key=key, UploadId=upload_id)
        except NoSuchUpload:
            return

    def abort_below(self, prefix: str) -> None:
        """Throw away every upload to keys that begin so, whoever began it."""
        found = [
            (upload["Key"], upload["UploadId"])
            for page in self._guarded(prefix, self._uploads, prefix)
            for upload in page.get("Uploads", ())
        ]
        for key, upload_id in found:
            self.abort(key, upload_id)

    # --- requests

    def call(self, operation: str, **words: Any) -> dict[str, Any]:
        """Ask the store, about this bucket."""
        answer: dict[str, Any] = self._guarded(
            words.get("Key", words.get("Prefix", "")),
            operation,
            Bucket=self.bucket,
            **words,
        )
        return answer

    def _pages(self, **words: Any) -> list[dict[str, Any]]:
        def pages() -> list[dict[str, Any]]:
            found = _client().get_paginator("list_objects_v2")
            return list(found.paginate(Bucket=self.bucket, **words))

        listed: list[dict[str, Any]] = self._guarded(words.get("Prefix", ""), pages)
        return listed

    def _uploads(self, prefix: str) -> list[dict[str, Any]]:
        found = _client().get_paginator("list_multipart_uploads")
        return list(found.paginate(Bucket=self.bucket, Prefix=prefix))

    def _guarded(self, key: str, ask: Any, *words: Any, **more: Any) -> Any:
        client = _client()
        import botocore.exceptions as wrong

        try:
            return (getattr(client, ask) if isinstance(ask, str) else ask)(*words, **more)
        except wrong.ClientError as error:
            told = error.response.get("Error", {})
            code = str(told.get("Code", ""))
            line = f"s3://{self.bucket}/{key}: {code}: {told.get('Message', '')}"
            if code in _MISSING:
                raise NoSuchObject(line) from None
            if code in _CHANGED:
                raise OtherObject(line) from None
            if code == _GONE:
                raise NoSuchUpload(line) from None
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _TROUBLE:
                raise StoreUnreachable(line) from None
            raise ObjectStoreError(line) from None
        except wrong.NoCredentialsError:
            raise ObjectStoreError(
                f"s3://{self.bucket}/{key}: there are no keys to it: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials (`aws configure`)"
            ) from None
        except (wrong.HTTPClientError, wrong.ConnectionError) as error:
            raise StoreUnreachable(f"s3://{self.bucket}/{key}: {error}") from None
        except wrong.BotoCoreError as error:
            raise ObjectStoreError(f"s3://{self.bucket}/{key}: {error}") from None


_clients: dict[int, Any] = {}
_making = threading.Lock()


def _client() -> Any:
    """Return the one client of this process: a forked attempt never shares a connection."""
    pid = os.getpid()
    if pid not in _clients:
        with _making:
            if pid not in _clients:
                _clients[pid] = _new_client()
    return _clients[pid]


def _new_client() -> Any:
    extras.require(["s3"], "s3://")
    import boto3  # 200 ms that only such URLs cost
    from botocore.config import Config

    retries = {"mode": "standard", "max_attempts": TRIES_MAX}
    return boto3.session.Session().client(
        "s3", config=Config(retries=retries, max_pool_connections=AT_ONCE_MAX)
    )


def _object(entry: dict[str, Any]) -> Object:
    return Object(str(entry["Key"]), int(entry["Size"]), str(entry.get("ETag", "")))
