"""Joining files: the first has the chunks of all, and not a byte moves.

N1: every chunk of a file but the last is full; so all sources but the last must fill theirs. Never
does any IO.
"""

from __future__ import annotations

from mrstream.dfs.chunk import ChunkHandle
from mrstream.dfs.errors import BadRequest, FileReplaced, IsADirectory, NotAligned
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.listing import Listing
from mrstream.dfs.metadata.nodes import FILE
from mrstream.dfs.metadata.paths import join_path
from mrstream.dfs.metadata.taking import Takings
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.metadata.writers import Writers
from mrstream.dfs.protocol import JoinFiles

SOURCES_MAX = 10_000


class Joining:
    def __init__(
        self,
        tables: Tables,
        listing: Listing,
        underways: Underways,
        writers: Writers,
        takings: Takings,
    ) -> None:
        self._t = tables
        self._nodes = tables.space.nodes
        self._listing = listing
        self._underways = underways
        self._writers = writers
        self._takings = takings

    def join(self, called: Called, ask: JoinFiles) -> None:
        t = self._t
        done = t.space.requests.get(called.request_id)
        if done is not None:
            t.outbox.reply(called.call, self._listing.closed(done, ask.target))
            return
        rows = self._sources(ask)
        if any(self._must_wait(row, called) for row in rows):
            return
        self._check_aligned(rows)
        at_s = t.outbox.wall_s
        length_bytes = sum(self._nodes.length[row] for row in rows)
        taking = self._takings.decide(rows, ask.target, ask, length_bytes, at_s)
        self._takings.check_attributes(ask.target, ask.attributes)
        self._takings.make_room(rows[0], taking, at_s)
        target = join_path(taking.target)
        t.outbox.emit(
            op.Joined(target, ask.sources, taking.replaces, ask.attributes, at_s, called.request_id)
        )
        t.story.tell(f"joined from {len(rows)} files", file_id=ask.sources[0])
        t.outbox.reply(called.call, self._listing.status(rows[0], target))

    def _sources(self, ask: JoinFiles) -> list[int]:
        if not 0 < len(ask.sources) <= SOURCES_MAX:
            raise BadRequest(f"{len(ask.sources)} files to join; 1 to {SOURCES_MAX} can be")
        if len(set(ask.sources)) < len(ask.sources):
            raise BadRequest("a file cannot be joined with itself")
        rows = []
        for file_id in ask.sources:
            row = self._nodes.row_of(file_id)
            if row is None:
                raise FileReplaced(f"file {file_id:x}, to be joined, is gone", file_id=file_id)
            if self._nodes.kind[row] != FILE:
                raise IsADirectory(f"{self._path(row)}: is a directory, and cannot be joined")
            rows.append(row)
        return rows

    def _must_wait(self, row: int, called: Called) -> bool:
        """Refuse while somebody writes; wait for what is under way to the chunks, which is of this
        file and no other, and until the length of each is certain."""
        if row in self._t.space.writers:
            self._writers.check_not_busy(row, force=False)
            self._writers.take_over(row)
            self._writers.wait_for_close(row, called)
            return True
        creating = self._underways.creating(self._nodes.id_of(row))
        if creating is not None:
            creating.parked.append(called)
            return True
        for handle in map(ChunkHandle, self._nodes.chunks(row)):
            work = self._underways.of(handle)
            if work is not None:
                work.parked.append(called)
                return True
        return self._writers.seal_open_chunks(row, called)

    def _check_aligned(self, rows: list[int]) -> None:
        """Every chunk of the whole but the last has to be full, by the first file's chunk size.
        A file of another size may come along if it has one chunk: that knows of no size."""
        space, nodes = self._t.space, self._nodes
        size = space.chunk_bytes(rows[0])
        full = [row for row in rows if nodes.length[row]]
        for row in full:
            if space.chunk_bytes(row) != size and not (
                len(nodes.chunks(row)) == 1 and nodes.length[row] <= size
            ):
                raise NotAligned(
                    f"{self._path(row)}: has chunks of {space.chunk_bytes(row)} bytes, and "
                    f"{self._path(rows[0])} of {size}"
                )
        for row in full[:-1]:
            if nodes.length[row] % size:
                raise NotAligned(
                    f"{self._path(row)}: has {nodes.length[row]} bytes, which is not a multiple of "
                    f"its chunk size {size}; only the last file may"
                )

    def _path(self, row: int) -> str:
        return join_path(self._nodes.path_of(row))
