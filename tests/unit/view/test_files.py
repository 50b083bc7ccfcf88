"""Files and their chunks in words (view/files.py)."""

from __future__ import annotations

import time

import pytest

from mrstream.view.files import COLUMNS, chunk_map, entry_cells, listed, parent, shares
from mrstream.view.picture import ChunkPlace, FileEntry


def entry(path: str, *, directory: bool = False) -> FileEntry:
    return FileEntry(path, directory, 5 << 20, 3, "ann", "lab", 0o640, 86_400.0)


def test_an_entry_has_a_cell_for_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    file = [cell.text for cell in entry_cells(entry("/in/a.gz"))]
    directory = [cell.text for cell in entry_cells(entry("/in", directory=True))]

    assert file == ["a.gz", "5.0M", "3", "ann", "-rw-r-----", "1970-01-02 00:00"]
    assert directory == ["in/", "–", "–", "ann", "drw-r-----", "1970-01-02 00:00"]
    assert len(file) == len(COLUMNS)


def test_directories_come_first() -> None:
    entries = [entry("/b"), entry("/a"), entry("/z", directory=True)]

    assert [each.path for each in listed(entries)] == ["/z", "/a", "/b"]
    assert [each.path for each in listed(entries, wanted="B")] == ["/b"]


def test_the_way_up_ends_at_the_root() -> None:
    assert [parent(path) for path in ("/a/b/", "/a/b", "/a", "/")] == ["/a", "/a", "/", "/"]


def test_space_is_shown_beside_the_most() -> None:
    told = shares([("/logs", 3 << 30), ("/in", 0)])

    assert [(path, cell.text, cell.share) for path, cell in told] == [
        ("/logs", "3.0G", 1.0),
        ("/in", "0B", 0.0),
    ]
    assert shares([]) == []


def test_a_chunk_map_says_who_holds_what_and_what_is_not_well() -> None:
    found = chunk_map(
        [
            ChunkPlace(0, 0x1001, 2, 64 << 20, ("h10", "h2"), "good"),
            ChunkPlace(1, 0x1002, 1, 1, (), "missing"),
        ]
    )

    assert found.hosts == ("h2", "h10")
    assert found.held == ((True, False), (True, False))
    assert found.troubles == ("✗ chunk 1 (1002): missing",)
    assert found.chunks == (
        "    0  0000000000001001  v2    64M  h10, h2",
        "    1  0000000000001002  v1     1B  nowhere",
    )
