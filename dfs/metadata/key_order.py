"""Names in the order of keys: as an object store lists them (a directory is `name/`).

In byte order of names `a` comes before `a-b`; in that of keys `a-b` comes before `a/…`. So a
directory waits until all names are past that begin with its own and go on below `/`. A page costs
what it holds, wherever it begins. Changes nothing, does no IO.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from mrstream.dfs.errors import BadPath, NotADirectory
from mrstream.dfs.metadata.attributes import unpack_attributes
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY, FILE, ROOT
from mrstream.dfs.metadata.paths import TRASH_NAME, is_hidden, join_path, split_path
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.protocol import FindKeys, KeyEntry, KeyPage

NAMES_AT_ONCE = 1000
LOOKED_AT_MAX = 20_000
"""Nodes that one page looks at: there may be a million directories and not a key in them."""

Found = tuple[bytes, int, bool]
"""Key, row, and whether it is one (not a prefix, nor a directory that is only passed)."""


class KeyOrder:
    def __init__(self, space: Namespace, changes: Changes, settings: Settings) -> None:
        self._space = space
        self._nodes = space.nodes
        self._changes = changes
        self._settings = settings

    def find(self, ask: FindKeys) -> KeyPage:
        parts = split_path(ask.root)
        root = self._changes.existing(parts)
        if self._nodes.kind[root] != DIRECTORY:
            raise NotADirectory(f"{join_path(parts)}: is a file; keys are below a directory")
        limit = max(1, min(ask.limit, self._settings.listing_max))
        entries: list[KeyEntry] = []
        last = b""
        for looked_at, (key, row, is_key) in enumerate(self._from(root, ask)):
            if len(entries) == limit or looked_at == LOOKED_AT_MAX:
                return KeyPage(tuple(entries), last.decode())
            last = key
            if is_key or ask.by_directory:
                entries.append(self._entry(key, row, is_key, ask.attributes))
        return KeyPage(tuple(entries))

    def _entry(self, key: bytes, row: int, is_key: bool, names: tuple[str, ...]) -> KeyEntry:
        nodes = self._nodes
        owner = self._space.principals.strings[nodes.owner[row]]
        told = {}
        if names and row in self._space.attributes:
            values = unpack_attributes(self._space.attributes[row])
            told = {name: values[name] for name in names if name in values}
        is_directory = nodes.kind[row] == DIRECTORY
        length = 0 if is_directory else nodes.length[row]
        return KeyEntry(
            key.decode(), nodes.id_of(row), length, nodes.modified_at_s[row], owner,
            not is_key, told,
        )  # fmt: skip

    def _from(self, root: int, ask: FindKeys) -> Iterator[Found]:
        """What lies behind `after` and begins with the prefix."""
        prefix, after = _key(ask.prefix), _key(ask.after)
        base, slash, begins = prefix.rpartition(b"/")
        base += slash
        row: int | None = root
        for part in base.split(b"/")[:-1]:
            row = None if row is None else self._nodes.entries.get(row, {}).get(part)
        if row is None or self._nodes.kind[row] != DIRECTORY:
            return
        if after.startswith(base):
            yield from self._below(row, base, after[len(base) :], ask.by_directory, begins)
        elif after < base:
            if base and not begins and row in self._space.attributes:
                yield base, row, True
            yield from self._below(row, base, b"", ask.by_directory, begins)

    def _below(
        self, row: int, base: bytes, after: bytes, by_directory: bool, begins: bytes = b""
    ) -> Iterator[Found]:
        """What is in a directory with names that begin so and keys, without `base`, that come after
        `after`; and what is below, unless `by_directory`."""
        nodes, entries = self._nodes, self._nodes.entries[row]
        name, slash, _ = after.partition(b"/")
        waiting = self._reaching_behind(row, name, begins)
        # With a slash the names that go on below it are behind us, and the others are not.
        start = max(name + slash, _just_before(begins))
        while True:
            names = nodes.visible_after(row, start, NAMES_AT_ONCE)
            for name in names:
                while waiting and waiting[0] < name:
                    next_one = heapq.heappop(waiting)
                    yield from self._directory(row, base, next_one, after, by_directory)
                if not name.startswith(begins):
                    break
                if nodes.kind[entries[name]] == FILE:
                    yield base + name, entries[name], True
                elif row != ROOT or name != TRASH_NAME:
                    heapq.heappush(waiting, name + b"/")
            if len(names) < NAMES_AT_ONCE or not names[-1].startswith(begins):
                break
            start = names[-1]
        while waiting:
            yield from self._directory(row, base, heapq.heappop(waiting), after, by_directory)

    def _reaching_behind(self, row: int, name: bytes, begins: bytes) -> list[bytes]:
        """The directories at or before a name whose keys may come after it: the name begins with
        theirs."""
        nodes, entries = self._nodes, self._nodes.entries[row]
        found = []
        for end in range(max(1, len(begins)), len(name) + 1):
            below = entries.get(name[:end])
            if below is None or nodes.kind[below] != DIRECTORY or not name.startswith(begins):
                continue
            if not is_hidden(name[:end]) and (row != ROOT or name[:end] != TRASH_NAME):
                found.append(name[:end] + b"/")
        heapq.heapify(found)
        return found

    def _directory(
        self, row: int, base: bytes, name: bytes, after: bytes, by_directory: bool
    ) -> Iterator[Found]:
        """One directory, whose name ends with a slash here."""
        below = self._nodes.entries[row][name[:-1]]
        if by_directory:
            if name > after and (not self._space.is_only_passed(below) or self._has_any(below)):
                yield base + name, below, False
        elif after.startswith(name):
            yield from self._below(below, base + name, after[len(name) :], False)
        elif name > after:
            yield base + name, below, below in self._space.attributes
            yield from self._below(below, base + name, b"", False)

    def _has_any(self, row: int) -> bool:
        """Is there anything below that is not a directory which only its contents hold?"""
        stack = [row]
        for _ in range(LOOKED_AT_MAX):
            if not stack:
                return False
            node = stack.pop()
            for name, below in self._nodes.entries[node].items():
                if is_hidden(name):
                    continue
                if not self._space.is_only_passed(below):
                    return True
                stack.append(below)
        return True


def _just_before(name: bytes) -> bytes:
    """What no name lies between and this one: names are UTF-8."""
    return name[:-1] + bytes([name[-1] - 1, 0xFF]) if name and name[-1] else b""


def _key(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadPath(f"key {text[:80]!r} is not valid Unicode: {error.reason}") from None
