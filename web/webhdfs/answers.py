"""What WebHDFS answers, as JSON values of exactly Hadoop 3.4's shapes; without IO."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import Any

from mrstream.dfs.protocol import ClusterReport, ContentSummary, FileStatus, LocatedChunk

TEXT = "TEXT"
HEX = "HEX"
BASE64 = "BASE64"


def file_status(status: FileStatus, suffix: str = "") -> dict[str, Any]:
    """One `FileStatus`. `childrenNum` is 0 throughout: the master counts no entries."""
    is_file = not status.is_directory
    return {
        "accessTime": int(status.accessed_at_s * 1000) if is_file else 0,
        "blockSize": status.chunk_bytes if is_file else 0,
        "childrenNum": 0,
        "fileId": int(status.file_id),
        "group": status.group,
        "length": status.length_bytes if is_file else 0,
        "modificationTime": int(status.modified_at_s * 1000),
        "owner": status.owner,
        "pathSuffix": suffix,
        "permission": f"{status.mode & 0o1777:o}",
        "replication": status.replication if is_file else 0,
        "storagePolicy": 0,
        "type": "FILE" if is_file else "DIRECTORY",
    }


def listing(directory: FileStatus, entries: Iterable[FileStatus]) -> dict[str, Any]:
    """`FileStatuses` of a directory; of a file, itself without a name."""
    found = [
        file_status(entry, entry.path.rpartition("/")[2] if directory.is_directory else "")
        for entry in entries
    ]
    return {"FileStatuses": {"FileStatus": found}}


def partial_listing(
    directory: FileStatus, entries: Sequence[FileStatus], *, more: bool
) -> dict[str, Any]:
    """A page of a directory; `remainingEntries` says only whether there are any."""
    return {
        "DirectoryListing": {
            "partialListing": listing(directory, entries),
            "remainingEntries": int(more),
        }
    }


def content_summary(
    found: ContentSummary, names: int = -1, space_bytes: int = -1
) -> dict[str, Any]:
    """`ContentSummary`, with the limits of the directory."""
    return {
        "ContentSummary": {
            "directoryCount": found.directory_count,
            "ecPolicy": "",
            "fileCount": found.file_count,
            "length": found.length_bytes,
            "quota": names,
            "snapshotDirectoryCount": 0,
            "snapshotFileCount": 0,
            "snapshotLength": 0,
            "snapshotSpaceConsumed": 0,
            "spaceConsumed": found.stored_bytes,
            "spaceQuota": space_bytes,
            "typeQuota": {},
        }
    }


def quota_usage(found: ContentSummary, names: int = -1, space_bytes: int = -1) -> dict[str, Any]:
    """`QuotaUsage`."""
    return {
        "QuotaUsage": {
            "fileAndDirectoryCount": found.directory_count + found.file_count,
            "quota": names,
            "spaceConsumed": found.stored_bytes,
            "spaceQuota": space_bytes,
            "typeQuota": {},
        }
    }


def block_locations(
    status: FileStatus, chunks: Iterable[LocatedChunk], offset: int, length: int
) -> dict[str, Any]:
    """`BlockLocations` of what touches the range, by the hosts' names in cluster.yaml."""
    found = []
    for chunk in chunks:
        start = chunk.index * status.chunk_bytes
        if start >= offset + length or start + chunk.length_bytes <= offset:
            continue
        hosts = [str(replica.server) for replica in chunk.replicas]
        names = [f"{replica.server}:{replica.bulk_port}" for replica in chunk.replicas]
        racks = [replica.rack.strip("/") or "default-rack" for replica in chunk.replicas]
        found.append(
            {
                "cachedHosts": [],
                "corrupt": not chunk.replicas,
                "hosts": hosts,
                "length": chunk.length_bytes,
                "names": names,
                "offset": start,
                "storageTypes": ["DISK"] * len(hosts),
                "topologyPaths": [
                    f"/{rack}/{name}" for rack, name in zip(racks, names, strict=True)
                ],
            }
        )
    return {"BlockLocations": {"BlockLocation": found}}


def checksum(crc: int) -> dict[str, Any]:
    """`FileChecksum`: CRC32C of all bytes, whatever the chunks (Hadoop's COMPOSITE-CRC32C)."""
    return {"FileChecksum": {"algorithm": "COMPOSITE-CRC32C", "bytes": f"{crc:08x}", "length": 4}}


def fs_status(report: ClusterReport) -> dict[str, Any]:
    """`FsStatus`: the room of the whole cluster."""
    return {
        "FsStatus": {
            "capacity": report.capacity_bytes,
            "remaining": report.free_bytes,
            "used": report.used_bytes,
        }
    }


def server_defaults(chunk_bytes: int, replication: int, trash_after_s: float) -> dict[str, Any]:
    """`FsServerDefaults`; sizes of buffers are Hadoop's, which nothing here uses."""
    return {
        "FsServerDefaults": {
            "blockSize": chunk_bytes,
            "bytesPerChecksum": 65536,
            "checksumType": 2,
            "defaultStoragePolicyId": 0,
            "encryptDataTransfer": "false",
            "fileBufferSize": 65536,
            "keyProviderUri": "",
            "replication": replication,
            "trashInterval": int(trash_after_s // 60),
            "writePacketSize": 65536,
        }
    }


def acl_status(status: FileStatus) -> dict[str, Any]:
    """`AclStatus`: no entries beyond the permission bits."""
    return {
        "AclStatus": {
            "entries": [],
            "group": status.group,
            "owner": status.owner,
            "permission": f"{status.mode & 0o777:o}",
            "stickyBit": bool(status.mode & 0o1000),
        }
    }


def xattrs(values: dict[str, bytes], encoding: str) -> dict[str, Any]:
    """`XAttrs`, each value in the encoding that was asked for."""
    return {
        "XAttrs": [
            {"name": name, "value": encode_xattr(value, encoding)}
            for name, value in sorted(values.items())
        ]
    }


def xattr_names(names: Iterable[str]) -> dict[str, Any]:
    """`XAttrNames`: JSON within JSON, as Hadoop has it."""
    return {"XAttrNames": json.dumps(sorted(names), separators=(",", ":"))}


def encode_xattr(value: bytes, encoding: str) -> str:
    """A value as `getfattr` writes it."""
    if encoding == HEX:
        return "0x" + value.hex()
    if encoding == BASE64:
        return "0s" + base64.b64encode(value).decode()
    return f'"{value.decode("utf-8", "replace")}"'


def decode_xattr(text: str) -> bytes:
    """The value of a text in any of the three encodings; ValueError if it is none."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].encode()
    if text[:2].lower() == "0x":
        return bytes.fromhex(text[2:])
    if text[:2].lower() == "0s":
        try:
            return base64.b64decode(text[2:], validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from None
    return text.encode()
