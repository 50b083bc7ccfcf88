"""`ClusterConfig` → YAML: the file that hosts and joining users get, with nothing left to guess."""

from __future__ import annotations

from typing import Any

import yaml

from mrstream.cluster.config.config import ClusterConfig, DfsConfig, HostConfig


def write_config(config: ClusterConfig) -> str:
    """Return a cluster file that reads back as the same cluster."""
    document: dict[str, Any] = {
        "name": config.name,
        "master": config.master,
        "install": config.install,
        "tls": config.tls,
        "ports": {"base": config.base_port},
        "hosts": {host.name: _host(host) for host in config.hosts},
        "dfs": _dfs(config.dfs),
        "mapreduce": dict(config.mapreduce),
    }
    if config.python is not None:
        document["python"] = config.python
    if config.extras:
        document["extras"] = list(config.extras)
    text: str = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
    return text


def _host(host: HostConfig) -> dict[str, Any]:
    fields: dict[str, Any] = {"address": host.address, "via": host.via, "dir": host.dir}
    for key in ("port", "user", "key", "rack", "slots", "python"):
        value = getattr(host, key)
        if value not in (None, ""):
            fields[key] = value
    if host.disks:
        fields["disks"] = list(host.disks)
    return fields


def _dfs(dfs: DfsConfig) -> dict[str, Any]:
    return {
        "chunk_size": dfs.chunk_bytes,
        "replication": dfs.replication,
        "dead_after": _time(dfs.dead_after_s),
        "heartbeat": _time(dfs.heartbeat_s),
        "lease": _time(dfs.lease_s),
        "trash_after": _time(dfs.trash_after_s),
        "reserve": dfs.reserve_bytes if dfs.reserve_bytes else f"{dfs.reserve_share * 100:g}%",
        "log_replicas": dfs.log_replicas,
        "scrub_every": _time(dfs.scrub_every_s),
        "checkpoint_after": dfs.checkpoint_bytes,
        "safe_mode": _time(dfs.safe_mode_s),
    }


def _time(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
