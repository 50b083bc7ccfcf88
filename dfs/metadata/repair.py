"""Keeping every chunk whole: re-replication, clean-up, rebalancing, draining (GFS §4.3, §4.4).

Chunks that changed are looked at once and put into a queue by urgency; each tick starts as many
clones as the caps allow, most urgent first.

M5: a replica is deleted only on the master's word, given when no file has the chunk or the chunk is
    whole without it.
M6: repair never lowers the number of good replicas below the goal; a corrupt or stale replica goes
    only after the chunk is whole without it, or is replaced in its place by a good one.
A chunk that may be changing is sealed before it is cloned: a copy of a moving thing is no copy.
Never does any IO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, ServerId
from mrstream.dfs.metadata.chunk_table import ServerIndex
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.life import Replica
from mrstream.dfs.metadata.nodes import ROOT
from mrstream.dfs.metadata.paths import TRASH_NAME
from mrstream.dfs.metadata.seals import Seals
from mrstream.dfs.metadata.servers import Server
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.protocol import CloneChunk, CommandDone, DeleteChunk

BLOCKING, ONE_LEFT, TWO_LOST, ONE_LOST, DELETED, CROWDED = range(6)
URGENCIES = ("blocks a client", "one copy left", "lost two", "lost one", "deleted file", "one rack")
LOOKED_AT_PER_TICK = 4000
VAIN_TRIES_PER_TICK = 64
RETRY_S = 2.0
BALANCE_EVERY_S = 5.0
DRAIN_LOOK_EVERY_S = 2.0
DELETES_PER_TICK = 1000
DELETE_S_MAX = 10.0
"""After so long a deletion is asked for again. Until the server says that it is done, or registers
again, the replica counts for nothing: the first request may yet be carried out."""


@dataclass(slots=True)
class Clone:
    """One copy under way."""

    handle: ChunkHandle
    version: ChunkVersion
    target: ServerIndex
    source: ServerIndex


class Repair:
    """What is not as it should be, and what is being done about it."""

    def __init__(self, tables: Tables, underways: Underways, seals: Seals) -> None:
        self._t = tables
        self._underways = underways
        self._seals = seals
        self._queues: list[dict[ChunkHandle, None]] = [{} for _ in URGENCIES]
        """Chunks that want a copy, by urgency, the longest waiting first."""
        self._urgency: dict[ChunkHandle, int] = {}
        """In which queue each of them is: in one only."""
        self._tidy: dict[ChunkHandle, None] = {}
        """Whole chunks with a replica too many."""
        self._retry_at_s: dict[ChunkHandle, float] = {}
        """A clone failed, or had nowhere to go: not before then again."""
        self._cloning: dict[ChunkHandle, list[Clone]] = {}
        """Clones that were ordered and not answered; no chunk has an empty list."""
        self._waiting: dict[ChunkHandle, list[Called]] = {}
        """Requests that wait for a second copy; handled again after the clone, whether it worked or
        not."""
        self._deleting: dict[tuple[ChunkHandle, ServerIndex], ChunkVersion] = {}
        """The deletion asked for last; the answer to an earlier one says nothing of the replica."""
        self.missing: dict[ChunkHandle, None] = {}
        """Chunks without a good replica, as of the last look."""
        self.corrupt: dict[ChunkHandle, None] = {}
        """Chunks with a damaged or short replica, as of the last look."""
        self.clones_active = 0
        """How many `_cloning` holds; each also counts at its source and at its target."""
        self.is_eager = False
        """A clone has ended: the next may begin without waiting for a tick."""
        self._racks: set[str] = set()
        """Where a replica could be put; looked up once for each batch. Never iterated."""
        self._draining: list[ServerIndex] = []
        """Servers on their way out, as of the last look."""
        self._balanced_at_s = 0.0
        self._drained_at_s = 0.0
        """When each was last done; both take a look at whole servers, so not at every tick."""

    def check_invariants(self) -> None:
        queued = [(handle, n) for n, queue in enumerate(self._queues) for handle in queue]
        assert dict(queued) == self._urgency and len(queued) == len(self._urgency), queued
        clones = [clone for clones in self._cloning.values() for clone in clones]
        assert all(self._cloning.values()) and len(clones) == self.clones_active, self._cloning
        for server in self._t.servers.all():
            assert server.clones_in == sum(c.target == server.index for c in clones), server.id
            assert server.clones_out == sum(c.source == server.index for c in clones), server.id

    # --- looking

    @property
    def under_replicated(self) -> int:
        """Chunks with fewer good replicas than their goal (missing ones too)."""
        return sum(len(queue) for queue in self._queues[:CROWDED]) + len(self.missing)

    @property
    def is_whole(self) -> bool:
        """Has every chunk a good replica somewhere (as far as has been looked)?"""
        return not self.missing and not self._t.chunks.dirty

    @property
    def is_behind(self) -> bool:
        """Is there more to look at than a tick does, as after a start? Then the next should come
        soon."""
        return len(self._t.chunks.dirty) > LOOKED_AT_PER_TICK

    def must_wait(self, handle: ChunkHandle, failed: Sequence[ServerId] = ()) -> bool:
        """Should a new lease wait for a clone? Only where one copy is left and there could be
        two, so that what is acknowledged next survives the next failure. Elsewhere the client
        comes first, and a clone under way, stale then, is made again later. A copy where the client
        says that it failed does not count: it would have the lease given without that one, and wait
        for it again."""
        chunks = self._t.chunks
        if len(chunks.good(handle)) != 1 or chunks.goal(handle) < 2:
            return False
        if handle in self._cloning:
            return True
        if self._target(handle, [], ONE_LEFT, failed) is None:
            return False
        if chunks.is_unsealed(handle):
            self._seals.seal(handle)
        return True

    def wait_for_clone(self, handle: ChunkHandle, called: Called) -> None:
        """Park a request until the clone under way is done."""
        self._waiting.setdefault(handle, []).append(called)
        self._t.chunks.dirty.add(handle)

    def look(self) -> None:
        """Bring the queues up to date with what changed (a part of it, if that is a lot)."""
        up = [server for server in self._t.servers.up() if not server.is_draining]
        self._racks = {server.rack for server in up}
        self._draining = [s.index for s in self._t.servers.all() if s.is_draining]
        for handle in self._t.chunks.dirty.take(LOOKED_AT_PER_TICK):
            self._look_at(handle)

    def _look_at(self, handle: ChunkHandle) -> None:
        """Put a chunk where it belongs."""
        self._forget(handle)
        chunks = self._t.chunks
        if handle not in chunks:
            self._retry_at_s.pop(handle, None)
            return
        good, odd = chunks.good(handle), chunks.odd(handle)
        if any(replica.state in (Replica.CORRUPT, Replica.SHORT) for replica in odd.values()):
            self.corrupt[handle] = None
        if not good:
            if not chunks.is_unsealed(handle) or self._underways.confirmed_bytes(handle) > 0:
                self.missing[handle] = None
            return
        goal = chunks.goal(handle)
        if len(good) == goal and not odd and not self._draining and len(self._racks) < 2:
            return  # all is well, as with nearly every chunk
        staying = self._staying(good)
        if len(staying) < goal:
            self._enqueue(handle, self._how_urgent(handle, len(good), goal - len(staying)))
            return
        if len(staying) > goal or odd:
            self._tidy[handle] = None
        elif self._is_crowded(staying):
            self._enqueue(handle, CROWDED)

    def _forget(self, handle: ChunkHandle) -> None:
        if self._urgency:
            old = self._urgency.pop(handle, None)
            if old is not None:
                self._queues[old].pop(handle, None)
        for waiting in (self.missing, self.corrupt, self._tidy):
            if waiting:
                waiting.pop(handle, None)

    def _staying(self, servers: list[ServerIndex]) -> list[Server]:
        """Those that are not on their way out."""
        return [s for s in map(self._t.servers.at, servers) if not s.is_draining]

    def _enqueue(self, handle: ChunkHandle, urgency: int) -> None:
        self._queues[urgency][handle] = None
        self._urgency[handle] = urgency

    def _how_urgent(self, handle: ChunkHandle, good: int, lost: int) -> int:
        if handle in self._waiting:
            return BLOCKING
        if self._is_deleted(handle):
            return DELETED
        if good == 1 and self._t.chunks.goal(handle) > 1:
            return ONE_LEFT
        return TWO_LOST if lost >= 2 else ONE_LOST

    def _is_deleted(self, handle: ChunkHandle) -> bool:
        trash = self._t.space.nodes.entries[ROOT].get(TRASH_NAME)
        if trash is None:
            return False
        row, _ = self._t.chunks.owner(handle)
        nodes = self._t.space.nodes
        return row < len(nodes.kind) and nodes.kind[row] != 0 and nodes.is_within(row, trash)

    def _is_crowded(self, holders: list[Server]) -> bool:
        racks = {server.rack for server in holders}
        return len(holders) > 1 and len(racks) == 1 and not self._racks <= racks

    # --- doing

    def tick(self) -> None:
        """Look at what changed and start what may be started."""
        self.is_eager = False
        self.look()
        self._start_clones()
        for handle in [h for h in self._waiting if h not in self._cloning]:
            if self._underways.of(handle) is None and handle not in self._queues[BLOCKING]:
                self._t.outbox.again += self._waiting.pop(handle)
        self._tidy_up()
        now_s = self._t.outbox.now_s
        if now_s >= self._balanced_at_s + BALANCE_EVERY_S:
            self._balanced_at_s = now_s
            self._balance()
        if now_s >= self._drained_at_s + DRAIN_LOOK_EVERY_S:
            self._drained_at_s = now_s
            for server in self._t.servers.all():
                if server.is_draining:
                    server.is_drained = self.chunks_to_drain(server) == 0

    def _clones_max(self) -> int:
        up = len(self._t.servers.up())
        return max(2, round(up * self._t.settings.clones_share_of_servers))

    def _start_clones(self) -> None:
        vain = 0
        for urgency, queue in enumerate(self._queues):
            for handle in list(islice(queue, 4 * VAIN_TRIES_PER_TICK)):
                if self.clones_active >= self._clones_max() or vain >= VAIN_TRIES_PER_TICK:
                    return
                if not self._try_clone(handle, urgency):
                    vain += 1
                    if queue.pop(handle, True) is None:
                        queue[handle] = None  # to the back, so that it blocks nobody

    def _try_clone(self, handle: ChunkHandle, urgency: int) -> bool:
        """Start one more copy of a chunk; false if nothing could be done for it now."""
        t = self._t
        now_s = t.outbox.now_s
        if self._underways.of(handle) is not None:
            return False
        if self._retry_at_s.get(handle, 0.0) > now_s:
            return False
        under_way = self._cloning.get(handle, [])
        staying = self._staying(t.chunks.good(handle))
        wanted = 1 if urgency == CROWDED else t.chunks.goal(handle) - len(staying)
        if len(under_way) >= wanted:
            return False
        if t.chunks.is_unsealed(handle):
            return self._seal_first(handle, len(t.chunks.good(handle)))
        target = self._target(handle, under_way, urgency)
        if target is None:
            self._retry_at_s[handle] = now_s + RETRY_S
            return False
        sources = [
            s for s in self._underways.reachable(handle)
            if s.clones_out < t.settings.clones_per_server_max
        ]  # fmt: skip
        if not sources:
            return False
        sources.sort(key=lambda s: (s.clones_out, s.is_busy, s.rack != target.rack, s.index))
        self._clone(handle, sources, target, urgency)
        return True

    def _seal_first(self, handle: ChunkHandle, good: int) -> bool:
        """A chunk being written is disturbed only when one copy is left (or nobody writes it)."""
        t = self._t
        row, _ = t.chunks.owner(handle)
        is_written = row in t.space.writers or t.leases.in_force(handle, t.outbox.now_s) is not None
        if is_written and (good > 1 or self._target(handle, [], ONE_LEFT) is None):
            return False
        self._seals.seal(handle)
        return True

    def _target(
        self,
        handle: ChunkHandle,
        under_way: list[Clone],
        urgency: int,
        without: Sequence[ServerId] = (),
    ) -> Server | None:
        """A server for one more replica: one without any; else one whose bad one it replaces."""
        t = self._t
        good = [t.servers.at(index) for index in t.chunks.good(handle)]
        coming = [t.servers.at(clone.target) for clone in under_way]
        odd = t.chunks.odd(handle)
        taken = [*good, *coming]
        free = [
            server for server in t.servers.up()
            if server.clones_in < t.settings.clones_per_server_max and server.id not in without
        ]  # fmt: skip
        fresh = [server for server in free if server.index not in odd]
        if urgency == CROWDED:
            fresh = [server for server in fresh if server.rack != good[0].rack]
        replaceable = [
            s for s in free if s.index in odd and odd[s.index].state is not Replica.LEAVING
        ]
        if urgency == CROWDED:
            replaceable = []
        room_bytes = t.chunks.length(handle)
        for candidates in (fresh, replaceable):
            chosen = t.placement.choose(
                1, candidates, taken=taken, room_bytes=room_bytes, now_s=t.outbox.now_s
            )
            if chosen:
                return chosen[0]
        return None

    def _clone(
        self, handle: ChunkHandle, sources: list[Server], target: Server, urgency: int
    ) -> None:
        t = self._t
        version, length_bytes = t.chunks.version(handle), t.chunks.length(handle)
        clone = Clone(handle, version, target.index, sources[0].index)
        self._cloning.setdefault(handle, []).append(clone)
        self.clones_active += 1
        target.clones_in += 1
        sources[0].clones_out += 1
        addresses = t.servers.addresses([source.index for source in sources])
        wait_s = 30.0 + length_bytes / t.settings.clone_bytes_per_s_min
        t.outbox.ask(
            target,
            lambda command_id: CloneChunk(
                command_id, handle, version, length_bytes, addresses, urgency <= ONE_LEFT
            ),
            wait_s,
            lambda done: self._cloned(clone, done),
        )
        t.story.tell(
            f"cloning version {version} from {sources[0].id} to {target.id}: {URGENCIES[urgency]}",
            handle=handle,
        )

    def _cloned(self, clone: Clone, done: CommandDone | None) -> None:
        t = self._t
        handle, target = clone.handle, t.servers.at(clone.target)
        clones = self._cloning[handle]
        clones.remove(clone)
        if not clones:
            del self._cloning[handle]
        self.clones_active -= 1
        self.is_eager = True
        target.clones_in -= 1
        t.servers.at(clone.source).clones_out -= 1
        for called in self._waiting.pop(handle, []):
            t.outbox.again.append(called)
        if handle not in t.chunks:
            return
        t.chunks.dirty.add(handle)
        if done is not None and done.ok:
            if self._underways.of(handle) is None:
                t.chunks.lose(handle, target.index)  # a bad one that it replaced
                t.chunks.report(handle, target.index, done.version, done.length_bytes)
            self._retry_at_s.pop(handle, None)
            t.story.tell(f"cloned to {target.id} at version {done.version}", handle=handle)
        else:
            self._retry_at_s[handle] = t.outbox.now_s + RETRY_S
            why = "no answer" if done is None else done.error
            t.story.tell(f"clone to {target.id} failed: {why}", handle=handle)

    # --- tidying up

    def _tidy_up(self) -> None:
        """Delete what a whole chunk has too much."""
        for handle in list(islice(self._tidy, DELETES_PER_TICK)):
            chunks = self._t.chunks
            if self._underways.of(handle) is not None or handle in self._cloning:
                continue
            del self._tidy[handle]
            staying = self._staying(chunks.good(handle))
            goal = chunks.goal(handle)
            if len(staying) > goal and not chunks.is_unsealed(handle):
                victim = self._t.placement.surplus(staying)
                self._delete(handle, victim, chunks.version(handle), "surplus")
            elif len(staying) >= goal:
                for index, replica in list(chunks.odd(handle).items()):
                    if (handle, index) not in self._deleting:
                        server = self._t.servers.at(index)
                        self._delete(handle, server, replica.version, replica.state)

    def _delete(
        self, handle: ChunkHandle, server: Server, version: ChunkVersion, reason: str
    ) -> None:
        t = self._t
        remaining = [s for s in self._staying(t.chunks.good(handle)) if s is not server]
        assert len(remaining) >= t.chunks.goal(handle), f"M6: {handle:016x} would lose a replica"
        if not server.is_connected:
            self._tidy[handle] = None
            return
        t.chunks.mark_leaving(handle, server.index)

        def deleted(done: CommandDone | None) -> None:
            if self._deleting.get((handle, server.index)) == version:
                del self._deleting[(handle, server.index)]
            if handle not in t.chunks:
                return
            t.chunks.dirty.add(handle)
            replica = t.chunks.odd(handle).get(server.index)
            if done is None or replica is None or replica.state is not Replica.LEAVING:
                return
            # Deleted; or refused, since it is not what we thought: it will be reported again. If
            # it was, and is to be deleted at that version too, the answer to that one counts.
            if replica.version == version:
                t.chunks.lose(handle, server.index)

        self._deleting[(handle, server.index)] = version
        t.outbox.ask(
            server,
            lambda command_id: DeleteChunk(command_id, handle, version, reason),
            DELETE_S_MAX,
            deleted,
        )
        t.story.tell(f"{reason} replica on {server.id}: to be deleted", handle=handle)

    def is_unknown(self, handle: ChunkHandle) -> bool:
        """Has no file this chunk, nor is one about to?"""
        t = self._t
        return (
            handle not in t.chunks
            and handle not in t.doubted
            and self._underways.of(handle) is None
        )

    def is_garbage(self, handle: ChunkHandle, server: ServerIndex, version: ChunkVersion) -> bool:
        """May the server delete this replica that it just named? (M5, GFS §4.4.1.)"""
        chunks = self._t.chunks
        if self._underways.of(handle) is not None or handle in self._cloning:
            return False
        if handle not in chunks:
            return handle not in self._t.doubted
        replica = chunks.odd(handle).get(server)
        if replica is None or replica.version != version:
            return False
        return len(self._staying(chunks.good(handle))) >= chunks.goal(handle)

    # --- balance and drain

    def _balance(self) -> None:
        """Move a few chunks from the fullest server to the emptiest (GFS §4.3)."""
        t = self._t
        servers = [s for s in t.servers.up() if s.is_connected and not s.is_draining]
        if len(servers) < 2 or any(self._queues[:CROWDED]) or self.clones_active:
            return
        full = max(servers, key=lambda s: (s.used_share, s.index))
        empty = min(servers, key=lambda s: (s.used_share, s.index))
        if full.used_share - empty.used_share <= t.settings.balance_gap:
            return
        moved = 0
        for handle in t.chunks.held_by(full.index):
            if moved >= t.settings.balance_clones_max:
                return
            if self._may_move(handle, full, empty):
                self._clone(handle, [full], empty, CROWDED)
                moved += 1

    def _may_move(self, handle: ChunkHandle, full: Server, empty: Server) -> bool:
        t = self._t
        good = t.chunks.good(handle)
        if full.index not in good or t.chunks.holds(empty.index, handle):
            return False
        if t.chunks.is_unsealed(handle) or self._underways.of(handle) is not None:
            return False
        if handle in self._cloning or t.chunks.length(handle) > empty.largest_free_bytes:
            return False
        racks = [t.servers.at(index).rack for index in good]
        # Otherwise the surplus that goes next would be the copy just made.
        return empty.rack == full.rack or empty.rack not in racks

    def chunks_to_drain(self, server: Server) -> int:
        """Chunks on a draining server that are not yet whole without it."""
        t = self._t
        others = sum(1 for s in t.servers.up() if not s.is_draining)
        return sum(
            1
            for handle in t.chunks.held_by(server.index)
            if server.index in t.chunks.good(handle)
            and len(self._staying(t.chunks.good(handle)))
            < max(1, min(t.chunks.goal(handle), others))
        )

    def server_changed(self, server: ServerIndex) -> None:
        """Its chunks have to be looked at again (drained, taken back, new rack)."""
        for handle in self._t.chunks.held_by(server):
            self._t.chunks.dirty.add(handle)
