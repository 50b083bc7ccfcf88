"""The backup that a host of masters makes by itself, now and then: begun by its guard.

`python -m mrstream.cluster.hosts.backup_here --host NAME --dir DIR` copies the logs of the masters
that run on this host into `backup.to`, in a folder of the host's own, and writes down in
DIR/run/backup.note what came of it, for the guard and so for `doctor`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from mrstream.cluster.agent.files import put
from mrstream.cluster.config.config import Cluster, ClusterConfig, load
from mrstream.cluster.config.state import read_identity
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts.backup import prune, write_backup
from mrstream.cluster.hosts.kept_log import copy_log, journal_of

NOTE = "run/backup.note"


def main(argv: list[str] | None = None) -> int:
    """Make one backup; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mrstream.cluster.hosts.backup_here")
    parser.add_argument("--host", required=True, help="the name of this host in cluster.yaml")
    parser.add_argument("--dir", required=True, help="the cluster's directory on this host")
    options = parser.parse_args(argv)
    os.umask(0o077)
    note = os.path.join(options.dir, NOTE)
    said: dict[str, Any] = {"at_s": time.time()}
    try:
        said["path"] = back_up_here(options.host, options.dir)
    except (ClusterError, OSError) as error:
        print(f"backup: {error}", file=sys.stderr, flush=True)
        said = {"at_s": _last_at_s(note), "error": str(error)}
    put(note, 0o600, json.dumps(said).encode())
    return 1 if "error" in said else 0


def back_up_here(host: str, directory: str) -> str:
    """Copy the logs of this host; return where they are now."""
    config = load(os.path.join(directory, "cluster.yaml"))
    cluster = Cluster(config, read_identity(os.path.join(directory, "identity.json")))
    if config.backup is None:
        raise UserError("cluster.yaml asks for no backup")
    to = os.path.join(os.path.expanduser(config.backup.to), host)

    def fetch(role: str, folder: str) -> str:
        if not copy_log(os.path.join(directory, role, journal_of(role)), folder):
            raise UserError(f"{host} has no log of {role} yet")
        return host

    made = write_backup(cluster, to, roles_here(config, host), fetch)
    prune(to, config.name, cluster.secret.cluster_id, config.backup.keep)
    return made.path


def roles_here(config: ClusterConfig, host: str) -> list[str]:
    """Return the masters whose logs a host has."""
    return [role for role in config.master_roles if host in config.masters_of(role)]


def _last_at_s(note: str) -> float:
    """When the last one succeeded; 0: none did."""
    try:
        with open(note, encoding="utf-8") as file:
            return float(json.load(file)["at_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
