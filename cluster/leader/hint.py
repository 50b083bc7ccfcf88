"""Who led when somebody last looked, in the user's folder of a cluster: `leaders.json`.

A hint saves a question, and is never more than that: it may be wrong, missing or unreadable.
"""

from __future__ import annotations

import json
import logging
import os

from mrstream.cluster.config import state
from mrstream.cluster.errors import UserError

log = logging.getLogger(__name__)


def read_hint(cluster: str, role: str) -> str:
    """Return the host that led; "" if nobody knows."""
    try:
        with open(_path(cluster), encoding="utf-8") as file:
            host = json.load(file)[role]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return host if isinstance(host, str) else ""


def write_hint(cluster: str, role: str, host: str) -> None:
    """Remember who leads, where there is a folder of this cluster."""
    path = _path(cluster)
    if not os.path.isdir(os.path.dirname(path)) or read_hint(cluster, role) == host:
        return
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError, RecursionError):
        known = {}
    leaders = dict(known) if isinstance(known, dict) else {}
    leaders[role] = host
    try:
        state.write_private(path, json.dumps(leaders) + "\n")
    except UserError as error:
        log.debug("no hint is kept: %s", error)


def _path(cluster: str) -> str:
    return os.path.join(state.cluster_directory(cluster), "leaders.json")
