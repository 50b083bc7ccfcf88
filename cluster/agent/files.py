"""Files of the host: read, written whole or not at all, listed, set aside and removed."""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import tempfile
import time
from typing import Any

BALLAST = "ballast"


def full_path(path: str) -> str:
    """Return a path with `~` as this host understands it."""
    return os.path.abspath(os.path.expanduser(path))


def have(paths: list[str]) -> dict[str, Any]:
    """Say which of these files exist."""
    return {"paths": [path for path in paths if os.path.exists(full_path(path))]}


def put(path: str, mode: int, payload: bytes) -> dict[str, Any]:
    """Write a file, whole or not at all."""
    path = full_path(path)
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".part-", dir=folder)
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return {}


def hold(path: str) -> int | None:
    """Return a descriptor that holds the lock of a file for as long as it is open, in whichever
    process; None: somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def keep_ballast(directory: str, size_bytes: int, room_bytes: int) -> dict[str, Any]:
    """Keep a file that can be given up when the disk is full, if there is room for one beside
    `room_bytes`: logs are appended to then, and what is deleted makes room."""
    path = os.path.join(full_path(directory), BALLAST)
    disk = os.statvfs(os.path.dirname(path))
    if os.path.exists(path) or disk.f_bavail * disk.f_frsize < size_bytes + room_bytes:
        return {}
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
    return {}


def give_up_ballast(directory: str, free_bytes: int) -> dict[str, Any]:
    """Give the ballast up if less than that is free; say how much that brought."""
    path = os.path.join(full_path(directory), BALLAST)
    if not os.path.exists(path):
        return {"bytes": 0}
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize >= free_bytes:
        return {"bytes": 0}
    size_bytes = os.path.getsize(path)
    os.unlink(path)
    return {"bytes": size_bytes}


def read(path: str) -> dict[str, Any]:
    """Return the text of a file, None if there is no such file."""
    try:
        with open(full_path(path), encoding="utf-8") as file:
            return {"text": file.read()}
    except FileNotFoundError:
        return {"text": None}


def names(path: str) -> dict[str, Any]:
    """Return the names in a directory; none if there is no such directory."""
    try:
        return {"names": sorted(os.listdir(full_path(path)))}
    except FileNotFoundError:
        return {"names": []}


def files(path: str) -> dict[str, Any]:
    """Return the files below a directory, by their path from it, with their sizes."""
    root = full_path(path)
    found: dict[str, int] = {}
    for folder, _, here in os.walk(root):
        for name in here:
            full = os.path.join(folder, name)
            found[os.path.relpath(full, root)] = os.path.getsize(full)
    return {"files": found}


def fetch(path: str, offset: int, count: int) -> dict[str, Any]:
    """Return some bytes of a file, in base64."""
    with open(full_path(path), "rb") as file:
        file.seek(offset)
        return {"base64": base64.b64encode(file.read(count)).decode()}


def set_aside(path: str) -> dict[str, Any]:
    """Give a directory another name, so that its own is free; nothing is removed."""
    path = full_path(path)
    if not os.path.exists(path):
        return {"moved": None}
    moved = f"{path}.{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    os.rename(path, moved)
    return {"moved": moved}


def discard(path: str) -> dict[str, Any]:
    """Remove a directory that nobody needs any more."""
    remove([path])
    return {}


def remove(paths: list[str]) -> None:
    """Remove these directories and all in them, where they exist."""
    for path in paths:
        if os.path.isdir(full_path(path)):
            shutil.rmtree(full_path(path))


def tail(path: str, count_bytes: int) -> str:
    """Return the end of a file, nothing if there is no such file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - count_bytes))
            return file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
