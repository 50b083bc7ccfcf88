"""The numbers that the brain goes by; the shell fills them in from cluster.yaml."""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.dfs.chunk import CHUNK_BYTES_DEFAULT, REPLICATION_DEFAULT, ROOT_CELL


@dataclass(frozen=True)
class Settings:
    """Limits and times; each is a key of cluster.yaml or derived from one."""

    chunk_bytes: int = CHUNK_BYTES_DEFAULT
    replication: int = REPLICATION_DEFAULT
    trash_after_s: float = 3 * 86_400.0
    heartbeat_s: float = 1.0
    dead_after_s: float = 10.0
    lease_s: float = 60.0
    """First term and each extension (GFS §3.1)."""
    command_s_max: float = 5.0
    """How long a chunkserver may take to answer a short command before it counts as failed."""
    call_s_max: float = 45.0
    """How long a request may wait for chunkservers before it is refused as Unavailable."""
    writer_silence_s_max: float = 60.0
    """A writer not heard of for so long is taken to be dead, and its file is closed for it."""
    safe_mode_s_max: float = 30.0
    """After a start, known chunkservers that do not report are waited for at most so long."""
    clones_per_server_max: int = 2
    clones_share_of_servers: float = 0.4
    """Clones at once in the whole cluster, for each server (GFS §6.2.5: 91 of 227)."""
    clone_bytes_per_s: int = 0
    clone_bytes_per_s_min: int = 1_000_000
    """A clone slower than this is given up."""
    balance_gap: float = 0.10
    """Rebalance when the fullest and the emptiest server differ by more than this share."""
    balance_clones_max: int = 2
    cell: int = ROOT_CELL
    """Whose handles and file ids this master gives out."""
    located_chunks_max: int = 1024
    listing_max: int = 10_000

    @property
    def contact_s(self) -> float:
        """How long a server may act on a lease without having heard from the master: shorter than
        `dead_after_s`, so that it has stopped when the master gives it up (also if its clock runs
        a little slow)."""
        return 0.8 * self.dead_after_s
