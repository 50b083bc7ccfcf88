"""The key `dfs.cells` of cluster.yaml: which parts of the name space have masters of their own."""

from __future__ import annotations

import re

import yaml

from mrstream.cluster.config.config import CELLS_MAX, WIDE_PORTS_COUNT, CellConfig
from mrstream.cluster.config.values import Reader, whole

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}")
_NAME_RULE = "a cell's name has letters, digits, dashes and underscores, 31 at most"
_KEYS = ("path", "number")
NAME_BYTES_MAX = 255


def read_cells(reader: Reader, node: yaml.Node | None) -> tuple[CellConfig, ...]:
    """Return the cells; those without a number get the lowest that is free, in their order."""
    found: dict[str, tuple[yaml.Node, str, int | None]] = {}
    for key, value in reader.pairs(node, "dfs.cells"):
        name, where = key.value, f"dfs.cells.{key.value}"
        if not _NAME.fullmatch(name):
            reader.wrong(key, f"cell {name!r}: {_NAME_RULE}")
            continue
        if name in found:
            reader.wrong(key, f"cell {name!r} is there twice")
            continue
        keys = reader.mapping(value, where, _KEYS)
        if "path" not in keys:
            reader.wrong(key, f"{where}.path is missing: where it is mounted, such as /{name}")
        path = reader.scalar(keys, "path", where, _mount_point, "")
        number = reader.scalar(keys, "number", where, whole(1, CELLS_MAX), None)
        _check_alone(reader, key, name, path, number, found)
        found[name] = key, path, number
    if len(found) > CELLS_MAX:
        reader.wrong(node, f"dfs.cells names {len(found)} cells; at most {CELLS_MAX}")
        return ()
    taken = {number for _, _, number in found.values() if number is not None}
    free = (number for number in range(1, CELLS_MAX + 1) if number not in taken)
    return tuple(
        CellConfig(name, path, number if number is not None else next(free))
        for name, (_, path, number) in found.items()
    )


def check_ports(reader: Reader, node: yaml.Node | None, base_port: int) -> None:
    """See that there are ports for the masters of cells."""
    if base_port > 65_535 - WIDE_PORTS_COUNT:
        reader.wrong(
            node,
            f"ports.base is {base_port}: a cluster with cells needs {WIDE_PORTS_COUNT} ports from "
            f"it on, so at most {65_535 - WIDE_PORTS_COUNT}",
        )


def _check_alone(
    reader: Reader,
    key: yaml.Node,
    name: str,
    path: str,
    number: int | None,
    found: dict[str, tuple[yaml.Node, str, int | None]],
) -> None:
    for other, (_, other_path, other_number) in found.items():
        if path and path == other_path:
            reader.wrong(key, f"cells {other} and {name} are both mounted at {path}")
        if number is not None and number == other_number:
            reader.wrong(key, f"cells {other} and {name} both have number {number}")


def _mount_point(text: str) -> str:
    """One name below the root: everything else lies in one cell with what is above it."""
    name = text.strip("/")
    if not text.startswith("/") or not name or "/" in name:
        raise ValueError("a cell is mounted directly below the root, such as /logs")
    if name.startswith("."):
        raise ValueError("names that begin with a dot are the file system's own")
    if not name.isprintable():
        raise ValueError("a name that everybody will type has no control characters")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"a name has at most {NAME_BYTES_MAX} bytes")
    return f"/{name}"
