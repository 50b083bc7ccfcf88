"""Which cell has a path: the static table of cluster.yaml (EV-03).

A cell is mounted at one name below the root and keeps full paths, so a path's first name decides
and nothing is ever translated. Used by clients to choose whom to ask, and by masters to refuse what
is not theirs. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from mrstream.cluster.globs import (
    BadGlob,
    component_regex,
    expand_braces,
    has_wildcard,
    unquoted,
)
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.errors import BadPath, CrossesCells, WrongCell
from mrstream.dfs.protocol import Delete, Rename

ROOT_NAME = ""
"""The name of the root cell, which has all that is mounted nowhere."""
TRASH = ".trash"
"""Every cell has its own, under the same name."""
_PATH_FIELDS = ("path", "source", "target", "rename_to", "root")


class Mounts:
    """Paths → the names of cells."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        """`cells`: mount point → name, such as `{"/logs": "logs"}`."""
        self.points = dict(cells)
        self._cells = {path.strip("/"): name for path, name in cells.items()}

    def cell_of(self, path: str) -> str:
        """Return the cell that has a path."""
        return self._cells.get(first_name(path), ROOT_NAME)

    def is_point(self, path: str) -> bool:
        """Say whether a cell is mounted just there."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        return len(names) == 1 and names[0] in self._cells

    def matching(self, pattern: str) -> list[str]:
        """Return the cells that may have paths of a pattern: nobody else needs to be asked."""
        try:
            first = [first_name(one) for one in expand_braces(pattern)]
            regexes = [component_regex(name) for name in first]
        except BadGlob:
            return [ROOT_NAME]  # the master there says what is wrong with it
        cells = [
            cell
            for name, cell in self._cells.items()
            if any(regex.fullmatch(name) for regex in regexes)
        ]
        are_points = all(not has_wildcard(n) and unquoted(n) in self._cells for n in first)
        return cells if are_points else [ROOT_NAME, *cells]

    def of(self, request: Request) -> str:
        """Return the cell that a request is for; `CrossesCells` where it would need two."""
        paths = paths_of(request)
        self._check_stays(request)
        cells = {path: self.cell_of(path) for path in paths if first_name(path) != TRASH}
        if len(set(cells.values())) > 1:
            (one, first), (other, second) = list(cells.items())[:2]
            raise CrossesCells(
                f"{one} is in {words(first)}, {other} in {words(second)}: a "
                f"{type(request).__name__.lower()} does not cross cells; copy it (-cp), then "
                "delete it"
            )
        return next(iter(cells.values()), ROOT_NAME)

    def check(self, request: Request, own: str) -> None:
        """Raise `WrongCell` unless all that a request names is the cell's own."""
        if self.of(request) != own and any(first_name(path) != TRASH for path in paths_of(request)):
            path = paths_of(request)[0]
            raise WrongCell(
                f"{path} is in {words(self.cell_of(path))}, and this is the master of "
                f"{words(own)}: your cluster file is older than the cluster; `mrstream cluster "
                "join HOST` brings the new one"
            )

    def _check_stays(self, request: Request) -> None:
        moved = getattr(request, "source", "") if type(request) is Rename else ""
        gone = getattr(request, "path", "") if type(request) is Delete else ""
        path = moved or gone
        if path and self.is_point(path):
            raise BadPath(
                f"{path} is where {words(self.cell_of(path))} is mounted: it stays; name what is "
                "in it"
            )


def words(cell: str) -> str:
    """Return what people call a cell."""
    return f"cell {cell}" if cell else "the root cell"


def first_name(path: str) -> str:
    """Return the first name along a path; nothing for the root."""
    name, slash = "", "/"
    while slash and name in ("", "."):
        name, slash, path = path.lstrip("/").partition("/")
    return "" if name == "." else name


def paths_of(request: Request) -> tuple[str, ...]:
    """Return the paths that a request names."""
    fields = _path_fields(type(request))
    return tuple(path for field in fields if (path := getattr(request, field)))


def names_paths(kind: type[Request]) -> bool:
    """Say whether requests of a kind name any."""
    return bool(_path_fields(kind))


@cache
def _path_fields(kind: type[Any]) -> tuple[str, ...]:
    known = {field.name for field in msgspec.structs.fields(kind)}
    return tuple(name for name in _PATH_FIELDS if name in known)
