"""Which cell has a path: the static table of cluster.yaml (EV-03).

A cell is mounted at one name below the root and keeps full paths, so a path's first name decides
and nothing is ever translated. Used by clients to choose whom to ask, and by masters to refuse what
is not theirs. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from mrstream.cluster.config.config import CellConfig
from mrstream.cluster.globs import (
    BadGlob,
    component_regex,
    expand_braces,
    has_wildcard,
    unquoted,
)
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import cell_of
from mrstream.dfs.errors import CrossesCells, MountPoint, WrongCell
from mrstream.dfs.protocol import Delete, JoinFiles, Rename

ROOT_NAME = ""
"""The name of the root cell, which has all that is mounted nowhere."""
TRASH = ".trash"
"""Every cell has its own, under the same name; what is in it is named after its id, which says
whose it is."""
_PATH_FIELDS = ("path", "source", "target", "rename_to", "root")


class Mounts:
    """Paths → the names of cells."""

    def __init__(self, cells: Sequence[CellConfig]) -> None:
        self.points = tuple(cell.path for cell in cells)
        self._cells = {cell.path.strip("/"): cell.name for cell in cells}
        self._numbers = {cell.number: cell.name for cell in cells}

    def cell_of(self, path: str) -> str:
        """Return the cell that has a path; of what several have, the root cell."""
        name, rest = _parted(path)
        if name == TRASH:
            return self.numbered(cell_of(_id_in_trash(_parted(rest)[0])))
        return self._cells.get(name, ROOT_NAME)

    def numbered(self, number: int) -> str:
        """Return the cell of a number, that of a chunk's handle or of a file's id."""
        return self._numbers.get(number, ROOT_NAME)

    def point_of(self, cell: str) -> str:
        """Return where a cell is mounted."""
        return next((f"/{name}" for name, known in self._cells.items() if known == cell), "/")

    def is_point(self, path: str) -> bool:
        """Whether a cell is mounted just there."""
        names = [name for name in path.split("/") if name not in ("", ".")]
        return len(names) == 1 and names[0] in self._cells

    def matching(self, pattern: str) -> list[str]:
        """Return the cells that may have paths of a pattern: nobody else needs to be asked."""
        try:
            first = [first_name(one) for one in expand_braces(pattern)]
            regexes = [component_regex(name) for name in first]
        except BadGlob:
            return [ROOT_NAME]  # the master there says what is wrong with it
        if any(regex.fullmatch(TRASH) for regex in regexes):
            return [ROOT_NAME, *self._cells.values()]  # every cell has a trash
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
        cells = {path: self.cell_of(path) for path in paths if not is_trash(path)}
        verb = type(request).__name__.lower()
        if type(request) is JoinFiles:
            verb = "join"
            cells |= {f"file {one:x}": self.numbered(cell_of(one)) for one in request.sources}
        own = next(iter(cells.values()), ROOT_NAME)
        for path, cell in cells.items():
            if cell != own:
                raise CrossesCells(
                    f"{next(iter(cells))} is in {words(own)}, {path} in {words(cell)}: a {verb} "
                    "does not cross cells; copy it (-cp), then delete it"
                )
        return own

    def check(self, request: Request, own: str) -> None:
        """Raise `WrongCell` unless all that a request names is the cell's own."""
        if self.of(request) != own and not all(map(is_trash, paths_of(request))):
            path = paths_of(request)[0]
            raise WrongCell(
                f"{path} is in {words(self.cell_of(path))}, and this is the master of "
                f"{words(own)}: your cluster file is older than the cluster; `mrstream cluster "
                "join HOST` brings the new one"
            )

    def _check_stays(self, request: Request) -> None:
        if type(request) is Rename:
            self.check_removable(request.source)
        elif type(request) is Delete:
            self.check_removable(request.path)

    def check_removable(self, path: str) -> None:
        """Raise `MountPoint` where a cell is mounted just there."""
        if self.is_point(path):
            raise MountPoint(
                f"{path} is where {words(self.cell_of(path))} is mounted: it stays; name what is "
                "in it"
            )


def words(cell: str) -> str:
    """Return what people call a cell."""
    return f"cell {cell}" if cell else "the root cell"


def first_name(path: str) -> str:
    """Return the first name along a path; nothing for the root."""
    return _parted(path)[0]


def is_trash(path: str) -> bool:
    """Is it the trash itself, which lies in every cell as the root does?"""
    name, rest = _parted(path)
    return name == TRASH and not _parted(rest)[0]


def _parted(path: str) -> tuple[str, str]:
    """The first name along a path, and the rest."""
    name, slash = "", "/"
    while slash and name in ("", "."):
        name, slash, path = path.lstrip("/").partition("/")
    return ("", "") if name == "." else (name, path)


def _id_in_trash(name: str) -> int:
    """The id of what was deleted, out of the name that it got (`Changes.hidden_path`); 0 where a
    name is not of that form, and nothing has it."""
    number = name.split("-", 2)[1:2]
    try:
        return int(number[0], 16) if number else 0
    except ValueError:
        return 0


def paths_of(request: Request) -> tuple[str, ...]:
    fields = _path_fields(type(request))
    return tuple(path for field in fields if (path := getattr(request, field)))


def names_paths(kind: type[Request]) -> bool:
    return bool(_path_fields(kind))


@cache
def _path_fields(kind: type[Any]) -> tuple[str, ...]:
    known = {field.name for field in msgspec.structs.fields(kind)}
    return tuple(name for name in _PATH_FIELDS if name in known)
