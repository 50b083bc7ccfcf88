"""Who a process is towards others, and who has proven to be at the other end. Plain values."""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass, field

ROLE_CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is towards others: its cluster, role, host, and the secret that proves it."""

    cluster_id: str
    secret: bytes = field(repr=False)
    role: str = ROLE_CLIENT
    host: str = ""
    tls: Tls | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """The two sides of an encrypted connection, where cluster.yaml says `tls: true`."""

    client: ssl.SSLContext
    server: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Who has proven to be at the other end."""

    role: str
    host: str
    client_id: int
    epoch: int = 0
    """Of a master that leads: the epoch of its lead when the connection began; else 0."""


def new_client_id() -> int:
    """Return a number that no other client has: request numbers count within it."""
    return secrets.randbits(63)
