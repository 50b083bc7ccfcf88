"""The chunkservers: who they are, whether they live, how full they are (GFS §2.6.2, §4.3).

A server is known for ever once it has registered (that is logged, so that a restarted master knows
whom to wait for) until somebody forgets it. Everything else comes from registrations and
heartbeats. Never does any IO.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrstream.dfs.chunk import ServerId
from mrstream.dfs.metadata.chunk_table import ServerIndex
from mrstream.dfs.metadata.handle_set import HandleSet
from mrstream.dfs.protocol import DiskUse, ServerAddress

RECENT_HALF_LIFE_S = 30.0
"""New chunks bring writes soon (GFS §4.3); half of that worry is gone after this time."""


@dataclass(eq=False)
class Server:
    id: ServerId
    index: ServerIndex
    address: ServerAddress | None = None
    incarnation: int = 0
    is_up: bool = False
    """Registered and heard of within `dead_after_s`."""
    is_connected: bool = False
    epoch: int = 0
    """Of the leader that it registered with; 0: with a shadow."""
    has_registered: bool = False
    """Under this leader: the leases that it acts on are known here."""
    has_reported: bool = False
    """This incarnation has told everything that it holds."""
    is_forgotten: bool = False
    is_draining: bool = False
    is_drained: bool = False
    heard_at_s: float = 0.0
    disks: tuple[DiskUse, ...] = ()
    is_busy: bool = False
    clones_in: int = 0
    clones_out: int = 0
    number: int = 0
    """Of the last registration or heartbeat that was taken in."""
    parts_seen: int = 0
    unseen: HandleSet = field(default_factory=HandleSet)
    """Held when it registered, and not named so far by the report under way."""
    is_restarted: bool = False
    """The report under way is the first of its incarnation."""
    _recent: float = 0.0
    _recent_at_s: float = 0.0

    @property
    def capacity_bytes(self) -> int:
        return sum(disk.capacity_bytes for disk in self.disks if not disk.failed)

    @property
    def free_bytes(self) -> int:
        return sum(disk.free_bytes for disk in self.disks if not disk.failed)

    @property
    def used_share(self) -> float:
        capacity = self.capacity_bytes
        return 1.0 if capacity <= 0 else 1.0 - self.free_bytes / capacity

    @property
    def largest_free_bytes(self) -> int:
        return max((disk.free_bytes for disk in self.disks if not disk.failed), default=0)

    @property
    def rack(self) -> str:
        return self.address.rack if self.address is not None else ""

    def recent(self, now_s: float) -> float:
        """Chunks placed here lately, fading."""
        return float(self._recent * 0.5 ** ((now_s - self._recent_at_s) / RECENT_HALF_LIFE_S))

    def placed(self, now_s: float) -> None:
        """A new chunk was placed here."""
        self._recent = self.recent(now_s) + 1.0
        self._recent_at_s = now_s

    def state(self) -> str:
        if not self.is_up:
            return "dead"
        if self.is_draining:
            return "drained" if self.is_drained else "draining"
        return "up" if self.is_connected else "silent"


class ServerTable:
    """Every chunkserver that ever registered and was not forgotten."""

    def __init__(self) -> None:
        self._by_index: list[Server] = []
        self._by_id: dict[ServerId, Server] = {}

    # --- what is logged

    def know(self, server: ServerId) -> None:
        if server not in self._by_id:
            entry = Server(server, len(self._by_index))
            self._by_index.append(entry)
            self._by_id[server] = entry

    def drain(self, server: ServerId, drain: bool) -> None:
        entry = self._by_id[server]
        entry.is_draining = drain
        entry.is_drained = False

    def forget(self, server: ServerId) -> None:
        # Its number is not used again, and questions to it may still be on their way.
        self._by_id.pop(server).is_forgotten = True

    def restore(self, server: ServerId | None) -> None:
        """Take over the next entry of a checkpoint; None: that one was forgotten."""
        if server is None:
            gone = Server(ServerId(""), len(self._by_index), is_forgotten=True)
            self._by_index.append(gone)
        else:
            self.know(server)

    def by_index(self) -> list[Server | None]:
        """All that ever were, forgotten ones as None, for a checkpoint."""
        return [None if server.is_forgotten else server for server in self._by_index]

    # --- looking

    def all(self) -> list[Server]:
        """Every known server, in the order in which they became known."""
        return list(self._by_id.values())

    def get(self, server: ServerId) -> Server | None:
        return self._by_id.get(server)

    def at(self, index: ServerIndex) -> Server:
        return self._by_index[index]

    def up(self) -> list[Server]:
        return [server for server in self._by_id.values() if server.is_up]

    def silent(self) -> tuple[ServerId, ...]:
        """Those that are down or have yet to report: what they hold is not known."""
        return tuple(s.id for s in self._by_id.values() if not (s.is_up and s.has_reported))

    def awaited(self) -> list[ServerId]:
        """Those that have yet to report. One that was heard of in this life, also as a shadow's,
        and is dead by now is not awaited: only of one never heard of can it be that it is just
        starting, as we are."""
        return [
            server.id
            for server in self._by_id.values()
            if not server.has_reported and (server.address is None or server.is_up)
        ]

    def addresses(self, indexes: list[ServerIndex]) -> tuple[ServerAddress, ...]:
        """Where clients reach those of these that are up."""
        found = []
        for index in indexes:
            server = self.at(index)
            if server.is_up and server.address is not None:
                found.append(server.address)
        return tuple(found)
