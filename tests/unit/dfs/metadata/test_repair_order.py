"""Which chunk is copied first when several lack a replica (GFS §4.3)."""

from __future__ import annotations

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle
from tests.support.dfs_model import Model


def clones(model: Model) -> list[ChunkHandle]:
    """The chunks that were ordered to be cloned, in that order."""
    return [command.handle for _, command in model.sent if isinstance(command, p.CloneChunk)]


def handle_of(model: Model, path: str) -> ChunkHandle:
    (chunk,) = model.locate(path)
    return chunk.handle


def test_4_3_live_files_are_repaired_before_deleted_ones() -> None:
    """GFS-61: what is in the trash was made first, and waits all the same."""
    model = Model(servers=4)
    model.put("/deleted", 10)
    deleted = handle_of(model, "/deleted")
    model.put("/live", 10)
    live = handle_of(model, "/live")
    model.call(p.Delete("/deleted", "me"))
    both = set(model.where("/live")) & {
        server.id for server in model.servers.values() if deleted in server.chunks
    }

    model.kill(sorted(both)[0])
    model.pass_time(60)

    assert [handle for handle in clones(model) if handle in (deleted, live)] == [live, deleted]


def test_4_3_a_chunk_that_a_client_waits_for_goes_first() -> None:
    """GFS-61: its client cannot go on before there are two copies; the other has one left, too,
    and stood in the queue before it."""
    model = Model(servers=3)
    model.put("/waits", 10, replication=3)
    model.put("/asked", 10, replication=2)
    waits, asked = handle_of(model, "/waits"), handle_of(model, "/asked")
    keeper = model.where("/asked")[0]
    for name in list(model.servers):
        if name != keeper:
            model.kill(name)
    model.pass_time(60)
    assert clones(model) == [], "there is nowhere to put them"

    model.add_server("s9")
    call = model.begin(p.FindLease("/asked", 0))
    model.pass_time(60)

    assert model.is_answered(call)
    assert clones(model) == [asked, waits]
