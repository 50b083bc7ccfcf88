"""streaming/task/shipping.py: links and archives in a task's working directory."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.streaming.task.shipping import (
    BadArchive,
    BadLinkName,
    NotShippable,
    Shipped,
    link_shipped,
    unpack,
)
from tests.support.examples import examples


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    cwd, cache = tmp_path / "cwd", tmp_path / "cache"
    cwd.mkdir()
    cache.mkdir()
    return cwd, cache


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member, b""


def file(name: str, data: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.mode = mode
    return member, data


def test_files_and_directories_are_linked_under_their_names(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    """Spec 7.3."""
    cwd, cache = places
    (tmp_path / "a.txt").write_text("A")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("F")

    link_shipped(
        str(cwd),
        [
            Shipped(str(tmp_path / "a.txt"), "alias"),
            Shipped(f"file://{tmp_path}/d", "d"),
            Shipped(str(tmp_path / "a.txt"), "sub/a.txt"),
        ],
        str(cache),
    )

    assert (cwd / "alias").read_text() == (cwd / "sub" / "a.txt").read_text() == "A"
    assert (cwd / "d" / "f").read_text() == "F"


def test_an_archive_is_a_directory_under_its_full_name(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    """Spec 7.3; case archives."""
    cwd, cache = places
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("y.txt", "Y")
    tar_of(tmp_path / "c.tar", file("bin/run", b"#!/bin/sh\n", 0o755), link("r", "bin/run"))

    shipped = [
        Shipped(str(tmp_path / "b.zip"), "b.zip", archive=True),
        Shipped(str(tmp_path / "c.tar"), "c", archive=True),
    ]
    link_shipped(str(cwd), shipped, str(cache))

    assert (cwd / "b.zip" / "y.txt").read_text() == "Y"
    assert os.access(cwd / "c" / "r", os.X_OK)


def test_attempts_share_what_one_of_them_unpacked(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    cwd, cache = places
    source = tar_of(tmp_path / "a.tar", file("x"))
    shipped = [Shipped(str(source), "a", archive=True)]
    link_shipped(str(cwd), shipped, str(cache))
    source.unlink()
    second = tmp_path / "second"
    second.mkdir()

    link_shipped(str(second), shipped, str(cache))

    assert (second / "a" / "x").read_text() == "x"


def test_a_plain_file_among_archives_is_linked_as_it_is(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    cwd, cache = places
    (tmp_path / "a.txt").write_text("A")

    link_shipped(str(cwd), [Shipped(str(tmp_path / "a.txt"), "a", archive=True)], str(cache))

    assert (cwd / "a").read_text() == "A"


@pytest.mark.parametrize(
    "members",
    [
        [file("../evil")],
        [file("/etc/evil")],
        [file("a/../../evil")],
        [link("out", "/etc/passwd")],
        [link("out", "../x")],
        [link("here", "."), link("out", "here/here/../..")],
        [link("out", "later/.."), link("later", ".")],
        [link("up", ".."), link("up/evil", "x")],
        [link("up", ".."), link("up/evil/deep", "x")],
        [link("a", "b"), link("b", ".."), link("a/evil/deep", "x")],
        [link("up/.", ".."), link("up/evil", "x")],
    ],
)
def test_an_archive_never_reaches_out_of_its_directory(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    source = tar_of(tmp_path / "evil.tar", *members)

    with pytest.raises(BadArchive, match=r"evil\.tar"):
        unpack(str(source), str(tmp_path / "in" / "dir"))

    assert not (tmp_path / "in" / "dir").exists()
    assert not (tmp_path / "in" / "evil").exists()


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    source = tar_of(tmp_path / "evil.tar", link("d", str(outside)), file("d/evil"))

    with pytest.raises(BadArchive):
        unpack(str(source), str(tmp_path / "dir"))

    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", ["up/evil/deep", "a/evil"])
def test_a_zip_reaches_no_further(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        for path, target in (("up", ".."), ("a", "up"), (name, "x")):
            member = zipfile.ZipInfo(path)
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(member, target)

    with pytest.raises(BadArchive, match=r"evil\.zip: link .* lies behind a link"):
        unpack(str(tmp_path / "evil.zip"), str(tmp_path / "in" / "dir"))

    assert list((tmp_path / "in").iterdir()) == []


def test_a_link_that_has_no_target_in_the_archive_is_named(tmp_path: Path) -> None:
    member = tarfile.TarInfo("h")
    member.type, member.linkname = tarfile.LNKTYPE, "h"

    with pytest.raises(BadArchive, match=r"x\.tar cannot be unpacked"):
        unpack(str(tar_of(tmp_path / "x.tar", (member, b""))), str(tmp_path / "dir"))


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_a_damaged_archive_is_unpacked_or_refused(data: st.DataObject) -> None:
    """Whatever its bytes are, and nothing is left of one that is refused."""
    with tempfile.TemporaryDirectory() as room:
        kind = data.draw(st.sampled_from(["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"]))
        path = Path(room, f"x.{kind}")
        path.write_bytes(WHOLE[kind])
        damaged = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
        before = set(os.listdir(room))
        try:
            unpack(str(path), str(Path(room, "in", "dir")))
        except BadArchive:
            assert os.listdir(Path(room, "in")) == []
        assert set(os.listdir(room)) == before | {"in"}


def _whole() -> dict[str, bytes]:
    found = {}
    with tempfile.TemporaryDirectory() as room:
        for kind in ("", "gz", "bz2", "xz"):
            path = Path(room, f"x.tar{kind}")
            with tarfile.open(path, f"w:{kind}") as archive:
                for member, content in (file("a/b", b"x" * 999), link("c", "a/b"), file("d")):
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
            found[f"tar.{kind}".rstrip(".")] = path.read_bytes()
        with zipfile.ZipFile(Path(room, "x.zip"), "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("a/b", b"x" * 999)
            zipped.writestr("d/", b"")
        found["zip"] = Path(room, "x.zip").read_bytes()
    return found


WHOLE = _whole()


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.tar"])
@pytest.mark.parametrize("data", [b"", b"none", b"\x1f\x8b none"])
def test_a_broken_archive_is_named_in_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(BadArchive) as refused:
        unpack(str(tmp_path / name), str(tmp_path / "dir"))

    assert str(refused.value).startswith(f"{tmp_path / name} cannot be unpacked: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["/abs", "../x", "", "."])
def test_a_link_stays_in_the_working_directory(places: tuple[Path, Path], name: str) -> None:
    cwd, cache = places

    with pytest.raises(BadLinkName):
        link_shipped(str(cwd), [Shipped("/x", name)], str(cache))


def test_other_file_systems_are_asked_through_fetch(places: tuple[Path, Path]) -> None:
    cwd, cache = places

    def fetch(url: str, path: str) -> None:
        Path(path).write_text(url)

    link_shipped(str(cwd), [Shipped("dfs:///data/x", "x")], str(cache), fetch)

    assert (cwd / "x").read_text() == "dfs:///data/x"
    with pytest.raises(NotShippable):
        link_shipped(str(cwd), [Shipped("dfs:///y", "y")], str(cache))
