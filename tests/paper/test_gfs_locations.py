"""GFS §2.6.2, §2.7.1: what servers say about replicas is believed in the right order, and a reader
waits for a server that is only away. A chunk is lost when all its replicas are, not before."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.client import writer
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import NoReplica, NotRegistered
from tests.cluster.local import CHUNKSERVER, LocalCluster, wait_for
from tests.support.dfs_model import FakeServer, Model


def heartbeat(model: Model, server: FakeServer) -> p.Heartbeat:
    """The heartbeat of a server as it is now, to be delivered later."""
    return p.Heartbeat(
        server.id, server.incarnation, model.number(), server.disks,
        changed=server.reports(), sample=server.reports(),
    )  # fmt: skip


def test_a_length_looked_up_before_the_file_was_closed_does_not_make_a_replica_short() -> None:
    """The writer's close and the servers' heartbeats come over different connections: what was sent
    first may arrive last. For a moment a file just acknowledged had no replica at all."""
    model = Model()
    opened = model.create("/f", first_chunk=True)
    assert opened.grant is not None
    model.write(opened.grant, 50)
    on_their_way = [heartbeat(model, server) for server in model.servers.values()]
    model.write(opened.grant, 100)
    model.close(opened, 100)

    for message in on_their_way:
        model.call(message)

    assert model.where("/f") == ["s1", "s2", "s3"]
    model.beat()
    assert model.where("/f") == ["s1", "s2", "s3"]


def test_a_replica_that_is_said_to_be_short_twice_is_short() -> None:
    """The second time it was looked up after the first was answered, so after the close."""
    model = Model(servers=4)
    model.put("/f", 100)
    name = model.where("/f")[0]
    (handle,) = (chunk.handle for chunk in model.locate("/f"))
    model.servers[name].chunks[handle].length = 50

    model.beat()
    assert name in model.where("/f")
    model.beat()

    assert name not in model.where("/f")


def test_a_restarted_server_is_believed_at_once() -> None:
    """A power cut takes what was not synced; its first report says so."""
    model = Model(servers=4)
    model.put("/f", 100)
    name = model.where("/f")[0]
    (handle,) = (chunk.handle for chunk in model.locate("/f"))
    model.servers[name].chunks[handle].length = 50

    model.restart(name)

    assert name not in model.where("/f")


def test_a_chunk_made_while_its_server_reports_is_not_taken_for_lost() -> None:
    """A large server's report comes in parts; what is created meanwhile is in none of them."""
    model = Model(servers=1)
    model.put("/old", 10, replication=1)
    server = model.servers["s1"]
    address = p.ServerAddress(server.id, server.id, 1, 2, "")
    reports = server.reports()
    model.call(p.Register(address, server.incarnation, "cluster", server.disks, (), number=900))
    model.call(p.ReportChunks(server.id, server.incarnation, 0, reports, False, 900))

    model.put("/new", 10, replication=1)
    model.call(p.ReportChunks(server.id, server.incarnation, 1, b"", True, 900))

    assert model.where("/new") == ["s1"]
    assert model.where("/old") == ["s1"]


def test_the_report_of_an_overtaken_registration_is_refused() -> None:
    """A server whose connection broke registers again; the rest of its old report may still be on
    its way, and says nothing about what it has got since."""
    model = Model(servers=1)
    server = model.servers["s1"]
    address = p.ServerAddress(server.id, server.id, 1, 2, "")
    for number in (900, 901):
        model.call(
            p.Register(address, server.incarnation, "cluster", server.disks, (), number=number)
        )

    with pytest.raises(NotRegistered, match="registration 900 was overtaken"):
        model.call(p.ReportChunks(server.id, server.incarnation, 0, b"", True, 900))


def test_what_is_reported_while_a_version_is_changed_counts_afterwards() -> None:
    """The replica of a server that came back in the middle was found only by its next sample, which
    for a server of a million chunks is a quarter of an hour later."""
    model = Model(servers=2)
    model.put("/f", 100, replication=2)
    (handle,) = (chunk.handle for chunk in model.locate("/f"))
    for server in model.servers.values():
        server.is_mute = True
    opened = model.call(p.OpenAppend("/f", "client", "me"))
    asked = model.begin(p.FindLease("/f", 0, opened.status.file_id, opened.epoch))
    assert model.brain.underways.of(handle) is not None
    model.brain.tables.chunks.lose(handle, 0)

    model.register(model.servers["s1"])
    assert model.where("/f") == ["s2"]
    model.pass_time(20)

    assert model.is_answered(asked)
    assert model.brain.underways.of(handle) is None
    assert model.where("/f") == ["s1", "s2"]


def test_what_is_gone_while_a_version_is_changed_is_gone_afterwards() -> None:
    """Seed 143: a server lost power, and reported without the chunk just as it was being sealed. It
    went on being called a holder, so that the seal was tried in vain for ever."""
    model = Model(servers=2)
    model.put("/f", 100, replication=2)
    (handle,) = (chunk.handle for chunk in model.locate("/f"))
    for server in model.servers.values():
        server.is_mute = True
    opened = model.call(p.OpenAppend("/f", "client", "me"))
    model.begin(p.FindLease("/f", 0, opened.status.file_id, opened.epoch))
    assert model.brain.underways.of(handle) is not None

    del model.servers["s1"].chunks[handle]
    model.restart("s1")
    model.pass_time(20)

    assert model.brain.underways.of(handle) is None
    assert model.where("/f") == ["s2"]


def test_where_no_replica_is_known_the_servers_that_may_have_one_are_named() -> None:
    """GFS-29: a clear error."""
    model = Model(servers=3)
    model.put("/f", 10, replication=1)
    (holder,) = model.where("/f")
    model.kill(holder)
    model.pass_time(15)

    (chunk,) = model.locate("/f")

    assert (chunk.replicas, chunk.silent) == ((), (holder,))


def test_a_reader_waits_for_the_only_holder_to_come_back(tmp_path: Path) -> None:
    """§2.7.1: all holders are taken for dead, the bytes are there: no error, only a wait."""
    with LocalCluster(tmp_path, 2, dfs={"replication": "1"}) as cluster:
        client = cluster.client(retry_s=120.0)
        with writer.create(client, "/f") as file:
            file.write(b"kept" * 10_000)
        (chunk,) = client.locate("/f").chunks
        (holder,) = chunk.replicas
        cluster.signal(CHUNKSERVER, holder.server, signal.SIGSTOP)
        wait_for(lambda: not client.locate("/f").chunks[0].replicas, 60.0, "it to be given up")
        with pytest.raises(
            NoReplica, match=f"may be on a chunkserver that is down: {holder.server}"
        ):
            DfsReader(cluster.client(retry_s=0.0), "/f").read(1)
        content: list[bytes] = []
        reading = threading.Thread(target=lambda: content.append(DfsReader(client, "/f").read()))

        reading.start()
        before = client.calls_count
        wait_for(lambda: client.calls_count > before + 1, 60.0, "the reader to have asked twice")
        cluster.signal(CHUNKSERVER, holder.server, signal.SIGCONT)
        reading.join(120.0)

        assert content == [b"kept" * 10_000]


def test_a_chunk_is_not_changed_at_one_replica_alone_while_others_may_be_reported() -> None:
    """Right after a start: theirs would be stale for nothing, and the only copy may be rotten."""
    model = Model(servers=3)
    model.put("/f", 100)
    for name in list(model.servers):
        model.kill(name)
    model.restart_brain()
    model.restart("s2")

    with pytest.raises(NoReplica, match=r"one replica alone is known of .* waiting for s1, s3"):
        model.call(p.FindLease("/f", 0))
    model.restart("s1")
    asked = model.begin(p.FindLease("/f", 0))
    model.pass_time(model.settings.lease_s)  # of a lease that the master before may have given
    grant = model.answer(asked)

    assert sorted(server.server for server in grant.replicas) == ["s1", "s2"]


def test_one_replica_alone_is_changed_when_nobody_else_came_in_time() -> None:
    model = Model(servers=3)
    model.put("/f", 100)
    for name in list(model.servers):
        model.kill(name)
    model.restart_brain()
    model.restart("s2")

    model.pass_time(model.settings.safe_mode_s_max + 1)
    grant = model.call(p.FindLease("/f", 0))

    assert [server.server for server in grant.replicas] == ["s2"]
