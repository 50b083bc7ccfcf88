"""Chunkservers come, report, beat and go (GFS §2.6.2, §4.4, §4.5).

The server has the last word on what it holds. A server that is silent for `dead_after_s` is dead:
its replicas do not count and its leases are over; it comes back by registering. Safe mode is the
time after a start in which known servers have yet to report: reads are served from what has been
reported, nothing is repaired, sealed or called lost.

Handles are reserved in the log before a chunk is made with one. So a server that names a handle
beyond that shows that our log is not the one that made it: we halt, before it is called garbage.
Never does any IO.
"""

from __future__ import annotations

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, ServerId, handle_name, unpack_reports
from mrstream.dfs.errors import BadRequest, NoSuchFile, NotRegistered, StaleMaster
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.chunk_table import SETTLED, ServerIndex
from mrstream.dfs.metadata.events import Called, LogInDoubt, ServerGone
from mrstream.dfs.metadata.grants import HANDLES_RESERVED_AT_ONCE, Grants
from mrstream.dfs.metadata.handle_set import HandleSet
from mrstream.dfs.metadata.leases import Lease
from mrstream.dfs.metadata.repair import Repair
from mrstream.dfs.metadata.servers import Server
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.protocol import (
    CommandDone,
    DrainServer,
    ForgetServer,
    Heartbeat,
    HeartbeatReply,
    HeldLease,
    Register,
    ReportChunks,
    ReportReplica,
    ServerSettings,
    VerifyChunk,
)

GARBAGE_PER_HEARTBEAT_MAX = 1000


class Membership:
    """Which chunkservers there are and what they say."""

    def __init__(
        self, tables: Tables, underways: Underways, grants: Grants, repair: Repair
    ) -> None:
        self._t = tables
        self._underways = underways
        self._grants = grants
        self._repair = repair
        self._safe_mode_over = False
        self._doubted: dict[tuple[ChunkHandle, ServerIndex], int] = {}
        """Replicas that were said to be short, and the number of the message that said so."""
        self.open_lengths: dict[ChunkHandle, int] = {}
        """How long unsealed chunks were when last heard of: a hint for `ls`."""

    # --- safe mode

    def safe_mode(self) -> str:
        """Return why the master still waits, or an empty string."""
        t = self._t
        if self._safe_mode_over:
            return ""
        awaited = t.servers.awaited()
        left_s = t.started_at_s + t.settings.safe_mode_s_max - t.outbox.now_s
        if not awaited or left_s <= 0:
            return ""
        return (
            f"waiting up to {left_s:.0f} s more for {len(awaited)} of {len(t.servers.all())} "
            f"chunkservers to report: {', '.join(awaited[:10])}"
        )

    def end_safe_mode(self) -> None:
        """Once it is over it stays so: a server that registers anew is no reason to wait again."""
        self._safe_mode_over = not self.safe_mode()

    # --- coming

    def register(self, called: Called, ask: Register) -> None:
        t = self._t
        address = ask.address
        if ask.epoch > t.epoch and t.outbox.leads:
            t.outbox.outrun(ask.epoch)
            raise StaleMaster(
                f"{address.server} has obeyed a master of epoch {ask.epoch}; this is {t.epoch}"
            )
        if t.servers.get(address.server) is None:
            if not t.outbox.leads:
                raise NotRegistered(f"{address.server}: the log here does not know of it yet")
            t.outbox.emit(op.ServerKnown(address.server))
        server = t.servers.get(address.server)
        assert server is not None
        if ask.incarnation < server.incarnation:
            raise BadRequest(
                f"{address.server}: incarnation {ask.incarnation} is older than the one that is "
                f"registered, {server.incarnation}: two chunkservers under one name?"
            )
        if ask.incarnation == server.incarnation and 0 < ask.number <= server.number:
            raise NotRegistered(f"{server.id}: registration {ask.number} was overtaken")
        server.number = ask.number
        server.is_restarted = ask.incarnation != server.incarnation
        t.outbox.server_left(server.index)  # answers to what was asked before will not come
        self._underways.unhear(server.index)
        if server.rack != address.rack:
            self._repair.server_changed(server.index)
        server.address, server.incarnation = address, ask.incarnation
        server.is_up, server.is_connected, server.epoch = True, t.outbox.leads, t.epoch
        server.heard_at_s, server.disks = t.outbox.now_s, ask.disks
        t.chunks.unsure_of(server.index)
        server.has_reported, server.parts_seen = False, 0
        server.unseen = t.chunks.all_held_by(server.index)
        void = self._take_leases(server, ask.leases) if t.outbox.leads else ()
        # What is void it may act on until it has read so.
        server.has_registered = not void
        s = t.settings
        reply = ServerSettings(
            s.heartbeat_s, s.lease_s, s.contact_s, s.chunk_bytes, s.clone_bytes_per_s, void=void,
            epoch=t.epoch, leads=t.outbox.leads,
        )  # fmt: skip
        t.outbox.reply(called.call, reply)
        self._grants.look_at_waiting()

    def _take_leases(self, server: Server, held: tuple[HeldLease, ...]) -> tuple[ChunkHandle, ...]:
        """What it says it holds is in force, unless things have moved on: return those chunks.
        What else it was given is over."""
        t = self._t
        now_s = t.outbox.now_s
        t.leases.end_all_of(server.index)
        void: list[ChunkHandle] = []
        for lease in held:
            handle = lease.handle
            is_known = handle in t.chunks and lease.version >= t.chunks.granted(handle)
            if is_known and t.leases.in_force(handle, now_s) is None:
                ends_at_s = now_s + lease.left_s
                t.leases.begin(Lease(handle, lease.version, server.index, ends_at_s), now_s)
            else:
                void.append(handle)
        return tuple(void)

    def report_chunks(self, called: Called, ask: ReportChunks) -> None:
        t = self._t
        server = self._registered(ask.server, ask.incarnation)
        if ask.number not in (server.number, -1):
            raise NotRegistered(f"{server.id}: registration {ask.number} was overtaken")
        server.heard_at_s, server.has_registered = t.outbox.now_s, True
        if ask.part > server.parts_seen:
            raise NotRegistered(
                f"{server.id}: part {ask.part} of the report came after {server.parts_seen} parts"
            )
        if ask.part == server.parts_seen:
            server.parts_seen += 1
            self._take_part(server, ask.chunks)
            if ask.last:
                self._finish_report(server)
        t.outbox.reply(called.call, None)

    def _take_part(self, server: Server, chunks: bytes) -> None:
        unseen = server.unseen
        try:
            for handle, version, length_bytes in unpack_reports(chunks):
                unseen.discard(handle)
                self._take(server, handle, version, length_bytes)
        except ValueError as error:
            raise BadRequest(f"{server.id}: {error}") from None

    def _take(
        self, server: Server, handle: ChunkHandle, version: ChunkVersion, length_bytes: int
    ) -> None:
        t = self._t
        if handle not in t.chunks:
            self._halt_beyond(server, handle)
            return
        work = self._underways.of(handle)
        if work is not None:
            # While a version is being changed only the answers to that count.
            work.heard[server.index] = (version, length_bytes)
        elif not self._may_be_old_news(server, handle, length_bytes):
            t.chunks.report(handle, server.index, version, length_bytes)

    def _halt_beyond(self, server: Server, handle: ChunkHandle) -> None:
        reserved = self._t.space.handles_reserved
        if handle >= reserved and self._t.outbox.leads:
            self._t.outbox.halt(
                f"{server.id} has chunk {handle_name(handle)}, and the log has made none from "
                f"{handle_name(ChunkHandle(reserved))} on"
            )

    def doubt(self, event: LogInDoubt) -> None:
        """What the log made last, it may have logged in a part that is missing here: a chunk of
        that time that no file has is kept while that is not known. Two reservations hold the last
        handle given out, and those that were given out before it but logged after it."""
        t = self._t
        reserved = t.space.handles_reserved
        since = max(1, reserved - 2 * HANDLES_RESERVED_AT_ONCE)
        t.doubted = range(since, reserved) if event.is_in_doubt else range(0)

    def _may_be_old_news(self, server: Server, handle: ChunkHandle, length_bytes: int) -> bool:
        """Was this length looked up before the writer, who is heard on another connection, closed
        the file? What a running server holds does not shrink, so that a good replica is short only
        if the server says so again, in a message that it made after this one was answered."""
        chunks = self._t.chunks
        is_short = not chunks.is_unsealed(handle) and length_bytes < chunks.length(handle)
        if not is_short and not self._doubted:
            return False
        said = self._doubted.pop((handle, server.index), None)
        if not is_short or server.is_restarted or server.index not in chunks.good(handle):
            return False
        if said is not None and said < server.number:
            return False
        self._doubted[handle, server.index] = server.number
        return True

    def _finish_report(self, server: Server) -> None:
        """What it held when it registered and did not name now it does not have (GFS §2.6.2); what
        was made there since, the report may not know of."""
        t = self._t
        for handle in server.unseen:
            if not t.chunks.holds(server.index, handle):
                continue
            if (work := self._underways.of(handle)) is not None:
                work.gone[server.index] = None
            else:
                t.chunks.lose(handle, server.index)
                t.story.tell(f"{server.id} does not have it (any more)", handle=handle)
        server.has_reported, server.unseen = True, HandleSet()
        server.is_restarted = False
        self._grants.look_at_waiting()

    def _registered(self, name: ServerId, incarnation: int) -> Server:
        server = self._t.servers.get(name)
        is_here = server is not None and server.is_up and server.epoch == self._t.epoch
        if server is None or not is_here or server.incarnation != incarnation:
            raise NotRegistered(f"{name}: register first (the master restarted, or gave you up)")
        return server

    # --- beating

    def heartbeat(self, called: Called, ask: Heartbeat) -> None:
        t = self._t
        server = self._registered(ask.server, ask.incarnation)
        if ask.number <= server.number:
            t.outbox.reply(called.call, HeartbeatReply())  # repeated, or overtaken: old news
            return
        server.number = ask.number
        server.heard_at_s, server.disks, server.is_busy = t.outbox.now_s, ask.disks, ask.busy
        for handle in ask.lost:
            if handle in t.chunks:
                t.chunks.lose(handle, server.index)
                t.story.tell(f"{server.id} lost its replica", handle=handle)
                if (work := self._underways.of(handle)) is not None:
                    work.heard.pop(server.index, None)
        for handle, version in ask.corrupt:
            self._corrupt(server, handle, version)
        rubbish = [entry for entry in ask.corrupt if self._repair.is_unknown(entry[0])]
        try:
            self._changed(server, ask.changed)
            garbage = (*rubbish, *self._sampled(server, ask.sample))
        except ValueError as error:
            raise BadRequest(f"{server.id}: {error}") from None
        if not t.outbox.leads:
            # F4: behind its log it would call live chunks garbage.
            t.outbox.reply(called.call, HeartbeatReply())
            return
        t.outbox.reply(called.call, HeartbeatReply(self._extended(server, ask.extend), garbage))

    def _corrupt(self, server: Server, handle: ChunkHandle, version: ChunkVersion) -> None:
        t = self._t
        if handle not in t.chunks or self._underways.of(handle) is not None:
            self._halt_beyond(server, handle)
            return
        if not t.chunks.holds(server.index, handle):
            t.chunks.report(handle, server.index, version, 1 << 32)
        known = t.chunks.odd(handle).get(server.index)
        if known is None or known.state not in SETTLED:
            t.chunks.mark_corrupt(handle, server.index)
            t.story.tell(f"replica on {server.id} fails its checksums", handle=handle)

    def _changed(self, server: Server, packed: bytes) -> None:
        t = self._t
        for handle, version, length_bytes in unpack_reports(packed):
            if handle in t.chunks.unsealed:
                self.open_lengths[handle] = length_bytes
            self._take(server, handle, version, length_bytes)

    def _sampled(
        self, server: Server, packed: bytes
    ) -> tuple[tuple[ChunkHandle, ChunkVersion], ...]:
        garbage: list[tuple[ChunkHandle, ChunkVersion]] = []
        for handle, version, length_bytes in unpack_reports(packed):
            self._take(server, handle, version, length_bytes)
            if len(garbage) < GARBAGE_PER_HEARTBEAT_MAX and self._repair.is_garbage(
                handle, server.index, version
            ):
                garbage.append((handle, version))
        return tuple(garbage)

    def _extended(self, server: Server, asked: tuple[HeldLease, ...]) -> tuple[HeldLease, ...]:
        t = self._t
        extended: list[HeldLease] = []
        for held in asked:
            lease = t.leases.in_force(held.handle, t.outbox.now_s)
            if lease is None or lease.primary != server.index or lease.version != held.version:
                continue
            if self._underways.of(held.handle) is not None:
                continue  # it is about to be taken away
            t.leases.extend(held.handle, t.outbox.now_s + t.settings.lease_s)
            extended.append(HeldLease(held.handle, held.version, t.settings.lease_s))
        return tuple(extended)

    def command_done(self, called: Called, ask: CommandDone) -> None:
        self._registered(ask.server, ask.incarnation).heard_at_s = self._t.outbox.now_s
        self._t.outbox.answered(ask)
        self._t.outbox.reply(called.call, None)

    # --- going

    def gone(self, event: ServerGone) -> None:
        """The connection ended: nothing can be asked of it until it registers again."""
        server = self._t.servers.get(event.server)
        if server is not None and server.incarnation == event.incarnation:
            server.is_connected = False
            self._t.outbox.server_left(server.index)

    def tick(self) -> None:
        """Give up those that were silent for too long."""
        t = self._t
        for server in t.servers.all():
            if server.is_up and t.outbox.now_s - server.heard_at_s > t.settings.dead_after_s:
                self._bury(server)
        t.leases.expire(t.outbox.now_s)
        self._grants.look_at_waiting()
        for handle in [h for h in self.open_lengths if h not in t.chunks.unsealed]:
            del self.open_lengths[handle]

    def take_over(self) -> None:
        """Nobody is registered with us any more, who lead now; where replicas were, as a shadow saw
        it, counts until their server registers, or would have to be dead."""
        for server in self._t.servers.all():
            server.is_connected = server.has_reported = server.has_registered = False
            server.heard_at_s = self._t.outbox.now_s

    def forgive(self, late_s: float) -> None:
        """The master itself was stopped for so long: that silence is not the servers'. Their
        leases may have ended meanwhile, but never last longer than they know."""
        now_s = self._t.outbox.now_s
        for server in self._t.servers.up():
            # Some were heard of between the end of the stop and this tick.
            server.heard_at_s = min(now_s, server.heard_at_s + late_s)

    def _bury(self, server: Server) -> None:
        t = self._t
        server.is_up = server.is_connected = server.has_reported = False
        t.outbox.server_left(server.index)
        self._underways.unhear(server.index)
        for key in [key for key in self._doubted if key[1] == server.index]:
            del self._doubted[key]
        t.leases.end_all_of(server.index)
        for handle in t.chunks.lose_server(server.index):
            t.story.tell(f"{server.id} is dead", handle=handle)

    # --- on request

    def drain(self, called: Called, ask: DrainServer) -> None:
        server = self._known(ask.server)
        is_repeat = called.request_id in self._t.space.requests
        if server.is_draining != ask.drain and not is_repeat:
            self._t.outbox.emit(op.ServerDraining(ask.server, ask.drain, called.request_id))
            self._repair.server_changed(server.index)
        self._t.outbox.reply(called.call, None)

    def forget(self, called: Called, ask: ForgetServer) -> None:
        t = self._t
        if called.request_id in t.space.requests:
            t.outbox.reply(called.call, None)
            return
        server = self._known(ask.server)
        if server.is_up and not server.is_drained:
            raise BadRequest(f"{ask.server} is up and not drained: drain it first")
        t.outbox.server_left(server.index)
        t.leases.end_all_of(server.index)
        t.chunks.lose_server(server.index)
        t.outbox.emit(op.ServerForgotten(ask.server, called.request_id))
        t.outbox.reply(called.call, None)

    def verify(self, called: Called, ask: ReportReplica) -> None:
        """A client distrusts a replica; its server is the judge."""
        t = self._t
        server = self._known(ask.server)
        if ask.handle in t.chunks and server.is_connected:
            t.outbox.tell(server, lambda i: VerifyChunk(i, ask.handle, ask.version))
            t.story.tell(f"a client distrusts {server.id}: {ask.reason[:200]}", handle=ask.handle)
        t.outbox.reply(called.call, None)

    def _known(self, name: ServerId) -> Server:
        server = self._t.servers.get(name)
        if server is None:
            known = ", ".join(s.id for s in self._t.servers.all()) or "none"
            raise NoSuchFile(f"{name}: no such chunkserver; known: {known}")
        return server
