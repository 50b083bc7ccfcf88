"""What was deleted, how long it is kept, and how it comes back (GFS §4.4).

As `changes`: looks first, refuses or emits. Never does any IO.
"""

from __future__ import annotations

from mrstream.dfs.errors import FileExists, NotInTrash
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import Changes, Emit
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY
from mrstream.dfs.metadata.paths import TRASH_NAME, UPLOADS_NAME, Parts, join_path, split_path
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.protocol import Expunge, Undelete

EXPUNGE_COUNT_MAX = 1000
"""Entries dropped from the trash in one go; the rest waits for the next tick."""
UNFINISHED_S_MAX = 86_400.0
UPLOADS_S_MAX = 7 * 86_400.0
"""How long something with a hidden name stays that nobody finished, and an upload in parts."""


class Trash:
    """Decides on what was deleted, and on what nobody will finish."""

    def __init__(
        self, namespace: Namespace, changes: Changes, settings: Settings, emit: Emit
    ) -> None:
        self._space = namespace
        self._nodes = namespace.nodes
        self._changes = changes
        self._settings = settings
        self._emit = emit
        self._held_before_s: float | None = None

    def hold(self, before_s: float) -> None:
        """Keep what was deleted before that moment, whatever its age: the wall clock of a host that
        has just started may be days ahead, until it is set."""
        self._held_before_s = before_s

    def release(self) -> None:
        """Trust the clock."""
        self._held_before_s = None

    def undelete(self, ask: Undelete, at_s: float, request: op.RequestId) -> str:
        parts = split_path(ask.path)
        row = self._in_trash(parts)
        hidden = self._space.trash[row]
        target = split_path(hidden.original)
        if self._nodes.lookup(target) is not None:
            raise FileExists(
                f"{hidden.original}: file exists; move it away to undelete what was there before",
                path=hidden.original,
            )
        missing = self._changes.missing_parents(target, make=True)
        nearest = self._changes.nearest(target, missing)
        self._space.quotas.check_tree(row, nearest, more_names=len(missing))
        self._changes.make(missing, ask.user, "", at_s)
        source = join_path(self._nodes.path_of(row))
        self._emit(op.Restored(source, hidden.original, at_s, request))
        return hidden.original

    def _in_trash(self, parts: Parts) -> int:
        if parts[:1] == (TRASH_NAME,):
            row = self._nodes.lookup(parts)
            if row is not None and row in self._space.trash:
                return row
        path = join_path(parts)
        found = [
            (hidden.at_s, row)
            for row, hidden in self._space.trash.items()
            if hidden.original == path
        ]
        if not found:
            raise NotInTrash(f"{path}: nothing to undelete under this path", path=path)
        return max(found)[1]

    def expunge(self, ask: Expunge, at_s: float, request: op.RequestId) -> int:
        below = split_path(ask.path)
        rows = [
            row
            for row, hidden in self._space.trash.items()
            if split_path(hidden.original)[: len(below)] == below
            and (ask.now or hidden.at_s + self.expiry_s(hidden.original) <= at_s)
        ]
        self._drop(rows[:-1], at_s)
        if rows:
            path = join_path(self._nodes.path_of(rows[-1]))
            self._emit(op.Removed(path, at_s, request, len(rows)))
        return len(rows)

    def expire_trash(self, at_s: float) -> None:
        """Drop what has been in the trash for longer than its policy says (GFS §4.4.1)."""
        trash = self._space.trash
        if self._space.policies:
            rows = [r for r, h in trash.items() if h.at_s + self.expiry_s(h.original) <= at_s]
        else:
            # A few hundred thousand deleted files are normal (GFS §6.2): look fast.
            oldest_s = at_s - self._settings.trash_after_s
            rows = [row for row, hidden in trash.items() if hidden.at_s <= oldest_s]
        if self._held_before_s is not None:
            rows = [row for row in rows if trash[row].at_s >= self._held_before_s]
        self._drop(rows[:EXPUNGE_COUNT_MAX], at_s)

    def _drop(self, rows: list[int], at_s: float) -> None:
        for row in rows:
            self._emit(op.Removed(join_path(self._nodes.path_of(row)), at_s))

    def expiry_s(self, original: str) -> float:
        """How long something deleted from this path is kept: the rule of the nearest directory
        that still exists."""
        parts = split_path(original)[:-1]
        while (row := self._nodes.lookup(parts)) is None:
            parts = parts[:-1]
        return self._changes.trash_after_s(row)

    def drop_unfinished(self, at_s: float) -> None:
        """Drop what has a hidden name and was not touched for long: whoever made it is gone. What
        still has a writer is that writer's, or taken over."""
        nodes, rows = self._nodes, []
        for row in nodes.hidden:
            if nodes.name[row] != UPLOADS_NAME or nodes.kind[row] != DIRECTORY:
                if row not in self._space.writers and self._is_older(row, at_s, UNFINISHED_S_MAX):
                    rows.append(row)
                continue
            uploads = nodes.entries[row].values()
            rows += [one for one in uploads if self._is_older(one, at_s, UPLOADS_S_MAX)]
        self._drop(rows[:EXPUNGE_COUNT_MAX], at_s)

    def _is_older(self, row: int, at_s: float, than_s: float) -> bool:
        return self._nodes.modified_at_s[row] < at_s - than_s
