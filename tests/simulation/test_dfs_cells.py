"""Two masters over the same chunkservers do not interfere, whatever breaks (EV-02, M8).

Each cell is held to all that a file system of its own is held to (`dfs/run.py`): no acknowledged
byte lost or wrong, no two primaries, garbage gone. Chunkservers that are wrong about whose chunk is
whose, and a master that gives out the numbers of another cell, are each caught, or do no harm to
the other cell. `MRSTREAM_CELLS_SEEDS=FROM:TO` runs other seeds (`make soak`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import cell_of
from mrstream.dfs.chunks import allegiance
from mrstream.dfs.chunks.cell import Cell
from mrstream.dfs.chunks.mutation import MutationOrder
from tests.simulation.dfs.cells import NUMBERS, SECONDS, CellsRun
from tests.simulation.dfs.client import Program
from tests.simulation.dfs.master import NAME as ROOT
from tests.simulation.dfs.run import SETTINGS

SEEDS = range(*map(int, os.environ.get("MRSTREAM_CELLS_SEEDS", "0:5").split(":")))
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", SEEDS)
def test_two_cells_over_the_same_servers_are_two_whole_file_systems(seed: int) -> None:
    run = CellsRun(seed)
    try:
        run.live(SECONDS)
        run.settle()
        run.check()
    except BaseException as error:
        command = f"{sys.executable} -m tests.simulation.dfs.cells {seed} -v"
        raise AssertionError(f"seed {seed} fails; replay it with\n  {command}") from error


# --- wrong chunkservers ---------------------------------------------------------------------------


def tells_all(patch: pytest.MonkeyPatch) -> None:
    """Every master hears of every chunk when the server registers."""
    patch.setattr(Cell, "reports", lambda self: self._store.reports())


def collects_for_anybody(patch: pytest.MonkeyPatch) -> None:
    """The masters of a cell are asked about chunks of another, and believed: nobody has them."""

    def handles(self: Cell) -> list[int]:
        return [h for h in self._store.handles() if self.number or cell_of(h) == 0]

    patch.setattr(Cell, "handles", handles)
    patch.setattr(Cell, "garbage", lambda self, reply: list(reply.garbage))


def heard_one_heard_all(patch: pytest.MonkeyPatch) -> None:
    """A lease counts while the master of any cell answers."""
    right = MutationOrder.contact

    def contact(self: MutationOrder, heard_at_s: float, contact_s: float, cell: int = 0) -> None:
        for each in (0, *NUMBERS.values()):
            right(self, heard_at_s, contact_s, each)

    patch.setattr(MutationOrder, "contact", contact)


def one_epoch_for_all(patch: pytest.MonkeyPatch) -> None:
    """The file of epochs is shared: after a start the cell with the lower one is deposed."""
    patch.setattr(allegiance, "epochs_name", lambda cell: allegiance.EPOCHS)


WRONG: dict[str, tuple[Patch, int]] = {
    "tells_all": (tells_all, 0),
    "collects_for_anybody": (collects_for_anybody, 0),
    "one_epoch_for_all": (one_epoch_for_all, 15),
}
"""Each with a seed that finds it."""


@pytest.mark.parametrize("name", WRONG)
def test_a_server_that_mixes_cells_up_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, seed = WRONG[name]
    patch(monkeypatch)
    run = CellsRun(seed)

    def history() -> None:
        run.live(SECONDS)
        run.settle()
        run.check()

    with pytest.raises(AssertionError):
        history()


def cut_from_one_master(run: CellsRun) -> None:
    """A primary that only its own master cannot reach any more: another one takes its place while
    the other cell's master answers it as before."""
    half = run.root
    client = half.clients[0]

    def program() -> Program:
        opened = yield from client.call(p.CreateFile("/x", "c", "me", first_chunk=True))
        grant, file_id, epoch = opened.grant, opened.status.file_id, opened.epoch
        yield from client.write_at(opened, "", grant, [(0, b"first")])
        half._cut({(grant.primary, ROOT), (ROOT, grant.primary)})
        yield client._pause(SETTINGS.dead_after_s + 1.0)
        find = p.FindLease("", 0, file_id, epoch, grant.version, (grant.primary,))
        grant = yield from client.call(find)
        answer = yield from client.mutate(
            grant, b"second", lambda data_id: p.WriteChunk(
                grant.handle, grant.version, 5, 6, data_id, grant.replicas
            ),
        )  # fmt: skip
        assert answer[0] == "ok", answer

    run.world.run(2.0)
    client.run(program())
    run.world.run(15.0)
    assert client.is_done


def test_a_primary_that_its_master_gave_up_does_not_live_on_another_masters_answers() -> None:
    cut_from_one_master(CellsRun(3))


def test_a_lease_that_counts_while_any_master_answers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard_one_heard_all(monkeypatch)
    with pytest.raises(AssertionError, match="two primaries"):
        cut_from_one_master(CellsRun(3))


# --- a wrong master -------------------------------------------------------------------------------


def beside_a_wrong_master(seed: int) -> None:
    """The second master gives out handles of the root cell; the root cell is to lose nothing."""
    run = CellsRun(seed, SETTINGS)
    run.world.after_each = run.root._after_each
    run.live(SECONDS)
    run.root.settle()
    run.root.check()


def test_a_master_that_gives_out_anothers_handles_harms_only_itself() -> None:
    beside_a_wrong_master(1)


def test_a_server_that_obeys_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cell, "check", lambda self, command: None)
    with pytest.raises(AssertionError):
        beside_a_wrong_master(1)
