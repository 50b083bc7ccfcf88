"""Looking at chunks and servers: where bytes are, fsck, the report, stories. Changes nothing."""

from __future__ import annotations

from mrstream.dfs.chunk import ChunkHandle
from mrstream.dfs.errors import BadRequest, FileReplaced, SafeMode
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.life import Replica
from mrstream.dfs.metadata.listing import Listing
from mrstream.dfs.metadata.membership import Membership
from mrstream.dfs.metadata.nodes import FILE
from mrstream.dfs.metadata.paths import join_path, split_path
from mrstream.dfs.metadata.repair import Repair
from mrstream.dfs.metadata.underway import Tables
from mrstream.dfs.protocol import (
    ChunkFact,
    ClusterReport,
    FileFact,
    FindTree,
    Fsck,
    FsckPage,
    Locate,
    Located,
    LocatedChunk,
    ReplicaFact,
    ServerAddress,
    ServerStatus,
    Story,
    StoryLine,
)


class Inspect:
    """Answers questions about chunks and chunkservers."""

    def __init__(
        self,
        tables: Tables,
        changes: Changes,
        listing: Listing,
        membership: Membership,
        repair: Repair,
    ) -> None:
        self._t = tables
        self._nodes = tables.space.nodes
        self._changes = changes
        self._listing = listing
        self._membership = membership
        self._repair = repair

    def locate(self, ask: Locate) -> Located:
        """Return chunks and where they are; GFS §2.4."""
        if ask.first_index < 0 or ask.count < 0:
            raise BadRequest(f"chunks {ask.first_index} + {ask.count}: both must be 0 or more")
        row, path = self._meant(ask)
        count = min(ask.count, self._t.settings.located_chunks_max)
        end = min(ask.first_index + count, self._nodes.chunk_count[row])
        chunks = tuple(self._located(row, index) for index in range(ask.first_index, end))
        why = self._membership.safe_mode() if any(not c.replicas for c in chunks) else ""
        if why:
            raise SafeMode(f"{path}: some chunks have not been found yet; {why}")
        values = self._listing.values(row) if ask.attributes else {}
        return Located(self._listing.status(row, path), chunks, values)

    def _meant(self, ask: Locate) -> tuple[int, str]:
        """The file with the id, whatever its path is by now; without one, what has the path."""
        parts = split_path(ask.path)
        if not ask.file_id:
            return self._changes.existing_file(parts), join_path(parts)
        row = self._nodes.row_of(ask.file_id)
        if row is not None and self._nodes.kind[row] == FILE:
            return row, join_path(self._nodes.path_of(row))
        self._changes.existing_file(parts)
        raise FileReplaced(
            f"{join_path(parts)}: was replaced by another file since it was opened; open it again",
            path=join_path(parts),
            file_id=ask.file_id,
        )

    def _located(self, row: int, index: int) -> LocatedChunk:
        chunks = self._t.chunks
        handle = self._nodes.chunk_at(row, index)
        is_last = index == self._nodes.chunk_count[row] - 1
        is_open = is_last and chunks.is_unsealed(handle)
        is_serialised = is_open and self._t.space.is_serialised(row)
        odd = chunks.odd(handle)
        replicas = self._t.servers.addresses(chunks.good(handle))
        return LocatedChunk(
            index,
            handle,
            chunks.granted(handle),
            self._chunk_length(row, index, is_open and not is_serialised, handle),
            replicas,
            is_open,
            sum(1 for replica in odd.values() if replica.state is Replica.CORRUPT) if odd else 0,
            () if replicas else self._t.servers.silent(),
            is_serialised,
        )

    def _chunk_length(self, row: int, index: int, is_open: bool, handle: ChunkHandle) -> int:
        size = self._t.space.chunk_bytes(row)
        confirmed = max(0, min(size, self._nodes.length[row] - index * size))
        if is_open:
            return max(confirmed, self._membership.open_lengths.get(handle, 0))
        return confirmed

    def fsck(self, ask: Fsck) -> FsckPage:
        """Return what is known about the replicas of every file below a path, a page at a time."""
        below = FindTree(ask.path, ask.start_after, max(1, ask.limit))
        page = self._listing.find_tree(below, everything=True)
        files = []
        for status in page.entries:
            if status.is_directory:
                continue
            row = self._nodes.row_of(status.file_id)
            assert row is not None
            facts = tuple(self._fact(row, index) for index in range(status.chunk_count))
            files.append(FileFact(status, facts))
        directories = sum(1 for status in page.entries if status.is_directory)
        return FsckPage(tuple(files), directories, page.next)

    def _fact(self, row: int, index: int) -> ChunkFact:
        t = self._t
        handle = self._nodes.chunk_at(row, index)
        is_open = t.chunks.is_unsealed(handle)
        length = self._chunk_length(row, index, is_open, handle)
        version = t.chunks.version(handle)
        replicas = [
            ReplicaFact(t.servers.at(i).id, "good", version, length, t.servers.at(i).rack)
            for i in t.chunks.good(handle)
        ]
        for i, odd in t.chunks.odd(handle).items():
            server = t.servers.at(i)
            fact = ReplicaFact(server.id, odd.state, odd.version, odd.length_bytes, server.rack)
            replicas.append(fact)
        return ChunkFact(
            index,
            handle,
            t.chunks.granted(handle),
            length,
            t.chunks.goal(handle),
            t.chunks.references(handle),
            tuple(replicas),
            is_open,
        )

    def report(self) -> ClusterReport:
        t = self._t
        self._repair.look()
        now_s = t.outbox.now_s
        servers = tuple(
            ServerStatus(
                server.address or ServerAddress(server.id, "", 0, 0),
                server.state(),
                server.disks,
                t.chunks.held_count(server.index),
                max(0.0, now_s - server.heard_at_s),
                server.clones_in,
                self._repair.chunks_to_drain(server) if server.is_draining else 0,
            )
            for server in t.servers.all()
        )
        up = t.servers.up()
        return ClusterReport(
            servers,
            self._membership.safe_mode(),
            self._nodes.file_count,
            self._nodes.directory_count,
            t.chunks.count,
            self._repair.under_replicated,
            len(self._repair.missing),
            len(self._repair.corrupt),
            sum(server.capacity_bytes for server in up),
            sum(server.free_bytes for server in up),
            sum(disk.used_bytes for server in up for disk in server.disks),
            self._repair.clones_active,
            len(t.leases),
            len(t.space.writers),
        )

    def story(self, ask: Story) -> tuple[StoryLine, ...]:
        """Return what happened lately to a file (path) or a chunk (hex handle)."""
        subject = ask.subject
        if not subject.startswith("/"):
            try:
                return self._t.story.of_chunk(int(subject, 16))
            except ValueError:
                raise BadRequest(
                    f"{subject!r} is neither a path nor a chunk handle (hex digits)"
                ) from None
        row = self._changes.existing(split_path(subject))
        handles = list(self._nodes.chunks(row)) if self._nodes.kind[row] == FILE else []
        return self._t.story.of_file(self._nodes.id_of(row), handles)
