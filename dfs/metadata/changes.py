"""Changes of names and attributes: from a request to log records, or to a refusal.

Each function looks first and refuses with an error that names path and reason; it emits records
only when all of them may be applied, so nothing is ever half done. `emit` applies a record at once
and puts it on the list of what must become durable. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from mrstream.dfs.chunk import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, REPLICATION_MAX, Epoch, FileId
from mrstream.dfs.errors import (
    BadPath,
    BadRequest,
    DirectoryNotEmpty,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
    NotInTrash,
)
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.namespace import NO_RULE, Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY, FILE, ROOT
from mrstream.dfs.metadata.paths import (
    NAME_BYTES_MAX,
    TRASH_NAME,
    TRASH_PATH,
    Parts,
    join_path,
    split_new_path,
    split_path,
)
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.protocol import (
    CreateFile,
    Delete,
    Expunge,
    MakeDirectory,
    Rename,
    SetMode,
    SetOwner,
    SetPolicy,
    SetReplication,
    SetTimes,
    Snapshot,
    Undelete,
)

Emit = Callable[[op.AnyRecord], None]
EXPUNGE_COUNT_MAX = 1000
"""Entries dropped from the trash in one go; the rest waits for the next tick."""


class Changes:
    """Decides on changes of the namespace."""

    def __init__(self, namespace: Namespace, settings: Settings, emit: Emit) -> None:
        self._space = namespace
        self._nodes = namespace.nodes
        self._settings = settings
        self._emit = emit

    # --- looking

    def existing(self, parts: Parts) -> int:
        """Return the row of what has the path, or say precisely what is missing."""
        row = self._nodes.lookup(parts)
        if row is not None:
            return row
        above = ROOT
        for depth, part in enumerate(parts):
            if self._nodes.kind[above] != DIRECTORY:
                raise NotADirectory(f"{join_path(parts[:depth])}: is a file, not a directory")
            below = self._nodes.entries[above].get(part)
            if below is None:
                break
            above = below
        raise NoSuchFile(f"{join_path(parts)}: no such file or directory", path=join_path(parts))

    def existing_file(self, parts: Parts) -> int:
        row = self.existing(parts)
        if self._nodes.kind[row] != FILE:
            raise IsADirectory(f"{join_path(parts)}: is a directory", path=join_path(parts))
        return row

    def _missing_parents(self, parts: Parts, make: bool) -> list[Parts]:
        """Return the directories that must be made above a path, top first."""
        row = ROOT
        for depth, part in enumerate(parts[:-1]):
            below = self._nodes.entries[row].get(part)
            if below is None:
                if not make:
                    above = join_path(parts[: depth + 1])
                    raise NoSuchFile(f"{above}: no such directory", path=above)
                return [parts[: end + 1] for end in range(depth, len(parts) - 1)]
            if self._nodes.kind[below] != DIRECTORY:
                raise NotADirectory(f"{join_path(parts[: depth + 1])}: is a file, not a directory")
            row = below
        return []

    def _make(self, missing: list[Parts], user: str, group: str, at_s: float) -> None:
        for parts in missing:
            self._directory(parts, user, group, 0o755, at_s)

    def _directory(
        self,
        parts: Parts,
        user: str,
        group: str,
        mode: int,
        at_s: float,
        request: op.RequestId = (0, 0),
    ) -> None:
        above = self._nodes.lookup(parts[:-1])
        assert above is not None
        group = group or self._space.principals.strings[self._nodes.group[above]]
        self._emit(
            op.DirectoryMade(
                join_path(parts), self._nodes.next_id(), user, group, mode, at_s, request
            )
        )

    # --- changing

    def make_directory(self, ask: MakeDirectory, at_s: float, request: op.RequestId) -> None:
        parts = split_path(ask.path)
        _check_mode(ask.mode)
        row = self._nodes.lookup(parts)
        if row is not None:
            if self._nodes.kind[row] == DIRECTORY and ask.parents:
                return
            raise FileExists(f"{join_path(parts)}: file exists", path=join_path(parts))
        parts = split_new_path(ask.path)
        missing = self._missing_parents(parts, ask.parents)
        self._make(missing, ask.user, ask.group, at_s)
        self._directory(parts, ask.user, ask.group, ask.mode, at_s, request)

    def create(self, ask: CreateFile, at_s: float, request: op.RequestId) -> FileId:
        """Return the id of the new file; its writer has the epoch in `Namespace.writers`."""
        parts = split_new_path(ask.path)
        _check_mode(ask.mode)
        chunk_bytes = ask.chunk_bytes or self._settings.chunk_bytes
        if not CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX or chunk_bytes % CHUNK_BYTES_MIN:
            raise BadRequest(
                f"chunk size is {chunk_bytes}; it must be a multiple of {CHUNK_BYTES_MIN} "
                f"and at most {CHUNK_BYTES_MAX}"
            )
        if ask.replication:
            _check_replication(ask.replication)
        old = self._nodes.lookup(parts)
        if old is not None:
            if self._nodes.kind[old] == DIRECTORY:
                raise IsADirectory(f"{join_path(parts)}: is a directory", path=join_path(parts))
            if not ask.overwrite:
                raise FileExists(f"{join_path(parts)}: file exists", path=join_path(parts))
        missing = self._missing_parents(parts, ask.parents)
        self._make(missing, ask.user, ask.group, at_s)
        parent = self._nodes.lookup(parts[:-1])
        assert parent is not None
        replication = ask.replication or self.replication_at(parent)
        group = ask.group or self._space.principals.strings[self._nodes.group[parent]]
        path = join_path(parts)
        # The record drops the old file first, whose row is then the next to be used again.
        file_id = self._nodes.next_id() if old is None else self._nodes.id_after(old)
        epoch = self._space.next_epoch
        self._emit(
            op.FileCreated(
                path, file_id, Epoch(epoch), ask.client, ask.user, group, ask.mode,
                replication, chunk_bytes, at_s, request,
            )
        )  # fmt: skip
        return file_id

    def replication_at(self, row: int) -> int:
        rule = self._space.policy_at(row)[0][0]
        return self._settings.replication if rule == NO_RULE else rule

    def rename(self, ask: Rename, at_s: float, request: op.RequestId) -> None:
        record = self.renaming(ask, at_s, request)
        if record is not None:
            self._emit(record)

    def renaming(self, ask: Rename, at_s: float, request: op.RequestId) -> op.Renamed | None:
        """The change that a renaming is, None if it is none."""
        source, target = split_new_path(ask.source), split_new_path(ask.target)
        row = self.existing(source)
        if source == target:
            return None
        self._missing_parents(target, make=False)
        if target[: len(source)] == source:
            raise BadPath(f"{join_path(source)}: cannot be moved into itself ({join_path(target)})")
        old = self._nodes.lookup(target)
        if old is not None:
            self._check_replace(row, old, target, ask.overwrite)
        return op.Renamed(join_path(source), join_path(target), at_s, request)

    def _check_replace(self, row: int, old: int, target: Parts, overwrite: bool) -> None:
        path = join_path(target)
        if not overwrite:
            raise FileExists(f"{path}: file exists", path=path)
        if self._nodes.kind[old] != self._nodes.kind[row]:
            if self._nodes.kind[old] == DIRECTORY:
                raise IsADirectory(f"{path}: is a directory", path=path)
            raise NotADirectory(f"{path}: is a file, not a directory", path=path)
        if self._nodes.kind[old] == DIRECTORY and self._nodes.entries[old]:
            raise DirectoryNotEmpty(f"{path}: directory is not empty", path=path)

    def delete(self, ask: Delete, at_s: float, request: op.RequestId) -> str:
        """Return the hidden path, or "" where it is gone for good."""
        parts = split_path(ask.path)
        if not parts or parts == (TRASH_NAME,):
            raise BadPath(f"{join_path(parts)}: cannot be deleted")
        row = self.existing(parts)
        path = join_path(parts)
        if self._nodes.kind[row] == DIRECTORY and self._nodes.entries[row] and not ask.recursive:
            raise DirectoryNotEmpty(f"{path}: directory is not empty", path=path)
        # Deleting what is deleted already ends it early (GFS §4.4.2).
        final = ask.skip_trash or parts[0] == TRASH_NAME or self.trash_after_s(row) <= 0
        if final:
            self._emit(op.Removed(path, at_s, request))
            return ""
        hidden = self._hidden_path(row, parts[-1], at_s)
        self._emit(op.Trashed(path, hidden, at_s, request))
        return hidden

    def _hidden_path(self, row: int, name: bytes, at_s: float) -> str:
        stamp = datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        prefix = f"{stamp}-{self._nodes.id_of(row):x}-".encode()
        kept = (prefix + name)[:NAME_BYTES_MAX].decode(errors="ignore")
        return f"{TRASH_PATH}/{kept}"

    def trash_after_s(self, row: int) -> float:
        rule = self._space.policy_at(row)[1][0]
        return self._settings.trash_after_s if rule == NO_RULE else rule

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
        missing = self._missing_parents(target, make=True)
        self._make(missing, ask.user, "", at_s)
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

    def expunge(self, ask: Expunge, at_s: float) -> int:
        below = split_path(ask.path)
        rows = [
            row
            for row, hidden in self._space.trash.items()
            if split_path(hidden.original)[: len(below)] == below
            and (ask.now or hidden.at_s + self.expiry_s(hidden.original) <= at_s)
        ]
        self._drop(rows, at_s)
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
        return self.trash_after_s(row)

    def set_replication(self, ask: SetReplication) -> int:
        _check_replication(ask.replication)
        row = self.existing(split_path(ask.path))
        self._emit(op.ReplicationSet(join_path(split_path(ask.path)), ask.replication))
        if self._nodes.kind[row] == FILE:
            return 1
        return sum(1 for node in self._nodes.walk(row) if self._nodes.kind[node] == FILE)

    def set_policy(self, ask: SetPolicy) -> None:
        parts = split_path(ask.path)
        row = self.existing(parts)
        if self._nodes.kind[row] != DIRECTORY:
            raise NotADirectory(f"{join_path(parts)}: rules are for directories")
        if ask.replication > 0:
            _check_replication(ask.replication)
        elif ask.replication not in (-1, NO_RULE):
            raise BadRequest(f"replication is {ask.replication}; it must be 1 or more")
        if ask.trash_after_s < 0 and ask.trash_after_s not in (-1, NO_RULE):
            raise BadRequest(f"trash_after is {ask.trash_after_s}; it must be 0 or more seconds")
        old = self._space.policies.get(row)
        replication = ask.replication
        if replication == -1:
            replication = NO_RULE if old is None else old.replication
        trash_after_s = ask.trash_after_s
        if trash_after_s == -1:
            trash_after_s = NO_RULE if old is None else old.trash_after_s
        self._emit(op.PolicySet(join_path(parts), replication, float(trash_after_s)))

    def set_owner(self, ask: SetOwner) -> None:
        parts = split_path(ask.path)
        self.existing(parts)
        for name in (ask.owner, ask.group):
            if len(name.encode()) > NAME_BYTES_MAX or "\0" in name or ":" in name or "/" in name:
                raise BadRequest(f"{name[:40]!r} cannot be the name of a user or group")
        self._emit(op.OwnerSet(join_path(parts), ask.owner, ask.group, ask.recursive))

    def set_mode(self, ask: SetMode) -> None:
        parts = split_path(ask.path)
        self.existing(parts)
        _check_mode(ask.mode)
        self._emit(op.ModeSet(join_path(parts), ask.mode, ask.recursive))

    def set_times(self, ask: SetTimes) -> None:
        parts = split_path(ask.path)
        self.existing(parts)
        self._emit(op.TimesSet(join_path(parts), ask.modified_at_s, ask.accessed_at_s))

    def check_snapshot(self, ask: Snapshot) -> int:
        """Return the row of the source, or refuse."""
        source, target = split_path(ask.source), split_new_path(ask.target)
        row = self.existing(source)
        self._missing_parents(target, make=False)
        if target[: len(source)] == source:
            raise BadPath(f"{ask.target}: a snapshot of {ask.source} cannot lie inside it")
        if self._nodes.lookup(target) is not None:
            raise FileExists(f"{join_path(target)}: file exists", path=join_path(target))
        return row

    def snapshot(self, ask: Snapshot, at_s: float, request: op.RequestId) -> None:
        source, target = join_path(split_path(ask.source)), join_path(split_path(ask.target))
        self._emit(op.Snapshotted(source, target, at_s, request))


def _check_mode(mode: int) -> None:
    if not 0 <= mode <= 0o1777:
        raise BadRequest(f"mode is {mode:o}; it must be between 0 and 1777 (octal)")


def _check_replication(replication: int) -> None:
    if not 1 <= replication <= REPLICATION_MAX:
        raise BadRequest(f"replication is {replication}; it must be 1 to {REPLICATION_MAX}")
