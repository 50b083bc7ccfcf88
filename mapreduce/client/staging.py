"""Stores the files that travel with a job in the dfs, before the job is submitted.

Takes what is local to the client; stores it under a name made of its content, so that the same file
of the next job is already there. Directories travel as archives. Never touches a host's disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Sequence

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.writer import create_hidden
from mrstream.dfs.errors import NoSuchFile
from mrstream.mapreduce.dfs_layout import STAGED_KEPT_S, staged_path
from mrstream.streaming.conf.properties import from_wire, to_wire
from mrstream.streaming.task.shipping import Shipped, local_path

_COPY_BYTES = 1 << 20
_TREE_NAME = "directory.tar"


class CannotShip(UserError):
    """A file that should travel with a job and cannot be read."""


def stage(shipped: Sequence[Shipped], client: DfsClient) -> tuple[Shipped, ...]:
    """Store local files in the dfs; return the same list with dfs paths instead."""
    return tuple(_staged(item, client) for item in shipped)


def _staged(item: Shipped, client: DfsClient) -> Shipped:
    source = from_wire(item.source)
    path = local_path(source)
    if path is None:
        return item
    try:
        if not os.path.isdir(path):
            stored = _store(path, os.path.basename(path), client)
            return msgspec.structs.replace(item, source=stored)
        with tempfile.TemporaryDirectory(prefix="mrstream-ship-") as place:
            packed = os.path.join(place, _TREE_NAME)
            _pack(path, packed)
            return msgspec.structs.replace(
                item, source=_store(packed, _TREE_NAME, client), archive=True
            )
    except OSError as error:
        if isinstance(error, UserError):
            raise
        raise CannotShip(f"{source} cannot travel with the job: {error}") from error


def _pack(directory: str, target: str) -> None:
    """Pack a tree so that equal trees give equal bytes: times and owners are left out."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
        return member

    with tarfile.open(target, "w") as tar:
        for name in sorted(os.listdir(directory)):
            tar.add(os.path.join(directory, name), arcname=name, filter=plain)


def _store(path: str, name: str, client: DfsClient) -> str:
    """Store one file under its content, unless it is there; return its `dfs:///` URL."""
    target = staged_path(_digest(path), to_wire(name), is_executable=os.access(path, os.X_OK))
    try:
        age_s = time.time() - client.stat(target).modified_at_s
    except NoSuchFile:
        age_s = STAGED_KEPT_S
    if age_s > STAGED_KEPT_S / 2:
        _upload(path, target, client)
    return f"dfs://{target}"


def _upload(path: str, target: str, client: DfsClient) -> None:
    """Write it hidden: another client may be doing just the same, with the same bytes."""
    with (
        open(path, "rb") as file,
        create_hidden(client, target, overwrite=True, parents=True) as copy,
    ):
        shutil.copyfileobj(file, copy, _COPY_BYTES)


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
