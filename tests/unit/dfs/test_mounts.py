"""Which cell has a path, and what is refused between two of them."""

from __future__ import annotations

import pytest

from mrstream.dfs.chunk import Epoch, FileId
from mrstream.dfs.errors import BadPath, CrossesCells, WrongCell
from mrstream.dfs.mounts import ROOT_NAME, Mounts, first_name, names_paths
from mrstream.dfs.protocol import (
    CloseFile,
    CreateFile,
    Delete,
    FindKeys,
    KeepAlive,
    ListDirectory,
    MakeDirectory,
    Rename,
    Report,
    Snapshot,
    Stat,
)

MOUNTS = Mounts({"/logs": "logs", "/old": "attic"})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", ""),
        ("/logs", "logs"),
        ("/logs/2026/a", "logs"),
        ("//logs//a", "logs"),
        ("/./logs/.", "logs"),
        ("/" * 40 + "logs", "logs"),
        ("/././.", ""),
        ("", ""),
    ],
)
def test_the_first_name_of_a_path(path: str, name: str) -> None:
    assert first_name(path) == name


@pytest.mark.parametrize(
    ("path", "cell"),
    [
        ("/", ROOT_NAME),
        ("/in/logs", ROOT_NAME),
        ("/logs", "logs"),
        ("/logs/a", "logs"),
        ("/logs2", ROOT_NAME),
        ("/old/x", "attic"),
        ("/.mrstream/history", ROOT_NAME),
    ],
)
def test_a_path_is_of_the_cell_that_is_mounted_there(path: str, cell: str) -> None:
    assert MOUNTS.cell_of(path) == cell
    assert MOUNTS.of(Stat(path)) == cell


def test_requests_go_where_their_paths_are() -> None:
    assert MOUNTS.of(CreateFile("/logs/a", "c", "me")) == "logs"
    assert MOUNTS.of(Rename("/old/a", "/old/b", "me")) == "attic"
    assert MOUNTS.of(FindKeys("/logs")) == "logs"
    assert MOUNTS.of(Report()) == ROOT_NAME
    assert not names_paths(KeepAlive) and names_paths(FindKeys)


@pytest.mark.parametrize(
    "request_",
    [
        Rename("/in/a", "/logs/a", "me"),
        Rename("/logs/a", "/old/a", "me"),
        Snapshot("/logs/a", "/in/a", "me"),
    ],
)
def test_what_would_need_two_cells_is_refused_by_name(request_: Rename | Snapshot) -> None:
    verb = type(request_).__name__.lower()
    with pytest.raises(CrossesCells, match=f"in .*cell.*a {verb} does not cross cells; copy it"):
        MOUNTS.of(request_)


@pytest.mark.parametrize("request_", [Rename("/logs/", "/x", "me"), Delete("//logs", "me", True)])
def test_a_mount_point_stays(request_: Rename | Delete) -> None:
    with pytest.raises(BadPath, match="is where cell logs is mounted: it stays"):
        MOUNTS.of(request_)


def test_a_master_refuses_what_another_has_and_takes_its_own() -> None:
    MOUNTS.check(Stat("/in"), ROOT_NAME)
    MOUNTS.check(MakeDirectory("/logs/a", "me"), "logs")
    MOUNTS.check(Report(), "logs")
    with pytest.raises(WrongCell, match=r"/logs/a is in cell logs.*master of the root cell.*join"):
        MOUNTS.check(Stat("/logs/a"), ROOT_NAME)
    with pytest.raises(WrongCell, match=r"/in is in the root cell.*master of cell logs"):
        MOUNTS.check(ListDirectory("/in"), "logs")
    with pytest.raises(WrongCell):
        MOUNTS.check(CloseFile(FileId(1), Epoch(1), 0, rename_to="/logs/a"), ROOT_NAME)


def test_every_cell_has_its_own_trash() -> None:
    for cell in (ROOT_NAME, "logs"):
        MOUNTS.check(Stat("/.trash/20260101T000000Z-1-a"), cell)
    MOUNTS.check(Rename("/.trash/x", "/logs/a", "me"), "logs")
