"""Who may order mutations of each chunk (GFS §3.1).

M3: at any moment a chunk has at most one unexpired lease. A lease is over when its term is, when
its holder gave it up, when its holder started anew without it, or when its holder has been out of
touch for `dead_after_s` (by then it has stopped acting on it: see `Settings.contact_s`). Never does
any IO.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.metadata.chunk_table import ServerIndex


@dataclass(slots=True)
class Lease:
    """The right of one replica to order the mutations of a chunk at one version."""

    handle: ChunkHandle
    version: ChunkVersion
    primary: ServerIndex
    ends_at_s: float
    """The holder counts from a moment before it was given, so it stops before this."""
    confirmed: bool = False
    """The primary has said that it knows of it: clients may be sent there. Never of one that a
    server brought along from another master: who has its version is not known."""
    replicas: frozenset[ServerIndex] = frozenset()
    """All that have this version. Were one of them missing from what clients are told, it would
    miss mutations and still look good: then a new lease at a higher version is needed."""
    serialised: bool = False
    """They all had the same bytes when it began, and appends at it are serialised."""


class Leases:
    def __init__(self) -> None:
        self._by_handle: dict[ChunkHandle, Lease] = {}
        """At most one of a chunk (M3); one that is over counts for nothing, and goes some time."""

    def __len__(self) -> int:
        return len(self._by_handle)

    def in_force(self, handle: ChunkHandle, now_s: float) -> Lease | None:
        """Return the lease that some server may be acting on, or None."""
        lease = self._by_handle.get(handle)
        if lease is not None and lease.ends_at_s <= now_s:
            del self._by_handle[handle]
            return None
        return lease

    def begin(self, lease: Lease, now_s: float) -> None:
        """A lease is on its way to its holder: from now on it counts as in force."""
        old = self.in_force(lease.handle, now_s)
        assert old is None or old.primary == lease.primary, (
            f"M3: chunk {lease.handle:016x} is leased to {old.primary if old else '-'} already"
        )
        self._by_handle[lease.handle] = lease

    def extend(self, handle: ChunkHandle, ends_at_s: float) -> None:
        lease = self._by_handle[handle]
        lease.ends_at_s = max(lease.ends_at_s, ends_at_s)

    def end(self, handle: ChunkHandle) -> None:
        """Its holder gave it up, or cannot act on it any more."""
        self._by_handle.pop(handle, None)

    def end_all_of(self, server: ServerIndex) -> None:
        """The server has stopped acting on its leases: it is out of touch, or started anew."""
        for handle in [h for h, lease in self._by_handle.items() if lease.primary == server]:
            del self._by_handle[handle]

    def check_invariants(self) -> None:
        for handle, lease in self._by_handle.items():
            assert lease.handle == handle, lease
            assert lease.confirmed == bool(lease.replicas), lease
            assert not lease.replicas or lease.primary in lease.replicas, lease

    def expire(self, now_s: float) -> None:
        for handle in [h for h, lease in self._by_handle.items() if lease.ends_at_s <= now_s]:
            del self._by_handle[handle]
