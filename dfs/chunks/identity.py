"""Whose disk this is: a small file that says so, read before anything else is touched.

A disk of another cluster, or of a newer format, is refused as it is (fault gates 26 and 27).
"""

from __future__ import annotations

import json

from mrstream.cluster.disk import Disk
from mrstream.cluster.errors import NewerFormat, WrongCluster
from mrstream.dfs.chunks.replica_files import CHUNKS, INCOMING

IDENTITY = "identity"
STORE_FORMAT = 1


def check_identity(disk: Disk, cluster: str) -> bool:
    """Whether the disk is new; raise if it belongs to someone else."""
    disk.make_directories("")
    if not disk.exists(IDENTITY):
        return True
    file = disk.open(IDENTITY)
    try:
        text = file.read(file.size(), 0)
    finally:
        file.close()
    try:
        identity = json.loads(text)
        found = identity["format"], identity["cluster"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WrongCluster(f"{disk.name}/{IDENTITY} cannot be read: {error!r}") from None
    if found[0] > STORE_FORMAT:
        raise NewerFormat(
            f"{disk.name} has chunks of format {found[0]}, this version knows {STORE_FORMAT}; "
            "nothing was touched"
        )
    if found[1] != cluster:
        raise WrongCluster(
            f"{disk.name} belongs to cluster {found[1]}, this server to {cluster}; "
            "nothing was touched"
        )
    return False


def write_identity(disk: Disk, cluster: str, server: str) -> None:
    """Make a new disk ours; on disk when it returns."""
    text = json.dumps({"format": STORE_FORMAT, "cluster": cluster, "server": server}) + "\n"
    file = disk.open(IDENTITY + ".new", create=True)
    try:
        file.write(text.encode(), 0)
        file.sync()
    finally:
        file.close()
    disk.make_directories(CHUNKS)
    disk.make_directories(INCOMING)
    disk.rename(IDENTITY + ".new", IDENTITY)
    disk.sync_directory("")
