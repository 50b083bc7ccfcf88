"""All chunks: versions and references, which are logged, and replicas, which are not (GFS §2.6).

Packed: 28 bytes a chunk, in pages of 1,024 handles; a page goes when its last chunk goes. The place
of every replica is learnt from the chunkservers and lives only here (GFS §2.6.2). Never does any
IO.

M4: `good` holds only replicas at the chunk's highest known version, which is never below the
version last granted. Whatever else a server holds of the chunk is `odd`: stale, corrupt, short, or
on its way out. An odd replica is kept until the chunk is whole without it. Which state may follow
which, `life` says; what it forbids fails here, before anything has changed.

A version above the granted one means that the master died while granting (GFS §4.5): no client was
told, so nothing was acknowledged at it. The higher one wins; should it be lost, a replica at the
granted version is good again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mrstream.dfs.chunk import FIRST_VERSION, ChunkHandle, ChunkVersion
from mrstream.dfs.metadata import life
from mrstream.dfs.metadata.handle_set import HandleSet
from mrstream.dfs.metadata.life import Change, ForbiddenChange, News, Replica
from mrstream.dfs.metadata.story import Chronicle

PAGE_BITS = 10
PAGE_CHUNKS = 1 << PAGE_BITS
SLOTS = 4
NO_SERVER = 0xFFFF
REFERENCES_MAX = 0xFFFF

UNSEALED = 1
"""The chunk may be changing: a lease was given at this version, or may be in force."""
PRESENT = 2
_SHARED = 1 << 2
"""Not stored: more than one file has the chunk."""

ServerIndex = int


def _allowed(change: Change) -> tuple[bool, ...]:
    """Whether `life` allows a change, by the flags of the chunk and `_SHARED`."""
    states = (
        life.state_of(
            exists=bool(flags & PRESENT),
            unsealed=bool(flags & UNSEALED),
            references=2 if flags & _SHARED else 1,
        )
        for flags in range(2 * _SHARED)
    )
    return tuple(state in life.CHUNK[change] for state in states)


_MAY_ADD, _MAY_GRANT, _MAY_SEAL, _MAY_SHARE, _MAY_DROP = map(
    _allowed, (Change.ADD, Change.GRANT, Change.SEAL, Change.SHARE, Change.DROP)
)
"""Looked up in place, without a call: recovery does it once for each record of the log."""


SETTLED = (Replica.CORRUPT, Replica.LEAVING)
"""What a replica stays at its version, whatever is reported of it, until it is gone or replaced."""


@dataclass(slots=True)
class OddReplica:
    """A replica that no reader is sent to."""

    state: Replica
    version: ChunkVersion
    length_bytes: int


class Page:
    """The columns of 1,024 chunks."""

    LOGGED = ("version", "length", "owner", "index", "references", "goal", "flags")

    __slots__ = (
        "count", "flags", "goal", "index", "length", "owner", "references", "slots", "version"
    )  # fmt: skip

    def __init__(self) -> None:
        zeros4 = bytes(4 * PAGE_CHUNKS)
        self.version = array("I", zeros4)
        self.length = array("I", zeros4)
        self.owner = array("I", zeros4)
        self.index = array("I", zeros4)
        self.references = array("H", bytes(2 * PAGE_CHUNKS))
        self.goal = array("B", bytes(PAGE_CHUNKS))
        self.flags = array("B", bytes(PAGE_CHUNKS))
        self.slots = array("H", b"\xff" * (2 * SLOTS * PAGE_CHUNKS))
        self.count = 0


class ChunkTable:
    """Every chunk that some file has."""

    def __init__(self, story: Chronicle | None = None) -> None:
        self._story = Chronicle() if story is None else story
        self._pages: dict[int, Page] = {}
        """What is logged of each chunk, and its first good replicas, as columns."""
        self._more: dict[ChunkHandle, list[ServerIndex]] = {}
        """Good replicas for which the page has no place."""
        self._odd: dict[ChunkHandle, dict[ServerIndex, OddReplica]] = {}
        """Replicas that may not be read; no chunk has an empty dictionary, and no server is good
        and odd at once (M4)."""
        self._ahead: dict[ChunkHandle, ChunkVersion] = {}
        """Chunks whose good replicas are above the logged version: a master died while granting."""
        self._held: dict[ServerIndex, HandleSet] = {}
        """What each server holds, good or odd: the same facts the other way round."""
        self.unsealed: dict[ChunkHandle, None] = {}
        """Chunks that may be changing; the flag in the page, listed."""
        self.dirty = HandleSet()
        """Chunks whose replicas or goal changed since repair last looked."""
        self.count = 0

    # --- what is logged: only `Namespace.apply` calls these

    def add(self, handle: ChunkHandle, owner: int, index: int, goal: int) -> None:
        """A new chunk at the first version, unsealed."""
        page = self._pages.get(handle >> PAGE_BITS)
        if page is None:
            page = self._pages[handle >> PAGE_BITS] = Page()
        at = handle & (PAGE_CHUNKS - 1)
        if not _MAY_ADD[page.flags[at]]:
            raise self._forbidden(handle, Change.ADD)
        page.version[at] = FIRST_VERSION
        page.length[at] = 0
        page.owner[at] = owner
        page.index[at] = index
        page.references[at] = 1
        page.goal[at] = goal
        page.flags[at] = PRESENT | UNSEALED
        page.count += 1
        self.count += 1
        self.unsealed[handle] = None
        self.dirty.add(handle)

    def grant(self, handle: ChunkHandle, version: ChunkVersion, owner: int, index: int) -> None:
        page, at = self._at(handle)
        if not _MAY_GRANT[page.flags[at] | (page.references[at] > 1) << 2]:
            raise self._forbidden(handle, Change.GRANT)
        self._outdate(handle, version)
        page.version[at] = version
        page.owner[at] = owner
        page.index[at] = index
        page.flags[at] |= UNSEALED
        self.unsealed[handle] = None
        self.dirty.add(handle)

    def seal(self, handle: ChunkHandle, version: ChunkVersion, length_bytes: int) -> None:
        page, at = self._at(handle)
        if not _MAY_SEAL[page.flags[at] | (page.references[at] > 1) << 2]:
            raise self._forbidden(handle, Change.SEAL)
        self._outdate(handle, version)
        page.version[at] = version
        page.length[at] = length_bytes
        page.flags[at] &= ~UNSEALED
        self.unsealed.pop(handle, None)
        self.dirty.add(handle)

    def _forbidden(self, handle: ChunkHandle, change: Change) -> ForbiddenChange:
        return ForbiddenChange(handle, self.state(handle), change, self._story.of_chunk(handle))

    def _outdate(self, handle: ChunkHandle, version: ChunkVersion) -> None:
        """M4: a new version is logged: who has it, the answers say, or to a shadow the reports."""
        current = self.version(handle)
        if version > current:
            self._ahead.pop(handle, None)
            for server in self.good(handle):
                self._make_stale(handle, server, current)
        elif self._ahead.get(handle) == version:
            del self._ahead[handle]

    def reference(self, handle: ChunkHandle, change: int) -> None:
        """One file more or less has the chunk; at none it is forgotten (its replicas: garbage)."""
        page, at = self._at(handle)
        allowed = _MAY_SHARE if change > 0 else _MAY_DROP
        if not allowed[page.flags[at] | (page.references[at] > 1) << 2]:
            raise self._forbidden(handle, Change.SHARE if change > 0 else Change.DROP)
        page.references[at] += change
        if page.references[at] == 0:
            self._forget(handle, page, at)

    def set_goal(self, handle: ChunkHandle, goal: int) -> None:
        page, at = self._at(handle)
        page.goal[at] = goal if page.references[at] == 1 else max(goal, page.goal[at])
        self.dirty.add(handle)

    def belongs(self, handle: ChunkHandle, owner: int, index: int, goal: int) -> None:
        """Another file has the chunk from now on, in the place of one that had it."""
        page, at = self._at(handle)
        page.owner[at] = owner
        page.index[at] = index
        self.set_goal(handle, goal)

    def _forget(self, handle: ChunkHandle, page: Page, at: int) -> None:
        for server in self.good(handle):
            self._unhold(server, handle)
        for slot in range(SLOTS * at, SLOTS * at + SLOTS):
            page.slots[slot] = NO_SERVER
        self._more.pop(handle, None)
        for server in self._odd.pop(handle, {}):
            self._unhold(server, handle)
        self._ahead.pop(handle, None)
        self.unsealed.pop(handle, None)
        page.flags[at] = 0
        page.count -= 1
        self.count -= 1
        self.dirty.add(handle)
        if page.count == 0:
            del self._pages[handle >> PAGE_BITS]

    def restore_page(self, number: int, page: Page) -> None:
        """Take a page over from a checkpoint."""
        page.count = sum(1 for flags in page.flags if flags)
        self.count += page.count
        self._pages[number] = page
        for at, flags in enumerate(page.flags):
            if flags:
                handle = ChunkHandle(number << PAGE_BITS | at)
                self.dirty.add(handle)
                if flags & UNSEALED:
                    self.unsealed[handle] = None

    def pages(self) -> Iterator[tuple[int, Page]]:
        """Every page with its number, for a checkpoint."""
        for number in sorted(self._pages):
            yield number, self._pages[number]

    # --- looking

    def _at(self, handle: ChunkHandle) -> tuple[Page, int]:
        return self._pages[handle >> PAGE_BITS], handle & (PAGE_CHUNKS - 1)

    def __contains__(self, handle: ChunkHandle) -> bool:
        page = self._pages.get(handle >> PAGE_BITS)
        return page is not None and page.flags[handle & (PAGE_CHUNKS - 1)] != 0

    def __iter__(self) -> Iterator[ChunkHandle]:
        for number in sorted(self._pages):
            page = self._pages[number]
            for at in range(PAGE_CHUNKS):
                if page.flags[at]:
                    yield ChunkHandle(number << PAGE_BITS | at)

    def state(
        self, handle: ChunkHandle, leased: ChunkVersion | None = None, made: bool = False
    ) -> life.Chunk:
        """What the chunk is; `leased` is the version of the lease in force, if there is one, and
        `made` says that it is being made."""
        if handle not in self:
            return life.state_of(exists=False, made=made)
        return life.state_of(
            exists=True,
            unsealed=self.is_unsealed(handle),
            references=self.references(handle),
            leased=leased == self.granted(handle),
        )

    def granted(self, handle: ChunkHandle) -> ChunkVersion:
        """The version in the log: the last that a client may have been told."""
        page, at = self._at(handle)
        return ChunkVersion(page.version[at])

    def version(self, handle: ChunkHandle) -> ChunkVersion:
        """The version of the good replicas."""
        ahead = self._ahead.get(handle)
        return self.granted(handle) if ahead is None else ahead

    def highest_version(self, handle: ChunkHandle) -> ChunkVersion:
        """The highest version that any replica is known to have: the next one goes above it."""
        odd = self._odd.get(handle)
        highest = self.version(handle)
        if odd:
            highest = max(highest, *(replica.version for replica in odd.values()))
        return highest

    def length(self, handle: ChunkHandle) -> int:
        """The length of a sealed chunk."""
        page, at = self._at(handle)
        return page.length[at]

    def owner(self, handle: ChunkHandle) -> tuple[int, int]:
        """The row of a file that has the chunk, and its index there; certain only while the
        chunk is unsealed (then it is the only file)."""
        page, at = self._at(handle)
        return page.owner[at], page.index[at]

    def goal(self, handle: ChunkHandle) -> int:
        page, at = self._at(handle)
        return page.goal[at]

    def references(self, handle: ChunkHandle) -> int:
        page, at = self._at(handle)
        return page.references[at]

    def is_unsealed(self, handle: ChunkHandle) -> bool:
        page, at = self._at(handle)
        return bool(page.flags[at] & UNSEALED)

    def good(self, handle: ChunkHandle) -> list[ServerIndex]:
        """The servers whose replica may be read."""
        page = self._pages[handle >> PAGE_BITS]
        begin = SLOTS * (handle & (PAGE_CHUNKS - 1))
        servers = [s for s in page.slots[begin : begin + SLOTS] if s != NO_SERVER]
        more = self._more.get(handle)
        return servers + more if more else servers

    def odd(self, handle: ChunkHandle) -> dict[ServerIndex, OddReplica]:
        """The replicas that may not be read."""
        return self._odd.get(handle, {})

    def held_by(self, server: ServerIndex) -> Iterator[ChunkHandle]:
        """Every chunk of which the server holds a replica, good or odd."""
        return iter(self._held.get(server, ()))

    def all_held_by(self, server: ServerIndex) -> HandleSet:
        """The same as they are now, to be changed by the caller."""
        held = self._held.get(server)
        return HandleSet() if held is None else held.copy()

    def held_count(self, server: ServerIndex) -> int:
        return len(self._held.get(server, ()))

    def holds(self, server: ServerIndex, handle: ChunkHandle) -> bool:
        return handle in self._held.get(server, ())

    # --- what the chunkservers say

    def report(
        self, handle: ChunkHandle, server: ServerIndex, version: ChunkVersion, length_bytes: int
    ) -> None:
        """Take in that the server holds this replica, and judge it."""
        page, at = self._at(handle)
        known = self._odd.get(handle, {}).get(server)
        if known is not None and known.version == version and known.state in SETTLED:
            return
        current = self.version(handle)
        sealed = not page.flags[at] & UNSEALED
        if version < current:
            stale = OddReplica(Replica.STALE, version, length_bytes)
            self._set_odd(handle, server, News.REPORTED, stale)
        elif sealed and length_bytes < page.length[at]:
            short = OddReplica(Replica.SHORT, version, length_bytes)
            self._set_odd(handle, server, News.REPORTED, short)
        else:
            if version > current:
                self._adopt(handle, version)
            self._set_good(handle, server, News.REPORTED)

    def _adopt(self, handle: ChunkHandle, version: ChunkVersion) -> None:
        """A higher version than any known: what is at the lower ones is stale (GFS §4.5)."""
        current = self.version(handle)
        self._ahead.pop(handle, None)
        for other in self.good(handle):
            self._make_stale(handle, other, current)
        self._ahead[handle] = version

    def prepared(
        self, handle: ChunkHandle, before: ChunkVersion, servers: Iterable[ServerIndex]
    ) -> None:
        """These, and only these, have made durable the version that was just granted; the other
        good replicas still have the version `before`."""
        self._ahead.pop(handle, None)
        ready = list(servers)
        for server in self.good(handle):
            if server not in ready:
                self._make_stale(handle, server, before)
        for server in ready:
            self._set_good(handle, server, News.PREPARED)

    def mark_corrupt(self, handle: ChunkHandle, server: ServerIndex) -> None:
        """The server says that its replica fails its checksums."""
        if self.holds(server, handle):
            replica = self.odd(handle).get(server)
            version = self.version(handle) if replica is None else replica.version
            corrupt = OddReplica(Replica.CORRUPT, version, 0)
            self._set_odd(handle, server, News.DAMAGED, corrupt)

    def mark_leaving(self, handle: ChunkHandle, server: ServerIndex) -> None:
        """The server was told to delete its replica: it does not count from now on."""
        odd = self.odd(handle).get(server)
        version = self.version(handle) if odd is None else odd.version
        leaving = OddReplica(Replica.LEAVING, version, self.length(handle))
        self._set_odd(handle, server, News.TO_GO, leaving)

    def unsure_of(self, server: ServerIndex) -> None:
        """The server registers again: whether it deleted what it was told to, it will report.
        Until then the replica is neither counted nor asked to be deleted."""
        for handle in list(self.held_by(server)):
            replica = self.odd(handle).get(server)
            if replica is not None and replica.state is Replica.LEAVING:
                self.lose(handle, server)

    def lose(self, handle: ChunkHandle, server: ServerIndex) -> None:
        """The server does not hold the chunk (any more)."""
        if handle not in self:
            return
        odd = self._odd.get(handle)
        if odd is not None and server in odd:
            del odd[server]
            if not odd:
                del self._odd[handle]
        else:
            self._drop_good(handle, server)
        self._unhold(server, handle)
        self.dirty.add(handle)

    def lose_server(self, server: ServerIndex) -> list[ChunkHandle]:
        """The server is gone, with all it holds; return those chunks."""
        lost = list(self.held_by(server))
        for handle in lost:
            self.lose(handle, server)
        self._held.pop(server, None)
        return lost

    # --- bookkeeping

    def replica(self, handle: ChunkHandle, server: ServerIndex) -> Replica:
        """What the server's replica of the chunk is."""
        odd = self.odd(handle).get(server)
        if odd is not None:
            return odd.state
        return Replica.GOOD if server in self.good(handle) else Replica.NONE

    def _check_replica(
        self, handle: ChunkHandle, server: ServerIndex, news: News, after: Replica
    ) -> None:
        before = self.replica(handle, server)
        if after not in life.REPLICA[news].get(before, ()):
            raise ForbiddenChange(
                handle, f"{before} on server {server}", f"{news}, and become {after}",
                self._story.of_chunk(handle),
            )  # fmt: skip

    def _make_stale(self, handle: ChunkHandle, server: ServerIndex, version: ChunkVersion) -> None:
        stale = OddReplica(Replica.STALE, version, self.length(handle))
        self._set_odd(handle, server, News.OUTDATED, stale)

    def _set_good(self, handle: ChunkHandle, server: ServerIndex, news: News) -> None:
        odd = self._odd.get(handle)
        if odd is not None and server in odd:  # else none or good: both may become good
            self._check_replica(handle, server, news, Replica.GOOD)
            del odd[server]
            if not odd:
                del self._odd[handle]
        if server in self.good(handle):
            return
        page = self._pages[handle >> PAGE_BITS]
        begin = SLOTS * (handle & (PAGE_CHUNKS - 1))
        for slot in range(begin, begin + SLOTS):
            if page.slots[slot] == NO_SERVER:
                page.slots[slot] = server
                break
        else:
            self._more.setdefault(handle, []).append(server)
        self._hold(server, handle)
        self.dirty.add(handle)

    def _set_odd(
        self, handle: ChunkHandle, server: ServerIndex, news: News, replica: OddReplica
    ) -> None:
        self._check_replica(handle, server, news, replica.state)
        self._odd.setdefault(handle, {})[server] = replica
        self._hold(server, handle)
        self._drop_good(handle, server)
        self.dirty.add(handle)

    def _drop_good(self, handle: ChunkHandle, server: ServerIndex) -> None:
        page = self._pages[handle >> PAGE_BITS]
        begin = SLOTS * (handle & (PAGE_CHUNKS - 1))
        more = self._more.get(handle)
        for slot in range(begin, begin + SLOTS):
            if page.slots[slot] == server:
                page.slots[slot] = more.pop() if more else NO_SERVER
                break
        else:
            if more is None or server not in more:
                return
            more.remove(server)
        if more is not None and not more:
            del self._more[handle]
        if handle in self._ahead and not self.good(handle):
            self._fall_back(handle)

    def _fall_back(self, handle: ChunkHandle) -> None:
        """The last replica above the granted version is gone: the best that is left is good."""
        del self._ahead[handle]
        granted = self.granted(handle)
        stale = {
            server: replica.version
            for server, replica in self.odd(handle).items()
            if replica.state is Replica.STALE and replica.version >= granted
        }
        if not stale:
            return
        best = max(stale.values())
        if best > granted:
            self._ahead[handle] = best
        for server, version in stale.items():
            if version == best:
                self._set_good(handle, server, News.FELL_BACK)

    def _hold(self, server: ServerIndex, handle: ChunkHandle) -> None:
        held = self._held.get(server)
        if held is None:
            held = self._held[server] = HandleSet()
        held.add(handle)

    def _unhold(self, server: ServerIndex, handle: ChunkHandle) -> None:
        held = self._held.get(server)
        if held is not None:
            held.discard(handle)

    def check_invariants(self, handle: ChunkHandle) -> None:
        """M4 for one chunk, and that the tables agree with each other."""
        good, odd = self.good(handle), self.odd(handle)
        assert len(good) == len(set(good)), f"{handle:016x}: a replica is listed twice: {good}"
        assert not set(good) & set(odd), f"{handle:016x}: good and odd at once: {good} {odd}"
        ahead = self._ahead.get(handle)
        assert ahead is None or (good and ahead > self.granted(handle)), f"{handle:016x}: {ahead}"
        assert (handle in self.unsealed) == self.is_unsealed(handle), f"{handle:016x}: unsealed?"
        assert handle not in self._odd or odd, f"{handle:016x}: an empty list of odd replicas"
        assert self.references(handle) >= 1
        assert not (self.is_unsealed(handle) and self.references(handle) > 1), (
            f"{handle:016x} is shared by {self.references(handle)} files and may be written"
        )
        for server in [*good, *odd]:
            assert self.holds(server, handle)
