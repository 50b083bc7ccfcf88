"""A chunkserver in the simulator: the real store, order of mutations, service and commands over a
disk in memory that forgets; its connections are the world's.

A mutation and its way to the secondaries happen in one moment of simulated time; between two
servers it may still fail in every way: refused, lost on the way there or back, or the host dies in
the middle of a disk write.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Any

from mrstream.cluster.errors import ClusterError, DiskFailed, HostUnreachable
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import (
    ChunkHandle,
    ChunkReport,
    ChunkVersion,
    ServerId,
    cell_of,
    epoch_of_command,
    pack_reports,
)
from mrstream.dfs.chunks.allegiance import Allegiance, allegiance_of
from mrstream.dfs.chunks.cell import Cell
from mrstream.dfs.chunks.chunk_service import ChunkService
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve
from mrstream.dfs.chunks.commands import CommandRunner, Throttle, describe
from mrstream.dfs.chunks.mutation import NEVER, MutationOrder
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.errors import NotRegistered, StaleReplica
from tests.simulation.dfs.master import NAME as MASTER
from tests.simulation.world import Clock, World
from tests.support.forgetful_disk import ForgetfulDisk

RECONNECT_S = 0.2
ANSWER_S_MAX = 4.0


class Died(BaseException):
    """The host lost power in the middle of a disk operation."""


class SimLink:
    """What a chunkserver says to one master, and hears from it, in one of its lives."""

    def __init__(self, server: SimServer, master: str) -> None:
        self._s, self._master = server, master
        self.cell = server.cells[server.number_of(master)]
        self._incarnation = server.incarnation
        self.settings = p.ServerSettings(1.0, 60.0, 5.0, 64 << 20, 0)
        self.leads = False
        self.epoch = 0
        self._talk()

    def call(self, request: Any, on_answer: Any, on_silence: Any) -> None:
        """Ask the master once; exactly one of the two is called, in this life."""
        settled: list[bool] = []
        server, world = self._s, self._s.world

        def answer(value: Any) -> None:
            if not settled and server.incarnation == self._incarnation:
                settled.append(True)
                on_answer(value)

        def silence() -> None:
            if not settled:
                settled.append(True)
                on_silence()

        def respond(value: Any) -> None:
            world.send(self._master, server.name, lambda: answer(value))

        def ask() -> None:
            server.master.at(self._master).request(server.name, request, (0, 0), respond)

        world.send(server.name, self._master, ask)
        world.at_host(server.name, ANSWER_S_MAX, silence)

    def _talk(self) -> None:
        s = self._s
        sent_at_s = s.clock.now_s()
        allegiance = self.cell.allegiance
        number = allegiance.numbered(sent_at_s)
        request = p.Register(
            s.address, s.incarnation, "cluster", s.disks(), self.cell.held(sent_at_s),
            number=number, epoch=allegiance.epoch,
        )  # fmt: skip
        self.call(request, lambda value: self._registered(value, number, sent_at_s), self._again)

    def _again(self) -> None:
        self._s.world.at_host(self._s.name, RECONNECT_S, self._talk)

    def _registered(self, value: Any, number: int, sent_at_s: float) -> None:
        s = self._s
        if isinstance(value, ClusterError):
            self._again()
            return
        if value.leads:
            met = s.guard(lambda: self.cell.allegiance.meet(value.epoch))
            if met is None:
                return  # died of it
            if not met[0]:
                self._again()
                return
            self.cell.check_met(value.epoch)
            self.cell.void(value.void)
            self.cell.contact(sent_at_s, value.contact_s)
        self.settings, self.epoch, self.leads = value, value.epoch, value.leads
        reports = pack_reports(self.cell.reports())
        request = p.ReportChunks(ServerId(s.name), s.incarnation, 0, reports, True, number)
        self.call(request, self._reported, self._again)

    def _reported(self, value: Any) -> None:
        if isinstance(value, ClusterError):
            self._again()
        else:
            self._beat()

    def _beat(self) -> None:
        s = self._s
        sent_at_s = s.clock.now_s()
        cell = self.cell
        leases = cell.to_extend(sent_at_s, self.settings.lease_s / 2) if self.leads else ()
        request = p.Heartbeat(
            ServerId(s.name), s.incarnation, cell.allegiance.numbered(sent_at_s), s.disks(), leases,
            pack_reports(s.reports(cell.own(s.take_changed(self)))),
            pack_reports(s.reports(cell.handles())),
            tuple(ChunkHandle(handle) for handle in cell.own(s.take_lost(self))),
            cell.corrupt(),
        )  # fmt: skip
        self.call(request, lambda value: self._beaten(value, sent_at_s), self._again)

    def _beaten(self, value: Any, sent_at_s: float) -> None:
        s = self._s
        if isinstance(value, NotRegistered):
            self._talk()
            return
        try:
            if isinstance(value, ClusterError):
                raise value
            if self.leads:
                self.cell.allegiance.check(self.epoch, "a heartbeat's answer")
        except ClusterError:
            self._again()
            return
        if self.leads:
            self.cell.contact(sent_at_s, self.settings.contact_s)
            self.cell.extend(value, sent_at_s)
            for handle, version in self.cell.garbage(value):
                self.cell.check_garbage(self.epoch)
                s.guard(lambda h=handle, v=version: s.collect(h, v))
        s.world.at_host(s.name, self.settings.heartbeat_s, self._beat)


class SimCell(Cell):
    """What a server keeps for one cell in one of its lives."""

    def __init__(self, server: SimServer, number: int) -> None:
        super().__init__(number, server.store, server.order)
        self._server = server
        self.allegiance = allegiance_of(server.store, number)
        self.done: dict[int, p.CommandDone] = {}

    def check_met(self, epoch: int) -> None:
        name, met = self._server.name, self._server.met_in
        known = met.get(self.number, 0)
        assert epoch >= known, f"F2: {name} met {known}, and obeys {epoch}"
        met[self.number] = epoch

    def check_garbage(self, epoch: int) -> None:
        name, known = self._server.name, self._server.met_in.get(self.number, 0)
        assert epoch >= known, f"F2: {name} met {known}, and deletes for {epoch}"


class SimServer:
    """One chunkserver over its lives."""

    def __init__(
        self,
        world: World,
        name: str,
        master: Any,
        rack: str,
        numbers: dict[str, int] | None = None,
    ) -> None:
        """`master` knows all masters there are by `names`; `numbers` has the cells of those that
        are not the root's."""
        self.world = world
        self._numbers = numbers or {}
        self.name = name
        self.rack = rack
        self.master = master
        # Clocks differ, and run at slightly different speeds (fault gate 13).
        rate = world.random.uniform(0.995, 1.005)
        self.clock = Clock(world, rate, world.random.uniform(0, 1000))
        self.chance = random.Random(f"{world.seed}-{name}")
        self.disk = ForgetfulDisk(name=name, capacity_bytes=1 << 30, before_step=self._step)
        self.die_at_step: int | None = None
        self.fail_at_step: int | None = None
        self.is_doomed = False
        self.incarnation = 0
        self.met_in: dict[int, int] = {}
        """By cell, the highest epoch of a master that took a registration, whatever the disk
        says."""
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
        self.store = ChunkStore([self.disk], cluster="cluster", server=self.name, reserve=Reserve())
        self.order = MutationOrder()
        self.buffer = PushBuffer(64 << 20)
        pool: Any = SimPool(self)
        self.service = ChunkService(
            ServerId(self.name), self.store, self.order, self.buffer, pool, self.clock, self._failed
        )
        throttle = Throttle(0, lambda: False, lambda _: None)
        self.runner = CommandRunner(self.service, pool, self.clock, throttle)
        self.cells = {number: SimCell(self, number) for number in {0, *self._numbers.values()}}
        self._lost: dict[SimLink, list[int]] = {}
        self._changed: dict[SimLink, list[int]] = {}
        self.links: dict[str, SimLink] = {}
        for name in self.master.names:
            self.links[name] = SimLink(self, name)

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
        for name in self.master.names if not power_cut else []:
            if self.world.hosts[name].is_up:
                gone = partial(self.master.at(name).disconnected, self.name, self.incarnation)
                self.world.send(self.name, name, gone)

    def restart_later(self, seconds: float) -> None:
        self.world.after(seconds, self._restart)

    def _restart(self) -> None:
        if not self.world.hosts[self.name].is_up:
            self.world.note(f"{self.name} starts")
            self.start()

    # --- the master

    def take_lost(self, link: SimLink) -> list[int]:
        """What went with a disk, for each link once."""
        return self._take(self._lost, self.store.take_lost(), link)

    def take_changed(self, link: SimLink) -> list[int]:
        """What writers changed, for each link once."""
        return self._take(self._changed, self.service.take_changed(), link)

    def _take(self, untold: dict[SimLink, list[int]], new: list[int], link: SimLink) -> list[int]:
        for other in self.links.values():
            untold.setdefault(other, []).extend(new)
        return list(dict.fromkeys(untold.pop(link, new)))

    def number_of(self, master: str) -> int:
        """The cell of a master."""
        return self._numbers.get(master, 0)

    @property
    def met(self) -> int:
        """The highest epoch of the root's masters."""
        return self.met_in.get(0, 0)

    @property
    def allegiance(self) -> Allegiance:
        """To the root's masters."""
        return self.cells[0].allegiance

    def collect(self, handle: int, version: int) -> None:
        with contextlib.suppress(StaleReplica):
            self.runner.delete(handle, version)

    def reports(self, handles: list[int]) -> list[ChunkReport]:
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

    def disks(self) -> tuple[p.DiskUse, ...]:
        return tuple(
            p.DiskUse(u.name, u.total_bytes, u.free_bytes, 0, bool(u.failure))
            for u in self.store.uses()
        )

    @property
    def address(self) -> p.ServerAddress:
        return p.ServerAddress(ServerId(self.name), self.name, 1, 2, self.rack)

    # --- commands

    def pushed(self, command: p.Command, master: str = MASTER) -> None:
        kept = self.links[master].cell.done
        done = kept.get(command.command_id)
        if done is None:
            outcome = self.guard(lambda: self._obey(command, self.links[master]))
            if outcome is None:
                return  # died of it
            ok, value = outcome
            version, length = value if ok else (0, 0)
            done = p.CommandDone(
                ServerId(self.name), self.incarnation, command.command_id, ok,
                ChunkVersion(version), length, "" if ok else describe(value),
            )  # fmt: skip
            kept[command.command_id] = done
        self.links[master].call(done, lambda value: None, lambda: None)

    def _obey(self, command: p.Command, link: SimLink) -> tuple[int, int]:
        link.cell.check(command)
        allegiance = link.cell.allegiance
        since_s = allegiance.admit(command, self.clock.now_s(), link.settings.contact_s)
        old_s = self.clock.now_s() - since_s
        assert old_s < link.settings.contact_s, f"F2: {command} rests on what is {old_s:.1f} s old"
        epoch = epoch_of_command(command.command_id)
        met = self.met_in.get(link.cell.number, 0)
        assert epoch >= met, f"F2: {command} of {epoch} at {self.name}, which met {met}"
        return self.runner.run(command, since_s)

    def guard(self, action: Any) -> tuple[bool, Any] | None:
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
        return self.guard(lambda: act(request))

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
        heard_at_s, contact_s = self.order._heard.get(cell_of(handle), NEVER)
        return now_s < lease.ends_at_s and now_s - heard_at_s < contact_s


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
        if peer.chance.random() < world.loss or world.is_cut(peer.name, self._owner.name):
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
