"""Ports of this machine that nobody has at the moment."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Return so many, all different."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
