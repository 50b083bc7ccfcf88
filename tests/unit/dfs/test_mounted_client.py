"""One face over several cells: who is asked, and what is put together for `/` (EV-03)."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mrstream.cluster.config.config import CellConfig
from mrstream.cluster.errors import HostUnreachable, Unavailable
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.identity import Identity
from mrstream.dfs.chunk import ServerId, cell_of, handle_name
from mrstream.dfs.client import writer
from mrstream.dfs.client.cells import MountedClient
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import BadPath, BadRequest, CrossesCells, FencedOff, MountPoint, NoSuchFile
from mrstream.dfs.metadata.events import Founded
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.mounts import Mounts
from mrstream.dfs.protocol import (
    ListDirectory,
    Locate,
    MakeDirectory,
    RaiseFence,
    Report,
    ReportReplica,
)
from mrstream.dfs.shell import changing
from mrstream.dfs.shell.arguments import Arguments
from mrstream.dfs.shell.items import Shell
from mrstream.dfs.shell.volumes import ClusterVolume, DiskVolume
from tests.support.dfs_model import CHUNK, Model

CELLS = (CellConfig("logs", "/logs", 1), CellConfig("attic", "/b", 2))


class ToModel:
    """The connection to a master: a brain in this process."""

    def __init__(self, model: Model) -> None:
        self.finding = Finding({"h1": "127.0.0.1:1"})
        self.model = model
        self.is_down = False
        self.asked: list[Any] = []
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def call(self, request: Any, timeout_s: float, number: int = 0, **more: Any) -> Any:
        if self.is_down:
            raise HostUnreachable("nobody listens there")
        self.asked.append(request)
        return self.model.call(request)

    def close(self) -> None:
        pass


class Cells:
    """A root cell and two others, and a client of all."""

    def __init__(self) -> None:
        self.models = {"": Model()}
        self.models |= {
            cell.name: Model(settings=Settings(chunk_bytes=CHUNK, cell=cell.number))
            for cell in CELLS
        }
        self.connections = {name: ToModel(model) for name, model in self.models.items()}
        self.models[""].happens(Founded("me", "us"))
        for cell in CELLS:
            self.models[cell.name].happens(Founded("me", "us", cell.path))
        cells = {cell.name: self.made(DfsClient, cell.name) for cell in CELLS}
        self.client = self.made(MountedClient, "", mounts=Mounts(CELLS), cells=cells)

    def made(self, kind: type[DfsClient], name: str, **options: Any) -> DfsClient:
        identity = Identity("c", b"s" * 32, "", "")
        client = kind("127.0.0.1:1", identity, retry=RetryPolicy(total_s=0.0), user="me", **options)
        client._connection = self.connections[name]  # type: ignore[assignment]
        return client

    def file(self, path: str) -> None:
        writer.create(self.client, path, first_chunk=False).close()


@pytest.fixture
def cells() -> Cells:
    made = Cells()
    for path in ("/a/x", "/b/y", "/logs/2026/z", "/m/w"):
        made.file(path)
    return made


def paths(found: Any) -> list[str]:
    return [one.path for one in found]


def test_a_file_lies_in_the_cell_of_its_path(cells: Cells) -> None:
    assert cell_of(cells.client.stat("/logs/2026/z").file_id) == 1
    assert cell_of(cells.client.stat("/b/y").file_id) == 2
    assert cell_of(cells.client.stat("/a/x").file_id) == 0
    assert paths(cells.models["logs"].brain.query(ListDirectory("/logs"), 0.0).entries) == [
        "/logs/2026"
    ]


def test_the_root_shows_mount_points_among_its_own(cells: Cells) -> None:
    assert paths(cells.client.list("/")) == ["/a", "/b", "/logs", "/m"]
    assert cells.client.stat("/logs").is_directory


def test_a_listing_in_pages_shows_each_mount_point_once(cells: Cells) -> None:
    seen: list[str] = []
    after = ""
    while True:
        page = cells.client.call(ListDirectory("/", after, 1))
        seen += paths(page.entries)
        if not page.next:
            break
        after = page.next
    assert seen == ["/a", "/b", "/logs", "/m"]


def test_what_a_mount_point_hides_is_not_seen(cells: Cells) -> None:
    cells.models[""].call(MakeDirectory("/logs/hidden", "me", "us", parents=True))
    assert paths(cells.client.list("/")) == ["/a", "/b", "/logs", "/m"]
    assert "/logs/hidden" not in paths(cells.client.find("/"))
    assert paths(cells.client.glob("/logs/*")) == ["/logs/2026"]
    assert cells.client.summarise("/")[0].directory_count == 6


def test_everything_below_the_root_is_in_path_order(cells: Cells) -> None:
    everything = [
        "/", "/a", "/a/x", "/b", "/b/y", "/logs", "/logs/2026", "/logs/2026/z", "/m", "/m/w",
    ]  # fmt: skip
    assert paths(cells.client.find("/")) == everything
    assert paths(cells.client.find("/", 1)) == ["/", "/a", "/b", "/logs", "/m"]
    assert paths(cells.client.find("/", 2)) == [one for one in everything if one != "/logs/2026/z"]
    assert paths(cells.client.find("/logs")) == ["/logs", "/logs/2026", "/logs/2026/z"]


def test_a_pattern_looks_into_every_cell(cells: Cells) -> None:
    assert paths(cells.client.glob("/*")) == ["/a", "/b", "/logs", "/m"]
    assert paths(cells.client.glob("/{b,m,logs}/*")) == ["/b/y", "/logs/2026", "/m/w"]


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [
        ("/logs/*/z", ["logs"]),
        ("/{logs,b}/*", ["logs", "attic"]),
        ("//./l\\ogs/*", ["logs"]),
        ("/m/*", [""]),
        ("/{m,logs}/*", ["", "logs"]),
        ("/?/*", ["", "attic"]),
        ("/[l-m]*", ["", "logs"]),
        ("/", [""]),
    ],
)
def test_a_pattern_asks_the_cells_that_may_have_its_paths(
    cells: Cells, pattern: str, asked: list[str]
) -> None:
    """A cell that is down would else keep everybody from every pattern."""
    for connection in cells.connections.values():
        connection.asked.clear()

    found = paths(cells.client.glob(pattern))

    assert sorted(name for name, one in cells.connections.items() if one.asked) == sorted(asked)
    assert found


def test_a_pattern_that_is_none_is_refused_as_without_cells(cells: Cells) -> None:
    with pytest.raises(BadPath, match="Unclosed group"):
        list(cells.client.glob("/{logs"))


def test_sums_are_those_of_all_cells(cells: Cells) -> None:
    total = cells.client.summarise("/")[0]
    assert (total.file_count, total.directory_count) == (4, 6)
    assert paths(cells.client.summarise("/", children=True)) == ["/a", "/b", "/logs", "/m"]
    assert [fact.status.path for page in cells.client.fsck("/") for fact in page.files] == [
        "/a/x", "/m/w", "/logs/2026/z", "/b/y",
    ]  # fmt: skip


def test_a_rename_across_cells_is_refused_before_anybody_is_asked(cells: Cells) -> None:
    asked = {name: len(one.asked) for name, one in cells.connections.items()}
    with pytest.raises(CrossesCells, match="/a/x is in the root cell, /logs/x in cell logs"):
        cells.client.rename("/a/x", "/logs/x")
    with pytest.raises(CrossesCells):
        cells.client.snapshot("/logs/2026", "/b/2026")
    with pytest.raises(MountPoint, match="it stays"):
        cells.client.delete("/logs", recursive=True)
    assert asked == {name: len(one.asked) for name, one in cells.connections.items()}
    cells.client.rename("/logs/2026/z", "/logs/z")
    assert cells.client.stat("/logs/z").path == "/logs/z"


def test_the_trash_of_every_cell_is_found(cells: Cells) -> None:
    hidden = {path: cells.client.delete(path) for path in ("/logs/2026/z", "/a/x", "/b/y")}
    assert {entry.original_path for entry in cells.client.trash()} == set(hidden)
    for path in hidden.values():
        assert cells.client.stat(path).path == path
    assert cells.client.undelete("/logs/2026/z") == "/logs/2026/z"
    assert cells.client.undelete(hidden["/b/y"]) == "/b/y"
    assert cells.client.expunge(now=True) == 1
    with pytest.raises(NoSuchFile):
        cells.client.stat(hidden["/a/x"])


def test_what_was_deleted_is_found_without_the_cells_that_do_not_have_it(cells: Cells) -> None:
    """Its name says whose it is; a cell that is down is not asked, wherever it stands in line."""
    in_root, in_logs, in_attic = (
        cells.client.delete(path) for path in ("/a/x", "/logs/2026/z", "/b/y")
    )
    cells.connections[""].is_down = cells.connections["logs"].is_down = True
    assert cells.client.stat(in_attic).path == in_attic
    assert cells.client.undelete(in_attic) == "/b/y"
    assert cells.client.delete("/b/y")
    for hidden in (in_root, in_logs):
        with pytest.raises(HostUnreachable):
            cells.client.stat(hidden)


@pytest.mark.parametrize("down", ["", "logs"])
def test_the_trash_of_cells_that_answer_is_listed_and_emptied(cells: Cells, down: str) -> None:
    for path in ("/a/x", "/logs/2026/z", "/b/y"):
        cells.client.delete(path)
    cells.connections[down].is_down = True
    silent: list[str] = []

    def tell(error: Unavailable) -> None:
        silent.append(str(error))
        assert error.details == {"path": f"/{down}"}

    there = {"/a/x", "/logs/2026/z", "/b/y"} - {{"": "/a/x", "logs": "/logs/2026/z"}[down]}
    assert {entry.original_path for entry in cells.client.trash(on_silent=tell)} == there
    assert cells.client.expunge(now=True, on_silent=tell) == 2
    name = f"cell {down}" if down else "the root cell"
    assert silent == [f"{name} does not answer: nobody listens there"] * 2
    with pytest.raises(Unavailable, match=f"^{name} does not answer"):
        cells.client.trash()
    cells.connections[down].is_down = False
    assert len(cells.client.trash()) == 1


def test_all_cells_are_emptied_before_one_that_is_down_is_told_of(cells: Cells) -> None:
    for path in ("/a/x", "/logs/2026/z", "/b/y"):
        cells.client.delete(path)
    cells.connections[""].is_down = True
    with pytest.raises(Unavailable, match="the root cell does not answer"):
        cells.client.expunge(now=True)
    cells.connections[""].is_down = False
    assert [entry.original_path for entry in cells.client.trash()] == ["/a/x"]


def test_the_shell_says_which_trash_it_could_not_reach_and_fails(cells: Cells) -> None:
    hidden = [cells.client.delete(path) for path in ("/logs/2026/z", "/b/y")]
    cells.connections[""].is_down = cells.connections["logs"].is_down = True
    out, error = io.BytesIO(), io.StringIO()
    volume = ClusterVolume(cells.client, "c")
    shell = Shell(
        volume, DiskVolume(), lambda name: volume, lambda name, file: iter(()), out, error
    )

    shell.verb = "undelete"
    changing.undelete(shell, Arguments(frozenset(), {}, ()))
    shell.verb = "expunge"
    changing.expunge(shell, Arguments(frozenset(["immediate"]), {}, ()))

    assert out.getvalue().decode().splitlines() == [
        f"/b/y\t{hidden[1]}", "Expunged 1 entries from the trash",
    ]  # fmt: skip
    assert shell.status == 1
    assert error.getvalue().splitlines() == [
        f"{verb}: {cell} does not answer: nobody listens there"
        for verb in ("undelete", "expunge")
        for cell in ("the root cell", "cell logs")
    ]


def test_the_trash_itself_is_that_of_all_cells(cells: Cells) -> None:
    with pytest.raises(NoSuchFile):
        cells.client.stat("/.trash")
    hidden = sorted(cells.client.delete(path) for path in ("/b/y", "/logs/2026/z", "/logs/2026"))
    assert cells.client.stat("/.trash").is_directory
    assert paths(cells.client.list("/.trash")) == hidden
    assert paths(cells.client.glob("/.trash/*")) == hidden
    assert paths(cells.client.find("/.trash")) == ["/.trash", *hidden]
    assert [one.path for one in cells.client.summarise("/.trash", children=True)] == hidden
    total = cells.client.summarise("/.trash")[0]
    assert (total.file_count, total.directory_count) == (2, 2)
    first = cells.client.call(ListDirectory("/.trash", "", 1))
    assert paths(first.entries) == hidden[:1]
    assert paths(cells.client.call(ListDirectory("/.trash", first.next, 5)).entries) == hidden[1:]


def test_a_pattern_that_names_its_cell_asks_no_other(cells: Cells) -> None:
    for name in ("logs", ""):
        cells.connections[name].is_down = True
        assert paths(cells.client.glob("/b/*")) == ["/b/y"]
    cells.connections[""].is_down = False
    with pytest.raises(HostUnreachable):
        list(cells.client.glob("/*/x"))


def test_a_recursive_change_of_the_root_reaches_every_cell(cells: Cells) -> None:
    assert cells.client.set_replication("/", 2) == 4
    cells.client.set_owner("/", owner="you", recursive=True)
    cells.client.set_mode("/", 0o700, recursive=True)
    for path in ("/a/x", "/b/y", "/logs/2026/z"):
        status = cells.client.stat(path)
        assert (status.replication, status.owner, status.mode) == (2, "you", 0o700)


def test_a_fence_is_raised_everywhere(cells: Cells) -> None:
    cells.client.raise_fence(("jobs", 7))
    for model in cells.models.values():
        assert model.brain.fences.generation("jobs") == 7


def test_who_works_under_several_fences_does_so_in_every_cell(cells: Cells) -> None:
    """A job master's own comes first; the client that it shares goes on without the job's."""
    own, lock = ("jobs", 7), ("/ls/local/nightly", 3)
    mine = cells.client.under((own,))
    of_job = mine.under((lock, ("jobs", 1)))

    of_job.make_directory("/a/d")
    of_job.make_directory("/logs/d")
    writer.create(of_job, "/logs/f", first_chunk=False)
    mine.make_directory("/b/d")

    for name in ("", "logs"):
        asked = [ask for ask in cells.connections[name].asked if type(ask) is MakeDirectory]
        assert [(ask.fence, ask.more_fences) for ask in asked[-1:]] == [(own, (lock,))]
    (open_file,) = cells.models["logs"].brain.space.writers.values()
    assert open_file.fences == (own, lock)
    fences = cells.models["attic"].brain.fences
    assert (fences.generation("jobs"), fences.generation(lock[0])) == (7, -1)
    assert cells.client.works_under == ()


def test_a_fence_is_over_where_a_later_holder_was_seen(cells: Cells) -> None:
    lock = "/ls/local/nightly"
    held = cells.client.under(((lock, 3),))
    held.check_fences()
    assert cells.models[""].brain.fences.generation(lock) == 3, "whoever asks has it"
    cells.models["logs"].call(RaiseFence((lock, 4)))

    held.at("/a/x").check_fences()
    with pytest.raises(FencedOff, match="generation 3 is over, 4 has come"):
        held.at("/logs/2026").check_fences()
    cells.client.check_fences()  # under none: nothing can be over


def test_a_bad_replica_is_reported_to_its_cell(cells: Cells) -> None:
    model = cells.models["logs"]
    opened = writer.create(cells.client, "/logs/data")
    handle = model.call(Locate("/logs/data")).chunks[0].handle
    opened.close()
    cells.client.call_once(ReportReplica(handle, 1, ServerId("s1"), "wrong sum"))  # type: ignore[arg-type]
    assert isinstance(cells.connections["logs"].asked[-1], ReportReplica)
    assert cells.client.story(handle_name(handle))
    assert cells.client.story("/logs/data")
    with pytest.raises(BadRequest, match="nonsense"):
        cells.client.story("nonsense")


def test_numbers_of_the_report_are_sums_and_servers_are_counted_once(cells: Cells) -> None:
    report = cells.client.report()
    assert report.file_count == 4
    assert [server.address.server for server in report.servers] == ["s1", "s2", "s3"]
    assert report.capacity_bytes == cells.models[""].call(Report()).capacity_bytes


def test_a_cell_that_is_down_keeps_nobody_from_the_others(cells: Cells) -> None:
    cells.connections["logs"].is_down = True
    assert paths(cells.client.list("/")) == ["/a", "/b", "/logs", "/m"]
    assert cells.client.stat("/a/x").path == "/a/x"
    assert cells.client.stat("/b/y").path == "/b/y"
    assert "cell logs does not answer" in cells.client.report().safe_mode
    with pytest.raises(HostUnreachable):
        cells.client.stat("/logs/2026")
