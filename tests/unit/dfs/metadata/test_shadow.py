"""A shadow folds what is committed and answers questions; it decides nothing (F4, GFS §5.1.3)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mrstream.cluster.errors import ClusterError
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.errors import NotRegistered
from mrstream.dfs.metadata.events import Called, Command, LeadershipBegan, Refuse, Reply, Tick
from mrstream.dfs.metadata.image import pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.oplog import decode_record
from tests.support.dfs_model import FakeServer, Model


class Shadow:
    """A brain that follows the log of a model, and what the model's servers tell it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.brain = Metadata(model.settings, random.Random(2))
        self.applied = 0
        self._numbers = 1000

    def follow(self, up_to: int | None = None) -> None:
        """Fold what is in the log."""
        for payload in self.model.log[self.applied : up_to]:
            self.brain.apply(decode_record(payload))
            self.applied += 1

    def call(self, request: Any) -> Any:
        now_s, wall_s = self.model.now_s, self.model.wall_s
        (answer,) = self.brain.handle(Called(1, request), now_s, wall_s)
        self.brain.check_invariants(everything=True)
        if isinstance(answer, Refuse):
            raise answer.error
        assert isinstance(answer, Reply), f"F4: {answer}"
        return answer.value

    def register(self, server: FakeServer, leases: tuple[p.HeldLease, ...] = ()) -> Any:
        self._numbers += 1
        address = p.ServerAddress(server.id, server.id, 1, 2, server.rack)
        return self.call(
            p.Register(
                address, server.incarnation, "cluster", server.disks, leases, number=self._numbers
            )
        )

    def report(self, server: FakeServer) -> None:
        self.call(
            p.ReportChunks(server.id, server.incarnation, 0, server.reports(), True, self._numbers)
        )

    def watch(self) -> None:
        for server in self.model.servers.values():
            self.register(server)
            self.report(server)

    def beat(self, server: FakeServer, **fields: Any) -> p.HeartbeatReply:
        self._numbers += 1
        reply: p.HeartbeatReply = self.call(
            p.Heartbeat(server.id, server.incarnation, self._numbers, server.disks, **fields)
        )
        return reply

    def readers_go_to(self, path: str) -> list[str]:
        located: p.Located = self.brain.query(p.Locate(path, 0, 10), self.model.now_s)
        return sorted(a.server for chunk in located.chunks for a in chunk.replicas)

    def image(self) -> bytes:
        return b"".join(pack_image(self.brain))


@pytest.fixture
def model() -> Model:
    model = Model()
    model.put("/f", 10)
    return model


@pytest.fixture
def shadow(model: Model) -> Shadow:
    shadow = Shadow(model)
    shadow.follow()
    shadow.watch()
    return shadow


class TestWatching:
    def test_it_answers_where_the_chunks_are(self, shadow: Shadow) -> None:
        assert shadow.readers_go_to("/f") == ["s1", "s2", "s3"]

    def test_it_says_that_it_does_not_lead(self, shadow: Shadow, model: Model) -> None:
        settings = shadow.register(model.servers["s1"])

        assert not settings.leads and settings.void == () and settings.epoch == 0

    def test_a_server_that_the_log_does_not_know_yet_comes_again(self, model: Model) -> None:
        """`ServerKnown` is the leader's to write."""
        shadow = Shadow(model)

        with pytest.raises(NotRegistered, match="does not know of it yet"):
            shadow.register(model.servers["s1"])

        shadow.follow()
        assert not shadow.register(model.servers["s1"]).leads

    def test_what_is_told_changes_nothing_that_is_logged(self, shadow: Shadow) -> None:
        before = shadow.image()
        other = Shadow(shadow.model)
        other.follow()

        shadow.watch()
        for server in shadow.model.servers.values():
            shadow.beat(server, sample=server.reports(), lost=(1,))
        shadow.brain.handle(Tick(), shadow.model.now_s + 100.0, shadow.model.wall_s)

        assert shadow.image() == before == other.image()

    def test_it_calls_nothing_garbage(self, shadow: Shadow, model: Model) -> None:
        """It may be behind: the file of this chunk is in a record that it has yet to read."""
        model.put("/new", 10)
        server = model.servers["s1"]

        reply = shadow.beat(server, sample=server.reports(), corrupt=((99, 1),))

        assert reply == p.HeartbeatReply()
        shadow.follow()
        shadow.beat(server, sample=server.reports())
        assert shadow.readers_go_to("/new") == ["s1"]

    def test_it_extends_no_lease(self, shadow: Shadow, model: Model) -> None:
        opened = model.create("/open", first_chunk=True)
        assert opened.grant is not None
        shadow.follow()
        held = p.HeldLease(opened.grant.handle, opened.grant.version, 1.0)

        assert shadow.beat(model.servers[opened.grant.primary], extend=(held,)).extended == ()

    def test_it_judges_nobodys_log(self, shadow: Shadow, model: Model) -> None:
        """A leader halts at a handle beyond what its log reserved; a shadow is behind."""
        server = model.servers["s1"]
        server.chunks[1 << 40] = next(iter(server.chunks.values()))

        shadow.register(server)
        shadow.report(server)  # no Halt

    def test_it_takes_nothing_but_what_chunkservers_tell(self, shadow: Shadow) -> None:
        with pytest.raises(AssertionError, match="before its time"):
            shadow.call(p.MakeDirectory("/d", "me"))


class TestReplicas:
    def test_a_replica_behind_the_log_is_not_shown(self, shadow: Shadow, model: Model) -> None:
        """M4: a new version was granted while s3 was away."""
        model.kill("s3")
        model.pass_time(model.settings.dead_after_s + 1.0)
        grant = model.call(p.FindLease("/f", 0))
        model.write(grant, 20)

        shadow.follow()

        assert shadow.readers_go_to("/f") == [], "nobody has told of the new version"
        for name in ("s1", "s2", "s3"):
            server = model.servers[name]
            shadow.beat(server, changed=server.reports())
        assert shadow.readers_go_to("/f") == ["s1", "s2"]

    def test_a_forgotten_server_holds_nothing(self, shadow: Shadow, model: Model) -> None:
        model.kill("s3")
        model.pass_time(model.settings.dead_after_s + 1.0)
        model.call(p.ForgetServer(ServerId("s3")))

        shadow.follow()

        assert shadow.readers_go_to("/f") == ["s1", "s2"]

    def test_a_silent_server_is_not_shown(self, shadow: Shadow, model: Model) -> None:
        now_s = model.now_s + model.settings.dead_after_s + 1.0
        shadow.brain.handle(Tick(), now_s, model.wall_s)

        assert shadow.readers_go_to("/f") == []


class TestTakingOver:
    def lead(self, shadow: Shadow) -> list[Command]:
        model = shadow.model
        return shadow.brain.handle(LeadershipBegan(2), model.now_s, model.wall_s)

    def test_readers_are_sent_on_at_once(self, shadow: Shadow) -> None:
        """Where replicas were counts until their servers have come, or must be dead."""
        assert self.lead(shadow) == []

        assert shadow.readers_go_to("/f") == ["s1", "s2", "s3"]

    def test_who_watched_has_to_register_anew(self, shadow: Shadow, model: Model) -> None:
        """Its leases are in the registration, and a shadow did not look at them."""
        self.lead(shadow)

        with pytest.raises(NotRegistered):
            shadow.beat(model.servers["s1"])
        assert shadow.register(model.servers["s1"]).leads

    def test_no_lease_is_given_on_the_word_of_a_shadow(self, shadow: Shadow, model: Model) -> None:
        """F3: all three replicas are known from watching; one server holds a lease of before."""
        opened = model.create("/open", first_chunk=True)
        assert opened.grant is not None
        shadow.follow()
        shadow.watch()
        self.lead(shadow)
        holder = opened.grant.primary
        for name in sorted({"s1", "s2", "s3"} - {holder}):
            shadow.register(model.servers[name])
            shadow.report(model.servers[name])

        status = opened.status
        ask = p.FindLease("/open", 0, file_id=status.file_id, epoch=opened.epoch)
        commands = shadow.brain.handle(Called(2, ask), model.now_s, model.wall_s)

        assert not any(isinstance(command, Reply | Refuse) for command in commands)

    def test_those_that_never_come_are_given_up(self, shadow: Shadow, model: Model) -> None:
        self.lead(shadow)
        server = model.servers["s1"]
        shadow.register(server)
        shadow.report(server)

        model.now_s += model.settings.dead_after_s - 1.0
        shadow.beat(server)
        model.now_s += 2.0
        shadow.brain.handle(Tick(), model.now_s, model.wall_s)

        assert shadow.readers_go_to("/f") == ["s1"]

    def test_safe_mode_waits_for_those_that_were_seen_until_they_must_be_dead(
        self, shadow: Shadow, model: Model
    ) -> None:
        """A host that died with the leader does not hold up repair, nor writers that wait for it,
        for as long as the start of a whole cluster may take."""
        self.lead(shadow)
        for name in ("s1", "s2"):
            shadow.register(model.servers[name])
            shadow.report(model.servers[name])
        assert "s3" in shadow.brain.safe_mode

        for _ in range(2):
            model.now_s += model.settings.dead_after_s - 1.0
            for name in ("s1", "s2"):
                shadow.beat(model.servers[name])
            shadow.brain.handle(Tick(), model.now_s, model.wall_s)

        assert shadow.brain.safe_mode == "" and model.settings.safe_mode_s_max > 20.0

    def test_those_never_seen_may_be_starting_as_we_are(self, model: Model) -> None:
        shadow = Shadow(model)
        shadow.follow()
        self.lead(shadow)
        model.now_s += model.settings.dead_after_s + 1.0
        shadow.brain.handle(Tick(), model.now_s, model.wall_s)

        assert "s1, s2, s3" in shadow.brain.safe_mode

    def test_a_repeated_request_is_known(self, model: Model) -> None:
        """F5: the answer of the first leader comes with the log."""
        hidden = model.call(p.Delete("/f", "me"), (7, 1))
        shadow = Shadow(model)
        shadow.follow()
        self.lead(shadow)

        delete = Called(1, p.Delete("/f", "me"), (7, 1))
        commands = shadow.brain.handle(delete, model.now_s, model.wall_s)

        assert commands == [Reply(1, hidden)]


def test_every_refusal_is_an_answer(shadow: Shadow) -> None:
    with pytest.raises(ClusterError):
        shadow.beat(FakeServer(ServerId("nobody")))
