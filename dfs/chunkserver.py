"""A chunkserver: holds replicas, serves their bytes, does what the master says (GFS Figure 1).

The shell around `dfs.chunks`. One asyncio loop talks with the master: register, report everything
held, then a heartbeat a second, which carries leases to extend, chunks that changed, were lost or
are corrupt, and brings garbage to delete; commands come pushed in between and run in threads, those
of one chunk one after the other. Bytes go over `BulkServer` threads that never touch the loop. When
fsync fails the process ends at once. There is no clean shutdown: kill is the normal stop (GFS-74).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from mrstream.cluster.clock import Clock
from mrstream.cluster.config.config import CHUNKSERVER, CHUNKSERVER_BULK, DFS_MASTER
from mrstream.cluster.daemon import Daemon, run
from mrstream.cluster.errors import ClusterError, DiskFailed, Unavailable
from mrstream.cluster.logs import RpcLog
from mrstream.cluster.wire.addresses import join_address
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import BulkServer, Channel, Handler, Peer
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, ServerId, pack_reports
from mrstream.dfs.chunks.chunk_service import ChunkService, Observe
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve
from mrstream.dfs.chunks.commands import CommandRunner, Throttle
from mrstream.dfs.chunks.disk import RealDisk
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.chunks.scrub import Scrubber
from mrstream.dfs.command_queue import CommandQueue, Outcome
from mrstream.dfs.errors import NotRegistered
from mrstream.dfs.protocol import (
    COMMANDS,
    Command,
    CommandDone,
    CreateChunk,
    DiskUse,
    GrantLease,
    Heartbeat,
    HeartbeatReply,
    Register,
    ReportChunks,
    ServerAddress,
    ServerSettings,
)
from mrstream.dfs.transfer.bulk_pool import BulkPool

log = logging.getLogger(__name__)

T = TypeVar("T")

ROLE: Final = CHUNKSERVER
UNIX_PATH_CHARS_MAX = 100
SAMPLE_CHUNKS = 1000
BUSY_S = 1.0
NUMBERS_KEPT = 1000
RECONNECT_S = 0.2


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Where a chunkserver is, and what it may use."""

    server: ServerId
    host: str
    control_port: int
    bulk_port: int
    master: str
    disks: tuple[str, ...]
    rack: str = ""
    local_socket: str = ""
    reserve: Reserve = field(default_factory=Reserve)
    push_bytes: int = 256 << 20
    scrub_every_s: float = 14 * 86400.0


class ChunkServer:
    """One chunkserver of one cluster: a `cluster.daemon.Service`."""

    def __init__(
        self,
        plan: ServerPlan,
        identity: Identity,
        *,
        clock: Clock,
        fail: Callable[[BaseException, str], NoReturn],
        observe: Observe | None = None,
    ) -> None:
        """`fail` ends the process at once; `observe` hears of every request for bytes."""
        self.handlers: Mapping[type[Any], Handler] = {}
        self._plan = plan
        self._identity = identity
        self._clock = clock
        self._fail = fail
        self._incarnation = time.time_ns()
        self._settings = ServerSettings(1.0, 60.0, 5.0, 64 << 20, 0)
        self._pool = BulkPool(identity, timeout_s=5.0, connect_s_max=2.0)
        self.store = ChunkStore(
            [RealDisk(path) for path in plan.disks],
            cluster=identity.cluster_id,
            server=plan.server,
            reserve=plan.reserve,
        )
        self.order = MutationOrder()
        self.service = ChunkService(
            plan.server,
            self.store,
            self.order,
            PushBuffer(plan.push_bytes),
            self._pool,
            clock,
            self._disk_failed,
            observe,
        )
        self._stopping = threading.Event()
        throttle = Throttle(0, self.is_busy, self._pause)
        self._runner = CommandRunner(self.service, self._pool, clock, throttle)
        self._commands = CommandQueue(self._runner, self._tell, self._disk_failed, fail)
        # Heartbeats never wait for a thread that waits for something else.
        self._beat_thread = ThreadPoolExecutor(1, thread_name_prefix="heartbeat")
        self._to_sample: list[int] = []
        self._numbers = itertools.count(1)
        self._sent_at_s: dict[int, float] = {}
        """When the last registrations and heartbeats were sent, by number."""
        self._bulk = BulkServer(self.service.serve, identity, on_bug=fail)
        self._local = BulkServer(self.service.serve, identity, on_bug=fail)
        self._channel: Channel | None = None
        self._master_task: asyncio.Task[None] | None = None
        self._scrubber = Scrubber(self.store, plan.scrub_every_s)
        self._is_registered = False

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen for bytes and turn to the master."""
        self._bulk.start(join_address(self._plan.host, self._plan.bulk_port))
        if self._plan.local_socket:
            self._local.start(f"unix:{self._plan.local_socket}")
        threading.Thread(target=self._scrub, name="scrub", daemon=True).start()
        self._master_task = asyncio.ensure_future(self._talk())
        self._master_task.add_done_callback(self._end_on_bug)

    async def stop(self) -> None:
        """Let go of the master and of the bytes' connections."""
        self._stopping.set()
        if self._master_task is not None:
            self._master_task.cancel()
            await asyncio.wait([self._master_task])
        await asyncio.get_running_loop().run_in_executor(None, self._close_bulk)

    def ready(self) -> tuple[bool, str]:
        """Registered with the master?"""
        words = f"{len(self.store.handles())} chunks"
        if not self._is_registered:
            return False, f"{words}, waiting for the master at {self._plan.master}"
        return True, words

    def connected(self, peer: Peer) -> None:
        """Nothing is kept with control connections."""

    def disconnected(self, peer: Peer) -> None:
        """Nothing is kept with control connections."""

    def _close_bulk(self) -> None:
        self._bulk.close()
        if self._plan.local_socket:
            self._local.close()

    async def _talk(self) -> None:
        """Be in touch with the master, again and again."""
        said = ""
        while True:
            try:
                await self._with_master()
            except ClusterError as error:
                # Also a refusal: the port may be another program's for a while.
                if self._is_registered or str(error) != said:
                    log.info("master=%s unavailable: %s", self._plan.master, error)
                said = str(error)
            self._is_registered = False
            await asyncio.sleep(RECONNECT_S)

    def _end_on_bug(self, task: asyncio.Task[None]) -> None:
        """What ends in anything but an answer of the other side ends the daemon."""
        if not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, Unavailable):
                self._fail(error, "chunkserver")

    def _pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def is_busy(self) -> bool:
        """Have clients used the disks just now?"""
        return self._clock.now_s() - self.service.served_at_s < BUSY_S

    def metrics(self) -> dict[str, float]:
        """Counters for whoever asks."""
        uses = self.store.uses()
        return {
            **self.service.counters,
            "chunks": float(len(self.store.handles())),
            "chunks_corrupt": float(len(self.store.corrupt())),
            "disks_failed": float(sum(1 for use in uses if use.failure)),
            "free_bytes": float(sum(use.free_bytes for use in uses)),
            "scrub_rounds": float(self._scrubber.rounds_count),
        }

    def _disk_failed(self, error: DiskFailed) -> None:
        self._fail(error, "a disk no longer keeps what it is given")

    def _scrub(self) -> None:
        while not self._stopping.is_set():
            wait_s = BUSY_S if self.is_busy() else self._scrubber.step()
            self._stopping.wait(wait_s)

    # -- the master -----------------------------------------------------------------------

    async def _with_master(self) -> None:
        """Register, report, and beat until the connection is lost."""
        channel = await Channel.connect(
            self._plan.master,
            self._identity,
            role=DFS_MASTER,
            on_push=self._pushed,
            push_types=COMMANDS,
        )
        self._channel = channel
        try:
            await self._register(channel)
            while True:
                try:
                    await self._beat(channel)
                except NotRegistered:
                    await self._register(channel)
                await asyncio.wait([channel.closed], timeout=self._settings.heartbeat_s)
                if channel.closed.done():
                    raise channel.closed.result()
        finally:
            self._channel = None
            channel.close()

    async def _register(self, channel: Channel) -> None:
        sent_at_s = self._clock.now_s()
        disks = await self._looked(self._disk_uses)
        registration = self._numbered(sent_at_s)
        request = Register(
            self._address(),
            self._incarnation,
            self._identity.cluster_id,
            disks,
            self.order.held(sent_at_s),
            number=registration,
        )
        self._settings = await channel.call(request, timeout_s=30.0)
        for handle in self._settings.void:
            self.order.lease_over(handle)
        self.order.contact(sent_at_s, self._settings.contact_s)
        self._runner.throttle.bytes_per_s = self._settings.clone_bytes_per_s
        self._pool.timeout_s = max(1.0, self._settings.contact_s)
        reports = self.store.reports()
        size = self._settings.report_chunks
        parts = [reports[at : at + size] for at in range(0, len(reports), size)] or [[]]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            await channel.call(
                ReportChunks(
                    self._plan.server,
                    self._incarnation,
                    number,
                    pack_reports(part),
                    is_last,
                    registration,
                ),
                timeout_s=30.0,
            )
        self._is_registered = True
        log.info("registered master=%s chunks=%d", self._plan.master, len(reports))

    def _numbered(self, sent_at_s: float) -> int:
        """The number of a registration or heartbeat sent at that time: leases count from there."""
        number = next(self._numbers)
        self._sent_at_s[number] = sent_at_s
        self._sent_at_s.pop(number - NUMBERS_KEPT, None)
        return number

    async def _beat(self, channel: Channel) -> None:
        sent_at_s = self._clock.now_s()
        changed = self.service.take_changed()
        lost = self.store.take_lost()
        request = Heartbeat(
            self._plan.server,
            self._incarnation,
            self._numbered(sent_at_s),
            await self._looked(self._disk_uses),
            self.order.to_extend(sent_at_s, self._settings.lease_s / 2),
            pack_reports(self._reports_of(changed)),
            pack_reports(self._sample()),
            tuple(ChunkHandle(handle) for handle in lost),
            tuple(
                (ChunkHandle(handle), ChunkVersion(version))
                for handle, version in self.store.corrupt_versions()
            ),
            self.is_busy(),
        )
        reply: HeartbeatReply = await channel.call(request, timeout_s=self._settings.contact_s)
        self.order.contact(sent_at_s, self._settings.contact_s)
        for lease in reply.extended:
            self.order.extended(lease.handle, lease.version, sent_at_s + lease.left_s)
        for handle, version in reply.garbage:
            self._commands.collect(handle, version)

    async def _looked(self, function: Callable[[], T]) -> T:
        """Have something looked up that touches the disks."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._beat_thread, function)

    def _sample(self) -> list[ChunkReport]:
        """The next few of all chunks held, in turn (GFS §4.4.1)."""
        if not self._to_sample:
            self._to_sample = self.store.handles()
        following, self._to_sample = (
            self._to_sample[:SAMPLE_CHUNKS],
            self._to_sample[SAMPLE_CHUNKS:],
        )
        return self._reports_of(following)

    def _reports_of(self, handles: list[int]) -> list[ChunkReport]:
        reports = []
        for handle in sorted(handles):
            try:
                replica = self.store.get(handle)
            except ClusterError:
                continue  # gone or bad since: said in another field
            reports.append(
                ChunkReport(ChunkHandle(handle), ChunkVersion(replica.version), replica.length)
            )
        return reports

    def _disk_uses(self) -> tuple[DiskUse, ...]:
        return tuple(
            DiskUse(use.name, use.total_bytes, use.free_bytes, use.chunk_bytes, bool(use.failure))
            for use in self.store.uses()
        )

    def _address(self) -> ServerAddress:
        plan = self._plan
        return ServerAddress(
            plan.server, plan.host, plan.control_port, plan.bulk_port, plan.rack, plan.local_socket
        )

    # -- commands -------------------------------------------------------------------------

    def _pushed(self, command: Command) -> None:
        """Take a command that the master pushed."""
        read_at_s = self._clock.now_s()
        if isinstance(command, CreateChunk | GrantLease):
            # However late it comes, the lease began when the master decided, or before.
            read_at_s = self._sent_at_s.get(command.since, float("-inf"))
        self._commands.put(command, read_at_s)

    def _tell(self, outcome: Outcome) -> None:
        """Answer a command, if the master is there to hear it."""
        if self._channel is None:
            return
        done = CommandDone(
            self._plan.server,
            self._incarnation,
            outcome.command_id,
            not outcome.error,
            ChunkVersion(outcome.version),
            outcome.length_bytes,
            outcome.error,
        )
        heard = self._channel.call(done, timeout_s=self._settings.contact_s)
        heard.add_done_callback(self._told)

    def _told(self, heard: asyncio.Future[object]) -> None:
        error = None if heard.cancelled() else heard.exception()
        if isinstance(error, Unavailable):
            # The master finds out by the report that follows the next registration.
            log.info("outcome of a command was not heard: %s", error)
        elif error is not None:
            self._fail(error, "chunkserver")


def build(daemon: Daemon) -> ChunkServer:
    """Make the chunkserver of a host from its cluster's configuration."""
    config, host = daemon.config, daemon.host
    disks = tuple(
        os.path.join(os.path.expanduser(disk), config.name, host.name, ROLE) for disk in host.disks
    )
    socket_path = os.path.join(daemon.directory, "run", f"{ROLE}.sock")
    plan = ServerPlan(
        server=ServerId(host.name),
        host=host.address,
        control_port=config.port(CHUNKSERVER),
        bulk_port=config.port(CHUNKSERVER_BULK),
        master=config.master_address(DFS_MASTER),
        disks=disks or (daemon.state_directory,),
        rack=host.rack,
        local_socket=socket_path if len(socket_path) <= UNIX_PATH_CHARS_MAX else "",
        reserve=Reserve(config.dfs.reserve_share, config.dfs.reserve_bytes),
        scrub_every_s=config.dfs.scrub_every_s,
    )
    rpc_log = RpcLog(os.path.join(daemon.directory, "logs", f"{ROLE}.bulk.rpc.log"))
    return ChunkServer(
        plan, daemon.identity, clock=daemon.clock, fail=daemon.fail, observe=rpc_log.observe
    )


def main(argv: list[str] | None = None) -> int:
    """`python -P -m mrstream.dfs.chunkserver --host NAME --dir DIR`."""
    return run(ROLE, build, argv)


if __name__ == "__main__":
    sys.exit(main())
