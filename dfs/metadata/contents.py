"""What logged changes do to the contents of files: who writes them, their chunks and lengths.

As `namespace`, of which it is a part: `apply` never decides and never fails. Never does any IO.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mrstream.dfs.chunk import fences_of
from mrstream.dfs.metadata import operations as op

if TYPE_CHECKING:
    from mrstream.dfs.metadata.namespace import Namespace


class Contents:
    """The appliers of records about one file's bytes."""

    def __init__(self, space: Namespace) -> None:
        self._space = space
        self._nodes = space.nodes
        self._chunks = space.chunks
        self.appliers: dict[type[Any], Callable[[Any], None]] = {
            op.FileOpened: self._file_opened,
            op.HandlesReserved: self._handles_reserved,
            op.ChunkAdded: self._charged(self._chunk_added),
            op.ChunkGranted: self._charged(self._chunk_granted),
            op.ChunkSealed: self._charged(self._chunk_sealed),
            op.ChunkReplaced: self._charged(self._chunk_replaced),
            op.ChunkDropped: self._charged(self._chunk_dropped),
            op.LengthConfirmed: self._charged(self._length_confirmed),
            op.FileClosed: self._charged(self._file_closed),
        }

    def _charged(self, apply: Callable[[Any], None]) -> Callable[[Any], None]:
        """Keep the sums of quotas up with what a record does to the bytes of one file."""

        def applied(record: Any) -> None:
            quotas = self._space.quotas
            if not quotas.by_row:
                apply(record)
                return
            if isinstance(record, op.ChunkSealed):
                row, _ = self._chunks.owner(record.handle)
            else:
                row = self._space.row_of(record.file_id)
            before = quotas.charge(row)
            apply(record)
            quotas.add(self._nodes.parent[row], 0, quotas.charge(row) - before)

        return applied

    def _file_opened(self, record: op.FileOpened) -> None:
        row = self._space.row_of(record.file_id)
        fences = fences_of(record.fence, record.more_fences)
        self._space.begin_writer(row, record.epoch, record.client, fences=fences)
        self._space.remember(record.request, row, record.epoch)

    def _handles_reserved(self, record: op.HandlesReserved) -> None:
        self._space.handles_reserved = record.below

    def _chunk_added(self, record: op.ChunkAdded) -> None:
        nodes = self._nodes
        row = self._space.row_of(record.file_id)
        size = self._space.chunk_bytes(row)
        count = nodes.chunk_count[row]
        if count:
            last = nodes.chunk_at(row, count - 1)
            if self._chunks.is_unsealed(last):
                # The one writer says that every byte of it is acknowledged.
                self._chunks.seal(last, self._chunks.granted(last), size)
        index = nodes.append_chunk(row, record.handle)
        nodes.length[row] = max(nodes.length[row], index * size)
        self._chunks.add(record.handle, row, index, nodes.replication[row])

    def _chunk_granted(self, record: op.ChunkGranted) -> None:
        row = self._space.row_of(record.file_id)
        self._chunks.grant(record.handle, record.version, row, record.index)

    def _chunk_sealed(self, record: op.ChunkSealed) -> None:
        row, index = self._chunks.owner(record.handle)
        self._chunks.seal(record.handle, record.version, record.length_bytes)
        if index == self._nodes.chunk_count[row] - 1:
            self._nodes.length[row] = index * self._space.chunk_bytes(row) + record.length_bytes

    def _chunk_replaced(self, record: op.ChunkReplaced) -> None:
        nodes = self._nodes
        row = self._space.row_of(record.file_id)
        old = nodes.chunk_at(row, record.index)
        handles = array("Q", nodes.chunks(row))
        handles[record.index] = record.handle
        nodes.set_chunks(row, handles)
        self._chunks.add(record.handle, row, record.index, nodes.replication[row])
        self._chunks.reference(old, -1)

    def _chunk_dropped(self, record: op.ChunkDropped) -> None:
        nodes = self._nodes
        row = self._space.row_of(record.file_id)
        handles = array("Q", nodes.chunks(row))
        assert handles[-1] == record.handle, "only the last chunk can be taken off"
        handles.pop()
        nodes.set_chunks(row, handles)
        nodes.length[row] = len(handles) * self._space.chunk_bytes(row)
        self._chunks.reference(record.handle, -1)

    def _length_confirmed(self, record: op.LengthConfirmed) -> None:
        row = self._space.row_of(record.file_id)
        self._nodes.length[row] = record.length_bytes
        self._space.touch(row, record.at_s)
        self._space.remember(record.request, row)

    def _file_closed(self, record: op.FileClosed) -> None:
        nodes = self._nodes
        row = self._space.row_of(record.file_id)
        nodes.length[row] = record.length_bytes
        self._space.touch(row, record.at_s)
        self._space.end_writer(row)
        count = nodes.chunk_count[row]
        if count:
            last = nodes.chunk_at(row, count - 1)
            if self._chunks.is_unsealed(last) or self._chunks.references(last) == 1:
                tail = record.length_bytes - (count - 1) * self._space.chunk_bytes(row)
                self._chunks.seal(last, self._chunks.granted(last), tail)
        self._space.remember(record.request, row, record.at_s)
