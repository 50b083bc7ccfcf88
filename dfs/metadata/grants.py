"""The right to change a chunk: create, grant, copy on write (GFS §3.1, §3.4, §4.5).

Each takes some questions to chunkservers and one log record in the middle:

    create   CreateChunk to the chosen servers      → ChunkAdded     (the primary has its lease)
    grant    SetVersion to the good replicas        → ChunkGranted   → GrantLease to the primary
    copy     CopyChunk to those of the shared chunk → ChunkReplaced  → a grant as above

A version counts only if everybody who was asked to take it has answered: somebody who took it and
was not heard would look good and miss mutations. The order matters: replicas have the new version
on disk before it is logged, and it is logged before a client hears of it (GFS §4.5). A replica that
does not answer is stale from then on. `seals` ends what begins here. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mrstream.cluster.errors import Unavailable
from mrstream.dfs.chunk import (
    FIRST_VERSION,
    ChunkHandle,
    ChunkVersion,
    FileId,
    ServerId,
    handle_name,
)
from mrstream.dfs.errors import NoReplica, NoServers, SpaceQuotaExceeded, StaleMaster
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.leases import Lease
from mrstream.dfs.metadata.life import Change
from mrstream.dfs.metadata.outbox import Gather
from mrstream.dfs.metadata.servers import Server
from mrstream.dfs.metadata.underway import Tables, Underway, Underways
from mrstream.dfs.protocol import (
    AppendsBefore,
    CommandDone,
    CopyChunk,
    CreateChunk,
    GrantLease,
    SetVersion,
)

HANDLES_RESERVED_AT_ONCE = 4096
LOST_HANDLES_MAX = 1 << 32
"""More than any part of a log that was lost can have given out."""
CREATE_ATTEMPTS_MAX = 3


class Grants:
    def __init__(self, tables: Tables, underways: Underways) -> None:
        self._t = tables
        self._underways = underways
        self._next_handle = 0
        """The next handle to give out, at most what the log has reserved; 0: none was given out by
        this master, and those of the last one's reservation are passed over."""

    # --- create

    def create(
        self,
        file_id: FileId,
        near: str,
        avoid: Sequence[ServerId] = (),
        parked: list[Called] | None = None,
        attempt: int = 1,
    ) -> Underway:
        """Begin a new chunk at the end of a file; NoServers when there is nowhere to put it,
        SpaceQuotaExceeded when a directory above may not hold it."""
        t = self._t
        row = t.space.row_of(file_id)
        size = t.space.chunk_bytes(row)
        t.space.quotas.check_chunk(row)
        candidates = [s for s in t.servers.all() if s.id not in avoid]
        chosen = t.placement.choose(
            t.space.nodes.replication[row], candidates,
            near=near, room_bytes=size, now_s=t.outbox.now_s,
        )  # fmt: skip
        if not chosen:
            raise NoServers(
                f"no chunkserver has {size} bytes free for a new chunk "
                f"({len(t.servers.up())} up, {len(t.servers.all())} known)"
            )
        is_serialised = t.space.is_serialised(row)
        before = self._appends_before(row)
        handle = self._new_handle()
        work = Underway("create", handle, parked or [], [], file_id, t.space.nodes.chunk_count[row])
        work.attempt = attempt
        self._underways.begin(work)
        primary = chosen[0]
        self._underways.check(handle, Change.LEASE)
        ends_at_s = t.outbox.now_s + t.settings.lease_s
        lease = Lease(handle, FIRST_VERSION, primary.index, ends_at_s, serialised=is_serialised)
        t.leases.begin(lease, t.outbox.now_s)

        def command(command_id: int, server: Server) -> CreateChunk:
            lease_s = t.settings.lease_s if server is primary else 0.0
            return CreateChunk(command_id, handle, FIRST_VERSION, lease_s, before=before)

        then = partial(self._created, work, primary, near, list(avoid))
        Gather(t.outbox, chosen, command, t.settings.command_s_max, then)
        return work

    def _appends_before(self, row: int) -> AppendsBefore | None:
        """Where the next chunk of a file finds the table of appends that it begins with."""
        t = self._t
        count = t.space.nodes.chunk_count[row]
        if not count or t.space.appends_at(row)[0] != 1:
            return None
        last = t.space.nodes.chunk_at(row, count - 1)
        sources = self._underways.reachable(last)
        if not sources:
            raise self._underways.no_replica(last)
        addresses = t.servers.addresses([server.index for server in sources])
        size = t.space.chunk_bytes(row)
        return AppendsBefore(last, t.chunks.granted(last), size, addresses)

    def _created(
        self, work: Underway, primary: Server, near: str, avoid: list[ServerId], gather: Gather
    ) -> None:
        t = self._t
        row = t.space.nodes.row_of(work.file_id)
        if row is None or t.space.nodes.chunk_count[row] != work.index:
            self._discard(work)  # the file is gone, or somebody else was first
            self._underways.finish(work, True)
            return
        if gather.failed:
            # Whoever did not answer may have the chunk at this version all the same, and would
            # miss what is written to the others: nobody uses this handle, another is tried.
            self._discard(work)
            avoid += [t.servers.at(index).id for index in gather.failed]
            if work.attempt < CREATE_ATTEMPTS_MAX:
                self._underways.forget(work)
                try:
                    again = self.create(work.file_id, near, avoid, work.parked, work.attempt + 1)
                    again.then = work.then
                    return
                except SpaceQuotaExceeded as exceeded:
                    self._underways.finish(work, False, exceeded)
                    return
                except NoReplica as unreachable:
                    self._underways.finish(work, False, unreachable)
                    return
                except NoServers:
                    pass
            error = NoServers(f"no chunkserver took a new chunk: {'; '.join(gather.errors)}")
            self._underways.finish(work, False, error)
            return
        try:
            t.space.quotas.check_chunk(row)  # others may have been quicker
        except SpaceQuotaExceeded as exceeded:
            self._discard(work)
            self._underways.finish(work, False, exceeded)
            return
        t.outbox.emit(op.ChunkAdded(work.file_id, work.handle))
        t.chunks.prepared(work.handle, FIRST_VERSION, gather.acks)
        for index in gather.acks:
            t.servers.at(index).placed(t.outbox.now_s)
        lease = t.leases.in_force(work.handle, t.outbox.now_s)
        if lease is not None:
            lease.confirmed, lease.replicas = True, frozenset(gather.acks)
        names = [t.servers.at(index).id for index in gather.acks]
        t.story.tell(
            f"created as chunk {work.index} on {', '.join(names)}; primary {primary.id}",
            handle=work.handle, file_id=work.file_id,
        )  # fmt: skip
        self._underways.finish(work, True)

    def _discard(self, work: Underway) -> None:
        # No client ever heard of the handle and none will: what the servers have is garbage.
        self._t.leases.end(work.handle)

    def pass_over_lost_handles(self) -> None:
        """Never make a chunk with a handle that a part of the log, now lost, may have given out;
        chunks with such handles are garbage from now on."""
        below = self._t.space.handles_reserved + LOST_HANDLES_MAX
        self._t.outbox.emit(op.HandlesReserved(ChunkHandle(below)))

    def _new_handle(self) -> ChunkHandle:
        space = self._t.space
        if self._next_handle == 0:
            self._next_handle = space.handles_reserved
        if self._next_handle >= space.handles_reserved:
            below = ChunkHandle(self._next_handle + HANDLES_RESERVED_AT_ONCE)
            self._t.outbox.emit(op.HandlesReserved(below))
        handle = ChunkHandle(self._next_handle)
        assert handle < space.handles_reserved and handle not in self._t.chunks, (
            f"{handle_name(handle)} is given out twice, or before the log says that it may be"
        )
        self._next_handle += 1
        return handle

    # --- grant

    def grant(
        self, file_id: FileId, index: int, handle: ChunkHandle, failed: Sequence[ServerId] = ()
    ) -> Underway:
        """Begin a new lease at a higher version, without the servers that the client names. Where
        appends are serialised the chunk is sealed: all of them have its length then."""
        t = self._t
        reachable = self._underways.reachable(handle)
        targets = [s for s in reachable if s.id not in failed] or reachable
        if not targets or self._underways.is_too_soon(handle, targets):
            raise self._underways.no_replica(handle)
        work = Underway("grant", handle, [], [], file_id, index)
        self._underways.begin(work)
        if t.space.is_serialised(t.space.row_of(file_id)):
            assert not t.chunks.is_unsealed(handle), (
                f"{handle_name(handle)}: no length is agreed on"
            )
            work.agreed_bytes = t.chunks.length(handle)
        self._revoke_unless_in(handle, targets)
        self._prepare(work, t.chunks.version(handle), targets)
        return work

    def _prepare(self, work: Underway, before: ChunkVersion, targets: list[Server]) -> None:
        """Have all of these servers make a new version durable."""
        handle, version = work.handle, self._underways.fresh_version(work.handle)
        Gather(
            self._t.outbox,
            targets,
            lambda command_id, _: SetVersion(
                command_id, handle, before, version, cut_to=work.agreed_bytes
            ),
            self._t.settings.command_s_max,
            partial(self._prepared, work, before, version),
        )

    def _revoke_unless_in(self, handle: ChunkHandle, targets: list[Server]) -> None:
        """The holder of the lease in force, if it is not among those that get a new version, is
        asked to give it up; otherwise it is waited for (GFS §3.1)."""
        t = self._t
        lease = t.leases.in_force(handle, t.outbox.now_s)
        if lease is None or any(server.index == lease.primary for server in targets):
            return
        holder = t.servers.at(lease.primary)
        if not holder.is_connected:
            return
        version = lease.version

        def given_up(done: CommandDone | None) -> None:
            now = t.leases.in_force(handle, t.outbox.now_s)
            if done is None or done.error.startswith(StaleMaster.__name__):
                return  # it heard too late, and acts on the lease until that ends
            if now is not None and now.version == version:
                t.leases.end(handle)
                self.look_at_waiting()

        t.outbox.ask(
            holder,
            lambda command_id: GrantLease(command_id, handle, version, 0.0),
            t.settings.command_s_max,
            given_up,
        )

    def _prepared(
        self, work: Underway, before: ChunkVersion, version: ChunkVersion, gather: Gather
    ) -> None:
        t = self._t
        if not self._underways.still_wanted(work, gather, version):
            return
        if gather.failed:
            # Whoever did not answer may have this version all the same, and would look good while
            # it misses mutations: the others go one higher.
            self._prepare(work, before, [t.servers.at(index) for index in gather.acks])
            return
        assert version > t.chunks.granted(work.handle), f"{handle_name(work.handle)}: {version}"
        t.outbox.emit(op.ChunkGranted(work.handle, version, work.file_id, work.index))
        t.chunks.prepared(work.handle, before, gather.acks)
        self._tell_stale(work.handle, version, gather)
        self._underways.settled(work.handle)
        lease = t.leases.in_force(work.handle, t.outbox.now_s)
        if lease is not None and lease.primary in gather.acks:
            t.leases.end(work.handle)
        work.ready = list(gather.acks)
        self._lease_when_free(work, version)

    def _tell_stale(self, handle: ChunkHandle, version: ChunkVersion, gather: Gather) -> None:
        text = f"version {version} on {', '.join(self._t.servers.at(i).id for i in gather.acks)}"
        if gather.errors:
            text += f"; stale from now on: {'; '.join(gather.errors)}"
        self._t.story.tell(text, handle=handle)

    def _lease_when_free(self, work: Underway, version: ChunkVersion) -> None:
        """Give the lease, once no other server can be acting on an older one (M3)."""
        t = self._t
        now_s = t.outbox.now_s
        if work.handle not in t.chunks or t.chunks.granted(work.handle) != version:
            self._underways.finish(work, True)
            return
        if t.leases.in_force(work.handle, now_s) is not None or self._may_be_leased(work.handle):
            work.waits_for_lease = True
            return
        work.waits_for_lease = False
        able = [t.servers.at(i) for i in work.ready if t.servers.at(i).is_connected]
        if not able:
            self._underways.finish(work, False, self._underways.no_replica(work.handle))
            return
        primary = min(able, key=lambda server: (round(server.recent(now_s)), server.index))
        ends_at_s = now_s + t.settings.lease_s
        self._underways.check(work.handle, Change.LEASE)
        is_serialised = work.agreed_bytes >= 0
        t.leases.begin(
            Lease(work.handle, version, primary.index, ends_at_s, serialised=is_serialised), now_s
        )
        t.outbox.ask(
            primary,
            lambda command_id: GrantLease(command_id, work.handle, version, t.settings.lease_s),
            t.settings.command_s_max,
            lambda done: self._leased(work, version, primary, done is not None and done.ok),
        )

    def _may_be_leased(self, handle: ChunkHandle) -> bool:
        """Just after a start a server that has not registered here yet may hold a lease from
        before (F3); what it holds besides, its report may tell as late as it likes."""
        t = self._t
        if t.outbox.now_s >= t.started_at_s + t.settings.dead_after_s:
            return False
        here = [index for index in t.chunks.good(handle) if t.servers.at(index).has_registered]
        return len(here) < t.chunks.goal(handle) and not all(
            server.has_registered for server in t.servers.all()
        )

    def _leased(self, work: Underway, version: ChunkVersion, primary: Server, ok: bool) -> None:
        t = self._t
        lease = t.leases.in_force(work.handle, t.outbox.now_s)
        if not ok or lease is None or lease.version != version:
            error = Unavailable(
                f"chunk {handle_name(work.handle)}: {primary.id} did not take the lease"
            )
            self._underways.finish(work, False, error)
            return
        lease.confirmed, lease.replicas = True, frozenset(work.ready)
        t.story.tell(f"leased at version {version} to {primary.id}", handle=work.handle)
        self._underways.finish(work, True)

    def look_at_waiting(self) -> None:
        """Go on with grants that waited for an old lease to end."""
        for work in self._underways.waiting_for_lease():
            if work.handle in self._t.chunks:
                self._lease_when_free(work, self._t.chunks.granted(work.handle))
            else:
                self._underways.finish(work, True)

    # --- copy on write

    def copy(self, file_id: FileId, index: int, source: ChunkHandle) -> Underway:
        """Begin a copy of a shared chunk for one of its files, on the same servers (GFS §3.4)."""
        t = self._t
        targets = self._underways.reachable(source)
        if not targets:
            raise self._underways.no_replica(source)
        handle = self._new_handle()
        version, length_bytes = t.chunks.version(source), t.chunks.length(source)
        work = Underway("copy", source, [], [], file_id, index)
        target = Underway("copy-target", handle)
        self._underways.begin(work)
        self._underways.begin(target)
        Gather(
            t.outbox,
            targets,
            lambda command_id, _: CopyChunk(
                command_id, source, version, handle, FIRST_VERSION, length_bytes
            ),
            4 * t.settings.command_s_max,
            partial(self._copied, work, target),
        )
        return work

    def _copied(self, work: Underway, target: Underway, gather: Gather) -> None:
        t = self._t
        handle = target.handle
        self._underways.forget(target)
        row = t.space.nodes.row_of(work.file_id)
        if (
            row is None
            or t.space.nodes.chunk_count[row] <= work.index
            or t.space.nodes.chunk_at(row, work.index) != work.handle
        ):
            self._underways.finish(work, True)
            return
        if not gather.acks:
            errors = "; ".join(gather.errors)
            error = Unavailable(f"chunk {handle_name(work.handle)} was not copied: {errors}")
            self._underways.finish(work, False, error)
            return
        source = work.handle
        t.outbox.emit(op.ChunkReplaced(work.file_id, work.index, handle))
        t.chunks.prepared(handle, FIRST_VERSION, gather.acks)
        t.story.tell(f"copied for writing to {handle_name(handle)}", handle=source)
        t.story.tell(f"copied for writing from {handle_name(source)}", handle=handle)
        # Those who wait for it get a lease as for any chunk, at the next version: whoever has
        # the copy but did not say so is stale then.
        self._underways.finish(work, True)
