"""Paths, canonicalised once, at the door.

A path is absolute, UTF-8, at most 4,096 bytes, its names at most 255 bytes each. Doubled and
trailing slashes and `.` fall away; `..` and NUL are refused, since guessing what they mean loses
files.
"""

from __future__ import annotations

from mrstream.dfs.chunk import HIDDEN_NAME
from mrstream.dfs.errors import BadPath

PATH_BYTES_MAX = 4096
NAME_BYTES_MAX = 255
DEPTH_MAX = 255

TRASH_NAME = b".trash"
TRASH_PATH = "/.trash"
"""Where deleted files wait (GFS §4.4.1); hidden in listings, readable by name."""

HIDDEN_PREFIX = HIDDEN_NAME.encode()
AFTER_HIDDEN = HIDDEN_PREFIX + b"\xff"
"""Behind every name that begins so, since names are UTF-8."""
UPLOADS_NAME = b".mrstream-uploads"
"""A directory of what is being put together, one directory each; kept for longer."""

Parts = tuple[bytes, ...]


def split_path(path: str) -> Parts:
    """Return the names along the path, or raise BadPath saying what is wrong with it."""
    try:
        packed = path.encode()
    except UnicodeEncodeError as error:
        raise BadPath(f"path {path[:80]!r} is not valid Unicode: {error.reason}") from None
    if not packed.startswith(b"/"):
        raise BadPath(f"path {path[:80]!r} is not absolute; it must begin with '/'")
    if len(packed) > PATH_BYTES_MAX:
        raise BadPath(f"path {path[:40]!r}… has {len(packed)} bytes; at most {PATH_BYTES_MAX}")
    if b"\0" in packed:
        raise BadPath(f"path {path[:80]!r} has a NUL byte, which no name may have")
    parts = packed[1:].split(b"/")
    if b"" in parts or b"." in parts:
        parts = [part for part in parts if part and part != b"."]
    if b".." in parts:
        raise BadPath(f"path {path[:80]!r} has '..' in it; write the path without")
    if len(parts) > DEPTH_MAX:
        raise BadPath(f"path {path[:40]!r}… is {len(parts)} deep; at most {DEPTH_MAX}")
    if len(packed) > NAME_BYTES_MAX:
        for part in parts:
            if len(part) > NAME_BYTES_MAX:
                name = part[:40].decode(errors="replace")
                raise BadPath(f"name {name!r}… has {len(part)} bytes; at most {NAME_BYTES_MAX}")
    return tuple(parts)


def split_new_path(path: str) -> Parts:
    """As `split_path`, for a path that something is to get: not the root, not in the trash."""
    parts = split_path(path)
    if not parts:
        raise BadPath("'/' is the root, which always exists and keeps its name")
    if parts[0] == TRASH_NAME:
        raise BadPath(f"{path!r} is in {TRASH_PATH}, which only deleting fills")
    return parts


def join_path(parts: Parts) -> str:
    return "/" + b"/".join(parts).decode()


def is_hidden(name: bytes) -> bool:
    """Is it the name of something unfinished, which no listing shows?"""
    return name.startswith(HIDDEN_PREFIX)
