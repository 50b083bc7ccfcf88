"""One cell's part of a chunkserver: what its masters are told of, and what they may touch (EV-02).

Several masters share the chunks of a server; a handle says whose it is. Whatever goes to or comes
from the masters of a cell goes through here, and chunks of other cells stay out of it both ways: a
master that heard of them would call them garbage. Does no IO of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, cell_of
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.errors import WrongCell
from mrstream.dfs.protocol import Command, CopyChunk, CreateChunk, HeartbeatReply, HeldLease


class Cell:
    """The chunks of one cell among all that a server has."""

    def __init__(self, number: int, store: ChunkStore, order: MutationOrder) -> None:
        self.number = number
        self._store = store
        self._order = order

    def own(self, handles: Iterable[int]) -> list[int]:
        """Those of these chunks that are the cell's."""
        return [handle for handle in handles if cell_of(handle) == self.number]

    # -- what its masters are told --------------------------------------------------------

    def handles(self) -> list[int]:
        """Every chunk that is held."""
        return self.own(self._store.handles())

    def reports(self) -> list[ChunkReport]:
        """The same, as they are told of."""
        return [one for one in self._store.reports() if cell_of(one.handle) == self.number]

    def corrupt(self) -> tuple[tuple[ChunkHandle, ChunkVersion], ...]:
        """Replicas that are bad, and kept until a master says delete."""
        return tuple(
            (ChunkHandle(handle), ChunkVersion(version))
            for handle, version in self._store.corrupt_versions()
            if cell_of(handle) == self.number
        )

    def held(self, now_s: float) -> tuple[HeldLease, ...]:
        """Every lease that is not over."""
        return self._leases(self._order.held(now_s))

    def to_extend(self, now_s: float, within_s: float) -> tuple[HeldLease, ...]:
        """The leases of chunks being changed that end within that time."""
        return self._leases(self._order.to_extend(now_s, within_s))

    def _leases(self, leases: tuple[HeldLease, ...]) -> tuple[HeldLease, ...]:
        return tuple(lease for lease in leases if cell_of(lease.handle) == self.number)

    # -- what they say --------------------------------------------------------------------

    def contact(self, heard_at_s: float, contact_s: float) -> None:
        """Its master answered a message that was sent at that time."""
        self._order.contact(heard_at_s, contact_s, self.number)

    def void(self, handles: Iterable[ChunkHandle]) -> None:
        """Its master says that these leases are over."""
        for handle in self.own(handles):
            self._order.lease_over(handle)

    def extend(self, reply: HeartbeatReply, sent_at_s: float) -> None:
        """Its master has prolonged leases, in the answer to what was sent at that time."""
        for lease in self._leases(reply.extended):
            self._order.extended(lease.handle, lease.version, sent_at_s + lease.left_s)

    def garbage(self, reply: HeartbeatReply) -> list[tuple[ChunkHandle, ChunkVersion]]:
        """What its master has no use for any more."""
        return [each for each in reply.garbage if cell_of(each[0]) == self.number]

    def check(self, command: Command) -> None:
        """`WrongCell` if a command touches, or looks at, a chunk of another cell."""
        handles = [command.handle]  # type: ignore[attr-defined]  # all of them name their chunk
        if isinstance(command, CopyChunk):
            handles.append(command.source)
        elif isinstance(command, CreateChunk) and command.before is not None:
            handles.append(command.before.handle)
        for handle in handles:
            if cell_of(handle) != self.number:
                raise WrongCell(
                    f"{type(command).__name__} names chunk {handle:016x} of cell "
                    f"{cell_of(handle)}, and comes from a master of cell {self.number}"
                )
