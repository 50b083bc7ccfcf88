"""Listing keys: pages in key order, as the dfs master finds them; nothing is walked here."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.protocol import KeyEntry
from mrstream.web.http.reply import Reply
from mrstream.web.http.tokens import digest
from mrstream.web.s3.call import Call, answer, check_bucket, iso_time
from mrstream.web.s3.errors import S3Error
from mrstream.web.s3.facts import BODY, ETAG, FOREIGN, SUM, etag_of, marker_etag
from mrstream.web.s3.xml import element, escaped, is_sayable, person

KEYS_MAX = 1000
_PLAIN = re.compile(r"[0-9A-Za-z_.~/-]*")
"""Needs neither escaping nor encoding."""
SHOWN = (ETAG, SUM, BODY)
LAST = "\U0010ffff"


@dataclass(slots=True)
class Found:
    """A page: keys and common prefixes, each in order, and where the next begins."""

    keys: list[KeyEntry] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    """The last of both."""
    is_truncated: bool = False

    @property
    def count(self) -> int:
        """How many of both."""
        return len(self.keys) + len(self.prefixes)


def find(client: DfsClient, root: str, prefix: str, delimiter: str, after: str, most: int) -> Found:
    """Return up to so many keys and common prefixes that come after a key."""
    found = Found()
    if not most:
        return found
    by_directory = delimiter == "/"
    position = after
    within = _common(after, prefix, delimiter) if after.startswith(prefix) else ""
    if within == after and not by_directory:
        position = within + LAST if within else after
    elif within != after and by_directory and _any_after(client, root, within, after):
        # The key to begin after lies within a common prefix, and there is more in that.
        found.prefixes.append(within)
        found.last = within
    while True:
        limit = min(most - found.count + 1, KEYS_MAX)
        page = client.find_keys(
            root, prefix, position, by_directory=by_directory, limit=limit, attributes=SHOWN
        )
        position = page.next
        for entry in page.entries:
            common = entry.key if entry.is_prefix else _common(entry.key, prefix, delimiter)
            if common and found.prefixes[-1:] == [common]:
                continue
            if found.count == most:
                found.is_truncated = True
                return found
            found.last = common or entry.key
            if not common:
                found.keys.append(entry)
                continue
            found.prefixes.append(common)
            if not by_directory:
                position = common + LAST  # what else begins so need not be looked at
                break
        if not position:
            return found


def _common(key: str, prefix: str, delimiter: str) -> str:
    """The key up to the first delimiter behind the prefix; empty if there is none."""
    at = key.find(delimiter, len(prefix)) if delimiter else -1
    return key[: at + len(delimiter)] if at >= 0 else ""


def _any_after(client: DfsClient, root: str, prefix: str, after: str) -> bool:
    if not prefix:
        return False
    position = after
    while True:
        page = client.find_keys(root, prefix, position, limit=1)
        if page.entries or not page.next:
            return bool(page.entries)
        position = page.next


# --- the operations


class _Shown:
    """How a listing shows keys: as they are, or encoded (`encoding-type=url`)."""

    def __init__(self, call: Call) -> None:
        self.encoding = call.request.query.get("encoding-type")
        if self.encoding not in ("", "url"):
            raise S3Error(
                "InvalidArgument", "encoding-type is url or not there", ArgumentName="encoding-type"
            )

    def __call__(self, name: str, text: str) -> str:
        return f"<{name}>{self.text(text)}</{name}>"

    def text(self, text: str) -> str:
        """As it stands in an element; most keys need nothing done to them."""
        if _PLAIN.fullmatch(text):
            return text
        return quote(text, safe="/~") if self.encoding else escaped(text)

    def told(self) -> str:
        return element("EncodingType", "url") if self.encoding else ""


async def list_objects(call: Call) -> Reply:
    """ListObjects, the first version."""
    query, shown = call.request.query, _Shown(call)
    prefix, delimiter, marker = query.get("prefix"), query.get("delimiter"), query.get("marker")
    most = call.number("max-keys", KEYS_MAX, KEYS_MAX)
    found = await _page(call, prefix, delimiter, marker, most)
    return answer(
        "ListBucketResult",
        element("Name", call.bucket),
        # Of this version boto3 decodes everything but this.
        element("Prefix", prefix) if is_sayable(prefix) else shown("Prefix", prefix),
        shown("Marker", marker),
        element("MaxKeys", most),
        shown("Delimiter", delimiter) if delimiter else "",
        shown.told(),
        element("IsTruncated", found.is_truncated),
        shown("NextMarker", found.last) if found.is_truncated and delimiter else "",
        *(_contents(entry, shown, owner=True) for entry in found.keys),
        *_prefixes(found, shown),
    )


async def list_objects_v2(call: Call) -> Reply:
    query, shown = call.request.query, _Shown(call)
    prefix, delimiter = query.get("prefix"), query.get("delimiter")
    start, token = query.get("start-after"), query.get("continuation-token")
    most = call.number("max-keys", KEYS_MAX, KEYS_MAX)
    after = read_token(call, token) if token else start
    found = await _page(call, prefix, delimiter, after, most)
    owner = query.get("fetch-owner") == "true"
    return answer(
        "ListBucketResult",
        element("Name", call.bucket),
        shown("Prefix", prefix),
        element("MaxKeys", most),
        element("KeyCount", found.count),
        shown("Delimiter", delimiter) if delimiter else "",
        shown.told(),
        shown("StartAfter", start) if start else "",
        element("ContinuationToken", token) if "continuation-token" in query else "",
        element("IsTruncated", found.is_truncated),
        element("NextContinuationToken", make_token(call, found.last))
        if found.is_truncated
        else "",
        *(_contents(entry, shown, owner=owner) for entry in found.keys),
        *_prefixes(found, shown),
    )


async def list_versions(call: Call) -> Reply:
    """ListObjectVersions: nothing is versioned, so each object is its only version, `null`."""
    query, shown = call.request.query, _Shown(call)
    prefix, delimiter = query.get("prefix"), query.get("delimiter")
    marker = query.get("key-marker")
    most = call.number("max-keys", KEYS_MAX, KEYS_MAX)
    found = await _page(call, prefix, delimiter, marker, most)
    return answer(
        "ListVersionsResult",
        element("Name", call.bucket),
        shown("Prefix", prefix),
        shown("KeyMarker", marker),
        element("VersionIdMarker", query.get("version-id-marker")),
        element("MaxKeys", most),
        shown("Delimiter", delimiter) if delimiter else "",
        shown.told(),
        element("IsTruncated", found.is_truncated),
        shown("NextKeyMarker", found.last) if found.is_truncated else "",
        element("NextVersionIdMarker", "null") if found.is_truncated else "",
        *(
            element(
                "Version",
                "",
                shown("Key", entry.key),
                element("VersionId", "null"),
                element("IsLatest", True),
                _facts(entry),
                person("Owner", entry.owner),
            )
            for entry in found.keys
        ),
        *_prefixes(found, shown),
    )


async def _page(call: Call, prefix: str, delimiter: str, after: str, most: int) -> Found:
    root = call.enter(prefix)
    if call.request.query.get("allow-unordered") == "true" and delimiter:
        raise S3Error(
            "InvalidArgument",
            "allow-unordered and delimiter exclude each other",
            ArgumentName="allow-unordered",
        )

    def page(client: DfsClient) -> Found:
        if not most:
            check_bucket(client, root, call.bucket)  # nothing else is asked
        return find(client, root, prefix, delimiter, after, most)

    return await call.ask(page)


def _contents(entry: KeyEntry, shown: _Shown, *, owner: bool) -> str:
    told = person("Owner", entry.owner) if owner else ""
    return f"<Contents><Key>{shown.text(entry.key)}</Key>{_facts(entry)}{told}</Contents>"


def _facts(entry: KeyEntry) -> str:
    """What is told of a key; nothing in it needs escaping, and there are a thousand a page."""
    size = entry.length_bytes
    if entry.key.endswith("/"):
        etag, size = marker_etag(entry.attributes), len(entry.attributes.get(BODY, b""))
    else:
        etag = etag_of(entry.file_id, size, entry.modified_at_s, entry.attributes)
    told = (
        f"<LastModified>{iso_time(entry.modified_at_s)}</LastModified>"
        f"<ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size>"
        "<StorageClass>STANDARD</StorageClass>"
    )
    if SUM in entry.attributes and not etag.endswith(FOREIGN):
        algorithm, type, _ = entry.attributes[SUM].split(b" ")
        told += _sum_told(algorithm, type)
    return told


@lru_cache(maxsize=64)
def _sum_told(algorithm: bytes, type: bytes) -> str:
    name = element("ChecksumAlgorithm", algorithm.decode().upper())
    return name + element("ChecksumType", type.decode())


def _prefixes(found: Found, shown: _Shown) -> list[str]:
    return [element("CommonPrefixes", "", shown("Prefix", each)) for each in found.prefixes]


# --- tokens: the key to go on after, which only we can have written


def make_token(call: Call, key: str) -> str:
    """Return where a listing of this bucket goes on."""
    data = key.encode()
    return base64.urlsafe_b64encode(_proof(call, data) + data).decode()


def read_token(call: Call, token: str) -> str:
    """Return the key that a token names."""
    try:
        data = base64.urlsafe_b64decode(token.encode("ascii"))
    except (binascii.Error, ValueError):
        data = b""
    proof, key = data[:16], data[16:]
    if not hmac.compare_digest(proof, _proof(call, key)):
        raise S3Error(
            "InvalidArgument",
            "The continuation token provided is incorrect",
            ArgumentName="continuation-token",
        )
    return key.decode()


def _proof(call: Call, data: bytes) -> bytes:
    named = call.bucket.encode() + b"\0" + data
    return digest(call.place.door_secret, "s3-list", named)[:16]
