"""Buckets and keys as paths of the dfs, and the rules for both; without IO.

A bucket is a directory of the root; the key `in/a.csv` of the bucket `data` is the file
`/data/in/a.csv`. What paths cannot say is refused by its rule, never bent into something else.
"""

from __future__ import annotations

import re

from mrstream.dfs.metadata.paths import DEPTH_MAX, HIDDEN_PREFIX, NAME_BYTES_MAX
from mrstream.web.s3.errors import S3Error

KEY_BYTES_MAX = 1024
UPLOADS = ".mrstream-uploads"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+")


def is_bucket_name(name: str) -> bool:
    """Can a bucket be called so?"""
    return (
        bool(_BUCKET.fullmatch(name))
        and not any(pair in name for pair in ("..", ".-", "-."))
        and not _ADDRESS.fullmatch(name)
    )


def check_bucket_name(name: str) -> None:
    """Refuse what no bucket can be called."""
    if not is_bucket_name(name):
        raise S3Error(
            "InvalidBucketName",
            "a bucket's name has 3 to 63 lower-case letters, digits, dots and dashes; it and each "
            "name between dots begins and ends with a letter or digit; it is no address",
            BucketName=name[:100],
        )


def key_fault(key: str) -> str:
    """Why nothing can have this key; empty if it can."""
    names = key.removesuffix("/").split("/")
    if "" in names:
        return "a key has no empty name between slashes, and does not begin with one"
    if "." in names or ".." in names:
        return "a key has no name . or .. in it"
    if len(names) > DEPTH_MAX - 8:
        return f"a key has {DEPTH_MAX - 8} names between slashes at most"
    for name in names:
        try:
            packed = name.encode()
        except UnicodeEncodeError:
            return "a key is UTF-8"
        if b"\0" in packed:
            return "a key has no NUL in it"
        if len(packed) > NAME_BYTES_MAX:
            return f"a name between slashes has {NAME_BYTES_MAX} bytes at most"
        if packed.startswith(HIDDEN_PREFIX):
            return f"names that begin with {HIDDEN_PREFIX.decode()} are the file system's own"
    return ""


def check_key(key: str) -> None:
    """Refuse a key that nothing can have."""
    if len(key.encode("utf-8", "replace")) > KEY_BYTES_MAX:
        raise S3Error("KeyTooLongError", f"a key has {KEY_BYTES_MAX} bytes at most")
    fault = key_fault(key)
    if fault:
        raise S3Error("InvalidArgument", fault, ArgumentName="key", ArgumentValue=key[:200])
