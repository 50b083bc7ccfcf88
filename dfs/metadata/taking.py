"""How a finished file gets its path: under conditions, and in one decision with its end.

Used where a file is closed and where files are joined. Looks first and refuses, or emits all of it.
Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mrstream.dfs.chunk import FileId
from mrstream.dfs.errors import BadRequest, FileExists, FileReplaced, IsADirectory, NoSuchFile
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.attributes import check_attributes, pack_attributes
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import DIRECTORY
from mrstream.dfs.metadata.paths import Parts, join_path, split_new_path
from mrstream.dfs.protocol import ANY_FILE, NO_FILE, CloseFile, JoinFiles


@dataclass(frozen=True, slots=True)
class Taking:
    """What has to be done so that a file can have its path."""

    target: Parts
    missing: list[Parts]
    """Directories to be made, top first."""
    replaces: FileId
    """What has the path now, and is no longer there afterwards."""
    hidden: str
    """Where that is kept in the trash; empty: it is gone for good."""


class Takings:
    """Decides whether a file may have a path."""

    def __init__(
        self, space: Namespace, changes: Changes, emit: Callable[[op.OneRecord], None]
    ) -> None:
        self._space = space
        self._nodes = space.nodes
        self._changes = changes
        self._emit = emit

    def decide(
        self,
        rows: Sequence[int],
        path: str,
        ask: CloseFile | JoinFiles,
        length_bytes: int,
        at_s: float,
    ) -> Taking:
        """Return what giving the first of these files, which has then become so long, this path
        takes; or refuse."""
        row = rows[0]
        target = split_new_path(path)
        missing = self._changes.missing_parents(target, ask.parents)
        there = self._nodes.lookup(target)
        self._check_condition(there, target, ask)
        if there is not None and self._nodes.kind[there] == DIRECTORY:
            raise IsADirectory(f"{join_path(target)}: is a directory", path=join_path(target))
        self._check_quotas(
            [*rows, *([] if there in (None, *rows) else [there])], target, missing, length_bytes
        )
        if there is None or there == row:
            return Taking(target, missing, NO_FILE, "")
        hidden = ""
        if ask.keep_replaced and self._changes.trash_after_s(there) > 0:
            hidden = self._changes.hidden_path(there, target[-1], at_s)
        return Taking(target, missing, self._nodes.id_of(there), hidden)

    def _check_quotas(
        self, gone: Sequence[int | None], target: Parts, missing: list[Parts], length_bytes: int
    ) -> None:
        """These files go, and the first of them comes to the target with so many bytes."""
        quotas, nodes = self._space.quotas, self._nodes
        if not quotas.by_row:
            return
        first = gone[0]
        assert first is not None
        nearest = self._changes.nearest(target, missing)
        changes = [(nearest, len(missing) + 1, length_bytes * nodes.replication[first])]
        for row in gone:
            assert row is not None
            changes.append((nodes.parent[row], -1, -quotas.charge(row)))
        quotas.check(changes)

    def _check_condition(
        self, there: int | None, target: Parts, ask: CloseFile | JoinFiles
    ) -> None:
        path = join_path(target)
        if ask.replaces in (ANY_FILE, NO_FILE):
            may_replace = ask.overwrite and ask.replaces == ANY_FILE
            if there is not None and not may_replace:
                raise FileExists(f"{path}: file exists", path=path)
            return
        if there is None:
            raise NoSuchFile(f"{path}: is not there any more; it was to be replaced", path=path)
        found = self._nodes.id_of(there)
        if found != ask.replaces:
            raise FileReplaced(
                f"{path}: is file {found:x} by now; file {ask.replaces:x} was to be replaced",
                path=path,
                file_id=found,
            )

    def make_room(self, row: int, taking: Taking, at_s: float) -> None:
        """Emit what comes before the file can be moved there."""
        strings = self._space.principals.strings
        owner, group = strings[self._nodes.owner[row]], strings[self._nodes.group[row]]
        self._changes.make(taking.missing, owner, group, at_s, implicit=True)
        if taking.hidden:
            self._emit(op.Trashed(join_path(taking.target), taking.hidden, at_s))

    def check_alone(self, ask: CloseFile) -> None:
        """Refuse conditions on a path that was not named."""
        if ask.replaces != ANY_FILE or ask.parents or ask.keep_replaced:
            raise BadRequest("a close that gives no path (rename_to) can replace nothing")

    def check_attributes(self, path: str, attributes: dict[str, bytes]) -> None:
        """Refuse what a file cannot have."""
        check_attributes(path, pack_attributes(attributes))
