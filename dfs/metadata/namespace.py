"""The namespace: what each logged change does to names, files and chunk references (GFS §4.1).

M2: all of this is the fold of `apply` over the log. `apply` never decides and never fails: what may
be done was decided by `changes` before the record was written. One thread, one record at a time:
that is the whole of the paper's locking here (each operation is alone on every path). Never does
any IO.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mrstream.dfs.chunk import NO_EPOCH, ChunkHandle, Epoch, FileId
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.chunk_table import ChunkTable
from mrstream.dfs.metadata.nodes import DIRECTORY, FILE, ROOT, NodeTable
from mrstream.dfs.metadata.paths import TRASH_NAME, split_path

NO_RULE = -2
REQUESTS_REMEMBERED_MAX = 20_000


@dataclass(slots=True)
class Writer:
    """Who may write a file: the one with this epoch. No client: the master is closing it."""

    epoch: Epoch
    client: str
    is_first: bool = False
    """It created the file: nothing in it was there before."""


@dataclass(slots=True)
class Policy:
    """Rules of a directory and what is below it; NO_RULE where it has none."""

    replication: int = NO_RULE
    trash_after_s: float = NO_RULE


@dataclass(slots=True)
class Hidden:
    """Something in the trash."""

    original: str
    at_s: float


@dataclass
class Names:
    """Strings that many nodes share (owners, groups), by number."""

    strings: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, string: str) -> int:
        number = self._numbers.get(string)
        if number is None:
            number = self._numbers[string] = len(self.strings)
            self.strings.append(string)
        return number

    def forget(self) -> None:
        """Begin anew."""
        self.strings.clear()
        self._numbers.clear()


class Namespace:
    """Files, directories, writers, trash and rules."""

    def __init__(self, chunks: ChunkTable) -> None:
        self.chunks = chunks
        self.nodes = NodeTable()
        self.principals = Names()
        self.chunk_sizes: list[int] = []
        self.writers: dict[int, Writer] = {}
        self.epochs: dict[Epoch, int] = {}
        """The row that each epoch in force writes."""
        self.policies: dict[int, Policy] = {}
        self.trash: dict[int, Hidden] = {}
        self.requests: OrderedDict[op.RequestId, FileId] = OrderedDict()
        """Requests carried out lately, and the node that they made or changed."""
        self.next_epoch = 1
        self.handles_reserved = 1
        self.appliers: dict[type[Any], Callable[[Any], None]] = {
            op.DirectoryMade: self._directory_made,
            op.FileCreated: self._file_created,
            op.FileOpened: self._file_opened,
            op.HandlesReserved: self._handles_reserved,
            op.ChunkAdded: self._chunk_added,
            op.ChunkGranted: self._chunk_granted,
            op.ChunkSealed: self._chunk_sealed,
            op.ChunkReplaced: self._chunk_replaced,
            op.ChunkDropped: self._chunk_dropped,
            op.LengthConfirmed: self._length_confirmed,
            op.FileClosed: self._file_closed,
            op.Renamed: self._renamed,
            op.Trashed: self._trashed,
            op.Restored: self._restored,
            op.Removed: self._removed,
            op.ReplicationSet: self._replication_set,
            op.PolicySet: self._policy_set,
            op.OwnerSet: self._owner_set,
            op.ModeSet: self._mode_set,
            op.TimesSet: self._times_set,
            op.Snapshotted: self._snapshotted,
        }
        root = self.nodes.add(DIRECTORY, ROOT, b"", 0.0)
        assert root == ROOT
        self._own(root, "", "", 0o755)

    # --- small things shared by the appliers

    def row(self, path: str) -> int:
        row = self.nodes.lookup(split_path(path))
        assert row is not None, f"the log names {path!r}, which does not exist"
        return row

    def row_of(self, file_id: FileId) -> int:
        row = self.nodes.row_of(file_id)
        assert row is not None, f"the log names file {file_id:x}, which does not exist"
        return row

    def chunk_bytes(self, row: int) -> int:
        return self.chunk_sizes[self.nodes.chunk_kind[row]]

    def _own(self, row: int, owner: str, group: str, mode: int) -> None:
        self.nodes.owner[row] = self.principals.number(owner)
        self.nodes.group[row] = self.principals.number(group)
        self.nodes.mode[row] = mode

    def _touch(self, row: int, at_s: float) -> None:
        self.nodes.modified_at_s[row] = at_s

    def _remember(self, request: op.RequestId, row: int) -> None:
        if request == (0, 0):
            return
        self.requests[request] = self.nodes.id_of(row)
        if len(self.requests) > REQUESTS_REMEMBERED_MAX:
            self.requests.popitem(last=False)

    def _parent_and_name(self, path: str) -> tuple[int, bytes]:
        parts = split_path(path)
        parent = self.nodes.lookup(parts[:-1])
        assert parent is not None, f"the log puts {path!r} under nothing"
        return parent, parts[-1]

    def _drop_tree(self, row: int) -> None:
        """Sever the links of a tree to its chunks and forget it."""
        nodes = self.nodes
        for node in reversed(list(nodes.walk(row))):
            if nodes.kind[node] == FILE:
                for handle in nodes.chunks(node):
                    self.chunks.reference(ChunkHandle(handle), -1)
                self._end_writer(node)
            else:
                self.policies.pop(node, None)
            self.trash.pop(node, None)
            nodes.remove(node)

    # --- names

    def _directory_made(self, record: op.DirectoryMade) -> None:
        parent, name = self._parent_and_name(record.path)
        row = self.nodes.add(DIRECTORY, parent, name, record.at_s)
        assert self.nodes.id_of(row) == record.file_id
        self._own(row, record.owner, record.group, record.mode)
        self._touch(parent, record.at_s)
        self._remember(record.request, row)

    def _file_created(self, record: op.FileCreated) -> None:
        parent, name = self._parent_and_name(record.path)
        old = self.nodes.entries[parent].get(name)
        if old is not None:
            self._drop_tree(old)
        row = self.nodes.add(FILE, parent, name, record.at_s)
        assert self.nodes.id_of(row) == record.file_id
        self._own(row, record.owner, record.group, record.mode)
        self._touch(parent, record.at_s)
        self.nodes.replication[row] = record.replication
        if record.chunk_bytes not in self.chunk_sizes:
            self.chunk_sizes.append(record.chunk_bytes)
        self.nodes.chunk_kind[row] = self.chunk_sizes.index(record.chunk_bytes)
        self.begin_writer(row, record.epoch, record.client, is_first=True)
        self._remember(record.request, row)

    def _renamed(self, record: op.Renamed) -> None:
        row = self.row(record.source)
        target = self.nodes.lookup(split_path(record.target))
        if target is not None:
            self._drop_tree(target)
        parent, name = self._parent_and_name(record.target)
        self._touch(self.nodes.parent[row], record.at_s)
        self.nodes.move(row, parent, name)
        self._touch(parent, record.at_s)
        self._remember(record.request, row)

    def _trashed(self, record: op.Trashed) -> None:
        row = self.row(record.path)
        self._touch(self.nodes.parent[row], record.at_s)
        name = split_path(record.hidden)[-1]
        self.nodes.move(row, self._trash_row(record.at_s), name)
        self.trash[row] = Hidden(record.path, record.at_s)
        self._remember(record.request, row)

    def _trash_row(self, at_s: float) -> int:
        row = self.nodes.entries[ROOT].get(TRASH_NAME)
        if row is None:
            row = self.nodes.add(DIRECTORY, ROOT, TRASH_NAME, at_s)
            self.nodes.owner[row] = self.nodes.owner[ROOT]
            self.nodes.group[row] = self.nodes.group[ROOT]
            self.nodes.mode[row] = 0o755
        return row

    def _restored(self, record: op.Restored) -> None:
        row = self.row(record.hidden)
        parent, name = self._parent_and_name(record.target)
        self.trash.pop(row, None)
        self.nodes.move(row, parent, name)
        self._touch(parent, record.at_s)
        self._remember(record.request, row)

    def _removed(self, record: op.Removed) -> None:
        row = self.row(record.path)
        self._touch(self.nodes.parent[row], record.at_s)
        self._remember(record.request, self.nodes.parent[row])
        self._drop_tree(row)

    def _snapshotted(self, record: op.Snapshotted) -> None:
        """Duplicate the nodes; the chunks stay and count one reference more (GFS §3.4)."""
        nodes = self.nodes
        source = self.row(record.source)
        rows = list(nodes.walk(source))
        parent, name = self._parent_and_name(record.target)
        copies: dict[int, int] = {}
        for row in rows:
            above = parent if row == source else copies[nodes.parent[row]]
            copy = nodes.add(
                nodes.kind[row], above, name if row == source else nodes.name[row], record.at_s
            )
            copies[row] = copy
            for column in ("mode", "owner", "group", "replication", "chunk_kind", "length"):
                values = getattr(nodes, column)
                values[copy] = values[row]
            nodes.modified_at_s[copy] = nodes.modified_at_s[row]
            if nodes.kind[row] == FILE:
                nodes.set_chunks(copy, array("Q", nodes.chunks(row)))
                for handle in nodes.chunks(row):
                    self.chunks.reference(ChunkHandle(handle), +1)
        self._touch(parent, record.at_s)
        self._remember(record.request, copies[source])

    # --- writing

    def _file_opened(self, record: op.FileOpened) -> None:
        row = self.row_of(record.file_id)
        self.begin_writer(row, record.epoch, record.client)
        self._remember(record.request, row)

    def begin_writer(self, row: int, epoch: Epoch, client: str, *, is_first: bool = False) -> None:
        """From now on this epoch, and no other, may write the file."""
        self._end_writer(row)
        self.writers[row] = Writer(epoch, client, is_first)
        self.epochs[epoch] = row
        self.next_epoch = max(self.next_epoch, epoch + 1)

    def _end_writer(self, row: int) -> None:
        writer = self.writers.pop(row, None)
        if writer is not None:
            del self.epochs[writer.epoch]

    def _handles_reserved(self, record: op.HandlesReserved) -> None:
        self.handles_reserved = record.below

    def _chunk_added(self, record: op.ChunkAdded) -> None:
        nodes = self.nodes
        row = self.row_of(record.file_id)
        size = self.chunk_bytes(row)
        count = nodes.chunk_count[row]
        if count:
            last = nodes.chunk_at(row, count - 1)
            if self.chunks.is_unsealed(last):
                # The one writer says that every byte of it is acknowledged.
                self.chunks.seal(last, self.chunks.granted(last), size)
        index = nodes.append_chunk(row, record.handle)
        nodes.length[row] = max(nodes.length[row], index * size)
        self.chunks.add(record.handle, row, index, nodes.replication[row])

    def _chunk_granted(self, record: op.ChunkGranted) -> None:
        row = self.row_of(record.file_id)
        self.chunks.grant(record.handle, record.version, row, record.index)

    def _chunk_sealed(self, record: op.ChunkSealed) -> None:
        row, index = self.chunks.owner(record.handle)
        self.chunks.seal(record.handle, record.version, record.length_bytes)
        if index == self.nodes.chunk_count[row] - 1:
            self.nodes.length[row] = index * self.chunk_bytes(row) + record.length_bytes

    def _chunk_replaced(self, record: op.ChunkReplaced) -> None:
        nodes = self.nodes
        row = self.row_of(record.file_id)
        old = nodes.chunk_at(row, record.index)
        handles = array("Q", nodes.chunks(row))
        handles[record.index] = record.handle
        nodes.set_chunks(row, handles)
        self.chunks.add(record.handle, row, record.index, nodes.replication[row])
        self.chunks.reference(old, -1)

    def _chunk_dropped(self, record: op.ChunkDropped) -> None:
        nodes = self.nodes
        row = self.row_of(record.file_id)
        handles = array("Q", nodes.chunks(row))
        assert handles[-1] == record.handle, "only the last chunk can be taken off"
        handles.pop()
        nodes.set_chunks(row, handles)
        nodes.length[row] = len(handles) * self.chunk_bytes(row)
        self.chunks.reference(record.handle, -1)

    def _length_confirmed(self, record: op.LengthConfirmed) -> None:
        row = self.row_of(record.file_id)
        self.nodes.length[row] = record.length_bytes
        self._touch(row, record.at_s)

    def _file_closed(self, record: op.FileClosed) -> None:
        nodes = self.nodes
        row = self.row_of(record.file_id)
        nodes.length[row] = record.length_bytes
        self._touch(row, record.at_s)
        self._end_writer(row)
        count = nodes.chunk_count[row]
        if count:
            last = nodes.chunk_at(row, count - 1)
            if self.chunks.is_unsealed(last) or self.chunks.references(last) == 1:
                tail = record.length_bytes - (count - 1) * self.chunk_bytes(row)
                self.chunks.seal(last, self.chunks.granted(last), tail)

    # --- attributes

    def _replication_set(self, record: op.ReplicationSet) -> None:
        nodes = self.nodes
        for row in nodes.walk(self.row(record.path)):
            if nodes.kind[row] == FILE:
                nodes.replication[row] = record.replication
                for handle in nodes.chunks(row):
                    self.chunks.set_goal(ChunkHandle(handle), record.replication)

    def _policy_set(self, record: op.PolicySet) -> None:
        row = self.row(record.path)
        if record.replication == NO_RULE and record.trash_after_s == NO_RULE:
            self.policies.pop(row, None)
        else:
            self.policies[row] = Policy(record.replication, record.trash_after_s)

    def _owner_set(self, record: op.OwnerSet) -> None:
        nodes, start = self.nodes, self.row(record.path)
        for row in nodes.walk(start) if record.recursive else (start,):
            if record.owner:
                nodes.owner[row] = self.principals.number(record.owner)
            if record.group:
                nodes.group[row] = self.principals.number(record.group)

    def _mode_set(self, record: op.ModeSet) -> None:
        nodes, start = self.nodes, self.row(record.path)
        for row in nodes.walk(start) if record.recursive else (start,):
            nodes.mode[row] = record.mode

    def _times_set(self, record: op.TimesSet) -> None:
        row = self.row(record.path)
        if record.modified_at_s >= 0:
            self._touch(row, record.modified_at_s)
        if record.accessed_at_s >= 0:
            self.nodes.accessed_at_s[row] = record.accessed_at_s

    # --- rules, by looking upwards

    def policy_at(self, row: int) -> tuple[tuple[int, int], tuple[float, int]]:
        """Return (replication, from which row) and (trash_after_s, from which row); NO_RULE and
        ROOT where the cluster's default holds."""
        replication: tuple[int, int] = (NO_RULE, ROOT)
        trash: tuple[float, int] = (NO_RULE, ROOT)
        if not self.policies:
            return replication, trash
        while True:
            policy = self.policies.get(row)
            if policy is not None:
                if replication[0] == NO_RULE and policy.replication != NO_RULE:
                    replication = (policy.replication, row)
                if trash[0] == NO_RULE and policy.trash_after_s != NO_RULE:
                    trash = (policy.trash_after_s, row)
            if row == ROOT:
                return replication, trash
            row = self.nodes.parent[row]

    def writer_epoch(self, row: int) -> Epoch:
        writer = self.writers.get(row)
        return NO_EPOCH if writer is None else writer.epoch

    def check_invariants(self) -> None:
        """Names lead to nodes and back; references are what the files say."""
        nodes = self.nodes
        references: dict[int, int] = {}
        seen = 0
        for row in nodes.walk(ROOT):
            seen += 1
            assert nodes.lookup(nodes.path_of(row)) == row
            if nodes.kind[row] == FILE:
                for handle in nodes.chunks(row):
                    references[handle] = references.get(handle, 0) + 1
        assert seen == nodes.file_count + nodes.directory_count
        assert len(references) == self.chunks.count, "a chunk without a file, or the reverse"
        for handle, count in references.items():
            assert self.chunks.references(ChunkHandle(handle)) == count
