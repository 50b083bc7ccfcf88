"""Who led when somebody last looked, in the user's folder of a cluster: `leaders.json`.

The host saves a question, and is never more than a hint: it may be wrong, missing or unreadable.
The epoch is the highest that a client of this user has met: a master of a lower one is not asked,
so that what a later command reads is never older than what an earlier one did.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any, NamedTuple

from mrstream.cluster.config import state
from mrstream.cluster.errors import UserError

log = logging.getLogger(__name__)


class Hint(NamedTuple):
    host: str = ""
    epoch: int = 0


def read_hint(cluster: str, role: str, cluster_id: str) -> Hint:
    """Return who led; nobody if nobody knows. Epochs of another cluster of that name are none."""
    known = _read(cluster).get(role)
    if not isinstance(known, dict):
        return Hint()
    host, epoch = known.get("host"), known.get("epoch")
    if not isinstance(host, str) or known.get("cluster") != cluster_id:
        return Hint()
    return Hint(host, epoch if isinstance(epoch, int) and 0 <= epoch < 1 << 63 else 0)


def write_hint(cluster: str, role: str, hint: Hint, cluster_id: str) -> None:
    """Remember who leads, where there is a folder of this cluster; never go back to an epoch."""
    path = _path(cluster)
    kept = read_hint(cluster, role, cluster_id)
    if not os.path.isdir(os.path.dirname(path)) or kept == hint or kept.epoch > hint.epoch:
        return
    leaders = _read(cluster)
    leaders[role] = {"host": hint.host, "epoch": hint.epoch, "cluster": cluster_id}
    try:
        state.write_private(path, json.dumps(leaders) + "\n")
    except UserError as error:
        log.debug("no hint is kept: %s", error)


def _read(cluster: str) -> dict[str, Any]:
    try:
        with open(_path(cluster), encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _path(cluster: str) -> str:
    return os.path.join(state.cluster_directory(cluster), "leaders.json")
