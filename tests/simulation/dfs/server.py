"""A chunkserver in the simulator: the real store, order of mutations, service and commands over a
disk in memory that forgets; its connections are the world's.

A mutation and its way to the secondaries happen in one moment of simulated time; between two
servers it may still fail in every way: refused, lost on the way there or back, or the host dies in
the middle of a disk write.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

from mrstream.cluster.errors import ClusterError, DiskFailed, HostUnreachable
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, ServerId, pack_reports
from mrstream.dfs.chunks.chunk_service import ChunkService
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve
from mrstream.dfs.chunks.commands import CommandRunner, Throttle, describe
from mrstream.dfs.chunks.memory_disk import MemoryDisk
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.errors import NotRegistered, StaleReplica
from tests.simulation.dfs.master import NAME as MASTER
from tests.simulation.dfs.master import SimMaster
from tests.simulation.dfs.world import Clock, World

RECONNECT_S = 0.2
ANSWER_S_MAX = 4.0


class Died(BaseException):
    """The host lost power in the middle of a disk operation."""


class SimServer:
    """One chunkserver over its lives."""

    def __init__(self, world: World, name: str, master: SimMaster, rack: str) -> None:
        self.world = world
        self.name = name
        self.rack = rack
        self.master = master
        # Clocks differ, and run at slightly different speeds (fault gate 13).
        rate = world.random.uniform(0.995, 1.005)
        self.clock = Clock(world, rate, world.random.uniform(0, 1000))
        self.chance = random.Random(f"{world.seed}-{name}")
        self.disk = MemoryDisk(name, capacity_bytes=1 << 30, before_step=self._step)
        self.die_at_step: int | None = None
        self.fail_at_step: int | None = None
        self.is_doomed = False
        self.incarnation = 0
        self.peers: dict[str, SimServer] = {}
        self.start()

    def _step(self, action: str, path: str) -> None:
        if self.die_at_step is not None:
            self.die_at_step -= 1
            if self.die_at_step <= 0:
                self.die_at_step = None
                raise Died
        if self.fail_at_step is not None:
            self.fail_at_step -= 1
            if self.fail_at_step <= 0:
                self.fail_at_step = None
                raise OSError(5, "Input/output error")

    # --- lives

    def start(self) -> None:
        self.world.hosts[self.name].is_up = True
        self.incarnation += 1
        self.settings = p.ServerSettings(1.0, 60.0, 5.0, 64 << 20, 0)
        self.store = ChunkStore([self.disk], cluster="cluster", server=self.name, reserve=Reserve())
        self.order = MutationOrder()
        self.buffer = PushBuffer(64 << 20)
        pool: Any = SimPool(self)
        self.service = ChunkService(
            ServerId(self.name), self.store, self.order, self.buffer, pool, self.clock, self._failed
        )
        throttle = Throttle(0, lambda: False, lambda _: None)
        self.runner = CommandRunner(self.service, pool, self.clock, throttle)
        self._done: dict[int, p.CommandDone] = {}
        self._number = 0
        self._sent_at_s: dict[int, float] = {}
        self._is_registered = False
        self._sample_at = 0
        self._talk()

    def _failed(self, error: DiskFailed) -> None:
        self.is_doomed = True

    def crash(self, power_cut: bool) -> None:
        """kill -9, or worse: what was not synced may be lost too."""
        host = self.world.hosts[self.name]
        if not host.is_up:
            return
        self.world.note(f"{self.name} {'loses power' if power_cut else 'is killed'}")
        host.is_up = False
        host.life += 1
        self.is_doomed = False
        self.die_at_step = self.fail_at_step = None
        if power_cut:
            self.disk.crash(self.chance)
        if self.world.hosts[MASTER].is_up and not power_cut:
            incarnation = self.incarnation
            self.world.send(
                self.name, MASTER, lambda: self.master.disconnected(self.name, incarnation)
            )

    def restart_later(self, seconds: float) -> None:
        self.world.after(seconds, self._restart)

    def _restart(self) -> None:
        if not self.world.hosts[self.name].is_up:
            self.world.note(f"{self.name} starts")
            self.start()

    # --- the master

    def _call(self, request: Any, on_answer: Any, on_silence: Any) -> None:
        """Ask the master once; exactly one of the two is called, in this life."""
        settled: list[bool] = []
        incarnation = self.incarnation

        def answer(value: Any) -> None:
            if not settled and self.incarnation == incarnation:
                settled.append(True)
                on_answer(value)

        def silence() -> None:
            if not settled:
                settled.append(True)
                on_silence()

        def respond(value: Any) -> None:
            self.world.send(MASTER, self.name, lambda: answer(value))

        self.world.send(
            self.name, MASTER, lambda: self.master.request(self.name, request, (0, 0), respond)
        )
        self.world.at_host(self.name, ANSWER_S_MAX, silence)

    def _talk(self) -> None:
        self._is_registered = False
        sent_at_s = self.clock.now_s()
        address = self.address
        number = self._numbered(sent_at_s)
        request = p.Register(
            address, self.incarnation, "cluster", self._disks(), self.order.held(sent_at_s),
            number=number,
        )  # fmt: skip
        self._call(request, lambda value: self._registered(value, number), self._again)

    def _again(self) -> None:
        self.world.at_host(self.name, RECONNECT_S, self._talk)

    def _registered(self, value: Any, number: int) -> None:
        if isinstance(value, ClusterError):
            self._again()
            return
        self.settings = value
        for handle in value.void:
            self.order.lease_over(handle)
        self.order.contact(self._sent_at_s[number], value.contact_s)
        reports = pack_reports(self.store.reports())
        request = p.ReportChunks(ServerId(self.name), self.incarnation, 0, reports, True, number)
        self._call(request, self._reported, self._again)

    def _reported(self, value: Any) -> None:
        if isinstance(value, ClusterError):
            self._again()
        else:
            self._is_registered = True
            self._beat()

    def _numbered(self, sent_at_s: float) -> int:
        self._number += 1
        self._sent_at_s[self._number] = sent_at_s
        return self._number

    def _beat(self) -> None:
        sent_at_s = self.clock.now_s()
        request = p.Heartbeat(
            ServerId(self.name), self.incarnation, self._numbered(sent_at_s), self._disks(),
            self.order.to_extend(sent_at_s, self.settings.lease_s / 2),
            pack_reports(self._reports(self.service.take_changed())),
            pack_reports(self._reports(self.store.handles())),
            tuple(ChunkHandle(handle) for handle in self.store.take_lost()),
            tuple(
                (ChunkHandle(h), ChunkVersion(v)) for h, v in self.store.corrupt_versions()
            ),
        )  # fmt: skip
        self._call(request, lambda value: self._beaten(value, sent_at_s), self._again)

    def _beaten(self, value: Any, sent_at_s: float) -> None:
        if isinstance(value, NotRegistered):
            self._talk()
            return
        if isinstance(value, ClusterError):
            self._again()
            return
        self.order.contact(sent_at_s, self.settings.contact_s)
        for lease in value.extended:
            self.order.extended(lease.handle, lease.version, sent_at_s + lease.left_s)
        for handle, version in value.garbage:
            self._guard(lambda h=handle, v=version: self._collect(h, v))
        self.world.at_host(self.name, self.settings.heartbeat_s, self._beat)

    def _collect(self, handle: int, version: int) -> None:
        with contextlib.suppress(StaleReplica):
            self.runner.delete(handle, version)

    def _reports(self, handles: list[int]) -> list[ChunkReport]:
        reports = []
        for handle in sorted(handles):
            try:
                replica = self.store.get(handle)
            except ClusterError:
                continue
            reports.append(
                ChunkReport(ChunkHandle(handle), ChunkVersion(replica.version), replica.length)
            )
        return reports

    def _disks(self) -> tuple[p.DiskUse, ...]:
        return tuple(
            p.DiskUse(u.name, u.total_bytes, u.free_bytes, 0, bool(u.failure))
            for u in self.store.uses()
        )

    @property
    def address(self) -> p.ServerAddress:
        return p.ServerAddress(ServerId(self.name), self.name, 1, 2, self.rack)

    # --- commands

    def pushed(self, command: p.Command) -> None:
        done = self._done.get(command.command_id)
        if done is None:
            read_at_s = self.clock.now_s()
            if isinstance(command, p.CreateChunk | p.GrantLease):
                read_at_s = self._sent_at_s.get(command.since, float("-inf"))
            outcome = self._guard(lambda: self.runner.run(command, read_at_s))
            if outcome is None:
                return  # died of it
            ok, value = outcome
            version, length = value if ok else (0, 0)
            done = p.CommandDone(
                ServerId(self.name), self.incarnation, command.command_id, ok,
                ChunkVersion(version), length, "" if ok else describe(value),
            )  # fmt: skip
            self._done[command.command_id] = done
        self._call(done, lambda value: None, lambda: None)

    def _guard(self, action: Any) -> tuple[bool, Any] | None:
        """Do something to the disk; None if this server did not survive it."""
        try:
            value = action()
        except Died:
            self.crash(power_cut=True)
            self.restart_later(self.world.random.uniform(1, 8))
            return None
        except DiskFailed:
            self.is_doomed = True
            value = None
        except ClusterError as error:
            return False, error
        self.bury_doomed()
        return None if not self.world.hosts[self.name].is_up else (True, value)

    def bury_doomed(self) -> None:
        """Whoever's disk failed has ended its process."""
        for server in self.peers.values():
            if server.is_doomed:
                server.crash(power_cut=True)
                server.restart_later(self.world.random.uniform(1, 8))

    # --- clients

    def push(self, data_id: bytes, data: bytes) -> None:
        held = self.buffer.begin(len(data))
        held[:] = data
        self.buffer.keep(data_id, held)

    def mutate(self, request: Any) -> tuple[bool, Any] | None:
        """A write or an append from a client, to us as primary."""
        act = self.service.write if isinstance(request, p.WriteChunk) else self.service.append
        return self._guard(lambda: act(request))

    def acts_on_lease(self, handle: int) -> bool:
        """Would this server order a mutation of the chunk right now?"""
        lease = self.order._leases.get(handle)
        now_s = self.clock.now_s()
        if lease is None or not self.world.hosts[self.name].is_up:
            return False
        try:
            self.store.get(handle, lease.version)
        except ClusterError:
            return False  # its disk failed: there is nothing to act on
        return now_s < lease.ends_at_s and now_s - self.order._heard_at_s < self.order._contact_s


class SimPool:
    """Connections from one chunkserver to others. Used from threads: draws only on the generator
    of the server at the other end, of which one thread at a time makes use."""

    def __init__(self, owner: SimServer) -> None:
        self._owner = owner

    def address_of(self, server: p.ServerAddress) -> str:
        return server.host

    def _peer(self, address: str) -> SimServer:
        peer = self._owner.peers[address]
        world, here = self._owner.world, self._owner.name
        if not world.can_reach(here, peer.name) or peer.is_doomed:
            raise HostUnreachable(f"{peer.name} is not reached")
        if world.hosts[peer.name].stopped_until_s > world.now_s:
            raise HostUnreachable(f"{peer.name} does not answer")
        return peer

    def call(self, address: str, request: Any) -> Any:
        peer = self._peer(address)
        world = self._owner.world
        if peer.chance.random() < world.loss:
            raise HostUnreachable(f"{peer.name}: the request was lost")
        assert isinstance(request, p.ApplyMutation)
        try:
            peer.service.apply(request)
        except (Died, DiskFailed):
            peer.is_doomed = True
            raise HostUnreachable(f"{peer.name} died") from None
        if peer.chance.random() < world.loss or (peer.name, self._owner.name) in world.cut:
            raise HostUnreachable(f"{peer.name}: the answer was lost")
        return None

    def connect(self, address: str) -> SimStream:
        return SimStream(self._peer(address))


class SimStream:
    """A bulk connection over which one chunk is read."""

    def __init__(self, peer: SimServer) -> None:
        self._peer = peer
        self._pieces: list[tuple[Any, bytes]] = []
        self._bytes = b""

    def __enter__(self) -> SimStream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def send(self, message: Any, data: Any = b"") -> None:
        if isinstance(message, p.ReadChunk):
            stream: Any = SimStream(self._peer)
            stream._pieces = self._pieces
            buffer = bytearray((1 << 20) + 2 * 65536)
            self._peer.service._read(stream, message, buffer)
        else:
            self._pieces.append((message, bytes(data)))

    def receive(self, kind: Any) -> Any:
        piece, self._bytes = self._pieces.pop(0)
        return piece

    def receive_bytes(self, count: int) -> bytes:
        return self._bytes
