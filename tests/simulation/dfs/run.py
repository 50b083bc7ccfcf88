"""One simulated run from one seed: build, break, heal, check.

    python -m tests.simulation.dfs.run SEED [-v]

replays a seed and, with -v, prints what happened.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
from collections.abc import Callable
from typing import Any, Protocol

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, FileId, cell_of
from mrstream.dfs.errors import ChunkCorrupt
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.nodes import FREE
from mrstream.dfs.metadata.operations import FenceRaised, parts_of
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import decode_record
from tests.simulation.dfs.book import Book, Truth
from tests.simulation.dfs.client import SimClient
from tests.simulation.dfs.master import NAME as MASTER
from tests.simulation.dfs.master import SimMaster
from tests.simulation.dfs.server import SimServer
from tests.simulation.dfs.world import Host, World

SETTINGS = Settings(
    chunk_bytes=2 * 65536,
    dead_after_s=4.0,
    lease_s=12.0,
    command_s_max=2.0,
    call_s_max=20.0,
    writer_silence_s_max=20.0,
    safe_mode_s_max=8.0,
)
CALM_S = 15.0
FOUND_S_MAX = 6.0
SECONDS = 60.0
"""Simulated time in which things break."""


class Run:
    """One seed."""

    def __init__(self, seed: int, *, servers: int = 0, clients: int = 0) -> None:
        self.world = world = World(seed)
        servers = servers or 3 + seed % 4
        clients = clients or 2 + seed % 3
        for name in [MASTER, *(f"s{n}" for n in range(1, servers + 1))]:
            world.hosts[name] = Host(name)
        for number in range(1, clients + 1):
            world.hosts[f"c{number}"] = Host(f"c{number}")
        self.master = SimMaster(world, SETTINGS)
        self.servers: dict[str, SimServer] = {}
        for number in range(1, servers + 1):
            name = f"s{number}"
            self.servers[name] = SimServer(world, name, self.master, f"r{number % 2}")
        for server in self.servers.values():
            server.peers = self.servers
        self.master.servers = self.servers
        self._begin(range(1, clients + 1), f"{seed}-nemesis")
        world.after_each = self._after_each

    def _begin(self, clients: range, chance: str) -> None:
        """With a master and servers in a world: clients of these numbers, and nothing known yet."""
        self.book = Book()
        self.clients = [
            SimClient(self.world, number, self.master, self.servers, self.book)
            for number in clients
        ]
        self.chance = random.Random(chance)
        self._hidden_since_s: dict[int, float] = {}
        self._looked_at = 0
        self._raised: dict[str, int] = {}
        self._life = 0

    @property
    def file_count(self) -> int:
        """How many files were ever made."""
        return len(self.book.files)

    def _after_each(self) -> None:
        if self.world.hosts[self.master.name].is_up:
            if self.world.events % 1000 == 0:
                self.master.brain.check_invariants(everything=True)
            self._check_called_short()
            if self.master.oplog.seen != self._looked_at:
                self._looked_at = self.master.oplog.seen
                self._check_rules()
            if not self.master.is_awake:
                self._hidden_since_s.clear()
            elif self.world.events % 20 == 0:
                self._check_found()
        assert not self.book.wrong, self.book.wrong

    # --- checks while it runs

    def _check_rules(self) -> None:
        """After each event that changed something: N1; the sums of quotas are what counting gives;
        no sparse table knows what is gone; fences never fall."""
        brain = self.master.brain
        space, nodes = brain.space, brain.space.nodes
        for row in nodes.more_chunks:
            space.check_full(row)
        space.quotas.check_invariants()
        for row in [*space.attributes, *space.implicit, *nodes.hidden, *space.quotas.by_row]:
            assert nodes.kind[row] != FREE, f"row {row} is free, and something is told of it"
        if self.master.lives == self._life:
            for name, (generation, _) in brain.fences.raised.items():
                assert generation >= self._raised.get(name, 0), f"F6: {name} fell to {generation}"
        self._life = self.master.lives
        self._raised = {name: known[0] for name, known in brain.fences.raised.items()}

    def _check_called_short(self) -> None:
        """No replica is called short that has every byte of its file."""
        tables = self.master.brain.tables
        for handle, replicas in tables.chunks._odd.items():
            for index, replica in replicas.items():
                if replica.state == "short" and self._is_whole_at(index, handle):
                    name = tables.servers.at(index).id
                    raise AssertionError(f"{handle:x} is whole on {name} and called short")

    def _check_found(self) -> None:
        """A chunk of which a server in touch with the master has a whole replica can be read, but
        for the time that a few heartbeats take."""
        tables = self.master.brain.tables
        hidden = [
            handle for handle in tables.chunks
            if not tables.chunks.good(handle) and not tables.chunks.is_unsealed(handle)
            and any(self._is_whole_at(s.index, handle) for s in tables.servers.all())
        ]  # fmt: skip
        since_s = self._hidden_since_s
        self._hidden_since_s = {h: since_s.get(h, self.world.now_s) for h in hidden}
        for handle, at_s in self._hidden_since_s.items():
            waited_s = self.world.now_s - at_s
            assert waited_s < FOUND_S_MAX, f"{handle:x} is there and has not been found"

    def _is_whole_at(self, index: int, handle: ChunkHandle) -> bool:
        """Has a server that is up, by its own word and the master's, all of a sealed chunk?"""
        tables = self.master.brain.tables
        known = tables.servers.at(index)
        host = self.world.hosts[known.id]
        if not (host.is_up and known.is_up and known.has_reported):
            return False
        server = self.servers[known.id]
        if server.incarnation != known.incarnation or handle not in server.store.handles():
            return False
        replica = server.store.get(handle)
        return replica.version >= tables.chunks.version(
            handle
        ) and replica.length >= tables.chunks.length(handle)

    # --- faults

    def live(self, seconds: float) -> None:
        """Clients at work and faults, for so long."""
        world = self.world
        world.run(2.0)
        self._make_shared()
        until_s = world.now_s + seconds
        for client in self.clients:
            client.run(client.program(until_s))
        world.loss, world.repeats, world.delays = 0.002, 0.01, 0.02
        while world.now_s < until_s:
            world.run(world.now_s + self.chance.uniform(1.0, 6.0))
            self._break_something()
            world.run(world.now_s + self.chance.uniform(0.1, 8.0))
            self._heal()
            if self.chance.random() < 0.3:
                world.run(world.now_s + CALM_S)
        world.loss = world.repeats = world.delays = 0.0

    def _make_shared(self) -> None:
        """A file that all append records to."""
        opened = self._ask(p.CreateFile("/shared", "c0", "me"), 1)
        self._ask(p.CloseFile(opened.status.file_id, opened.epoch, 0), 2)
        self.book.files[-1] = self.book.files[opened.status.file_id] = Truth(closed=False)

    def _ask(self, request: Any, number: int) -> Any:
        """Ask the master until it answers; it may die of the question."""
        answers: list[Any] = []
        while not answers:
            if self.world.hosts[self.master.name].is_up:
                self.master.request(self.clients[0].name, request, (999, number), answers.append)
            self.world.run(self.world.now_s + 1.0)
        return answers[0]

    def _break_something(self) -> None:
        names, master = sorted(self.servers), self.master.name
        one, other = self.chance.sample(names, 2)
        fault = self.chance.randrange(12)
        server = self.servers[one]
        if fault == 0:
            server.crash(power_cut=False)
        elif fault == 1:
            server.crash(power_cut=True)
        elif fault == 2:
            server.crash(power_cut=True)
            self.servers[other].crash(power_cut=True)
        elif fault == 3 and self.world.hosts[self.master.name].is_up:
            self.master.crash()
        elif fault == 4:
            self._cut({(one, master), (master, one)})
        elif fault == 5:
            self._cut({(one, master)} if self.chance.random() < 0.5 else {(master, one)})
        elif fault == 6:
            self._cut({(one, other), (other, one)})
        elif fault == 7:
            self.world.note(f"{one} is stopped")
            stop_s = self.chance.uniform(1, 15)
            self.world.hosts[one].stopped_until_s = self.world.now_s + stop_s
        elif fault == 8:
            server.die_at_step = self.chance.randint(1, 40)
        elif fault == 9:
            self._other_fault(server)
        elif fault == 10:
            if self.master.is_awake:
                self.master.stall(self.chance.uniform(3, 15))
        else:
            everything = self.chance.random() < 0.3
            for name in names if everything else names[:3]:
                self.servers[name].crash(power_cut=everything)
            if everything and self.world.hosts[self.master.name].is_up:
                self.master.crash()

    def _other_fault(self, server: SimServer) -> None:
        kind = self.chance.randrange(4)
        if kind == 0:
            self.world.note("the master's wall clock jumps")
            self.master.clock.wall_jump_s += self.chance.choice([-3600.0, 3600.0])
        elif kind == 1:
            self.world.note(f"{server.name}: disk is full")
            server.disk.capacity_bytes = 1000
        elif kind == 2:
            server.fail_at_step = self.chance.randint(1, 40)
        elif self.master.is_awake:
            self.master.checkpoint()

    def _cut(self, pairs: set[tuple[str, str]]) -> None:
        self.world.note(f"cut {sorted(pairs)}")
        self.world.cut.update(dict.fromkeys(sorted(pairs)))

    def _heal(self) -> None:
        self.world.cut.clear()
        for server in self.servers.values():
            server.disk.capacity_bytes = 1 << 30
            if not self.world.hosts[server.name].is_up:
                server.restart_later(self.chance.uniform(0, 3))
        if not self.world.hosts[self.master.name].is_up:
            self.world.after(self.chance.uniform(0, 2), self._start_master)

    def _start_master(self) -> None:
        if not self.world.hosts[self.master.name].is_up:
            self.master.start()

    # --- rot

    def rot(self) -> None:
        """Flip a bit in one replica of each of some whole chunks (never in the last good one)."""
        tables = self.master.brain.tables
        server = self.servers[self.chance.choice(sorted(self.servers))]
        for handle in server.store.handles():
            replica = server.store.get(handle)
            good = tables.chunks.good(handle) if handle in tables.chunks else []
            if len(good) < 3 or replica.length == 0 or self.chance.random() < 0.5:
                continue
            from mrstream.dfs.chunks.replica_files import path_of

            path = path_of(handle, "data")
            server.disk.flip_bit(path, self.chance.randrange(replica.length * 8))
            self.world.note(f"bit rot in {handle:x} on {server.name}")

    def scrub(self) -> None:
        """What the scrubber of each chunkserver does, all at once."""
        from mrstream.dfs.chunks import scrub

        for server in self.servers.values():
            for handle in server.store.handles():
                with contextlib.suppress(ChunkCorrupt):
                    scrub.verify(server.store, handle)

    # --- the end

    def settle(self) -> None:
        """Heal everything and wait until the cluster is whole again."""
        world = self.world
        for server in self.servers.values():
            server.die_at_step = server.fail_at_step = None
            if any(use.failure for use in server.store.uses()):
                server.crash(power_cut=True)  # somebody puts the disk that was taken out back in
        self._heal()
        end_s = world.now_s + 300.0
        while world.now_s < end_s:
            world.run(world.now_s + 10.0)
            if all(client.is_done for client in self.clients) and self._is_whole():
                break
        self.rot()
        self.scrub()
        end_s = world.now_s + 300.0
        while world.now_s < end_s:
            world.run(world.now_s + 5.0)
            if self._is_whole():
                return
        raise AssertionError(f"repair does not end: {self._report()}")

    def _report(self) -> Any:
        return self.master.brain.query(p.Report(), self.master.clock.now_s())

    def _is_whole(self) -> bool:
        report = self._report()
        brain = self.master.brain
        return (
            not report.safe_mode
            and report.under_replicated == report.missing == report.corrupt == 0
            and not brain.space.writers
            and not brain.tables.chunks.unsealed
            and all(self._is_tidy(handle) for handle in brain.tables.chunks)
        )

    def _is_tidy(self, handle: ChunkHandle) -> bool:
        chunks = self.master.brain.tables.chunks
        return len(chunks.good(handle)) == chunks.goal(handle) and not chunks.odd(handle)

    # --- checks

    def check(self) -> None:
        """Nothing acknowledged is lost or wrong; the history makes sense; replicas agree."""
        self.master.brain.check_invariants(everything=True)
        self._check_history()
        self._check_looks()
        self._check_contents()
        self._check_garbage()

    def _check_history(self) -> None:
        """Every change that was acknowledged is in the log once, in an order that real time
        allows; none that was refused is."""
        at: dict[tuple[int, int], int] = {}
        raised: dict[str, int] = {}
        for sequence, payload in enumerate(self.master.history, 1):
            for record in parts_of(decode_record(payload)):
                if isinstance(record, FenceRaised):
                    seen = raised.get(record.name, 0)
                    assert record.generation > seen, f"F6: {record} is not raised"
                    raised[record.name] = record.generation
                request = getattr(record, "request", (0, 0))
                for name, generation in self.book.under.get(request, ()):
                    seen = raised.get(name, 0)
                    assert generation >= seen, f"F6: {record} under {name} {generation}, not {seen}"
                if request != (0, 0):
                    assert request not in at, f"F5: request {request} was carried out twice"
                    at[request] = sequence
        logged = (
            p.CreateFile, p.OpenAppend, p.Rename, p.Delete, p.Snapshot, p.JoinFiles,
            p.SetAttributes, p.SetQuota, p.MakeKey, p.RevokeKey, p.SpendLink,
        )  # fmt: skip
        ordered = [
            o for o in self.book.operations
            if isinstance(o.request, logged) or getattr(o.request, "rename_to", "")
        ]  # fmt: skip
        for operation in ordered:
            is_logged = operation.request_id in at
            if operation.outcome == "done":
                assert is_logged, f"{operation.request} was acknowledged and is not in the log"
            elif operation.outcome == "refused":
                assert not is_logged, f"{operation.request} was refused and is in the log"
        done = sorted((o for o in ordered if o.outcome == "done"), key=lambda o: o.returned_at_s)
        for operation in sorted(ordered, key=lambda o: o.invoked_at_s):
            if operation.request_id not in at:
                continue
            before = [at[o.request_id] for o in done if o.returned_at_s < operation.invoked_at_s]
            assert not before or max(before) < at[operation.request_id], "not linearizable"

    def _check_looks(self) -> None:
        """Each answer about a path is what the log says at the sequence it rested on."""
        brain = Metadata(self.master.settings, random.Random(0))
        looks = sorted(self.book.looks, key=lambda look: look.sequence)
        sequence = 0
        for look in looks:
            if look.sequence > len(self.master.history):
                raise AssertionError(f"{look} rests on what was lost")
            while sequence < look.sequence:
                brain.apply(decode_record(self.master.history[sequence]))
                sequence += 1
            row = brain.space.nodes.lookup(tuple(look.path[1:].encode().split(b"/")))
            if look.file_id is None:
                assert row is None, look
            else:
                assert row is not None and brain.space.nodes.id_of(row) == look.file_id, look
                assert brain.space.nodes.length[row] == look.length, look

    def _check_contents(self) -> None:
        nodes = self.master.brain.space.nodes
        found = 0
        for file_id, truth in sorted(self.book.files.items()):
            row = nodes.row_of(FileId(file_id)) if file_id >= 0 else None
            if row is None:
                continue
            found += 1
            copies = self._copies(row, truth)
            length = nodes.length[row]
            for name, content in copies.items():
                self._check_copy(f"file {file_id:x} on {name}", truth, length, content)
        assert found, "a run without a file proves nothing"

    def _check_copy(self, what: str, truth: Truth, length: int, content: bytes) -> None:
        if truth.records:
            for offset, record in truth.records:
                assert content[offset : offset + len(record)] == record, f"{what}: record lost"
            return
        if truth.instead is not None and length == len(truth.instead):
            assert content == truth.instead, f"{what}: wrong bytes after a join"
            return
        assert length >= truth.acked, f"{what}: {truth.acked} bytes acknowledged, {length} there"
        if truth.closed:
            assert length == truth.acked, f"{what}: closed with {truth.acked}, has {length}"
        expected, actual = bytearray(truth.data[:length]), bytearray(content)
        assert len(actual) == len(expected), f"{what}: bytes that nobody wrote"
        for start, end in truth.unsure:
            expected[start:end] = actual[start:end] = bytes(min(end, length) - min(start, length))
        assert actual == expected, f"{what}: wrong bytes"

    def _copies(self, row: int, truth: Truth) -> dict[str, bytes]:
        """The file as the replicas have it, verified as for a reader. Replicas are equal, save
        where mutations failed (GFS Table 1, §3.3)."""
        is_defined = truth is not self.book.files.get(-1) and not truth.unsure
        tables, nodes = self.master.brain.tables, self.master.brain.space.nodes
        size = SETTINGS.chunk_bytes
        copies: dict[str, bytearray] = {"first": bytearray(), "last": bytearray()}
        for index, handle in enumerate(nodes.chunks(row)):
            want = min(size, nodes.length[row] - index * size)
            good = tables.chunks.good(ChunkHandle(handle))
            assert len(good) == tables.chunks.goal(ChunkHandle(handle))
            contents = []
            for server_index in good:
                server = self.servers[tables.servers.at(server_index).id]
                replica = server.store.get(handle, tables.chunks.version(ChunkHandle(handle)))
                contents.append(bytes(server.store.read(replica, 0, want)))
            if is_defined:
                assert len(set(contents)) == 1, f"replicas of {handle:x} differ"
            copies["first"] += contents[0]
            copies["last"] += contents[-1]
        return {name: bytes(content) for name, content in copies.items()}

    def _check_garbage(self) -> None:
        """What no file has, no server keeps."""
        chunks = self.master.brain.tables.chunks
        for server in self.servers.values():
            for handle in [*server.store.handles(), *server.store.corrupt()]:
                is_ours = cell_of(handle) == self.master.settings.cell
                assert handle in chunks or not is_ours, f"{server.name} keeps garbage {handle:x}"


class Replayed(Protocol):
    """A run that can be done again from its seed."""

    world: World

    @property
    def file_count(self) -> int: ...

    def live(self, seconds: float) -> None: ...

    def settle(self) -> None: ...

    def check(self) -> None: ...


def replay(make: Callable[[int], Replayed], seconds: float) -> None:
    """Do the run of the seed on the command line again, and print what happened with `-v`."""
    logging.disable(logging.CRITICAL)
    seed, verbose = int(sys.argv[1]), "-v" in sys.argv
    simulated = make(seed)
    try:
        simulated.live(seconds)
        simulated.settle()
        simulated.check()
    finally:
        if verbose:
            print("\n".join(simulated.world.trace))
    files = simulated.file_count
    print(f"seed {seed}: {simulated.world.events} events, {files} files, all well")


if __name__ == "__main__":
    replay(Run, SECONDS)
