"""A master whose log is older than what its chunkservers hold says so, and has nothing deleted.

The bug: a log that was gone, cut or put back from a backup came up without a word, and every chunk
that it did not know was deleted as garbage.
"""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, ServerId, pack_reports
from mrstream.dfs.metadata.events import Called, Halt, LogInDoubt, LossAccepted
from mrstream.dfs.metadata.grants import HANDLES_RESERVED_AT_ONCE
from mrstream.dfs.metadata.operations import HandlesReserved
from mrstream.dfs.oplog import encode_record
from tests.support.dfs_model import Model


def with_an_older_log(model: Model, count: int) -> Model:
    """The same servers, and a master that has only the first records of the log."""
    del model.log[count:]
    model.restart_brain()
    return model


def register(model: Model, name: str) -> p.Register:
    address = p.ServerAddress(ServerId(name), name, 1, 2)
    return p.Register(address, 2, "cluster", model.servers[name].disks, ())


def report_of(handle: int) -> bytes:
    return pack_reports([ChunkReport(ChunkHandle(handle), ChunkVersion(1), 5)])


def test_an_empty_log_halts_at_the_first_chunk_that_it_hears_of() -> None:
    model = Model()
    model.put("/kept", 100)
    with_an_older_log(model, 0)

    model.call(register(model, "s1"))
    model.begin(p.ReportChunks(ServerId("s1"), 2, 0, model.servers["s1"].reports(), True))

    assert "s1 has chunk 0000000000000001" in model.halted
    assert "none from 0000000000000001 on" in model.halted


def test_a_log_that_ends_before_a_reservation_halts_at_a_chunk_beyond_it() -> None:
    model = Model()
    model.put("/kept", 100)
    known = len(model.log)
    beyond = 2 * HANDLES_RESERVED_AT_ONCE
    model.servers["s1"].chunks[beyond] = model.servers["s1"].chunks[1]
    with_an_older_log(model, known)

    model.call(register(model, "s1"))
    model.begin(p.ReportChunks(ServerId("s1"), 2, 0, model.servers["s1"].reports(), True))

    assert f"{beyond:016x}" in model.halted


@pytest.mark.parametrize("field", ["sample", "changed", "corrupt"])
def test_a_heartbeat_that_names_such_a_chunk_gets_no_answer(field: str) -> None:
    """Its answer could call the chunk garbage; and what was decided before is not said either."""
    model = Model(1)
    handle = HANDLES_RESERVED_AT_ONCE + 1
    told = {
        "sample": report_of(handle),
        "changed": report_of(handle),
        "corrupt": ((ChunkHandle(handle), ChunkVersion(1)),),
    }
    server = model.servers["s1"]
    beat = p.Heartbeat(server.id, 1, 1, server.disks, **{field: told[field]})

    commands = model.brain.handle(Called(99, beat), model.now_s, model.wall_s)
    after = model.brain.handle(Called(100, p.MakeDirectory("/a", "me")), model.now_s, model.wall_s)

    assert [type(command) for command in commands + after] == [Halt, Halt]


def test_what_was_reserved_and_is_not_in_a_file_is_ordinary_garbage() -> None:
    """A chunk was made, and the master died before it was a file's: no reason to halt."""
    model = Model(1)
    model.put("/f", 100)
    model.servers["s1"].chunks[HANDLES_RESERVED_AT_ONCE] = model.servers["s1"].chunks[1]

    model.crash()
    garbage = model.beat()["s1"].garbage

    assert not model.halted
    assert garbage == ((HANDLES_RESERVED_AT_ONCE, 1),)


def test_while_the_log_is_in_doubt_no_recent_chunk_is_garbage() -> None:
    """A log cut within a reservation: a copy that goes further may be on a host that is down, and
    what it names must still be there when it comes back."""
    model = Model(1)
    model.put("/known", 100)
    known = len(model.log)
    model.put("/cut-off", 100)
    with_an_older_log(model, known)
    model.happens(LogInDoubt(True))
    model.register(model.servers["s1"])

    doubted = model.beat()["s1"].garbage
    bad = model.beat(corrupt=((ChunkHandle(2), ChunkVersion(1)),))["s1"].garbage
    model.happens(LogInDoubt(False))
    sure = model.beat()["s1"].garbage

    assert not model.halted
    assert (doubted, bad) == ((), ())
    assert sure == ((2, 1),)


def test_a_log_in_doubt_still_lets_old_and_new_garbage_go() -> None:
    """A copy's host may be down for weeks: disks must not fill up meanwhile."""
    model = Model(1)
    blocks = 4 * HANDLES_RESERVED_AT_ONCE
    model.log.append(encode_record(HandlesReserved(ChunkHandle(blocks))))
    model.crash()
    model.happens(LogInDoubt(True))
    model.put("/new", 100)
    new = next(iter(model.servers["s1"].chunks))
    model.call(p.Delete("/new", "me", skip_trash=True))
    sample = pack_reports(
        ChunkReport(ChunkHandle(handle), ChunkVersion(1), 5) for handle in (7, blocks - 1, new)
    )

    garbage = model.beat(sample=sample)["s1"].garbage

    assert new >= blocks
    assert garbage == ((7, 1), (new, 1))


def test_a_loss_that_a_person_accepted_makes_garbage_of_what_came_after() -> None:
    """Else a master could never go on with the best log that is left."""
    model = Model(1)
    known = len(model.log)
    model.put("/lost", 100)
    (lost,) = model.servers["s1"].chunks
    with_an_older_log(model, known)

    model.happens(LossAccepted())
    model.register(model.servers["s1"])
    garbage = model.beat()["s1"].garbage
    model.put("/new", 100)

    assert not model.halted
    assert garbage == ((lost, 1),)
    assert all(handle > 1 << 32 for handle in model.servers["s1"].chunks if handle != lost)
