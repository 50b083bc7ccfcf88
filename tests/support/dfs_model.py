"""A file system in one process for tests of the brain: the real `Metadata`, a clock moved by hand,
and chunkservers that are a dict each and do at once what they are told.

`Model.call` gives the reply or raises the refusal; `Model.crash` throws the brain away and replays
the log that a real master would find on its disk.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, Epoch, ServerId, pack_reports
from mrstream.dfs.metadata.events import (
    Called,
    Event,
    Halt,
    LeadershipBegan,
    Log,
    Outrun,
    Refuse,
    Reply,
    Send,
    ServerGone,
    Tick,
)
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.operations import AnyRecord
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import decode_record, encode_record

CHUNK = 1 << 20
DISK_BYTES = 1 << 30


@dataclass
class Held:
    """A replica."""

    version: int
    length: int
    corrupt: bool = False


@dataclass
class FakeServer:
    """A chunkserver that keeps versions and lengths."""

    id: ServerId
    rack: str = ""
    incarnation: int = 1
    is_up: bool = True
    is_mute: bool = False
    """Gets commands but never answers."""
    used_bytes: int = 0
    chunks: dict[int, Held] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    got: list[p.Command] = field(default_factory=list)

    @property
    def disks(self) -> tuple[p.DiskUse, ...]:
        used = self.used_bytes
        return (p.DiskUse("/d", DISK_BYTES, DISK_BYTES - used, used),)

    def do(self, command: p.Command) -> p.CommandDone:
        """Carry a command out."""
        self.got.append(command)
        try:
            held = self._do(command)
        except ClusterError as error:
            return self._done(command, False, error=f"{type(error).__name__}: {error}")
        if held is None:
            return self._done(command, True)
        return self._done(command, True, held.version, held.length)

    def _done(
        self, command: p.Command, ok: bool, version: int = 0, length: int = 0, error: str = ""
    ) -> p.CommandDone:
        return p.CommandDone(
            self.id, self.incarnation, command.command_id, ok, ChunkVersion(version), length, error
        )

    def _do(self, command: p.Command) -> Held | None:
        from mrstream.dfs.errors import NoSuchChunk, StaleReplica

        match command:
            case p.CreateChunk():
                self.chunks[command.handle] = Held(command.version, 0)
                if command.lease_s:
                    self.leases[command.handle] = command.version
            case p.SetVersion():
                held = self.chunks.get(command.handle)
                if held is None:
                    raise NoSuchChunk("not here")
                if held.version < command.from_version or held.version > command.version:
                    raise StaleReplica(f"{held.version}")
                if held.version != command.version and command.cut_to >= 0:
                    held.length = min(held.length, command.cut_to)
                held.version = command.version
                self.leases.pop(command.handle, None)
            case p.GrantLease():
                held = self.chunks.get(command.handle)
                if command.lease_s == 0:
                    self.leases.pop(command.handle, None)
                    return held
                if held is None or held.version != command.version:
                    raise StaleReplica("no such version")
                self.leases[command.handle] = command.version
            case p.TruncateChunk():
                held = self.chunks[command.handle]
                held.length = min(held.length, command.length_bytes)
            case p.CopyChunk():
                self.chunks[command.handle] = Held(command.version, command.length_bytes)
            case p.CloneChunk():
                self.chunks[command.handle] = Held(command.version, command.length_bytes)
            case p.DeleteChunk():
                self.chunks.pop(command.handle, None)
                return None
        handle = getattr(command, "handle", None)
        return self.chunks.get(handle) if handle is not None else None

    def reports(self) -> bytes:
        return pack_reports(
            ChunkReport(ChunkHandle(h), ChunkVersion(c.version), c.length)
            for h, c in sorted(self.chunks.items())
        )


class Model:
    """A master's brain and its chunkservers."""

    def __init__(
        self, servers: int = 3, *, racks: int = 0, seed: int = 1, settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings(chunk_bytes=CHUNK)
        self.seed = seed
        self.now_s = 1000.0
        self.wall_s = 1_700_000_000.0
        self.log: list[bytes] = []
        self.sent: list[tuple[str, p.Command]] = []
        self.halted = ""
        self.epoch_now = 0
        self.outrun_by = 0
        self.servers: dict[str, FakeServer] = {}
        self._next_call = 1
        self._number = 0
        self._answers: dict[int, Any] = {}
        self._queue: deque[tuple[ServerId, int, p.Command]] = deque()
        self.lead(self._new_brain())
        for number in range(1, servers + 1):
            rack = f"r{number % racks}" if racks else ""
            self.add_server(f"s{number}", rack)

    def _new_brain(self) -> Metadata:
        return Metadata(self.settings, random.Random(self.seed))

    def lead(self, brain: Metadata) -> None:
        """Go on with this brain, into which a log or an image was folded."""
        self.brain = brain
        self.epoch_now += 1
        self._event(LeadershipBegan(self.epoch_now))

    # --- servers

    def add_server(self, name: str, rack: str = "") -> FakeServer:
        server = self.servers[name] = FakeServer(ServerId(name), rack)
        self.register(server)
        return server

    def register(self, server: FakeServer) -> None:
        """Register and report everything, as a chunkserver does when it comes up."""
        server.is_up = True
        address = p.ServerAddress(server.id, server.id, 1, 2, server.rack)
        leases = tuple(
            p.HeldLease(ChunkHandle(h), ChunkVersion(v), 30.0) for h, v in server.leases.items()
        )
        self.call(p.Register(address, server.incarnation, "cluster", server.disks, leases))
        self.call(p.ReportChunks(server.id, server.incarnation, 0, server.reports(), True))

    def kill(self, name: str) -> None:
        """kill -9: leases and connections go, the disk stays."""
        server = self.servers[name]
        server.is_up = False
        server.leases.clear()
        self._event(ServerGone(server.id, server.incarnation))

    def restart(self, name: str) -> None:
        self.servers[name].incarnation += 1
        self.register(self.servers[name])

    def number(self) -> int:
        """The number of the next heartbeat, whoever sends it."""
        self._number += 1
        return self._number

    def beat(self, **fields: Any) -> dict[str, p.HeartbeatReply]:
        """One heartbeat of every server that is up."""
        replies = {}
        for server in self.servers.values():
            if server.is_up:
                extend = tuple(
                    p.HeldLease(ChunkHandle(h), ChunkVersion(v), 1.0)
                    for h, v in server.leases.items()
                )
                ask = p.Heartbeat(
                    server.id, server.incarnation, self.number(), server.disks,
                    **{"extend": extend, "sample": server.reports(), **fields},
                )  # fmt: skip
                reply = replies[server.id] = self.call(ask)
                for handle, version in reply.garbage:
                    held = server.chunks.get(handle)
                    if held is not None and held.version <= version:
                        del server.chunks[handle]
        return replies

    # --- events

    def call(self, request: Request, request_id: tuple[int, int] = (0, 0)) -> Any:
        """Ask, let everything settle, and return the reply; raise a refusal."""
        call = self.begin(request, request_id)
        assert call in self._answers, f"{request} is not answered"
        return self.answer(call)

    def begin(self, request: Request, request_id: tuple[int, int] = (0, 0)) -> int:
        """Ask without expecting an answer yet."""
        call = self._next_call
        self._next_call += 1
        if type(request) in self.brain.queries:
            self._answers[call] = self._query(request)
        else:
            self._event(Called(call, request, request_id))
        return call

    def _query(self, request: Request) -> Any:
        try:
            return self.brain.query(request, self.now_s)
        except ClusterError as error:
            return error

    def is_answered(self, call: int) -> bool:
        return call in self._answers

    def answer(self, call: int) -> Any:
        answer = self._answers.pop(call)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def happens(self, event: Event) -> None:
        """Something that nobody asked."""
        self._event(event)

    def _event(self, event: Event) -> None:
        for command in self.brain.handle(event, self.now_s, self.wall_s):
            match command:
                case Log(record):
                    self.log.append(encode_record(record))
                case Reply(call, value):
                    self._answers[call] = value
                case Refuse(call, error):
                    self._answers[call] = error
                case Send(server, incarnation, message):
                    self._queue.append((server, incarnation, message))
                case Halt(why):
                    self.halted = why
                case Outrun(epoch):
                    self.outrun_by = epoch
        self._settle()
        self.brain.check_invariants(everything=True)

    def _settle(self) -> None:
        while self._queue:
            name, incarnation, command = self._queue.popleft()
            self.sent.append((name, command))
            server = self.servers[name]
            if not server.is_up or server.incarnation != incarnation:
                continue
            if server.is_mute:
                continue
            done = server.do(command)
            call = self._next_call
            self._next_call += 1
            self._event(Called(call, done))
            self._answers.pop(call, None)

    def pass_time(self, seconds: float, *, beats: bool = True) -> None:
        """Let time go by, with heartbeats and ticks every half second."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            step = min(0.5, end_s - self.now_s)
            self.now_s += step
            self.wall_s += step
            if beats:
                self.beat()
            self._event(Tick())

    def stall(self, seconds: float) -> None:
        """The master is stopped for so long; the first thing that it finds is that it is late."""
        self.now_s += seconds
        self.wall_s += seconds
        self._event(Tick(late_s=seconds))

    def crash(self) -> None:
        """The master dies and starts again from its log; the servers register again."""
        self.restart_brain()
        for server in self.servers.values():
            if server.is_up:
                self.register(server)

    def restart_brain(self) -> None:
        self._queue.clear()
        self._answers.clear()
        brain = self._new_brain()
        for payload in self.log:
            brain.apply(decode_record(payload))
        self.lead(brain)

    def records(self) -> list[AnyRecord]:
        return [decode_record(payload) for payload in self.log]

    # --- what a client would do

    def create(self, path: str, **fields: Any) -> p.OpenFile:
        opened: p.OpenFile = self.call(p.CreateFile(path, "client", "me", **fields))
        return opened

    def write(self, grant: p.ChunkGrant, length: int) -> None:
        """Make every replica of the grant that long; refused as the real ones would."""
        for address in grant.replicas:
            server = self.servers[address.server]
            held = server.chunks[grant.handle]
            assert server.is_up and held.version == grant.version, f"{address.server}: stale"
        assert self.servers[grant.primary].leases.get(grant.handle) == grant.version
        for address in grant.replicas:
            held = self.servers[address.server].chunks[grant.handle]
            held.length = max(held.length, length)

    def put(self, path: str, length: int = 100, **fields: Any) -> p.FileStatus:
        """Write a whole file and close it."""
        opened = self.create(path, first_chunk=length > 0, **fields)
        file_id, epoch = opened.status.file_id, opened.epoch
        grant, index, left = opened.grant, 0, length
        while left > 0:
            if index:
                grant = self.call(p.AllocateChunk(file_id, epoch, index))
            assert grant is not None
            self.write(grant, min(left, grant.chunk_bytes))
            left -= grant.chunk_bytes
            index += 1
        status: p.FileStatus = self.call(p.CloseFile(file_id, epoch, length))
        return status

    def locate(self, path: str) -> tuple[p.LocatedChunk, ...]:
        located: p.Located = self.call(p.Locate(path, 0, 1000))
        return located.chunks

    def where(self, path: str, index: int = 0) -> list[str]:
        """The servers that a reader would be sent to."""
        return sorted(address.server for address in self.locate(path)[index].replicas)

    def paths(self, root: str = "/") -> list[str]:
        page: p.Page = self.call(p.FindTree(root, limit=10_000))
        return [status.path for status in page.entries]

    def close(self, opened: p.OpenFile, length: int) -> p.FileStatus:
        ask = p.CloseFile(opened.status.file_id, opened.epoch, length)
        status: p.FileStatus = self.call(ask)
        return status

    def epoch(self, path: str) -> Epoch:
        row = self.brain.space.row(path)
        return self.brain.space.writer_epoch(row)


def grant_of(model: Model, opened: p.OpenFile, index: int = 0, **fields: object) -> p.ChunkGrant:
    """What a writer asks when a mutation failed."""
    ask = p.FindLease(
        "",
        index,
        opened.status.file_id,
        opened.epoch,
        **fields,  # type: ignore[arg-type]
    )
    grant: p.ChunkGrant = model.call(ask)
    return grant
