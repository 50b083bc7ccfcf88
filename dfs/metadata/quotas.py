"""Quotas: how many names and bytes a directory may hold with all below it (EV-04, GFS-85).

Sums are kept at the directories that have a quota, and nowhere else; every record that changes them
changes them on the way up. A name counts one, the directory itself too; a byte counts as often as
it has replicas. A chunk that may be growing counts as a whole one and is settled when it is sealed;
a snapshot counts as if it were copied; the trash counts nothing. Looked at when something is
decided, never when a record is applied. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mrstream.dfs.errors import BadPath, BadRequest, NameQuotaExceeded, SpaceQuotaExceeded
from mrstream.dfs.metadata.nodes import FILE, ROOT
from mrstream.dfs.metadata.paths import TRASH_NAME, join_path
from mrstream.dfs.protocol import NO_QUOTA, QUOTA_STAYS, QuotaReply

if TYPE_CHECKING:
    from mrstream.dfs.metadata.namespace import Namespace

LIMIT_MAX = (1 << 63) - 1

Change = tuple[int, int, int]
"""So many names and bytes more (or fewer) in this directory."""


@dataclass(slots=True)
class Quota:
    """Limits of a directory (`NO_QUOTA`: none) and what is used of them."""

    names: int
    space_bytes: int
    names_used: int
    space_used_bytes: int


class Quotas:
    """The quotas by directory, their sums, and whether a change fits into them."""

    def __init__(self, space: Namespace) -> None:
        self._space = space
        self._nodes = space.nodes
        self.by_row: dict[int, Quota] = {}

    # --- sums

    def charge(self, row: int) -> int:
        """The bytes that a file counts, replicas and all."""
        nodes = self._nodes
        count, length = nodes.chunk_count[row], nodes.length[row]
        if count and self._space.chunks.is_unsealed(nodes.chunk_at(row, count - 1)):
            length = count * self._space.chunk_bytes(row)
        return length * nodes.replication[row]

    def sums(self, row: int) -> tuple[int, int]:
        """The names and bytes of a tree, itself included."""
        nodes = self._nodes
        names = space = 0
        stack = [row]
        while stack:
            node = stack.pop()
            names += 1
            if nodes.kind[node] == FILE:
                space += self.charge(node)
            elif node == ROOT:
                stack += [r for name, r in nodes.entries[node].items() if name != TRASH_NAME]
            else:
                stack += nodes.entries[node].values()
        return names, space

    def holders(self, row: int) -> list[int]:
        """The directories with a quota at and above a directory; none above the trash."""
        found = []
        trash = self._nodes.entries[ROOT].get(TRASH_NAME, ROOT)
        while True:
            if row in self.by_row:
                found.append(row)
            if row in (ROOT, trash):
                return found
            row = self._nodes.parent[row]

    # --- what is logged: only the appliers call these

    def set(self, row: int, names: int, space_bytes: int) -> None:
        known = self.by_row.get(row)
        if names == NO_QUOTA and space_bytes == NO_QUOTA:
            self.by_row.pop(row, None)
        elif known is not None:
            known.names, known.space_bytes = names, space_bytes
        else:
            self.by_row[row] = Quota(names, space_bytes, *self.sums(row))

    def add(self, parent: int, names: int, space: int) -> None:
        """So much more is in a directory."""
        if self.by_row and (names or space):
            for row in self.holders(parent):
                self.by_row[row].names_used += names
                self.by_row[row].space_used_bytes += space

    def moving(self, row: int, parent: int) -> None:
        """A tree is about to go to another directory."""
        if not self.by_row:
            return
        before, after = self.holders(self._nodes.parent[row]), self.holders(parent)
        if before != after:
            names, space = self.sums(row)
            self.add(self._nodes.parent[row], -names, -space)
            self.add(parent, names, space)

    def dropping(self, row: int) -> None:
        """A tree is about to go for good."""
        if self.by_row and self.holders(self._nodes.parent[row]):
            names, space = self.sums(row)
            self.add(self._nodes.parent[row], -names, -space)

    # --- deciding

    def check(self, changes: Iterable[Change]) -> None:
        """Refuse what would go beyond a quota; what makes one smaller is never refused, though it
        may be exceeded."""
        if not self.by_row:
            return
        totals: dict[int, tuple[int, int]] = {}
        for parent, names, space in changes:
            for row in self.holders(parent):
                before = totals.get(row, (0, 0))
                totals[row] = (before[0] + names, before[1] + space)
        for row, (names, space) in totals.items():
            self._check_one(row, names, space)

    def _check_one(self, row: int, names: int, space: int) -> None:
        quota = self.by_row[row]
        path = join_path(self._nodes.path_of(row))
        if names > 0 and quota.names != NO_QUOTA and quota.names_used + names > quota.names:
            raise NameQuotaExceeded(
                f"{path}: may hold {quota.names} files and directories, has {quota.names_used}; "
                f"{names} more are too many",
                path=path, limit=quota.names, used=quota.names_used,
            )  # fmt: skip
        limit, used = quota.space_bytes, quota.space_used_bytes
        if space > 0 and limit != NO_QUOTA and used + space > limit:
            raise SpaceQuotaExceeded(
                f"{path}: may hold {limit} bytes with all replicas, has {used}; {space} more are "
                "too many (a chunk that is being written counts as a whole one)",
                path=path, limit=limit, used=used,
            )  # fmt: skip

    def check_tree(self, row: int, parent: int, more_names: int = 0) -> None:
        """Refuse where a tree like this one has no room."""
        if self.by_row:
            names, space = self.sums(row)
            self.check([(parent, names + more_names, space)])

    def check_move(self, row: int, parent: int, replaced: int | None) -> None:
        """Refuse where a tree has no room, in the place of another if there is one."""
        if not self.by_row:
            return
        names, space = self.sums(row)
        changes = [(self._nodes.parent[row], -names, -space), (parent, names, space)]
        if replaced is not None:
            gone_names, gone_space = self.sums(replaced)
            changes.append((parent, -gone_names, -gone_space))
        self.check(changes)

    def check_chunk(self, row: int) -> None:
        """Refuse one more chunk of a file."""
        if self.by_row:
            whole = (self._nodes.chunk_count[row] + 1) * self._space.chunk_bytes(row)
            more = whole * self._nodes.replication[row] - self.charge(row)
            self.check([(self._nodes.parent[row], 0, more)])

    def check_growth(self, row: int) -> None:
        """Refuse to let the last chunk of a file grow: it counts as a whole one then."""
        if self.by_row:
            whole = self._nodes.chunk_count[row] * self._space.chunk_bytes(row)
            more = whole * self._nodes.replication[row] - self.charge(row)
            self.check([(self._nodes.parent[row], 0, more)])

    def check_replication(self, row: int, replication: int) -> None:
        """Refuse more replicas of the files of a tree than there is room for."""
        if not self.by_row:
            return
        nodes = self._nodes
        changes = []
        for node in nodes.walk(row):
            if nodes.kind[node] == FILE and nodes.replication[node]:
                charge = self.charge(node)
                more = charge // nodes.replication[node] * replication - charge
                changes.append((nodes.parent[node], 0, more))
        self.check(changes)

    def changed(self, row: int, names: int, space_bytes: int) -> tuple[int, int]:
        """The limits of a directory after a question; refuse what cannot be one."""
        trash = self._nodes.entries[ROOT].get(TRASH_NAME)
        if trash is not None and self._nodes.is_within(row, trash):
            raise BadPath(f"{join_path(self._nodes.path_of(row))}: the trash has no quota")
        if names != QUOTA_STAYS and not 1 <= names <= LIMIT_MAX:
            raise BadRequest(
                f"name quota is {names}; it must be 1 or more (the directory itself counts)"
            )
        if space_bytes != QUOTA_STAYS and not 0 <= space_bytes <= LIMIT_MAX:
            raise BadRequest(f"space quota is {space_bytes}; it must be 0 or more bytes")
        known = self.by_row.get(row)
        if names == QUOTA_STAYS:
            names = NO_QUOTA if known is None else known.names
        if space_bytes == QUOTA_STAYS:
            space_bytes = NO_QUOTA if known is None else known.space_bytes
        return names, space_bytes

    def of(self, row: int) -> QuotaReply:
        """What a directory has and uses."""
        known = self.by_row.get(row)
        if known is None:
            return QuotaReply(NO_QUOTA, 0, NO_QUOTA, 0)
        return QuotaReply(known.names, known.names_used, known.space_bytes, known.space_used_bytes)

    def check_invariants(self) -> None:
        """Every sum is what counting it anew gives."""
        for row, quota in self.by_row.items():
            found = (quota.names_used, quota.space_used_bytes)
            path = join_path(self._nodes.path_of(row))
            assert found == self.sums(row), f"{path}: {found} kept, {self.sums(row)} counted"
