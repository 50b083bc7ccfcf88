"""One language of patterns for the cluster, for files on the disk and for `-find -name`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.dfs.errors import BadPath
from mrstream.dfs.shell.arguments import BadUsage
from mrstream.dfs.shell.listing import NameTest
from mrstream.dfs.shell.volumes import DiskVolume

FILES = ["a/1.txt", "a/2.csv", "b/1.txt", "b/.hidden", "c/d/1.txt", "c/x*y"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*/1.txt", ["a/1.txt", "b/1.txt"]),
        ("{a,c/d}/1.txt", ["a/1.txt", "c/d/1.txt"]),
        ("[^a]/*", ["b/.hidden", "b/1.txt", "c/d", "c/x*y"]),
        ("a/?.{txt,csv}", ["a/1.txt", "a/2.csv"]),
        (r"c/x\*y", ["c/x*y"]),
        (r"c/x\**", ["c/x*y"]),
        ("*/1.txt/*", []),
        ("none*", []),
    ],
)
def test_files_of_the_disk_are_named_as_those_of_the_cluster_are(
    place: Path, pattern: str, names: list[str]
) -> None:
    found = DiskVolume().glob(f"{place}/{pattern}")

    assert [status.path for status in found] == [f"{place}/{name}" for name in names]


def test_a_pattern_that_means_nothing_is_refused(place: Path) -> None:
    with pytest.raises(BadPath, match="glob"):
        DiskVolume().glob(f"{place}/[a")


@pytest.mark.parametrize(
    ("pattern", "folds", "name", "fits"),
    [
        ("*.{txt,csv}", False, "a.csv", True),
        ("*.{txt,csv}", False, "a.tsv", False),
        ("[^a]*", False, "bee", True),
        ("[^a]*", False, "ape", False),
        ("PART-*", True, "part-00000", True),
        ("PART-*", False, "part-00000", False),
    ],
)
def test_a_name_fits_as_in_paths(pattern: str, folds: bool, name: str, fits: bool) -> None:
    assert NameTest(pattern, folds=folds)(name) is fits


def test_a_name_pattern_that_means_nothing_is_refused() -> None:
    with pytest.raises(BadUsage, match="find"):
        NameTest("[a", folds=False)
