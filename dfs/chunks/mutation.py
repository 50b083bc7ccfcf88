"""Who may order a chunk's mutations, and in which order a replica applies them (GFS §3.1).

Takes what the master said (versions, leases, answered heartbeats), requests and the time; gives
serial numbers, or the reason for a refusal. Never does any IO, never reads a clock, takes no locks:
its owner calls it for one chunk from one thread at a time.

B3: a replica applies mutations of one version in the order of their serial numbers. The primary
resolves one mutation (applied, or failed and said so) before it gives out the next number, so a
number that arrives after a higher one was given up by its primary, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.dfs.chunk import ROOT_CELL, ChunkHandle, ChunkVersion, cell_of
from mrstream.dfs.errors import LeaseExpired, NotPrimary, StaleReplica
from mrstream.dfs.protocol import HeldLease

NEVER = (float("-inf"), 0.0)


@dataclass(slots=True)
class _Lease:
    version: int
    ends_at_s: float
    used_at_s: float


class MutationOrder:
    """The leases that this server holds, and the last serial number applied to each chunk."""

    def __init__(self) -> None:
        self._leases: dict[int, _Lease] = {}
        """What the master gave and did not take back. None counts beyond its own end, nor without
        contact, nor at another version than its own."""
        self._serials: dict[int, tuple[int, int, bool]] = {}
        """The last mutation of each chunk: version, number, whether it is on disk. Numbers of a
        version only go up, and begin anew with the next: so replicas apply in one order."""
        self._ended: dict[int, int] = {}
        """The version at which a serialised append failed; nothing is ordered at it again."""
        self._heard: dict[int, tuple[float, float]] = {}
        """For each cell, when its master was heard last, and for how long that counts."""

    # --- what the master said

    def contact(self, heard_at_s: float, contact_s: float, cell: int = ROOT_CELL) -> None:
        """The master of a cell answered a message that was sent at that time."""
        before_s = self._heard.get(cell, NEVER)[0]
        self._heard[cell] = max(before_s, heard_at_s), contact_s

    def granted(self, handle: int, version: int, ends_at_s: float, now_s: float) -> None:
        """This server is primary of the chunk at that version until then."""
        self._leases[handle] = _Lease(version, ends_at_s, now_s)

    def extended(self, handle: int, version: int, ends_at_s: float) -> None:
        """A lease was prolonged; one that is gone or of another version is not revived."""
        lease = self._leases.get(handle)
        if lease is not None and lease.version == version:
            lease.ends_at_s = max(lease.ends_at_s, ends_at_s)

    def given_up(self, handle: int) -> None:
        """The chunk's version was raised, or it is gone: no lease of before counts."""
        self._leases.pop(handle, None)
        self._serials.pop(handle, None)
        self._ended.pop(handle, None)

    def lease_over(self, handle: int) -> None:
        """The master says that the lease is over; the replica is what it was."""
        self._leases.pop(handle, None)

    def held(self, now_s: float) -> tuple[HeldLease, ...]:
        """Every lease that is not over, to be told to a master that asks anew."""
        return tuple(
            HeldLease(ChunkHandle(handle), ChunkVersion(lease.version), lease.ends_at_s - now_s)
            for handle, lease in sorted(self._leases.items())
            if lease.ends_at_s > now_s
        )

    def to_extend(self, now_s: float, within_s: float) -> tuple[HeldLease, ...]:
        """The leases that end within that time, of chunks that were changed within that time (GFS
        §3.1: they ride on heartbeats). Those of many small files, long closed, are not asked for
        again and again."""
        ending = []
        for handle, lease in list(self._leases.items()):
            left_s = lease.ends_at_s - now_s
            if left_s <= 0:
                del self._leases[handle]
            elif left_s <= within_s and now_s - lease.used_at_s <= within_s:
                ending.append(HeldLease(ChunkHandle(handle), ChunkVersion(lease.version), left_s))
        return tuple(sorted(ending, key=lambda lease: lease.handle))

    def ended(self, handle: int, version: int) -> None:
        """A serialised append failed at some replica: nothing is ordered at this version any more,
        so that whatever a replica has more than another is the bytes of that one append."""
        self._ended[handle] = version
        self.lease_over(handle)

    # --- mutations

    def check(self, handle: int, version: int, now_s: float) -> None:
        """Raise unless this server may order mutations of the chunk at this version."""
        lease = self._leases.get(handle)
        if self._ended.get(handle) == version:
            raise NotPrimary(
                f"chunk {handle:016x}: an append failed at version {version}; it ends with that"
            )
        if lease is None:
            raise NotPrimary(f"chunk {handle:016x}: this server holds no lease of it")
        if lease.version != version:
            raise NotPrimary(
                f"chunk {handle:016x}: the lease here is of version {lease.version}, "
                f"the request of {version}"
            )
        if now_s >= lease.ends_at_s:
            raise LeaseExpired(
                f"chunk {handle:016x}: the lease ended {now_s - lease.ends_at_s:.1f} s ago"
            )
        heard_at_s, contact_s = self._heard.get(cell_of(handle), NEVER)
        silence_s = now_s - heard_at_s
        if silence_s >= contact_s:
            # The master may have given us up by now, and our leases with us.
            raise LeaseExpired(
                f"chunk {handle:016x}: the master has not answered for {silence_s:.1f} s, a lease "
                f"counts for {contact_s:.1f} s without it"
            )
        lease.used_at_s = now_s

    def assign(self, handle: int, version: int, now_s: float) -> int:
        """As primary: return the serial number of the next mutation of the chunk."""
        self.check(handle, version, now_s)
        serial = self._last(handle, version)[0] + 1
        self._serials[handle] = (version, serial, False)
        return serial

    def accept(self, handle: int, version: int, serial: int) -> bool:
        """As secondary: should this mutation be applied now? False if it has been, and this is a
        repeat of its request; StaleReplica if its turn is over."""
        last, is_applied = self._last(handle, version)
        if serial < last:
            raise StaleReplica(
                f"chunk {handle:016x}: mutation {serial} of version {version} comes after {last}"
            )
        if serial == last and is_applied:
            return False
        self._serials[handle] = (version, serial, False)
        return True

    def applied(self, handle: int, version: int, serial: int) -> None:
        """The mutation that was accepted last is on disk."""
        self._serials[handle] = (version, serial, True)

    def _last(self, handle: int, version: int) -> tuple[int, bool]:
        known, serial, is_applied = self._serials.get(handle, (version, 0, True))
        return (serial, is_applied) if known == version else (0, True)
