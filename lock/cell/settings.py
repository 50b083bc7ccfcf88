"""The numbers that the cell decides by; cluster.yaml gives two of them."""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.lock.protocol import CONTENTS_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Settings:
    """Times (Chubby §2.8, §2.9) and limits against abuse (§4.5)."""

    lease_s: float = 12.0
    lease_under_load_s: float = 60.0
    load_sessions: int = 5_000
    """With more sessions than this, leases are long: fewer KeepAlives (§3.1)."""
    grace_s: float = 45.0
    idle_s: float = 60.0
    """A session without handles and calls ends after so long."""
    orphan_s: float = 60.0
    """After a fail-over, ephemeral nodes wait so long for somebody to use a handle to them."""
    nodes_max: int = 100_000
    contents_bytes_max: int = 64 * 1024 * 1024
    file_bytes_max: int = CONTENTS_BYTES_MAX
    sessions_max: int = 20_000
    handles_max: int = 1_000
    """Of one session."""
    calls_waiting_max: int = 1_000
    """Of one session."""
    cached_max: int = 10_000
    """Entries that one session may cache."""
    superuser: str = ""
    """Whom no list refuses: the user that the cell runs as."""
