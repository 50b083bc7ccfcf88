"""Names of nodes: `/ls/CELL/name/name`, where the cell `local` is the one at hand (Chubby §2.3).

A name inside a cell is kept in one form, `/ls/local/…`, whatever the caller called the cell. Names
have no colon, so that a sequencer can be cut at its colons (`sequencer`). Never does any IO.
"""

from __future__ import annotations

import functools
import re

from mrstream.lock.errors import BadNodePath

ROOT = "/ls/local"
ACL_DIRECTORY = f"{ROOT}/acl"
PATH_BYTES_MAX = 255
"""So that every lock's name can be that of a fence in the dfs."""
_FORBIDDEN = re.compile(r"[:\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@functools.lru_cache(4096)
def canonical(path: str, cell: str = "local") -> str:
    """Return the path as the cell keeps it, or raise `BadNodePath`."""
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != "" or parts[1] != "ls":
        raise BadNodePath(f"{_shown(path)} is no path of a cell: it begins with /ls/local/")
    if parts[2] not in ("local", cell):
        raise BadNodePath(
            f"{_shown(path)} is of the cell {parts[2]!r}; this is {cell!r} (or local)"
        )
    names = [name for name in parts[3:] if name]
    for name in names:
        if name in (".", "..") or _FORBIDDEN.search(name):
            raise BadNodePath(
                f"{_shown(path)}: {name!r} cannot be a name: no ., .., colon, control"
            )
    whole = "/".join([ROOT, *names])
    if len(whole.encode()) > PATH_BYTES_MAX:
        raise BadNodePath(f"{_shown(path)}: a path has at most {PATH_BYTES_MAX:,} bytes")
    return whole


def parent_of(path: str) -> str:
    """Return the directory that a node stands in; the root has none."""
    assert path != ROOT, "the root stands in nothing"
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else f"{path[:200]}…")
