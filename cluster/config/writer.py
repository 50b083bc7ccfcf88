"""`ClusterConfig` → YAML: the file that hosts and joining users get, with nothing left to guess."""

from __future__ import annotations

from typing import Any

import yaml

from mrstream.cluster.config.config import ClusterConfig, DfsConfig, GatewayConfig, HostConfig


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
    if len(config.hosts) > 1:  # of one host nobody asks, and older versions do not know the key
        document["masters"] = list(config.masters or (config.master,))
    if config.learner:
        document["learner"] = config.learner
    if config.masters or config.learner:
        document["failover_after"] = _time(config.failover_after_s)
    if config.lock is not None:
        lock = config.lock
        document["lock"] = {"session": _time(lock.session_s), "grace": _time(lock.grace_s)}
    if config.engine:
        document["engine"] = config.engine
    if not config.guard:
        document["guard"] = False
    if config.backup is not None:
        backup = config.backup
        document["backup"] = {"to": backup.to, "every": _time(backup.every_s), "keep": backup.keep}
    if config.extras:
        document["extras"] = list(config.extras)
    if config.gateway is not None:
        document["gateway"] = _gateway(config.gateway)
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
    fields: dict[str, Any] = {
        "chunk_size": dfs.chunk_bytes,
        "replication": dfs.replication,
        "dead_after": _time(dfs.dead_after_s),
        "heartbeat": _time(dfs.heartbeat_s),
        "lease": _time(dfs.lease_s),
        "trash_after": _time(dfs.trash_after_s),
        "reserve": dfs.reserve_bytes if dfs.reserve_bytes else f"{dfs.reserve_share * 100:g}%",
        "scrub_every": _time(dfs.scrub_every_s),
        "checkpoint_after": dfs.checkpoint_bytes,
        "safe_mode": _time(dfs.safe_mode_s),
    }
    if dfs.cells:
        fields["cells"] = {
            cell.name: {"path": cell.path, "number": cell.number} for cell in dfs.cells
        }
    return fields


def _gateway(gateway: GatewayConfig) -> dict[str, Any]:
    own = {"certificate": gateway.certificate, "key": gateway.key}
    fields: dict[str, Any] = {
        "hosts": list(gateway.hosts),
        "webhdfs": gateway.webhdfs,
        "s3": gateway.s3,
        "pages": gateway.pages,
        "metrics": gateway.metrics,
        "tls": own if gateway.certificate else gateway.tls,
        "trusted_writes": gateway.trusted_writes,
        "read_only": gateway.read_only,
        "memory": gateway.memory_bytes,
        "connections": gateway.connections,
        "s3_root": gateway.s3_root,
    }
    if gateway.s3_virtual_host:
        fields["s3_virtual_host"] = gateway.s3_virtual_host
    if gateway.port:
        fields["port"] = gateway.port
    if gateway.addresses:
        fields["address"] = dict(gateway.addresses)
    for key in ("trusted", "names", "behind"):
        if getattr(gateway, key):
            fields[key] = list(getattr(gateway, key))
    return fields


def _time(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
