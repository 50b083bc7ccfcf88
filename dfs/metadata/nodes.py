"""The table of files and directories, packed: about 60 bytes a node besides its name.

A node is a row number; its fields are columns. A full path is looked up name by name, each in the
table of its directory: a prefix-compressed form of GFS's map from full path names (§4.1), in which
renaming a tree touches one entry. `FileId` = generation and row, so an id names one node for ever,
though rows are used again. No links: a node has one path. Never does any IO.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator

from mrstream.dfs.chunk import ChunkHandle, FileId
from mrstream.dfs.metadata.paths import AFTER_HIDDEN, is_hidden

ROOT = 0
FREE, FILE, DIRECTORY = 0, 1, 2
SORTED_KEPT_MIN = 256
"""From this many entries on a directory's sorted names are kept once they were asked for."""


class NodeTable:
    """Rows of files and directories, and the names that lead to them."""

    COLUMNS = (
        ("kind", "B"), ("generation", "I"), ("parent", "I"), ("mode", "H"), ("owner", "H"),
        ("group", "H"), ("replication", "B"), ("chunk_kind", "B"), ("modified_at_s", "d"),
        ("created_at_s", "I"), ("length", "Q"), ("first_chunk", "Q"), ("chunk_count", "I"),
    )  # fmt: skip

    def __init__(self, first_id: int = 0) -> None:
        """All ids are from `first_id` on."""
        self._first_generation = first_id >> 32
        self.kind = array("B")
        self.generation = array("I")
        self.parent = array("I")
        self.mode = array("H")
        self.owner = array("H")
        self.group = array("H")
        self.replication = array("B")
        self.chunk_kind = array("B")
        self.modified_at_s = array("d")
        self.created_at_s = array("I")
        self.length = array("Q")
        self.first_chunk = array("Q")
        self.chunk_count = array("I")
        self.name: list[bytes] = []
        self.free: list[int] = []
        """Rows of what is gone, the next to be used last. Their generation is already that of the
        node to come: no id is ever used twice."""
        self.entries: dict[int, dict[bytes, int]] = {}
        """Of every directory and of nothing else: its names, each with its row; `parent` and `name`
        the other way round."""
        self.more_chunks: dict[int, array[int]] = {}
        """The chunks behind the first, of files that have several."""
        self.accessed_at_s: dict[int, float] = {}
        """Where it is not the time of the last change; in no log."""
        self.hidden: dict[int, None] = {}
        """Nodes with the name of something unfinished."""
        self._sorted: dict[int, list[bytes]] = {}
        """The names of large directories in order, once somebody wanted them so; kept in step."""
        self.file_count = 0
        self.directory_count = 0

    # --- ids

    def next_id(self) -> FileId:
        """Return the id that the next `add` will give."""
        if self.free:
            row = self.free[-1]
            return FileId(self.generation[row] << 32 | row)
        return FileId(self._first_generation << 32 | len(self.kind))

    def id_after(self, row: int) -> FileId:
        """Return the id of the node that takes this file's row once the file is removed."""
        return FileId(self.generation[row] + 1 << 32 | row)

    def id_of(self, row: int) -> FileId:
        return FileId(self.generation[row] << 32 | row)

    def row_of(self, file_id: FileId) -> int | None:
        """Return the row of a living node, or None when that node is gone."""
        row = file_id & 0xFFFFFFFF
        if row >= len(self.kind) or self.kind[row] == FREE:
            return None
        return row if self.generation[row] == file_id >> 32 else None

    # --- rows

    def add(self, kind: int, parent: int, name: bytes, at_s: float) -> int:
        """Make a node and enter it in its directory; return its row."""
        if self.free:
            row = self.free.pop()
        else:
            row = len(self.kind)
            for column, _ in self.COLUMNS:
                getattr(self, column).append(0)
            self.generation[row] = self._first_generation
            self.name.append(b"")
        self.kind[row] = kind
        self.modified_at_s[row] = at_s
        self.created_at_s[row] = min(max(int(at_s), 0), 0xFFFFFFFF)
        self.length[row] = self.first_chunk[row] = self.chunk_count[row] = 0
        if kind == DIRECTORY:
            self.entries[row] = {}
            self.directory_count += 1
        else:
            self.file_count += 1
        self._enter(row, parent, name)
        return row

    def remove(self, row: int) -> None:
        """Drop a file or an empty directory, and its name."""
        self._leave(row)
        if self.kind[row] == DIRECTORY:
            assert not self.entries[row], "only an empty directory can be dropped"
            del self.entries[row]
            self._sorted.pop(row, None)
            self.directory_count -= 1
        else:
            self.file_count -= 1
        self.kind[row] = FREE
        self.generation[row] += 1
        self.name[row] = b""
        self.more_chunks.pop(row, None)
        self.accessed_at_s.pop(row, None)
        self.free.append(row)

    def move(self, row: int, parent: int, name: bytes) -> None:
        self._leave(row)
        self._enter(row, parent, name)

    def _enter(self, row: int, parent: int, name: bytes) -> None:
        self.parent[row] = parent
        self.name[row] = name
        if row == parent:
            return  # the root
        self.entries[parent][name] = row
        if is_hidden(name):
            self.hidden[row] = None
        names = self._sorted.get(parent)
        if names is not None:
            insort(names, name)

    def _leave(self, row: int) -> None:
        parent, name = self.parent[row], self.name[row]
        del self.entries[parent][name]
        self.hidden.pop(row, None)
        names = self._sorted.get(parent)
        if names is not None:
            del names[bisect_left(names, name)]

    # --- looking

    def lookup(self, parts: tuple[bytes, ...]) -> int | None:
        """Return the row that has this path, or None."""
        row: int | None = ROOT
        entries = self.entries
        for part in parts:
            names = entries.get(row)  # type: ignore[arg-type]  # a row, until the loop ends
            if names is None:
                return None
            row = names.get(part)
            if row is None:
                return None
        return row

    def path_of(self, row: int) -> tuple[bytes, ...]:
        parts: list[bytes] = []
        while row != ROOT:
            parts.append(self.name[row])
            row = self.parent[row]
        return tuple(reversed(parts))

    def is_within(self, row: int, ancestor: int) -> bool:
        """Is the node the ancestor itself, or somewhere below it?"""
        while row != ancestor:
            if row == ROOT:
                return False
            row = self.parent[row]
        return True

    def names_after(self, row: int, start_after: bytes, limit: int) -> list[bytes]:
        """Return up to `limit` names of a directory, in order, that come after one (b"": from the
        first). Not linear in the size of the directory once its order is known."""
        names = self._sorted.get(row)
        if names is None:
            names = sorted(self.entries[row])
            if len(names) >= SORTED_KEPT_MIN:
                self._sorted[row] = names
        begin = bisect_left(names, start_after + b"\0") if start_after else 0
        return names[begin : begin + limit]

    def visible_after(self, row: int, start_after: bytes, limit: int) -> list[bytes]:
        """As `names_after`, without names of what is unfinished."""
        names = self.names_after(row, start_after, limit)
        if not self.hidden or not any(map(is_hidden, names)):
            return names
        # They all stand together: what comes behind them is looked for there, not one by one.
        before = [name for name in names if name < AFTER_HIDDEN and not is_hidden(name)]
        behind = self.names_after(row, max(start_after, AFTER_HIDDEN), limit - len(before))
        return before + behind

    def walk(self, row: int) -> Iterator[int]:
        """Yield the node and all below it, parents first, in name order."""
        yield row
        stack: list[Iterator[int]] = []
        if self.kind[row] == DIRECTORY:
            stack.append(self._children(row))
        while stack:
            child = next(stack[-1], None)
            if child is None:
                stack.pop()
                continue
            yield child
            if self.kind[child] == DIRECTORY:
                stack.append(self._children(child))

    def _children(self, row: int) -> Iterator[int]:
        entries = self.entries[row]
        return iter([entries[name] for name in sorted(entries)])

    # --- chunks of a file

    def chunks(self, row: int) -> array[int]:
        """Return the handles of a file in order (a copy for files of one chunk)."""
        more = self.more_chunks.get(row)
        if more is not None:
            return more
        return array("Q", [self.first_chunk[row]] if self.chunk_count[row] else [])

    def chunk_at(self, row: int, index: int) -> ChunkHandle:
        assert 0 <= index < self.chunk_count[row]
        if index == 0:
            return ChunkHandle(self.first_chunk[row])
        return ChunkHandle(self.more_chunks[row][index])

    def set_chunks(self, row: int, handles: array[int]) -> None:
        self.chunk_count[row] = len(handles)
        self.first_chunk[row] = handles[0] if handles else 0
        if len(handles) > 1:
            self.more_chunks[row] = handles
        else:
            self.more_chunks.pop(row, None)

    def append_chunk(self, row: int, handle: ChunkHandle) -> int:
        """Put a chunk at the end; return its index."""
        index = self.chunk_count[row]
        self.chunk_count[row] = index + 1
        if index == 0:
            self.first_chunk[row] = handle
        elif index == 1:
            self.more_chunks[row] = array("Q", [self.first_chunk[row], handle])
        else:
            self.more_chunks[row].append(handle)
        return index
