"""Which cell has a path, and what is refused between two of them."""

from __future__ import annotations

import pytest

from mrstream.cluster.config.config import CellConfig
from mrstream.dfs.chunk import Epoch, FileId, first_of_cell
from mrstream.dfs.errors import CrossesCells, MountPoint, WrongCell
from mrstream.dfs.mounts import ROOT_NAME, Mounts, first_name, names_paths
from mrstream.dfs.protocol import (
    CloseFile,
    CreateFile,
    Delete,
    FindKeys,
    JoinFiles,
    KeepAlive,
    ListDirectory,
    MakeDirectory,
    Rename,
    Report,
    Snapshot,
    Stat,
)

MOUNTS = Mounts((CellConfig("logs", "/logs", 1), CellConfig("attic", "/old", 2)))


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
    with pytest.raises(MountPoint, match="is where cell logs is mounted: it stays"):
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


def test_files_of_two_cells_are_not_joined() -> None:
    ours, others = FileId(first_of_cell(1) + 7), FileId(first_of_cell(2) + 7)
    MOUNTS.check(JoinFiles("/logs/a", (ours,), "me"), "logs")
    with pytest.raises(CrossesCells, match=r"/logs/a is in cell logs, file 2\d+7 in cell attic: a"):
        MOUNTS.of(JoinFiles("/logs/a", (ours, others), "me"))


LOGS_TRASH = f"/.trash/20260101T000000Z-{first_of_cell(1) + 9:x}-a"
ROOT_TRASH = "/.trash/20260101T000000Z-9-a-b"


@pytest.mark.parametrize(
    ("path", "cell"),
    [
        (LOGS_TRASH, "logs"),
        (f"//.trash/./{LOGS_TRASH[8:]}/below/it", "logs"),
        (ROOT_TRASH, ROOT_NAME),
        (f"/.trash/20260101T000000Z-{first_of_cell(7) + 9:x}-a", ROOT_NAME),
        ("/.trash/nonsense", ROOT_NAME),
        ("/.trash/20260101T000000Z-xyz-a", ROOT_NAME),
        ("/.trash/-", ROOT_NAME),
    ],
)
def test_the_name_of_something_deleted_says_whose_it_is(path: str, cell: str) -> None:
    assert MOUNTS.cell_of(path) == MOUNTS.of(Stat(path)) == cell


def test_every_cell_has_its_own_trash() -> None:
    for cell in (ROOT_NAME, "logs", "attic"):
        MOUNTS.check(Stat("/.trash"), cell)
        MOUNTS.check(ListDirectory("//.trash/."), cell)
    MOUNTS.check(Stat(LOGS_TRASH), "logs")
    MOUNTS.check(Rename(LOGS_TRASH, "/logs/a", "me"), "logs")
    with pytest.raises(WrongCell):
        MOUNTS.check(Stat(LOGS_TRASH), ROOT_NAME)
    with pytest.raises(CrossesCells):
        MOUNTS.of(Rename(ROOT_TRASH, "/logs/a", "me"))
