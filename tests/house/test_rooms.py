"""The order of the rooms inside each package: folders, and modules that stand beside them.

A room may import what stands in a row above it in `ROOMS`, never a neighbour of its own row and
never what stands below: a worker does not know the master, nor a client the chunkserver's disks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_imports import modules, ours
from tests.house.tree import PACKAGES, ROOT

ROOMS: dict[str, list[str]] = {
    "cluster": [
        "closing errors clock disk globs tasks terminal units user version",
        "retry",
        "wire",
        "logs",
        "config consensus",
        "journal agent",
        "daemon",
        "leader",
        "hosts",
        "cli",
    ],
    "streaming": [
        "classes java",
        "records",
        "conf",
        "formats task",
        "builtin command",
        "cli",
    ],
    "dfs": [
        "chunk errors",
        "protocol",
        "transfer mounts",
        "metadata chunks client",
        "oplog command_queue shell",
        "duties shadow master_link",
        "master chunkserver",
        "cli",
    ],
    "lock": [
        "errors",
        "paths",
        "sequencer protocol",
        "cell client",
        "running filesystem",
        "duties",
        "master",
        "cli",
    ],
    "mapreduce": [
        "scheduler program",
        "dataflow",
        "job",
        "attempt",
        "snapshot progress dfs_layout interrupts history typed_bytes_files",
        "protocol report console simulation environment flow_rows",
        "tally",
        "notices",
        "master worker client local p4",
        "launch saw_job engine",
        "flow hadoop_words saw_dump saw_cli",
        "hadoop_commands",
        "cli dump_cli completion_cli",
    ],
    "saw": [
        "tables",
        "source code times tree values",
        "scanner facts readers patterns",
        "words runtime context protos",
        "parser operators conversions library",
        "calls",
        "expressions",
        "assignments emits messages when",
        "statements",
        "program",
        "report",
    ],
    "web": [
        "http",
        "webhdfs s3 pages rest",
        "certificates looking",
        "gateway key_cli local",
        "cli",
    ],
}
DOORS = {
    "cluster.wire": {"network", "messages", "addresses", "identity"},
    "dfs.protocol": set[str](),
    "lock.cell": {"cell", "events", "records", "settings", "image"},
    "dfs.metadata": {"metadata", "events", "operations", "settings", "image", "paths"},
    "mapreduce.scheduler": {"scheduler", "events", "commands", "ids", "limits", "phases"},
}
"""What other rooms may import of a room; of one without names, the package itself alone."""


def edges(package: str) -> Iterator[tuple[str, str, Path]]:
    """Give (room, room it imports, by which module) for all imports that leave a room."""
    for path in modules(package):
        room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name in ours(path):
            if name.startswith(f"{package}.") and room_of(name) != room:
                yield room, room_of(name), path


def room_of(name: str) -> str:
    """The room that a module is in: `client` of `dfs.client.reader`, `duties` of `dfs.duties`."""
    return name.split(".")[1]


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_every_room_has_its_place_in_the_order(package: str) -> None:
    there = {
        path.stem if path.is_file() else path.name
        for path in (ROOT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert sorted(there - {"__init__"}) == sorted(" ".join(ROOMS[package]).split())


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_a_room_imports_only_from_rows_above_it(package: str) -> None:
    row = {room: at for at, rooms in enumerate(ROOMS[package]) for room in rooms.split()}

    wrong = {
        f"{path.relative_to(ROOT)} imports {package}.{other}"
        for room, other, path in edges(package)
        if room != "__init__" and row[other] >= row[room]
    }

    assert sorted(wrong) == []


@pytest.mark.parametrize("room", sorted(DOORS))
def test_a_room_is_entered_by_its_doors(room: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for package in PACKAGES
        for path in modules(package)
        if not path.is_relative_to(ROOT / room.replace(".", "/"))
        for name in ours(path)
        if name.startswith(f"{room}.") and name.removeprefix(f"{room}.") not in DOORS[room]
    }

    assert sorted(wrong) == []
