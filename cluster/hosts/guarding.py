"""What `mrstream cluster up` tells the guard of a host: what runs there, and how it is started."""

from __future__ import annotations

from typing import Any

from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.hosts.launcher import HostLink


def guard_plan(
    config: ClusterConfig, link: HostLink, python: str, environment: dict[str, str]
) -> dict[str, Any] | None:
    """Return the plan of a host's guard; None: there is to be no guard."""
    if not config.guard:
        return None
    return {
        "roles": list(config.roles_of(link.name)),
        "python": python,
        "environment": environment,
        "backup": _backup(config, link),
    }


def has_log(config: ClusterConfig, host: str) -> bool:
    """Whether a host has the log of any master."""
    return any(host in config.masters_of(role) for role in config.master_roles)


def _backup(config: ClusterConfig, link: HostLink) -> dict[str, Any] | None:
    if config.backup is None or not has_log(config, link.name):
        return None
    return {"every_s": config.backup.every_s, "note": f"{link.directory}/run/backup.note"}
