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
    FileReplaced,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
)
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.attributes import changed_attributes, check_attributes, unpack_attributes
from mrstream.dfs.metadata.entries import NO_RULE
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY, FILE, ROOT
from mrstream.dfs.metadata.paths import (
    HIDDEN_PREFIX,
    NAME_BYTES_MAX,
    TRASH_NAME,
    TRASH_PATH,
    Parts,
    is_hidden,
    join_path,
    split_new_path,
    split_path,
)
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.protocol import (
    ANY_FILE,
    NO_QUOTA,
    QUOTA_STAYS,
    ClearQuota,
    CreateFile,
    Delete,
    GetQuota,
    MakeDirectory,
    QuotaReply,
    Rename,
    SetAttributes,
    SetMode,
    SetOwner,
    SetPolicy,
    SetQuota,
    SetReplication,
    SetTimes,
    Snapshot,
)

Emit = Callable[[op.OneRecord], None]
CHUNK_SIZES_MAX = 200
"""Of files that ever were: a node names its own in one byte."""
PRINCIPALS_MAX = 65_000
"""Owners and groups that ever were: a node names each of its own in two bytes."""
TIME_S_MAX = 253_402_300_799.0
"""The end of the year 9999: what calendars can show."""


class Changes:
    """Decides on changes of the namespace."""

    def __init__(self, namespace: Namespace, settings: Settings, emit: Emit) -> None:
        self._space = namespace
        self._nodes = namespace.nodes
        self._quotas = namespace.quotas
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

    def missing_parents(self, parts: Parts, make: bool) -> list[Parts]:
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

    def nearest(self, parts: Parts, missing: list[Parts]) -> int:
        """The directory above a path that exists, below which those that are missing are made."""
        row = self._nodes.lookup(missing[0][:-1] if missing else parts[:-1])
        assert row is not None
        return row

    def make(
        self, missing: list[Parts], user: str, group: str, at_s: float, *, implicit: bool = False
    ) -> None:
        """Make directories, top first."""
        for parts in missing:
            self._directory(parts, user, group, 0o755, at_s, implicit=implicit)

    def _directory(
        self,
        parts: Parts,
        user: str,
        group: str,
        mode: int,
        at_s: float,
        request: op.RequestId = op.NO_REQUEST,
        *,
        implicit: bool = False,
    ) -> None:
        above = self._nodes.lookup(parts[:-1])
        assert above is not None
        group = group or self._space.principals.strings[self._nodes.group[above]]
        self._emit(
            op.DirectoryMade(
                join_path(parts), self._nodes.next_id(), user, group, mode, at_s, request, implicit
            )
        )

    # --- changing

    def make_directory(self, ask: MakeDirectory, at_s: float, request: op.RequestId) -> None:
        parts = split_path(ask.path)
        _check_mode(ask.mode)
        row = self._nodes.lookup(parts)
        if row is not None:
            if self._nodes.kind[row] == DIRECTORY and ask.parents:
                if row in self._space.implicit and not ask.implicit:
                    self._emit(op.DirectoryKept(self._nodes.id_of(row), request))
                return
            raise FileExists(f"{join_path(parts)}: file exists", path=join_path(parts))
        parts = split_new_path(ask.path)
        self._check_principals(ask.user, ask.group)
        missing = self.missing_parents(parts, ask.parents)
        self._quotas.check([(self.nearest(parts, missing), len(missing) + 1, 0)])
        self.make(missing, ask.user, ask.group, at_s, implicit=ask.implicit)
        self._directory(parts, ask.user, ask.group, ask.mode, at_s, request, implicit=ask.implicit)

    def create(self, ask: CreateFile, at_s: float, request: op.RequestId) -> FileId:
        """Return the id of the new file; its writer has the epoch in `Namespace.writers`."""
        parts = split_new_path(ask.path)
        _check_mode(ask.mode)
        chunk_bytes = self._chunk_bytes(ask)
        if ask.replication:
            _check_replication(ask.replication)
        self._check_principals(ask.user, ask.group)
        old = self._nodes.lookup(parts)
        if old is not None:
            if self._nodes.kind[old] == DIRECTORY:
                raise IsADirectory(f"{join_path(parts)}: is a directory", path=join_path(parts))
            if not ask.overwrite:
                raise FileExists(f"{join_path(parts)}: file exists", path=join_path(parts))
        missing = self.missing_parents(parts, ask.parents)
        nearest = self.nearest(parts, missing)
        if ask.hidden:
            parts, old, missing = self._unfinished(parts, missing), None, []
        changes = [(nearest, len(missing) + 1, 0)]
        if old is not None:
            changes.append((nearest, -1, -self._quotas.charge(old)))
        self._quotas.check(changes)
        self.make(missing, ask.user, ask.group, at_s)
        parent = self._nodes.lookup(parts[:-1])
        assert parent is not None
        replication = ask.replication or self.replication_at(parent)
        group = ask.group or self._space.principals.strings[self._nodes.group[parent]]
        # The record drops the old file first, whose row is then the next to be used again.
        file_id = self._nodes.next_id() if old is None else self._nodes.id_after(old)
        epoch = Epoch(self._space.next_epoch)
        self._emit(
            op.FileCreated(
                join_path(parts), file_id, epoch, ask.client, ask.user, group, ask.mode,
                replication, chunk_bytes, at_s, request, ask.fence, ask.more_fences,
            )
        )  # fmt: skip
        return file_id

    def _chunk_bytes(self, ask: CreateFile) -> int:
        size, known = ask.chunk_bytes or self._settings.chunk_bytes, self._space.chunk_sizes
        if not CHUNK_BYTES_MIN <= size <= CHUNK_BYTES_MAX or size % CHUNK_BYTES_MIN:
            raise BadRequest(
                f"chunk size is {size}; it must be a multiple of {CHUNK_BYTES_MIN} "
                f"and at most {CHUNK_BYTES_MAX}"
            )
        if size not in known and len(known) >= CHUNK_SIZES_MAX and ask.chunk_bytes:
            raise BadRequest(
                f"chunk size is {size}; files have {len(known)} different ones already, the most: "
                f"take one that is in use, such as {known[0]}"
            )
        return size

    def _check_principals(self, *names: str) -> None:
        """Refuse names of users and groups that cannot be, or that are too many."""
        principals = self._space.principals
        for name in names:
            if len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
                raise BadRequest(f"{name[:40]!r} cannot be the name of a user or group")
            if not principals.is_known(name) and len(principals.strings) >= PRINCIPALS_MAX:
                raise BadRequest(
                    f"{name!r}: there were {PRINCIPALS_MAX} users and groups already, the most"
                )

    def _unfinished(self, parts: Parts, missing: list[Parts]) -> Parts:
        """A name that nobody has and no listing shows, in the nearest directory that exists."""
        parent = missing[0][:-1] if missing else parts[:-1]
        name = HIDDEN_PREFIX + f"{self._nodes.next_id():x}".encode()
        while self._nodes.lookup((*parent, name)) is not None:
            name += b"x"
        return (*parent, name)

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
        self.missing_parents(target, make=False)
        if target[: len(source)] == source:
            raise BadPath(f"{join_path(source)}: cannot be moved into itself ({join_path(target)})")
        old = self._nodes.lookup(target)
        if old is not None:
            self._check_replace(row, old, target, ask.overwrite)
        self._quotas.check_move(row, self.nearest(target, []), old)
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
        keep = split_path(ask.prune_to) if ask.prune_to else parts
        if keep != parts[: len(keep)]:
            raise BadPath(f"{ask.prune_to}: is not above {join_path(parts)}")
        if not parts or parts == (TRASH_NAME,):
            raise BadPath(f"{join_path(parts)}: cannot be deleted")
        row = self.existing(parts)
        path = join_path(parts)
        found = self._nodes.id_of(row)
        if ask.file_id not in (ANY_FILE, found):
            raise FileReplaced(
                f"{path}: is file {found:x} by now; file {ask.file_id:x} was to be deleted",
                path=path,
                file_id=found,
            )
        if self._nodes.kind[row] == DIRECTORY and self._nodes.entries[row] and not ask.recursive:
            unseen = all(map(is_hidden, self._nodes.entries[row]))
            if not (unseen and ask.unseen):
                why = "something in it is being written" if unseen else "directory is not empty"
                raise DirectoryNotEmpty(f"{path}: {why}", path=path)
        # Deleting what is deleted already ends it early (GFS §4.4.2).
        final = ask.skip_trash or parts[0] == TRASH_NAME or self.trash_after_s(row) <= 0
        hidden = "" if final else self.hidden_path(row, parts[-1], at_s)
        if final:
            self._emit(op.Removed(path, at_s, request))
        else:
            self._emit(op.Trashed(path, hidden, at_s, request))
        self._prune(parts[:-1], keep, at_s)
        return hidden

    def _prune(self, parts: Parts, keep: Parts, at_s: float) -> None:
        """Drop directories, from here up to but without `keep`, that only their contents held."""
        while len(parts) > len(keep):
            row = self._nodes.lookup(parts)
            assert row is not None
            if not self._space.is_only_passed(row) or self._nodes.entries[row]:
                return
            self._emit(op.Removed(join_path(parts), at_s))
            parts = parts[:-1]

    def hidden_path(self, row: int, name: bytes, at_s: float) -> str:
        """Where something is kept that is deleted now; by its id `dfs/mounts` knows the cell."""
        stamp = datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        prefix = f"{stamp}-{self._nodes.id_of(row):x}-".encode()
        kept = (prefix + name)[:NAME_BYTES_MAX].decode(errors="ignore")
        return f"{TRASH_PATH}/{kept}"

    def trash_after_s(self, row: int) -> float:
        """How long it is kept when it is deleted."""
        rule = self._space.policy_at(row)[1][0]
        return self._settings.trash_after_s if rule == NO_RULE else rule

    def set_replication(self, ask: SetReplication, at_s: float, request: op.RequestId) -> int:
        _check_replication(ask.replication)
        row = self.existing(split_path(ask.path))
        self._quotas.check_replication(row, ask.replication)
        self._emit(op.ReplicationSet(join_path(split_path(ask.path)), ask.replication, request))
        if self._nodes.kind[row] == FILE:
            return 1
        return sum(1 for node in self._nodes.walk(row) if self._nodes.kind[node] == FILE)

    def set_policy(self, ask: SetPolicy, at_s: float, request: op.RequestId) -> None:
        parts = split_path(ask.path)
        row = self._existing_directory(ask.path)
        if ask.replication > 0:
            _check_replication(ask.replication)
        elif ask.replication not in (-1, NO_RULE):
            raise BadRequest(f"replication is {ask.replication}; it must be 1 or more")
        if not ask.trash_after_s >= 0 and ask.trash_after_s not in (-1, NO_RULE):
            raise BadRequest(f"trash_after is {ask.trash_after_s}; it must be 0 or more seconds")
        old = self._space.policies.get(row)
        replication = ask.replication
        if replication == -1:
            replication = NO_RULE if old is None else old.replication
        trash_after_s = ask.trash_after_s
        if trash_after_s == -1:
            trash_after_s = NO_RULE if old is None else old.trash_after_s
        if ask.appends not in (0, 1, -1, NO_RULE):
            raise BadRequest(f"appends is {ask.appends}; it must be 0 (GFS's) or 1 (serialised)")
        appends = ask.appends
        if appends == -1:
            appends = NO_RULE if old is None else old.appends
        self._emit(
            op.PolicySet(join_path(parts), replication, float(trash_after_s), request, appends)
        )

    def set_owner(self, ask: SetOwner, at_s: float, request: op.RequestId) -> None:
        parts = split_path(ask.path)
        self.existing(parts)
        self._check_principals(ask.owner, ask.group)
        for name in (ask.owner, ask.group):
            if ":" in name or "/" in name:
                raise BadRequest(f"{name[:40]!r} cannot be the name of a user or group")
        self._emit(op.OwnerSet(join_path(parts), ask.owner, ask.group, ask.recursive, request))

    def set_mode(self, ask: SetMode, at_s: float, request: op.RequestId) -> None:
        parts = split_path(ask.path)
        self.existing(parts)
        _check_mode(ask.mode)
        self._emit(op.ModeSet(join_path(parts), ask.mode, ask.recursive, request))

    def set_times(self, ask: SetTimes, at_s: float, request: op.RequestId) -> None:
        parts = split_path(ask.path)
        self.existing(parts)
        for time_s in (ask.modified_at_s, ask.accessed_at_s):
            if time_s != -1 and not 0 <= time_s <= TIME_S_MAX:
                raise BadRequest(
                    f"{join_path(parts)}: time {time_s!r} is out of range; it must be seconds "
                    f"since 1970, at most {TIME_S_MAX:.0f} (the year 9999), or -1 to leave it"
                )
        self._emit(op.TimesSet(join_path(parts), ask.modified_at_s, ask.accessed_at_s, request))

    def set_quota(self, ask: SetQuota, at_s: float, request: op.RequestId) -> None:
        row = self._existing_directory(ask.path)
        self._limit(row, *self._quotas.changed(row, ask.names, ask.space_bytes), request)

    def clear_quota(self, ask: ClearQuota, at_s: float, request: op.RequestId) -> None:
        row = self._existing_directory(ask.path)
        names, space_bytes = self._quotas.changed(row, QUOTA_STAYS, QUOTA_STAYS)
        names = NO_QUOTA if ask.names else names
        self._limit(row, names, NO_QUOTA if ask.space else space_bytes, request)

    def _limit(self, row: int, names: int, space_bytes: int, request: op.RequestId) -> None:
        path = join_path(self._nodes.path_of(row))
        self._emit(op.QuotaSet(path, names, space_bytes, request))

    def quota(self, ask: GetQuota) -> QuotaReply:
        return self._quotas.of(self._existing_directory(ask.path))

    def _existing_directory(self, path: str) -> int:
        parts = split_path(path)
        row = self.existing(parts)
        if self._nodes.kind[row] != DIRECTORY:
            raise NotADirectory(f"{join_path(parts)}: rules are for directories")
        return row

    def set_attributes(self, ask: SetAttributes, at_s: float, request: op.RequestId) -> None:
        path = join_path(split_path(ask.path))
        row = self.existing(split_path(path))
        file_id = self._nodes.id_of(row)
        if ask.file_id not in (0, file_id):
            raise FileReplaced(f"{path}: is file {file_id:x} by now, not {ask.file_id:x}")
        packed, changed = self._space.attributes.get(row), ask.changed
        if ask.replace_all:
            changed = {**dict.fromkeys(unpack_attributes(packed)), **changed}
        check_attributes(path, changed_attributes(packed, changed))
        self._emit(op.AttributesSet(file_id, changed, at_s, request))

    def check_snapshot(self, ask: Snapshot) -> int:
        """Return the row of the source, or refuse."""
        source, target = split_path(ask.source), split_new_path(ask.target)
        row = self.existing(source)
        self.missing_parents(target, make=False)
        if target[: len(source)] == source:
            raise BadPath(f"{ask.target}: a snapshot of {ask.source} cannot lie inside it")
        if self._nodes.lookup(target) is not None:
            raise FileExists(f"{join_path(target)}: file exists", path=join_path(target))
        self._quotas.check_tree(row, self.nearest(target, []))
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
