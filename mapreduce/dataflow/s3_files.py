"""What a stage needs of an object store: `Files` over the keys of S3.

A directory is what lies below `KEY/`; one that is empty is an object of that very name, as Hadoop
and the stores' own consoles have it. A file in an attempt's room (`OUT/_temporary/0/_temporary/
ATTEMPT/NAME`) is uploaded to where it will be in the end, `OUT/NAME`, and stays an upload: when it
is closed, a small object tells its parts, and the committer completes it (D3). Nothing is renamed
there, because a store can only copy.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import msgspec

from mrstream.mapreduce.dataflow.files import FileStatus, InputReplaced, join
from mrstream.mapreduce.dataflow.s3_store import (
    PARTS_MAX,
    NoSuchObject,
    ObjectStoreError,
    OtherObject,
    Part,
    Store,
    Upload,
)

PART_BYTES = 32 << 20
"""So much of a file is held, then uploaded: the largest has `PARTS_MAX` of them."""
UPLOAD = "._upload_"
"""The end of the key of what tells an upload that waits for its commit."""
READ_TRIES_MAX = 5
_LAST = ("_SUCCESS", "_flow")
"""What says that a directory is whole is copied behind the rest."""
_ROOM = re.compile(r"(.*/)?_temporary/0/_temporary/(attempt_[^/]+)/(.+)", re.DOTALL)


class S3Files:
    def __init__(self, url: str) -> None:
        self._scheme = url.partition("://")[0]
        self._store = Store(key_of(url)[0])

    def qualify(self, path: str) -> str:
        bucket, key = key_of(path)
        return f"{self._scheme}://{bucket}/{key}"

    def status(self, url: str) -> FileStatus | None:
        key = key_of(url)[1]
        if not key:
            return self._directory("") if self._store.exists() else None
        there = self._store.head(key)
        if there is not None:
            return self._file(key, int(there["ContentLength"]), str(there.get("ETag", "")))
        return self._directory(key) if self._store.has_below(f"{key}/") else None

    def list(self, url: str) -> list[FileStatus]:
        key = key_of(url)[1]
        prefix = f"{key}/" if key else ""
        objects, prefixes = self._store.level(prefix)
        if prefix and not objects and not prefixes:
            raise NoSuchObject(f"{url}: there is nothing")
        found = [self._directory(name.rstrip("/")) for name in prefixes]
        found += [self._file(o.key, o.length, o.etag) for o in objects if not o.key.endswith("/")]
        return sorted(found, key=lambda status: status.name.encode("utf-8", "surrogateescape"))

    def open(self, url: str, offset: int = 0, version: str = "") -> BinaryIO:
        key = key_of(url)[1]
        there = self._store.head(key)
        if there is None:
            raise NoSuchObject(f"{url}: there is no such object")
        etag = str(there.get("ETag", ""))
        if version and version != etag:
            raise InputReplaced.at(url)
        return cast(
            BinaryIO, _Reader(self._store, url, key, etag, int(there["ContentLength"]), offset)
        )

    def create(self, url: str) -> BinaryIO:
        key = key_of(url)[1]
        room = _ROOM.fullmatch(key)
        if room is None:
            return cast(BinaryIO, _Writer(self._store, key, "", self._store.complete))

        def told(upload: Upload) -> None:
            self._store.put(f"{key}{UPLOAD}", msgspec.json.encode(upload))

        final = f"{room[1] or ''}{room[3]}"
        return cast(BinaryIO, _Writer(self._store, final, room[2], told))

    def rename(self, source: str, target: str) -> None:
        """Copy, then delete: readers see a directory grow, and its `_SUCCESS` last."""
        old, new = key_of(source)[1], key_of(target)[1]
        keys = [entry.key for entry in self._store.below(f"{old}/")]
        if self._store.head(old) is not None:
            keys.append(old)
        if not keys:
            raise NoSuchObject(f"{source}: there is nothing to rename")
        for key in sorted(keys, key=lambda key: (key.rpartition("/")[2] in _LAST, key)):
            self._store.copy(key, new + key[len(old) :])
        self._store.delete(keys)

    def delete(self, url: str) -> None:
        key = key_of(url)[1]
        try:
            keys = [entry.key for entry in self._store.below(f"{key}/" if key else "")]
            self._store.delete([*keys, key] if key else keys)
        except NoSuchObject:
            return

    def mkdirs(self, url: str) -> None:
        key = key_of(url)[1]
        if key and not self._store.has_below(f"{key}/"):
            self._store.put(f"{key}/", b"")

    def exists(self, url: str) -> bool:
        return self.status(url) is not None

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        return ()  # a store does not tell where bytes lie

    def _directory(self, key: str) -> FileStatus:
        return FileStatus(self._url(key), 0, is_directory=True)

    def _file(self, key: str, length: int, etag: str) -> FileStatus:
        return FileStatus(self._url(key), length, is_directory=False, version=etag)

    def _url(self, key: str) -> str:
        return join(f"{self._scheme}://{self._store.bucket}", key)


def key_of(url: str) -> tuple[str, str]:
    """Return the bucket and the key that a URL names, without slashes at either end."""
    bucket, _, key = url.partition("://")[2].partition("/")
    if not bucket:
        raise ObjectStoreError(f"{url} names no bucket: write s3://BUCKET/PATH")
    return bucket, key.strip("/")


class _Reader(io.RawIOBase):
    """One object from some place on; what is read is of one version of it."""

    def __init__(
        self, store: Store, url: str, key: str, etag: str, length: int, offset: int
    ) -> None:
        self._store = store
        self._url, self._key, self._etag = url, key, etag
        self._length = length
        self._at = offset
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        if base + offset != self._at:
            self._at = max(0, base + offset)
            self._let_go()
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._at >= self._length or not len(view):
            return 0
        for _ in range(READ_TRIES_MAX - 1):
            try:
                return self._read_some(view)
            except ConnectionError:
                self._let_go()  # the store hung up in the middle: ask for the rest
        return self._read_some(view)

    def close(self) -> None:
        self._let_go()
        super().close()

    def _read_some(self, view: memoryview) -> int:
        import botocore.exceptions as wrong

        try:
            if self._body is None:
                self._body = self._rest()
            data = self._body.read(min(len(view), self._length - self._at))
        except (wrong.HTTPClientError, wrong.IncompleteReadError) as error:
            raise ConnectionError(f"{self._url}: {error}") from None
        if not data:
            raise ConnectionError(f"{self._url} ends at {self._at}, before its {self._length}")
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _rest(self) -> Any:
        condition = {"IfMatch": self._etag} if self._etag else {}
        wanted = f"bytes={self._at}-"
        try:
            return self._store.call("get_object", Key=self._key, Range=wanted, **condition)["Body"]
        except OtherObject:
            raise InputReplaced.at(self._url) from None

    def _let_go(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None


class _Writer:
    """A new object, uploaded in parts; when all are there, `told` gets the upload."""

    def __init__(self, store: Store, key: str, owner: str, told: Callable[[Upload], None]) -> None:
        """A file without an owner is stored at once if it is small."""
        self._store = store
        self._told = told
        self._key, self._owner = key, owner
        self._held = bytearray()
        self._parts: list[Part] = []
        self._upload_id = ""
        self._length = 0
        self.name = f"s3://{store.bucket}/{key}"
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._held += view
        self._length += len(view)
        while len(self._held) >= PART_BYTES:
            self._send(bytes(memoryview(self._held)[:PART_BYTES]))
            del self._held[:PART_BYTES]
        return len(view)

    def flush(self) -> None:
        """Do nothing: there is nothing to see before the end."""

    def tell(self) -> int:
        return self._length

    def close(self) -> None:
        """Upload the rest, and hand over."""
        if self.closed:
            return
        self.closed = True
        if not self._owner and not self._parts:
            self._store.put(self._key, bytes(self._held))
            return
        if self._held or not self._parts:
            self._send(bytes(self._held))
        self._told(Upload(self._key, self._upload_id, self._owner, tuple(self._parts)))

    def abandon(self) -> None:
        """Throw away what was written."""
        self.closed = True
        if self._upload_id:
            self._store.abort(self._key, self._upload_id)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _send(self, data: bytes) -> None:
        if len(self._parts) == PARTS_MAX:
            raise ObjectStoreError(
                f"{self.name} has more than {PARTS_MAX:,} parts of {PART_BYTES >> 20} MiB, and no "
                "object may: more reduces make smaller files"
            )
        if not self._upload_id:
            self._upload_id = self._store.begin(self._key, self._owner)
        number = len(self._parts) + 1
        self._parts.append(self._store.upload(self._key, self._upload_id, number, data))
