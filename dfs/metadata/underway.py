"""Changes of chunk versions under way, one at a time for each chunk, and who waits for them.

Requests that need the outcome are parked here and handled again afterwards. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, FileId, handle_name
from mrstream.dfs.errors import NoReplica
from mrstream.dfs.metadata.chunk_table import ChunkTable, ServerIndex
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.leases import Leases
from mrstream.dfs.metadata.life import BEGUN_BY, CHUNK, Change, Chunk, ForbiddenChange
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.outbox import Gather, Outbox
from mrstream.dfs.metadata.placement import Placement
from mrstream.dfs.metadata.servers import Server, ServerTable
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.metadata.story import Chronicle


@dataclass
class Tables:
    """What the brain's parts share."""

    space: Namespace
    chunks: ChunkTable
    servers: ServerTable
    leases: Leases
    placement: Placement
    settings: Settings
    outbox: Outbox
    story: Chronicle
    started_at_s: float = 0.0
    """When this master began to lead: for a while servers may hold leases and replicas that they
    have not told it of."""
    epoch: int = 0
    """Of this leader; 0: it does not lead yet."""
    doubted: range = range(0)
    """Handles that files may have though the log here names no file for them: see `LogInDoubt`."""


NO_FILE = FileId(0)
COPIES_MIN = 2
"""A master that has just started waits for so many replicas, if others may still be reported."""


@dataclass
class Underway:
    """One create, grant, copy or seal, and who waits for it."""

    kind: str
    """One of `BEGUN_BY`; never changes."""
    handle: ChunkHandle
    """The chunk; while this is under way, nothing else is done to it."""
    parked: list[Called] = field(default_factory=list)
    """Requests that need the outcome, in the order in which they came: handled again, or refused,
    when it is over; a create that is tried again hands them on."""
    then: list[Callable[[bool], None]] = field(default_factory=list)
    """Hear whether it worked, after those that were parked; each is called once."""
    file_id: FileId = NO_FILE
    """For which file; a seal and the target of a copy are for none."""
    index: int = 0
    """Which chunk of that file it is, or will be: a create is void if another was added first."""
    ready: list[ServerIndex] = field(default_factory=list)
    """Of a grant: who has the version that was logged, so that one of them may get the lease. Empty
    until it is logged."""
    attempt: int = 1
    """Of a create: how many sets of servers were tried."""
    waits_for_lease: bool = False
    """Of a grant that is logged: an older lease may still be acted on (M3)."""
    agreed_bytes: int = -1
    """A grant for serialised appends: all that take part are exactly so long."""
    heard: dict[ServerIndex, tuple[ChunkVersion, int]] = field(default_factory=dict)
    """Version and length that servers reported meanwhile; told to the table only when this is over,
    and only of servers whose answer did not count."""
    gone: dict[ServerIndex, None] = field(default_factory=dict)
    """Servers that reported meanwhile, and do not have it: they lost it after they answered."""


class Underways:
    def __init__(self, tables: Tables) -> None:
        self._t = tables
        self._by_handle: dict[ChunkHandle, Underway] = {}
        """At most one for a chunk, so that versions of a chunk are tried one after the other."""
        self._creating: dict[FileId, Underway] = {}
        """The creates among them, at most one for a file: chunks are added in order."""
        self._tried: dict[ChunkHandle, ChunkVersion] = {}
        """Versions that some replica may have though the attempt failed: never tried twice."""

    def of(self, handle: ChunkHandle) -> Underway | None:
        """What is being done to a chunk."""
        return self._by_handle.get(handle)

    def creating(self, file_id: FileId) -> Underway | None:
        """The chunk being made for a file."""
        return self._creating.get(file_id)

    def waiting_for_lease(self) -> list[Underway]:
        """Grants that wait for an old lease to end."""
        return [work for work in self._by_handle.values() if work.waits_for_lease]

    def begin(self, work: Underway) -> None:
        """From now on this is what is being done to its chunk."""
        assert work.handle not in self._by_handle, f"{work.handle:016x}: two changes at once"
        self.check(work.handle, BEGUN_BY[work.kind])
        self._by_handle[work.handle] = work
        if work.kind == "create":
            self._creating[work.file_id] = work

    def state_of(self, handle: ChunkHandle) -> Chunk:
        work = self._by_handle.get(handle)
        lease = self._t.leases.in_force(handle, self._t.outbox.now_s)
        return self._t.chunks.state(
            handle,
            leased=None if lease is None else lease.version,
            made=work is not None and BEGUN_BY[work.kind] is Change.MAKE,
        )

    def check(self, handle: ChunkHandle, change: Change) -> None:
        """Fail if a chunk may not be changed so."""
        state = self.state_of(handle)
        if state not in CHUNK[change]:
            raise ForbiddenChange(handle, state, change, self._t.story.of_chunk(handle))

    def reachable(self, handle: ChunkHandle) -> list[Server]:
        """The servers with a good replica that can be talked to right now."""
        holders = [self._t.servers.at(index) for index in self._t.chunks.good(handle)]
        return [server for server in holders if server.is_up and server.is_connected]

    def confirmed_bytes(self, handle: ChunkHandle) -> int:
        """How many bytes of an unsealed chunk are certainly acknowledged."""
        row, index = self._t.chunks.owner(handle)
        size = self._t.space.chunk_bytes(row)
        return max(0, min(size, self._t.space.nodes.length[row] - index * size))

    def fresh_version(self, handle: ChunkHandle) -> ChunkVersion:
        """A version that no replica can have."""
        known = self._t.chunks.highest_version(handle)
        version = ChunkVersion(max(known, self._tried.get(handle, known)) + 1)
        self._tried[handle] = version
        return version

    def settled(self, handle: ChunkHandle) -> None:
        """The version tried last is in the log, or the chunk is gone."""
        self._tried.pop(handle, None)

    def still_wanted(self, work: Underway, gather: Gather, version: ChunkVersion) -> bool:
        """Go on if somebody has the new version and the file still has the chunk."""
        t = self._t
        if work.handle not in t.chunks:
            self.settled(work.handle)
            self.finish(work, True)
            return False
        if not gather.acks:
            errors = "; ".join(gather.errors)
            error = Unavailable(f"chunk {handle_name(work.handle)}: no replica answered: {errors}")
            self.finish(work, False, error)
            return False
        if t.chunks.references(work.handle) > 1 and work.kind == "grant":
            # A snapshot came in between; whoever asks again gets a copy of his own.
            self.forget(work)
            for index, done in gather.acks.items():
                t.chunks.report(work.handle, index, version, done.length_bytes)
            self.finish(work, True)
            return False
        return True

    def is_too_soon(self, handle: ChunkHandle, targets: Sequence[Server]) -> bool:
        """After a start, others that hold the chunk may be about to report. A version that one
        replica took alone would make theirs stale, and would be lost with that one."""
        t = self._t
        return (
            len(targets) < min(COPIES_MIN, t.chunks.goal(handle))
            and t.outbox.now_s < t.started_at_s + t.settings.safe_mode_s_max
            and bool(t.servers.awaited())
        )

    def no_replica(self, handle: ChunkHandle) -> ClusterError:
        """Why nothing can be done with a chunk."""
        if self.reachable(handle):
            awaited = ", ".join(self._t.servers.awaited())
            return NoReplica(
                f"chunk {handle_name(handle)}: one replica alone is known of so soon after the "
                f"master's start; waiting for {awaited} to report",
                handle=handle,
            )
        odd = self._t.chunks.odd(handle)
        states = ", ".join(f"{self._t.servers.at(i).id}: {r.state}" for i, r in odd.items())
        return NoReplica(
            f"chunk {handle_name(handle)}: no server that is up holds a good replica"
            + (f" ({states})" if states else ""),
            handle=handle,
        )

    def check_invariants(self) -> None:
        for handle, work in self._by_handle.items():
            assert work.handle == handle and work.kind in BEGUN_BY, work
            assert (work.file_id == NO_FILE) == (work.kind in ("seal", "copy-target")), work
            assert not work.ready or work.kind == "grant", work
            assert not work.waits_for_lease or work.ready, work
            if work.kind == "create":
                assert self._creating.get(work.file_id) is work, work
        for file_id, work in self._creating.items():
            assert work.file_id == file_id and self._by_handle.get(work.handle) is work, work

    def unhear(self, server: ServerIndex) -> None:
        """The server is gone, or will report anew."""
        for work in self._by_handle.values():
            work.heard.pop(server, None)
            work.gone.pop(server, None)

    def forget(self, work: Underway) -> None:
        """It is over, but those who wait for it are not told yet."""
        if self._by_handle.get(work.handle) is work:
            del self._by_handle[work.handle]
        if self._creating.get(work.file_id) is work:
            del self._creating[work.file_id]
        chunks = self._t.chunks
        for server, (version, length_bytes) in work.heard.items():
            # Of those whose answers counted nothing is left to learn.
            if work.handle in chunks and not chunks.holds(server, work.handle):
                chunks.report(work.handle, server, version, length_bytes)
        for server in work.gone:
            # An answer was given before it lost the replica.
            if work.handle in chunks and chunks.holds(server, work.handle):
                chunks.lose(work.handle, server)
        work.heard.clear()
        work.gone.clear()

    def finish(self, work: Underway, ok: bool, error: ClusterError | None = None) -> None:
        """It is over: those who wait for it are handled again, or refused with the error."""
        self.forget(work)
        for called in work.parked:
            if ok or error is None:
                self._t.outbox.again.append(called)
            else:
                self._t.outbox.refuse(called.call, error)
        for then in work.then:
            then(ok)
