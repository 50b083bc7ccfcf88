"""fsspec's own abstract suite, and what users of `dfs://` rely on, against a real local cluster."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.tests import abstract

from mrstream.dfs.client.filesystem import DfsFileSystem
from tests.cluster.local import LocalCluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("dfs"), 2) as running:
        yield running


@pytest.fixture(scope="module")
def dfs(cluster: LocalCluster) -> DfsFileSystem:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
        return _connected(cluster)


@pytest.fixture(autouse=True)
def home(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])


def _connected(cluster: LocalCluster) -> DfsFileSystem:
    fs: DfsFileSystem = fsspec.filesystem("dfs", cluster=cluster.file, retry_s=10.0)
    fs.client.stat("/")
    return fs


class DfsFixtures(abstract.AbstractFixtures):  # type: ignore[misc]  # fsspec has no types
    """What the abstract suite needs to know."""

    @pytest.fixture
    def fs(self, dfs: DfsFileSystem) -> DfsFileSystem:
        return dfs

    @pytest.fixture
    def fs_path(self, dfs: DfsFileSystem) -> Iterator[str]:
        path = "/abstract"
        dfs.mkdir(path)
        yield path
        dfs.rm(path, recursive=True)


class TestCopy(abstract.AbstractCopyTests, DfsFixtures):  # type: ignore[misc]
    """cp, by fsspec's rules."""


class TestGet(abstract.AbstractGetTests, DfsFixtures):  # type: ignore[misc]
    """get, by fsspec's rules."""


class TestPut(abstract.AbstractPutTests, DfsFixtures):  # type: ignore[misc]
    """put, by fsspec's rules."""


class TestOpen(abstract.AbstractOpenTests, DfsFixtures):  # type: ignore[misc]
    """open, by fsspec's rules."""


class TestPipe(abstract.AbstractPipeTests, DfsFixtures):  # type: ignore[misc]
    """pipe, by fsspec's rules."""


@pytest.fixture
def place(dfs: DfsFileSystem, request: pytest.FixtureRequest) -> Iterator[str]:
    path = f"/{request.node.name[:60]}"
    dfs.mkdir(path)
    yield path
    dfs.rm(path, recursive=True)


def test_urls_name_the_current_or_a_named_cluster(dfs: DfsFileSystem, place: str) -> None:
    """dfs:///path and dfs://NAME/path, through fsspec's registry."""
    dfs.pipe_file(f"{place}/f", b"bytes")

    for url in (f"dfs://{place}/f", f"dfs://test{place}/f"):
        with fsspec.open(url) as file:
            assert file.read() == b"bytes"
    assert DfsFileSystem._strip_protocol("dfs://test/a//b/") == "/a/b"
    assert dfs.ls("/", detail=False) == [place]


def test_ranges_are_read_without_the_rest(dfs: DfsFileSystem, place: str) -> None:
    data = bytes(range(256)) * 10_000
    dfs.pipe_file(f"{place}/f", data)

    assert dfs.cat_file(f"{place}/f", 1_000_000, 1_100_000) == data[1_000_000:1_100_000]
    assert dfs.cat_file(f"{place}/f", -10) == data[-10:]
    assert dfs.cat_file(f"{place}/f", 5, -5) == data[5:-5]
    assert dfs.cat_ranges([f"{place}/f"] * 3, [0, 70_000, 2_559_990], [3, 70_005, 2_570_000]) == [
        data[:3],
        data[70_000:70_005],
        data[2_559_990:],
    ]
    missing = dfs.cat_ranges([f"{place}/none"], 0, 1)
    assert isinstance(missing[0], FileNotFoundError)


def test_a_file_is_read_by_seeking(dfs: DfsFileSystem, place: str) -> None:
    lines = [b"line %d\n" % number for number in range(200_000)]
    dfs.pipe_file(f"{place}/f", b"".join(lines))

    with dfs.open(f"{place}/f") as file:
        assert file.readline() == lines[0]
        file.seek(-len(lines[-1]), 2)
        assert file.read() == lines[-1]
        file.seek(0)
        assert file.readlines() == lines
    with dfs.open(f"{place}/f", "rt") as text:
        assert sum(1 for _ in text) == len(lines)


def test_exclusive_mode_creates_or_fails(dfs: DfsFileSystem, place: str) -> None:
    with dfs.open(f"{place}/f", "xb") as file:
        file.write(b"first")

    with pytest.raises(FileExistsError):
        dfs.open(f"{place}/f", "xb")
    with pytest.raises(FileExistsError):
        dfs.pipe_file(f"{place}/f", b"second", mode="create")
    assert dfs.cat_file(f"{place}/f") == b"first"


def test_one_of_many_exclusive_creators_wins(dfs: DfsFileSystem, place: str) -> None:
    outcomes: list[str] = []

    def creator(number: int) -> None:
        try:
            with dfs.open(f"{place}/f", "xb") as file:
                file.write(b"%d" % number)
            outcomes.append("won")
        except FileExistsError:
            outcomes.append("lost")

    threads = [threading.Thread(target=creator, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["lost"] * 7 + ["won"]


def test_append_mode_goes_on_at_the_end(dfs: DfsFileSystem, place: str) -> None:
    path = f"{place}/f"
    data = b"x" * 1_048_570
    for part in (data, b"0123456789abcdef", b"end"):
        with dfs.open(path, "ab") as file:
            assert file.tell() == (dfs.size(path) if dfs.exists(path) else 0)
            file.write(part)

    assert dfs.cat_file(path) == data + b"0123456789abcdef" + b"end"


def test_a_failed_with_block_leaves_no_file(dfs: DfsFileSystem, place: str) -> None:
    """A half-written file must not look complete."""
    with pytest.raises(RuntimeError):
        with dfs.open(f"{place}/f", "wb") as file:
            file.write(b"x" * 5_000_000)
            raise RuntimeError("half-way")

    assert not dfs.exists(f"{place}/f")


def test_a_transaction_appears_whole_or_not_at_all(dfs: DfsFileSystem, place: str) -> None:
    with dfs.transaction:
        for name in ("a", "b"):
            with dfs.open(f"{place}/{name}", "wb") as file:
                file.write(name.encode())
        assert not dfs.exists(f"{place}/a")
    assert dfs.cat([f"{place}/a", f"{place}/b"]) == {f"{place}/a": b"a", f"{place}/b": b"b"}

    with pytest.raises(RuntimeError):
        with dfs.transaction:
            with dfs.open(f"{place}/c", "wb") as file:
                file.write(b"c")
            raise RuntimeError("no")
    assert dfs.ls(place, detail=False) == [f"{place}/a", f"{place}/b"]


def test_an_append_that_fails_keeps_what_the_file_had(dfs: DfsFileSystem, place: str) -> None:
    """Nothing acknowledged is lost, though a new file of which the writing fails is not there."""
    dfs.pipe_file(f"{place}/old", b"precious")

    for name, mode in (("old", "ab"), ("new", "wb")):
        with pytest.raises(ZeroDivisionError), dfs.open(f"{place}/{name}", mode) as file:
            file.write(b" and more")
            raise ZeroDivisionError

    wait_for(lambda: not dfs.client.stat(f"{place}/old").is_open, 60.0, "it to be closed")
    assert dfs.cat_file(f"{place}/old").startswith(b"precious")
    assert not dfs.exists(f"{place}/new")
    with dfs.open(f"{place}/old", "ab") as file:
        file.write(b"!")
    assert dfs.cat_file(f"{place}/old").endswith(b"!")


def test_mv_is_a_rename_of_files_and_trees(dfs: DfsFileSystem, place: str) -> None:
    """GFS-31: atomic, so write-temporary-then-rename works."""
    dfs.pipe_file(f"{place}/tree/sub/f", b"bytes")
    dfs.pipe_file(f"{place}/old", b"old")
    dfs.pipe_file(f"{place}/new", b"new")

    dfs.mv(f"{place}/tree", f"{place}/moved", recursive=True)
    dfs.mv(f"{place}/new", f"{place}/old")
    dfs.mv(f"{place}/old", f"{place}/moved/")

    assert dfs.find(place) == [f"{place}/moved/old", f"{place}/moved/sub/f"]
    assert dfs.cat_file(f"{place}/moved/old") == b"new"


def test_listings_come_from_the_master(dfs: DfsFileSystem, place: str) -> None:
    for name in ("a/1", "a/2", "b/c/3"):
        dfs.pipe_file(f"{place}/{name}", name.encode())

    assert dfs.find(place) == [f"{place}/a/1", f"{place}/a/2", f"{place}/b/c/3"]
    assert dfs.find(place, maxdepth=2, withdirs=True) == [
        place, f"{place}/a", f"{place}/a/1", f"{place}/a/2", f"{place}/b", f"{place}/b/c",
    ]  # fmt: skip
    assert dfs.glob(f"{place}/*/?") == [f"{place}/a/1", f"{place}/a/2", f"{place}/b/c"]
    assert dfs.glob(f"{place}/**/3") == [f"{place}/b/c/3"]
    assert dfs.du(place) == 11
    assert [root for root, _, _ in dfs.walk(place)] == [
        place, f"{place}/a", f"{place}/b", f"{place}/b/c",
    ]  # fmt: skip
    before = dfs.client.calls_count
    dfs.find(place)
    assert dfs.client.calls_count == before + 1


def test_identity_and_times_of_a_file(dfs: DfsFileSystem, place: str) -> None:
    path = f"{place}/f"
    dfs.pipe_file(path, b"one")
    key, crc = dfs.ukey(path), dfs.checksum(path)
    created = dfs.created(path)
    assert key == dfs.ukey(path)

    dfs.pipe_file(path, b"two")

    assert dfs.ukey(path) != key
    assert dfs.checksum(path) != crc
    assert dfs.modified(path) >= created
    assert dfs.modified(f"dfs://{path}") == dfs.modified(path)
    assert created.tzinfo is not None


def test_the_checksum_does_not_depend_on_chunks(dfs: DfsFileSystem, place: str) -> None:
    """Comparable with the CRC32C of a copy anywhere."""
    from crc32c import crc32c

    data = bytes(range(251)) * 10_000
    dfs.pipe_file(f"{place}/f", data)

    assert dfs.checksum(f"{place}/f") == crc32c(data)


def test_block_locations_name_hosts(dfs: DfsFileSystem, place: str) -> None:
    dfs.pipe_file(f"{place}/f", bytes(2_500_000))

    blocks = dfs.block_locations(f"{place}/f")

    assert [(block["offset"], block["length"]) for block in blocks] == [
        (0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 2_500_000 - (2 << 20)),
    ]  # fmt: skip
    assert all(sorted(block["hosts"]) == ["h1", "h2"] for block in blocks)


def test_errors_are_the_builtin_ones(dfs: DfsFileSystem, place: str) -> None:
    dfs.pipe_file(f"{place}/d/f", b"")

    with pytest.raises(FileNotFoundError):
        dfs.info(f"{place}/none")
    with pytest.raises(FileNotFoundError):
        dfs.open(f"{place}/none")
    with pytest.raises(FileNotFoundError):
        dfs.rm(f"{place}/none")
    with pytest.raises(IsADirectoryError):
        dfs.open(f"{place}/d")
    with pytest.raises(FileExistsError):
        dfs.mkdir(f"{place}/d")
    with pytest.raises(OSError, match="not empty"):
        dfs.rmdir(f"{place}/d")
    assert not dfs.exists(f"{place}/d/f/below")


def test_file_systems_and_open_files_can_be_pickled(dfs: DfsFileSystem, place: str) -> None:
    dfs.pipe_file(f"{place}/f", b"bytes")

    again = pickle.loads(pickle.dumps(dfs))
    with dfs.open(f"{place}/f") as file:
        file.read(2)
        copy: Any = pickle.loads(pickle.dumps(file))

    assert again.cat_file(f"{place}/f") == b"bytes"
    assert copy.read() == b"tes"


def test_zip_files_are_written_and_read(dfs: DfsFileSystem, place: str) -> None:
    """Other libraries take the file objects for files."""
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", "x" * 10_000)
    dfs.pipe_file(f"{place}/z", buffer.getvalue())

    with dfs.open(f"{place}/z") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("a") == b"x" * 10_000
