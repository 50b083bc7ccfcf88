"""Looking at the namespace: stat, list, glob, find, du. Changes nothing, does no IO.

Every listing comes in pages, in path order, so that a directory of a million entries never makes
one answer, and a page costs what it holds, not what the directory holds (GFS-56, GFS-57).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

from mrstream.cluster.globs import (
    BadGlob,
    component_regex,
    expand_braces,
    has_wildcard,
    unquoted,
)
from mrstream.dfs.errors import BadPath
from mrstream.dfs.metadata.attributes import unpack_attributes
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.entries import NO_RULE, Done
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY, FILE, ROOT
from mrstream.dfs.metadata.paths import TRASH_NAME, Parts, is_hidden, join_path, split_path
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.metadata.trash import Trash
from mrstream.dfs.protocol import (
    AttributesReply,
    ContentSummary,
    FileStatus,
    FindTree,
    GetAttributes,
    GetPolicy,
    Glob,
    ListDirectory,
    ListTrash,
    Page,
    PolicyReply,
    Stat,
    Summarise,
    TrashEntry,
)

SLICE_NODES = 20_000
SLICE_SUMS = 2000
"""What is added up at a time: some hundredths of a second."""


class NamePattern:
    """A pattern over characters, asked about names in UTF-8."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def fullmatch(self, name: bytes) -> bool:
        return self._pattern.fullmatch(name.decode()) is not None


Step = bytes | NamePattern


class Listing:
    """Answers questions about names."""

    def __init__(
        self, namespace: Namespace, changes: Changes, trash: Trash, settings: Settings
    ) -> None:
        self._space = namespace
        self._nodes = namespace.nodes
        self._changes = changes
        self._trash = trash
        self._settings = settings

    def status(self, row: int, path: str) -> FileStatus:
        """Return what `ls` shows of a node."""
        nodes = self._nodes
        is_directory = nodes.kind[row] == DIRECTORY
        strings = self._space.principals.strings
        modified_at_s = nodes.modified_at_s[row]
        return FileStatus(
            path,
            is_directory,
            nodes.length[row],
            0 if is_directory else nodes.replication[row],
            0 if is_directory else self._space.chunk_bytes(row),
            modified_at_s,
            nodes.accessed_at_s.get(row, modified_at_s) if nodes.accessed_at_s else modified_at_s,
            strings[nodes.owner[row]],
            strings[nodes.group[row]],
            nodes.mode[row],
            nodes.id_of(row),
            nodes.chunk_count[row],
            row in self._space.writers or self.tail_is_open(row),
            float(nodes.created_at_s[row]),
        )

    def closed(self, done: Done, path: str, length_bytes: int = 0) -> FileStatus:
        """What is known of a file that a request, now repeated, closed: all of it while it is
        there."""
        row = self._nodes.row_of(done.file_id)
        if row is not None:
            return self.status(row, join_path(self._nodes.path_of(row)))
        at_s = float(done.answer or 0)
        return FileStatus(path, False, length_bytes, 0, 0, at_s, at_s, "", "", 0, done.file_id, 0)

    def tail_is_open(self, row: int) -> bool:
        """May the last chunk of a file be growing (record appends)?"""
        count = self._nodes.chunk_count[row]
        if not count or not self._space.chunks.unsealed:
            return False
        return self._nodes.chunk_at(row, count - 1) in self._space.chunks.unsealed

    def stat(self, ask: Stat) -> FileStatus:
        parts = split_path(ask.path)
        return self.status(self._changes.existing(parts), join_path(parts))

    def attributes(self, ask: GetAttributes) -> AttributesReply:
        parts = split_path(ask.path)
        row = self._changes.existing(parts)
        return AttributesReply(self.status(row, join_path(parts)), self.values(row))

    def values(self, row: int) -> dict[str, bytes]:
        """The attributes of a file or directory."""
        return unpack_attributes(self._space.attributes.get(row))

    def list_directory(self, ask: ListDirectory) -> Page:
        parts = split_path(ask.path)
        row = self._changes.existing(parts)
        path = join_path(parts)
        if self._nodes.kind[row] == FILE:
            return Page(() if ask.start_after else (self.status(row, path),))
        limit = self._limit(ask.limit)
        names = self._nodes.visible_after(row, _name(ask.start_after), limit + 2)
        if row == ROOT:
            names = [name for name in names if name != TRASH_NAME]
        shown = names[:limit]
        entries = self._nodes.entries[row]
        base = path if path.endswith("/") else path + "/"
        statuses = tuple(self.status(entries[name], base + name.decode()) for name in shown)
        return Page(statuses, shown[-1].decode() if len(names) > limit else "")

    def find_tree(self, ask: FindTree, *, everything: bool = False) -> Page:
        """What lies below a path; `everything`: with what is unfinished."""
        parts = split_path(ask.path)
        row = self._changes.existing(parts)
        after = split_path(ask.start_after) if ask.start_after else None
        limit = self._limit(ask.limit)
        found: list[FileStatus] = []
        depth_max = ask.depth_max or 1 << 30
        for node, at in self._walk_after(row, parts, after, depth_max, everything):
            if len(found) == limit:
                return Page(tuple(found), found[-1].path)
            found.append(self.status(node, join_path(at)))
        return Page(tuple(found))

    def _walk_after(
        self, row: int, parts: Parts, after: Parts | None, depth_max: int, everything: bool
    ) -> Iterator[tuple[int, Parts]]:
        """Yield nodes at and below a path, parents first, that come after `after` in that order;
        finds its way down to `after` without passing over what comes before."""
        if after is None:
            yield row, parts
        if self._nodes.kind[row] != DIRECTORY or depth_max <= 0:
            return
        step = after[len(parts)] if after is not None and len(after) > len(parts) else b""
        entries = self._nodes.entries[row]
        if step and step in entries:
            below = (*parts, step)
            yield from self._walk_after(entries[step], below, after, depth_max - 1, everything)
        start = step
        names_after = self._nodes.names_after if everything else self._nodes.visible_after
        while True:
            names = names_after(row, start, 1000)
            for name in names:
                if row == ROOT and name == TRASH_NAME:
                    continue
                below = (*parts, name)
                yield from self._walk_after(entries[name], below, None, depth_max - 1, everything)
            if len(names) < 1000:
                return
            start = names[-1]

    def glob(self, ask: Glob) -> Page:
        limit = self._limit(ask.limit)
        found: dict[Parts, int] = {}
        for steps in _steps_of(ask.pattern):
            for row, parts in self._match(ROOT, (), steps):
                found[parts] = row
        after = split_path(ask.start_after) if ask.start_after else ()
        paths = sorted(parts for parts in found if not ask.start_after or parts > after)
        page = tuple(self.status(found[parts], join_path(parts)) for parts in paths[:limit])
        return Page(page, page[-1].path if len(paths) > limit else "")

    def _match(
        self, row: int, parts: Parts, pattern: tuple[Step, ...]
    ) -> Iterator[tuple[int, Parts]]:
        if not pattern:
            yield row, parts
            return
        if self._nodes.kind[row] != DIRECTORY:
            return
        first, rest = pattern[0], pattern[1:]
        entries = self._nodes.entries[row]
        if isinstance(first, bytes):
            below = entries.get(first)
            if below is not None:
                yield from self._match(below, (*parts, first), rest)
            return
        for name in sorted(entries):
            if is_hidden(name) or (row == ROOT and name == TRASH_NAME):
                continue
            if first.fullmatch(name):
                yield from self._match(entries[name], (*parts, name), rest)

    def summarise(self, ask: Summarise) -> tuple[ContentSummary, ...]:
        slices = self.summing(ask)
        while True:
            try:
                next(slices)
            except StopIteration as done:
                sums: tuple[ContentSummary, ...] = done.value
                return sums

    def summing(self, ask: Summarise) -> Generator[None, None, tuple[ContentSummary, ...]]:
        """`summarise` a slice at a time: a million files take a second. The sums of a tree that
        changes meanwhile are those of no single moment."""
        parts = split_path(ask.path)
        row = self._changes.existing(parts)
        if not ask.children or self._nodes.kind[row] == FILE:
            return ((yield from self._sum(row, parts)),)
        entries = [e for e in self._nodes.entries[row].items() if row != ROOT or e[0] != TRASH_NAME]
        sums = []
        for number, (name, below) in enumerate(sorted(entries), 1):
            sums.append((yield from self._sum(below, (*parts, name))))
            if number % SLICE_SUMS == 0:
                yield
        return tuple(sums)

    def _sum(self, row: int, parts: Parts) -> Generator[None, None, ContentSummary]:
        nodes = self._nodes
        directories = files = length = stored = 0
        stack = [row]
        looked_at = 0
        while stack:
            node = stack.pop()
            looked_at += 1
            if looked_at % SLICE_NODES == 0:
                yield
            kind = nodes.kind[node]
            if kind == FILE:
                files += 1
                length += nodes.length[node]
                stored += nodes.length[node] * nodes.replication[node]
            elif kind == DIRECTORY:
                directories += 1
                if node == ROOT:
                    stack.extend(r for n, r in nodes.entries[node].items() if n != TRASH_NAME)
                else:
                    stack.extend(nodes.entries[node].values())
        return ContentSummary(join_path(parts), directories, files, length, stored)

    def list_trash(self, ask: ListTrash) -> tuple[TrashEntry, ...]:
        below = split_path(ask.path)
        entries = [
            TrashEntry(
                join_path(self._nodes.path_of(row)),
                hidden.original,
                hidden.at_s,
                hidden.at_s + self._trash.expiry_s(hidden.original),
            )
            for row, hidden in self._space.trash.items()
            if split_path(hidden.original)[: len(below)] == below
        ]
        return tuple(sorted(entries, key=lambda entry: (entry.deleted_at_s, entry.hidden_path)))

    def policy(self, ask: GetPolicy) -> PolicyReply:
        row = self._changes.existing(split_path(ask.path))
        replication, trash = self._space.policy_at(row)
        appends, appends_from = self._space.appends_at(row)
        path_of = self._nodes.path_of
        return PolicyReply(
            self._settings.replication if replication[0] == NO_RULE else replication[0],
            "" if replication[0] == NO_RULE else join_path(path_of(replication[1])),
            self._settings.trash_after_s if trash[0] == NO_RULE else trash[0],
            "" if trash[0] == NO_RULE else join_path(path_of(trash[1])),
            appends == 1,
            "" if appends == NO_RULE else join_path(path_of(appends_from)),
        )

    def _limit(self, asked: int) -> int:
        return max(1, min(asked, self._settings.listing_max))


def _name(start_after: str) -> bytes:
    """Accept the name of an entry or its whole path."""
    return start_after.rpartition("/")[2].encode()


def _steps_of(pattern: str) -> Iterator[tuple[Step, ...]]:
    """Return, for each pattern that braces stand for, one plain name or one compiled pattern for
    each step of the path."""
    try:
        for plain in expand_braces(pattern):
            names = unquoted(plain)
            split_path(names.replace("\0", "\\0") if "\0" in names else names)
            parts = [part for part in plain.split("/") if part and part != "."]
            yield tuple(
                NamePattern(component_regex(part))
                if has_wildcard(part)
                else unquoted(part).encode()
                for part in parts
            )
    except BadGlob as error:
        raise BadPath(f"glob {pattern[:200]!r}: {error}") from None
