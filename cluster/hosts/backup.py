"""`mrstream cluster backup DIR`: the logs of all masters, proven, on another machine.

    DIR/NAME-20260131-235959/        whole or not there at all; the last N are kept
        backup.json                  when, of which cluster, how far each log goes, all sums
        cluster.yaml identity.json   with the secret: whoever reads a backup may use the cluster
        dfs.master/ lock.master/ …   checkpoints and logs

The chunks are not in it: they are on several hosts anyway. `restore --from DIR/NAME-…` is the way
back. Hosts of masters do the same by themselves where cluster.yaml has `backup:` (backup_here).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mrstream.cluster.config.config import Cluster, base_role
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts.kept_log import (
    JOURNALS,
    LogEnd,
    fetch_log,
    journal_of,
    look_at_log,
    try_again,
)
from mrstream.cluster.hosts.launcher import Hosts, Say
from mrstream.cluster.leader.group_view import look_at_group
from mrstream.cluster.version import version

MANIFEST = "backup.json"
_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}(-[0-9]+)?")

Fetch = Callable[[str, str], str]
"""Called with (role, folder to make): brings the log there, and returns the host it came from."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was read and proven."""

    path: str
    cluster_id: str
    at_s: float
    ends: dict[str, LogEnd]
    """Role → how far its log goes."""

    def log(self, role: str) -> str:
        return os.path.join(self.path, role)


def back_up(cluster: Cluster, directory: str, keep: int, say: Say) -> Backup:
    """Bring the logs of all masters here; return the backup, which has been read again."""
    config = cluster.config
    wanted = {host for role in config.master_roles for host in config.masters_of(role)}
    with Hosts(config, wanted) as hosts:
        hosts.open(lock=False)
        for name, error in hosts.failed.items():
            say(name, f"is left out: {error}")

        def fetch(role: str, folder: str) -> str:
            good = {link.name: link for link in hosts.good}
            for name in _best_first(cluster, role):
                if name not in good:
                    continue
                link = good[name]
                if fetch_log(link, f"{link.directory}/{role}/{journal_of(role)}", folder):
                    return name
            raise UserError(f"no host that can be reached has a log of {role}: nothing was kept")

        made = write_backup(cluster, directory, list(config.master_roles), fetch)
    for gone in prune(directory, config.name, cluster.secret.cluster_id, keep):
        say(config.name, f"{gone} is older than the last {keep}: removed")
    return made


def _best_first(cluster: Cluster, role: str) -> list[str]:
    """The leader has everything; then whoever goes furthest."""
    hosts = list(cluster.config.masters_of(role))
    if len(hosts) == 1:
        return hosts
    view = look_at_group(cluster, role)
    return sorted(
        hosts, key=lambda host: (host == view.leader, view.members[host].synced), reverse=True
    )


def write_backup(cluster: Cluster, directory: str, roles: list[str], fetch: Fetch) -> Backup:
    """Make one backup in the directory, under its name only once it is whole and proven."""
    config, secret = cluster.config, cluster.secret
    directory = os.path.abspath(os.path.expanduser(directory))
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        part = tempfile.mkdtemp(prefix=f".part-{config.name}-", dir=directory)
    except OSError as error:
        raise UserError(f"{directory} cannot be written: {error.strerror}") from None
    try:
        logs: dict[str, Any] = {}
        for role in roles:
            host, end = _one_log(part, role, secret.cluster_id, fetch)
            logs[role] = {"host": host, "epoch": end.epoch, "sequence": end.sequence}
        _write(os.path.join(part, "cluster.yaml"), write_config(config))
        _write(os.path.join(part, "identity.json"), secret.to_text())
        now_s = time.time()
        about = {
            "cluster": config.name,
            "id": secret.cluster_id,
            "at": now_s,
            "version": version(),
            "logs": logs,
            "sha256": _sums(part),
        }
        _write(os.path.join(part, MANIFEST), json.dumps(about, indent=1))
        _sync_tree(part)
        proven = read_backup(part)
        return replace(proven, path=_give_name(part, directory, config.name, now_s))
    except OSError as error:
        raise UserError(f"{directory} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _one_log(part: str, role: str, cluster_id: str, fetch: Fetch) -> tuple[str, LogEnd]:
    folder, turn = os.path.join(part, role), 0
    while True:
        try:
            host = fetch(role, folder)
            return host, look_at_log(folder, cluster_id)
        except ClusterError as error:
            try_again(error, turn)
        turn += 1
        shutil.rmtree(folder, ignore_errors=True)


def _give_name(part: str, directory: str, name: str, now_s: float) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    path, count = os.path.join(directory, f"{name}-{stamp}"), 1
    while os.path.exists(path):
        count += 1
        path = os.path.join(directory, f"{name}-{stamp}-{count}")
    os.rename(part, path)
    _sync(directory)
    return path


def read_backup(path: str) -> Backup:
    """Return a backup after every byte of it was compared with its sums, and its logs were read."""
    path = os.path.abspath(os.path.expanduser(path))
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
            about = json.load(file)
        ends = {
            str(role): LogEnd(int(said["epoch"]), int(said["sequence"]))
            for role, said in about["logs"].items()
        }
        sums, cluster_id, at_s = about["sha256"], str(about["id"]), float(about["at"])
        found = _sums(path)
    except OSError as error:
        raise UserError(f"{path} is no backup that can be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}/{MANIFEST} is not what `cluster backup` writes") from None
    for name in sorted({*sums, *found}):
        if sums.get(name) != found.get(name):
            raise UserError(f"{path}/{name} is not as it was when the backup was made: damaged")
    for role, end in ends.items():
        if (
            base_role(role) not in JOURNALS
            or look_at_log(os.path.join(path, role), cluster_id) != end
        ):
            raise UserError(f"{path}: the log of {role!r} does not go as far as {MANIFEST} says")
    return Backup(path, cluster_id, at_s, ends)


def prune(directory: str, name: str, cluster_id: str, keep: int) -> list[str]:
    """Remove the oldest backups of this cluster beyond so many; nothing else is touched."""
    directory = os.path.abspath(os.path.expanduser(directory))
    own: list[tuple[float, str]] = []
    for entry in os.listdir(directory):
        if not entry.startswith(f"{name}-") or not _STAMP.fullmatch(entry[len(name) + 1 :]):
            continue
        try:
            with open(os.path.join(directory, entry, MANIFEST), encoding="utf-8") as file:
                about = json.load(file)
            if about["id"] == cluster_id:
                own.append((float(about["at"]), entry))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # not one of ours, or not whole: a person's to judge
    gone = [entry for _, entry in sorted(own, reverse=True)[keep:]]
    for entry in gone:
        shutil.rmtree(os.path.join(directory, entry))
    return gone


def _sums(folder: str) -> dict[str, str]:
    sums: dict[str, str] = {}
    for here, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(here, name)
            if name != MANIFEST or here != folder:
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                sums[os.path.relpath(path, folder)] = digest
    return sums


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _sync_tree(folder: str) -> None:
    for here, _, names in os.walk(folder):
        for name in names:
            _sync(os.path.join(here, name))
        _sync(here)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
