"""Several masters over one chunkserver: every cell's chunks are its own (EV-02)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, cell_of, first_command_id, first_of_cell
from mrstream.dfs.chunks.allegiance import EPOCHS, allegiance_of
from mrstream.dfs.chunks.cell import Cell
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.chunks.scrub import verify
from mrstream.dfs.errors import ChunkCorrupt, FileReplaced, LeaseExpired, WrongCell
from mrstream.dfs.metadata.events import Founded
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import fold
from mrstream.dfs.protocol import (
    AllocateChunk,
    AppendsBefore,
    CloseFile,
    Command,
    CopyChunk,
    CreateChunk,
    CreateFile,
    Delete,
    DeleteChunk,
    HeartbeatReply,
    HeldLease,
    JoinFiles,
    Stat,
)
from tests.support.dfs_model import CHUNK, Model
from tests.support.forgetful_disk import ForgetfulDisk

LOGS = 3
OWN, OTHER = 7, first_of_cell(LOGS) + 7
"""A chunk of the root cell, and one of another cell."""
VERSION = ChunkVersion(1)


class Server:
    """A store with a chunk of each of two cells, a lease on each, and both cells' views."""

    def __init__(self) -> None:
        self.disk = ForgetfulDisk(name="a")
        self.store = ChunkStore([self.disk], cluster="c", server="s1")
        self.order = MutationOrder()
        for handle in (OWN, OTHER):
            replica = self.store.create(handle, VERSION)
            self.store.write(replica, 0, [memoryview(b"bytes")])
            self.order.granted(handle, VERSION, 60.0, 0.0)
        self.root = Cell(0, self.store, self.order)
        self.logs = Cell(LOGS, self.store, self.order)

    def has_lease(self, handle: int, now_s: float) -> bool:
        return handle in {lease.handle for lease in self.order.held(now_s)}


class TestTold:
    def test_masters_hear_of_their_own_chunks_only(self) -> None:
        server = Server()
        for cell, handle in ((server.root, OWN), (server.logs, OTHER)):
            assert cell.handles() == [handle]
            assert [report.handle for report in cell.reports()] == [handle]
            assert [lease.handle for lease in cell.held(1.0)] == [handle]
            assert [lease.handle for lease in cell.to_extend(40.0, 50.0)] == [handle]
            assert cell.own([OWN, OTHER]) == [handle]

    def test_a_bad_replica_is_told_to_its_own_master(self) -> None:
        server = Server()
        server.disk.flip_bit(path_of(OTHER, "data"), 3)
        with pytest.raises(ChunkCorrupt):
            verify(server.store, OTHER)
        assert server.root.corrupt() == ()
        assert server.logs.corrupt() == ((OTHER, VERSION),)


class TestObeyed:
    def test_what_a_master_calls_garbage_of_another_cell_stays(self) -> None:
        reply = HeartbeatReply(garbage=((ChunkHandle(OWN), VERSION), (ChunkHandle(OTHER), VERSION)))
        assert Server().root.garbage(reply) == [(OWN, VERSION)]
        assert Server().logs.garbage(reply) == [(OTHER, VERSION)]

    def test_leases_of_another_cell_are_neither_ended_nor_prolonged(self) -> None:
        server = Server()
        server.root.void([ChunkHandle(OWN), ChunkHandle(OTHER)])
        assert not server.has_lease(OWN, 1.0) and server.has_lease(OTHER, 1.0)
        prolonged = HeldLease(ChunkHandle(OTHER), VERSION, 1000.0)
        server.root.extend(HeartbeatReply(extended=(prolonged,)), 0.0)
        assert not server.has_lease(OTHER, 60.0)
        server.logs.extend(HeartbeatReply(extended=(prolonged,)), 0.0)
        assert server.has_lease(OTHER, 60.0)

    @pytest.mark.parametrize(
        "command",
        [
            DeleteChunk(1, ChunkHandle(OTHER), VERSION, "garbage"),
            CopyChunk(1, ChunkHandle(OTHER), VERSION, ChunkHandle(OWN + 1), VERSION, 5),
            CreateChunk(
                1, ChunkHandle(OWN + 1), VERSION, 0.0, before=AppendsBefore(
                    ChunkHandle(OTHER), VERSION, 5, ()
                ),
            ),
        ],
        ids=lambda command: type(command).__name__,
    )  # fmt: skip
    def test_a_command_that_names_a_chunk_of_another_cell_is_refused(
        self, command: Command
    ) -> None:
        with pytest.raises(WrongCell, match="of cell 3, and comes from a master of cell 0"):
            Server().root.check(command)

    def test_a_command_on_its_own_chunk_is_not(self) -> None:
        Server().logs.check(DeleteChunk(1, ChunkHandle(OTHER), VERSION, "garbage"))

    def test_a_lease_counts_while_its_own_master_is_heard(self) -> None:
        server = Server()
        server.root.contact(10.0, 5.0)
        server.order.check(OWN, VERSION, 12.0)
        with pytest.raises(LeaseExpired, match="the master has not answered"):
            server.order.check(OTHER, VERSION, 12.0)
        server.logs.contact(11.0, 5.0)
        server.order.check(OTHER, VERSION, 12.0)

    def test_epochs_of_two_cells_have_nothing_to_do_with_each_other(self) -> None:
        """The second cell is new: its epochs begin low, while the first is at 40."""
        disk = ForgetfulDisk(name="a")
        store = ChunkStore([disk], cluster="c", server="s1")
        allegiance_of(store).meet(40)
        allegiance_of(store, LOGS).meet(1)
        disk.crash(random.Random(1))
        again = ChunkStore([disk], cluster="c", server="s1")
        assert allegiance_of(again).epoch == 40
        assert allegiance_of(again, LOGS).epoch == 1
        assert disk.exists(EPOCHS) and disk.exists(f"{EPOCHS}-{LOGS}")

    def test_command_numbers_of_two_cells_meet(self) -> None:
        """Why outcomes are kept once for each cell."""
        root, logs = Model(), Model(settings=Settings(chunk_bytes=CHUNK, cell=LOGS))
        for model in (root, logs):
            make_file(model, "/a")
        numbers = [{command.command_id for _, command in model.sent} for model in (root, logs)]
        assert numbers[0] & numbers[1]
        assert first_command_id(1) in numbers[0]


def make_file(model: Model, path: str) -> Any:
    opened = model.call(CreateFile(path, "c", "me"))
    grant = model.call(AllocateChunk(opened.status.file_id, opened.epoch, 0, 0))
    closed = model.call(CloseFile(opened.status.file_id, opened.epoch, 0))
    return grant.handle, closed


class TestBrain:
    def model(self, cell: int = LOGS) -> Model:
        return Model(settings=Settings(chunk_bytes=CHUNK, cell=cell))

    def test_handles_and_file_ids_are_the_cells(self) -> None:
        handle, status = make_file(self.model(), "/a")
        assert cell_of(handle) == cell_of(status.file_id) == LOGS
        handle, status = make_file(self.model(0), "/a")
        assert cell_of(handle) == cell_of(status.file_id) == 0 and handle == 1

    def test_a_restart_goes_on_in_the_cell(self) -> None:
        model = self.model()
        first, _ = make_file(model, "/a")
        model.crash()
        again, status = make_file(model, "/b")
        assert again > first and cell_of(again) == cell_of(status.file_id) == LOGS
        loaded = Metadata(model.settings, random.Random(1))
        load_image(loaded, iter(pack_image(model.brain)))
        assert loaded.cell == LOGS
        assert loaded.query(Stat("/b"), 0.0).file_id == status.file_id

    def test_rows_that_are_used_again_stay_in_the_cell(self) -> None:
        model = self.model()
        ids = []
        for _ in range(3):
            ids.append(make_file(model, "/a")[1].file_id)
            model.call(Delete("/a", "me", skip_trash=True))
        assert len(set(ids)) == 3 and {cell_of(one) for one in ids} == {LOGS}
        assert len({one & 0xFFFFFFFF for one in ids}) == 1

    def test_a_file_id_of_another_cell_is_nobodys(self) -> None:
        """A join by ids that were looked up elsewhere must not take files that happen to have the
        same row here."""
        root, logs = self.model(0), self.model()
        _, foreign = make_file(logs, "/a")
        make_file(root, "/a")
        with pytest.raises(FileReplaced, match="is gone"):
            root.call(JoinFiles("/joined", (foreign.file_id,), "me"))

    def test_the_mount_point_is_there_from_the_beginning(self) -> None:
        model = self.model()
        model.happens(Founded("me", "us", "/logs"))
        status = model.call(Stat("/logs"))
        assert status.is_directory and (status.owner, status.group) == ("me", "us")
        again = Metadata(model.settings, random.Random(1))
        for payload in model.log:
            fold(payload, again)
        assert again.query(Stat("/logs"), 0.0).file_id == status.file_id
