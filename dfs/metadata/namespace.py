"""The namespace: what each logged change does to names, files and chunk references (GFS §4.1).

M2: all of this is the fold of `apply` over the log. `apply` never decides and never fails: what may
be done was decided by `changes` before the record was written. One thread, one record at a time:
that is the whole of the paper's locking here (each operation is alone on every path). Never does
any IO.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from mrstream.dfs.chunk import (
    NO_EPOCH,
    NO_FENCE,
    ROOT_CELL,
    ChunkHandle,
    Epoch,
    Fence,
    FileId,
    first_of_cell,
)
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.attributes import changed_attributes, pack_attributes
from mrstream.dfs.metadata.chunk_table import ChunkTable
from mrstream.dfs.metadata.contents import Contents
from mrstream.dfs.metadata.entries import NO_RULE, Answer, Hidden, Names, Policy, Requests, Writer
from mrstream.dfs.metadata.nodes import DIRECTORY, FILE, FREE, ROOT, NodeTable
from mrstream.dfs.metadata.paths import TRASH_NAME, split_path
from mrstream.dfs.metadata.quotas import Quotas


class Namespace:
    """Files, directories, writers, trash and rules."""

    def __init__(self, chunks: ChunkTable, cell: int = ROOT_CELL) -> None:
        self.chunks = chunks
        self.nodes = NodeTable(first_of_cell(cell))
        self.principals = Names()
        self.chunk_sizes: list[int] = []
        """All that occur, in the order in which they came: a node names its own by its place here,
        so none goes."""
        self.writers: dict[int, Writer] = {}
        """Who may write each file that is open, one at a time."""
        self.epochs: dict[Epoch, int] = {}
        """The row that each epoch in force writes."""
        self.policies: dict[int, Policy] = {}
        """Rules of the directories that have any of their own."""
        self.trash: dict[int, Hidden] = {}
        """What can be brought back: where it was, and when it was deleted."""
        self.attributes: dict[int, bytes] = {}
        """Of the nodes that have any, packed."""
        self.implicit: dict[int, None] = {}
        """Directories that go with the last thing in them."""
        self.quotas = Quotas(self)
        self.requests = Requests()
        self.next_epoch = 1
        """Above every epoch that was ever logged."""
        self.handles_reserved = first_of_cell(cell) + 1
        self.appliers: dict[type[Any], Callable[[Any], None]] = {
            **Contents(self).appliers,
            op.DirectoryMade: self._directory_made,
            op.FileCreated: self._file_created,
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
            op.DirectoryKept: self._directory_kept,
            op.AttributesSet: self._attributes_set,
            op.Joined: self._joined,
            op.QuotaSet: self._quota_set,
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

    def touch(self, row: int, at_s: float) -> None:
        self.nodes.modified_at_s[row] = at_s

    def remember(self, request: op.RequestId, row: int, answer: Answer = None) -> None:
        """The request that made or changed this node was answered so."""
        if request != op.NO_REQUEST:
            self.requests.remember(request, self.nodes.id_of(row), answer)

    def _parent_and_name(self, path: str) -> tuple[int, bytes]:
        parts = split_path(path)
        parent = self.nodes.lookup(parts[:-1])
        assert parent is not None, f"the log puts {path!r} under nothing"
        return parent, parts[-1]

    def _drop_tree(self, row: int) -> None:
        """Sever the links of a tree to its chunks and forget it."""
        nodes = self.nodes
        self.quotas.dropping(row)
        for node in reversed(list(nodes.walk(row))):
            if nodes.kind[node] == FILE:
                for handle in nodes.chunks(node):
                    self.chunks.reference(ChunkHandle(handle), -1)
                self.end_writer(node)
            else:
                self.policies.pop(node, None)
                self.implicit.pop(node, None)
                self.quotas.by_row.pop(node, None)
            self.attributes.pop(node, None)
            self.trash.pop(node, None)
            nodes.remove(node)

    # --- names

    def _directory_made(self, record: op.DirectoryMade) -> None:
        parent, name = self._parent_and_name(record.path)
        row = self.nodes.add(DIRECTORY, parent, name, record.at_s)
        assert self.nodes.id_of(row) == record.file_id
        self._own(row, record.owner, record.group, record.mode)
        if record.implicit:
            self.implicit[row] = None
        self.quotas.add(parent, 1, 0)
        self.touch(parent, record.at_s)
        self.remember(record.request, row)

    def _directory_kept(self, record: op.DirectoryKept) -> None:
        row = self.row_of(record.file_id)
        self.implicit.pop(row, None)
        self.remember(record.request, row)

    def _file_created(self, record: op.FileCreated) -> None:
        parent, name = self._parent_and_name(record.path)
        old = self.nodes.entries[parent].get(name)
        if old is not None:
            self._drop_tree(old)
        row = self.nodes.add(FILE, parent, name, record.at_s)
        assert self.nodes.id_of(row) == record.file_id
        self._own(row, record.owner, record.group, record.mode)
        self.touch(parent, record.at_s)
        self.nodes.replication[row] = record.replication
        if record.chunk_bytes not in self.chunk_sizes:
            self.chunk_sizes.append(record.chunk_bytes)
        self.nodes.chunk_kind[row] = self.chunk_sizes.index(record.chunk_bytes)
        self.quotas.add(parent, 1, 0)
        self.begin_writer(row, record.epoch, record.client, is_first=True, fence=record.fence)
        self.remember(record.request, row, record.epoch)

    def _renamed(self, record: op.Renamed) -> None:
        row = self.row(record.source)
        self._take(row, record.target, record.at_s)
        self.remember(record.request, row)

    def _take(self, row: int, target: str, at_s: float) -> None:
        """Give a node a path; what had it is gone."""
        old = self.nodes.lookup(split_path(target))
        if old is not None and old != row:
            self._drop_tree(old)
        parent, name = self._parent_and_name(target)
        self.touch(self.nodes.parent[row], at_s)
        self._move(row, parent, name)
        self.touch(parent, at_s)

    def _move(self, row: int, parent: int, name: bytes) -> None:
        self.quotas.moving(row, parent)
        self.nodes.move(row, parent, name)

    def _trashed(self, record: op.Trashed) -> None:
        row = self.row(record.path)
        self.touch(self.nodes.parent[row], record.at_s)
        name = split_path(record.hidden)[-1]
        self._move(row, self._trash_row(record.at_s), name)
        self.trash[row] = Hidden(record.path, record.at_s)
        self.remember(record.request, row, record.hidden)

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
        self._move(row, parent, name)
        self.touch(parent, record.at_s)
        self.remember(record.request, row, record.target)

    def _removed(self, record: op.Removed) -> None:
        row = self.row(record.path)
        self.touch(self.nodes.parent[row], record.at_s)
        answer: Answer = record.count or ""
        self.remember(record.request, self.nodes.parent[row], answer)
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
            if row in self.attributes:
                self.attributes[copy] = self.attributes[row]
            if row in self.implicit:
                self.implicit[copy] = None
            if nodes.kind[row] == FILE:
                nodes.set_chunks(copy, array("Q", nodes.chunks(row)))
                for handle in nodes.chunks(row):
                    self.chunks.reference(ChunkHandle(handle), +1)
        if self.quotas.by_row:
            self.quotas.add(parent, *self.quotas.sums(copies[source]))
        self.touch(parent, record.at_s)
        self.remember(record.request, copies[source])

    def _joined(self, record: op.Joined) -> None:
        """The first has all chunks, whose references stay; the others go without theirs."""
        nodes = self.nodes
        rows = [self.row_of(file_id) for file_id in record.sources]
        first, length = rows[0], sum(nodes.length[row] for row in rows)
        handles = array("Q")
        for row in rows:
            handles += nodes.chunks(row)
        for row in rows[1:]:
            nodes.set_chunks(row, array("Q"))
            self.touch(nodes.parent[row], record.at_s)
            self._drop_tree(row)
        before = self.quotas.charge(first)
        nodes.set_chunks(first, handles)
        nodes.length[first] = length
        self.quotas.add(nodes.parent[first], 0, self.quotas.charge(first) - before)
        for index, handle in enumerate(handles):
            self.chunks.belongs(ChunkHandle(handle), first, index, nodes.replication[first])
        self._take(first, record.target, record.at_s)
        self.touch(first, record.at_s)
        self._set_attributes(first, pack_attributes(record.attributes))
        self.remember(record.request, first, record.at_s)

    # --- writers

    def begin_writer(
        self,
        row: int,
        epoch: Epoch,
        client: str,
        *,
        is_first: bool = False,
        fence: Fence = NO_FENCE,
    ) -> None:
        """From now on this epoch, and no other, may write the file."""
        self.end_writer(row)
        self.writers[row] = Writer(epoch, client, is_first, fence)
        self.epochs[epoch] = row
        self.next_epoch = max(self.next_epoch, epoch + 1)

    def end_writer(self, row: int) -> None:
        writer = self.writers.pop(row, None)
        if writer is not None:
            del self.epochs[writer.epoch]

    # --- attributes

    def _attributes_set(self, record: op.AttributesSet) -> None:
        row = self.row_of(record.file_id)
        self._set_attributes(row, changed_attributes(self.attributes.get(row), record.changed))
        self.remember(record.request, row)

    def is_only_passed(self, row: int) -> bool:
        """Is it a directory that nobody asked for and of which nothing is told? It is there for
        what lies in it."""
        return row in self.implicit and row not in self.attributes

    def _set_attributes(self, row: int, packed: bytes) -> None:
        if packed:
            self.attributes[row] = packed
        else:
            self.attributes.pop(row, None)

    def _replication_set(self, record: op.ReplicationSet) -> None:
        nodes, quotas = self.nodes, self.quotas
        start, count = self.row(record.path), 0
        for row in nodes.walk(start):
            if nodes.kind[row] == FILE:
                count += 1
                before = quotas.charge(row) if quotas.by_row else 0
                nodes.replication[row] = record.replication
                if quotas.by_row:
                    quotas.add(nodes.parent[row], 0, quotas.charge(row) - before)
                for handle in nodes.chunks(row):
                    self.chunks.set_goal(ChunkHandle(handle), record.replication)
        self.remember(record.request, start, count)

    def _quota_set(self, record: op.QuotaSet) -> None:
        row = self.row(record.path)
        self.quotas.set(row, record.names, record.space_bytes)
        self.implicit.pop(row, None)
        self.remember(record.request, row)

    def _policy_set(self, record: op.PolicySet) -> None:
        row = self.row(record.path)
        policy = Policy(record.replication, record.trash_after_s, record.appends)
        if policy == Policy():
            self.policies.pop(row, None)
        else:
            self.policies[row] = policy
            self.implicit.pop(row, None)
        self.remember(record.request, row)

    def _owner_set(self, record: op.OwnerSet) -> None:
        nodes, start = self.nodes, self.row(record.path)
        for row in nodes.walk(start) if record.recursive else (start,):
            if record.owner:
                nodes.owner[row] = self.principals.number(record.owner)
            if record.group:
                nodes.group[row] = self.principals.number(record.group)
        self.remember(record.request, start)

    def _mode_set(self, record: op.ModeSet) -> None:
        nodes, start = self.nodes, self.row(record.path)
        for row in nodes.walk(start) if record.recursive else (start,):
            nodes.mode[row] = record.mode
        self.remember(record.request, start)

    def _times_set(self, record: op.TimesSet) -> None:
        row = self.row(record.path)
        if record.modified_at_s >= 0:
            self.touch(row, record.modified_at_s)
        if record.accessed_at_s >= 0:
            self.nodes.accessed_at_s[row] = record.accessed_at_s
        self.remember(record.request, row)

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

    def appends_at(self, row: int) -> tuple[int, int]:
        """Return the rule for record appends and from which row it is; NO_RULE where none is."""
        while self.policies:
            policy = self.policies.get(row)
            if policy is not None and policy.appends != NO_RULE:
                return policy.appends, row
            if row == ROOT:
                break
            row = self.nodes.parent[row]
        return NO_RULE, ROOT

    def is_serialised(self, row: int) -> bool:
        """Is this file shared by appenders whose appends are serialised? One that has an exclusive
        writer is not: that one says what goes where."""
        return self.appends_at(row)[0] == 1 and row not in self.writers

    def writer_epoch(self, row: int) -> Epoch:
        writer = self.writers.get(row)
        return NO_EPOCH if writer is None else writer.epoch

    def check_invariants(self) -> None:
        """Names lead to nodes and back; references are what the files say; N1: every chunk of a
        file but the last is full; no sparse table has a row of what is gone."""
        nodes = self.nodes
        references: dict[int, int] = {}
        seen = 0
        for row in nodes.walk(ROOT):
            seen += 1
            assert nodes.lookup(nodes.path_of(row)) == row
            if nodes.kind[row] == FILE:
                for handle in nodes.chunks(row):
                    references[handle] = references.get(handle, 0) + 1
                self.check_full(row)
        assert seen == nodes.file_count + nodes.directory_count
        assert len(references) == self.chunks.count, "a chunk without a file, or the reverse"
        for handle, count in references.items():
            assert self.chunks.references(ChunkHandle(handle)) == count
        assert all(handle < self.handles_reserved for handle in references), "not reserved"
        assert self.epochs == {writer.epoch: row for row, writer in self.writers.items()}
        assert all(epoch < self.next_epoch for epoch in self.epochs), self.next_epoch
        assert all(nodes.kind[row] == FREE for row in nodes.free)
        assert len(nodes.kind) == seen + len(nodes.free), "a row that is neither used nor free"
        for row in self.policies:
            assert nodes.kind[row] == DIRECTORY, f"rules of row {row}, which is no directory"
        for row in self.trash:
            assert nodes.kind[row] != FREE, f"row {row} is in the trash, and free"
        for row in self.attributes:
            assert nodes.kind[row] != FREE, f"attributes of row {row}, which is free"
        for row in self.implicit:
            assert nodes.kind[row] == DIRECTORY, f"row {row} is no directory, and implicit"
        self.quotas.check_invariants()

    def check_full(self, row: int) -> None:
        """N1 for one file."""
        handles, size = self.nodes.chunks(row), self.chunk_bytes(row)
        for handle in map(ChunkHandle, handles[:-1]):
            length = self.chunks.length(handle)
            assert self.chunks.is_unsealed(handle) or length == size, (
                f"N1: chunk {handle:016x} has {length} of {size} bytes, and is not the last"
            )
