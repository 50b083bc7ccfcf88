"""`mrstream cluster logs HOST [ROLE]`: the logs of a host's daemons, wherever the host is."""

from __future__ import annotations

from typing import Any

from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.hosts.launcher import HostLink, with_resolved_addresses

FOLLOW_S_MAX = 30 * 86400.0


def show_logs(config: ClusterConfig, host: str, roles: list[str], lines: int, follow: bool) -> int:
    """Print the last lines of each log, then (with `follow`) what is added, until interrupted."""
    link = HostLink(with_resolved_addresses(config), config.host(host))
    several = len(roles) > 1

    def show(event: Any) -> None:
        name, line = event
        print(f"{name.removesuffix('.log')}: {line}" if several else line, flush=True)

    try:
        link.open()
        link.begin(lock=False)
        link.call(
            "logs",
            roles=roles,
            lines=lines,
            follow=follow,
            on_event=show,
            timeout_s=FOLLOW_S_MAX if follow else 60.0,
        )
    except KeyboardInterrupt:
        return 0  # the way to end following
    finally:
        link.close()
    return 0
