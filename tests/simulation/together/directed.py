"""Short histories of one holder after the other, each of which needs one rule: what chance seldom
gives, in a cluster in which nothing else goes wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

from mrstream.dfs import protocol as p
from tests.simulation.dfs.client import Program, _append_request
from tests.simulation.dfs.run import SETTINGS
from tests.simulation.together.holders import LOCKS, FencedClient
from tests.simulation.together.run import Together
from tests.simulation.world import Place


class Calm(Together):
    """Two programs that had the same lock, one after the other."""

    def __init__(self) -> None:
        super().__init__(1)
        self.world.run(5.0)
        for name in ("c1", "c2"):
            self.world.hosts[name] = Place(name)
        self.first = FencedClient(self, "c1", (LOCKS[0], 1))
        self.second = FencedClient(self, "c2", (LOCKS[0], 2))
        self.cell.book.generation[LOCKS[0]] = 2

    def do(self, program: Program, seconds: float = 30.0) -> None:
        """Have it done."""
        done: list[bool] = []

        def to_the_end() -> Program:
            yield from program
            done.append(True)

        self.second.run(to_the_end())
        self._until(seconds, lambda: bool(done))
        assert done, f"it is not done after {seconds} s"

    def cut_from(self, places: list[str], others: list[str]) -> None:
        """Nothing goes from these to those."""
        self._cut({(place, other) for place in places for other in others})


def a_request_waits_while_the_next_holder_comes() -> None:
    """F6: what had to wait for chunkservers is asked for its fence again when its turn comes."""
    run = Calm()
    run.do(run.first._record())
    path, _, data = run.first._entry("records")
    (file_id,) = run.book.files
    run.do(run.first.append_to(path, file_id, data))
    for name in run.servers:
        run.world.hosts[name].stopped_until_s = run.world.now_s + 1.7
    run.first.run(run.first.tries(p.OpenAppend(path, "c1", "me")))
    run.world.run(run.world.now_s + 0.5)
    run.do(run.second.call(p.RaiseFence(run.second.fence)))
    assert not run.first.is_done, "it did not have to wait"
    run._until(30.0, lambda: run.first.is_done)
    assert run.first.refused, "F6: nobody refused it"


def an_answer_is_lost_and_the_next_holder_comes() -> None:
    """F5 before F6: what is done is told, though nothing more may be done."""
    run = Calm()
    run.do(run.first.call(p.MakeDirectory("/held/a", "me", parents=True)))
    run.cut_from(run.group.names, ["c1"])
    run.first.run(run.first.tries(p.Rename("/held/a", "/held/x", "me")))
    run.world.run(run.world.now_s + 1.0)
    run.do(run.second.call(p.RaiseFence(run.second.fence)))
    run.world.cut.clear()
    run.world.run(run.world.now_s + 10.0)
    outcomes = [o.outcome for o in run.book.operations if isinstance(o.request, p.Rename)]
    assert outcomes == ["done"], f"F5: it is in the log, and its holder hears: {outcomes}"


def a_writer_goes_on_when_the_next_holder_has_come() -> None:
    """Chunkservers know no fences: a file is closed when they have given up their leases."""
    run = Calm()
    first, second = run.first, run.second
    path, _, data = first._entry("lines")
    found: list[p.OpenFile] = []

    def opens() -> Program:
        ask = p.CreateFile(path, "c1", "me", parents=True, first_chunk=True)
        found.append((yield from first.call(ask)))
        first._shared(found[0].status.file_id)

    run.do(opens())
    run.cut_from(run.group.names, sorted(run.servers))
    run.do(second.call(p.RaiseFence(second.fence)))
    second.run(second._look_at("lines", {}))
    run.world.run(run.world.now_s + 0.5)
    opened = found[0]
    assert opened.grant is not None
    run.do(first.write_at(opened, "", opened.grant, [(0, data)]))
    run.world.cut.clear()
    run.do(second._append())
    assert not run.book.wrong


def a_lease_outlives_its_holder(fails_over: bool = False) -> None:
    """Who appends records asks a master once, and then primaries only, which know no fences: the
    lease that it was told of ends with its generation, also at the next master."""
    run = Calm()
    first, second = run.first, run.second
    path, _, data = first._entry("records")
    run.do(first._record())

    def late() -> Program:
        grant = yield from first.call(p.AppendTarget(path, "me"))
        if fails_over:
            leader = run.group.leader
            assert leader is not None
            leader.host.end(power=False)
        yield from second.call(p.RaiseFence(second.fence))
        make = partial(_append_request, grant, len(data))
        until_s = run.world.now_s + SETTINGS.lease_s
        answer: Any = ("ok", 0)
        while answer[0] == "ok" and run.world.now_s < until_s:
            answer = yield from first.mutate(grant, data, make)
            yield first._pause(0.5)
        assert answer[0] != "ok", "CH-20: records are appended under a fence that is over"

    run.do(late(), 60.0)


def a_lease_outlives_its_holder_and_its_master() -> None:
    """As that; who was told of it the next master does not know."""
    a_lease_outlives_its_holder(fails_over=True)


DIRECTED = [
    a_request_waits_while_the_next_holder_comes,
    an_answer_is_lost_and_the_next_holder_comes,
    a_writer_goes_on_when_the_next_holder_has_come,
    a_lease_outlives_its_holder,
    a_lease_outlives_its_holder_and_its_master,
]
