"""A chunkserver: holds replicas, serves their bytes, does what the master says (GFS Figure 1).

The shell around `dfs.chunks`. One asyncio loop talks with the masters (`master_link`), those of
each cell about its own chunks; their commands come pushed in between and run in threads, those of
one chunk one after the other. Bytes go over `BulkServer` threads that never touch the loop. When
fsync fails the process ends at once. There is no clean shutdown: kill is the normal stop (GFS-74).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from mrstream.cluster.clock import Clock
from mrstream.cluster.config.config import (
    CHUNKSERVER,
    CHUNKSERVER_BULK,
    DFS_MASTER,
    ClusterConfig,
)
from mrstream.cluster.daemon import Daemon, Service, run
from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import DiskFailed, Unavailable
from mrstream.cluster.logs import RpcLog
from mrstream.cluster.wire.addresses import join_address
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import BulkServer, Handler
from mrstream.dfs.chunk import ROOT_CELL, ServerId, cell_of, epoch_of_command
from mrstream.dfs.chunks.allegiance import allegiance_of
from mrstream.dfs.chunks.cell import Cell
from mrstream.dfs.chunks.chunk_service import ChunkService, Observe
from mrstream.dfs.chunks.chunk_store import ChunkStore, Reserve
from mrstream.dfs.chunks.commands import CommandRunner, Throttle
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.push_buffer import PushBuffer
from mrstream.dfs.chunks.scrub import Scrubber
from mrstream.dfs.command_queue import CommandQueue, Outcome
from mrstream.dfs.master_link import Holdings, MasterLink, News
from mrstream.dfs.protocol import ServerAddress, ServerSettings
from mrstream.dfs.transfer.bulk_pool import BulkPool

log = logging.getLogger(__name__)

ROLE = CHUNKSERVER
UNIX_PATH_CHARS_MAX = 100
BUSY_S = 1.0


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Where the masters of a cell are: whoever leads, and those who watch."""

    number: int
    role: str
    masters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Where a chunkserver is, and what it may use."""

    server: ServerId
    host: str
    control_port: int
    bulk_port: int
    cells: tuple[CellPlan, ...]
    """The root's first."""
    disks: tuple[str, ...]
    rack: str = ""
    local_socket: str = ""
    reserve: Reserve = field(default_factory=Reserve)
    push_bytes: int = 256 << 20
    scrub_every_s: float = 14 * 86400.0


class ChunkServer(Service):
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
        self._pool = BulkPool(identity, timeout_s=5.0, connect_s_max=2.0)
        self.store = ChunkStore(
            [OsDisk(path, mode=0o644) for path in plan.disks],
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
        self._news = News(self.service, self._runner)
        self._incarnation = time.time_ns()
        self._links = {cell.number: self._links_to(cell) for cell in plan.cells}
        self._bulk = BulkServer(self.service.serve, identity, on_bug=fail)
        self._local = BulkServer(self.service.serve, identity, on_bug=fail)
        self._tasks: list[asyncio.Task[None]] = []
        self._scrubber = Scrubber(self.store, plan.scrub_every_s)

    def _links_to(self, plan: CellPlan) -> list[MasterLink]:
        """All that is kept for one cell: whom its chunks obey, and what they were told to do."""
        links: list[MasterLink] = []
        allegiance = allegiance_of(self.store, plan.number)
        commands = CommandQueue(
            self._runner, allegiance, partial(_tell, links), self._disk_failed, self._fail
        )
        holdings = Holdings(
            Cell(plan.number, self.store, self.order),
            plan.role,
            self._address(),
            self._incarnation,
            self._identity,
            self._clock,
            self.service,
            allegiance,
            commands,
            self._news,
            self.is_busy,
            self._take_settings,
            self._told,
        )
        links += [MasterLink(master, holdings) for master in plan.masters]
        return links

    # --- life

    async def start(self) -> None:
        """Listen for bytes and turn to the master."""
        self._bulk.start(join_address(self._plan.host, self._plan.bulk_port))
        if self._plan.local_socket:
            self._local.start(f"unix:{self._plan.local_socket}")
        threading.Thread(target=self._scrub, name="scrub", daemon=True).start()
        for link in [link for links in self._links.values() for link in links]:
            task = asyncio.ensure_future(link.talk())
            task.add_done_callback(self._end_on_bug)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Let go of the master and of the bytes' connections."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.get_running_loop().run_in_executor(None, self._close_bulk)

    def ready(self) -> tuple[bool, str]:
        """Registered with the master? Those of other cells than the root's are only named: files
        elsewhere do not wait for them."""
        words, is_ready = f"{len(self.store.handles())} chunks", True
        for plan in self._plan.cells:
            if not any(link.is_registered for link in self._links[plan.number]):
                whose = "" if plan.number == ROOT_CELL else f" of cell {plan.number}"
                words += f", waiting for the master{whose} at {' or '.join(plan.masters)}"
                is_ready = is_ready and plan.number != ROOT_CELL
        return is_ready, words

    def _close_bulk(self) -> None:
        self._bulk.close()
        if self._plan.local_socket:
            self._local.close()

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
        uses = self.store.uses()
        return {
            **self.service.counters,
            "chunks": float(len(self.store.handles())),
            **self._chunks_of_cells(),
            "chunks_corrupt": float(len(self.store.corrupt())),
            "disks_failed": float(sum(1 for use in uses if use.failure)),
            "free_bytes": float(sum(use.free_bytes for use in uses)),
            "scrub_rounds": float(self._scrubber.rounds_count),
        }

    def _chunks_of_cells(self) -> dict[str, float]:
        """Of each cell that there is, or of which there are chunks: a master that has lost its log
        is known by them."""
        counts = Counter(map(cell_of, self.store.handles()))
        numbers = {plan.number for plan in self._plan.cells} | set(counts)
        if numbers == {ROOT_CELL}:
            return {}
        return {f"chunks_of_cell_{number}": float(counts[number]) for number in sorted(numbers)}

    def _disk_failed(self, error: DiskFailed) -> None:
        self._fail(error, "a disk no longer keeps what it is given")

    def _scrub(self) -> None:
        while not self._stopping.is_set():
            wait_s = BUSY_S if self.is_busy() else self._scrubber.step()
            self._stopping.wait(wait_s)

    # --- the master

    def _take_settings(self, settings: ServerSettings) -> None:
        """A master has said how this cluster does things."""
        self._runner.throttle.bytes_per_s = settings.clone_bytes_per_s
        self._pool.timeout_s = max(1.0, settings.contact_s)

    def _address(self) -> ServerAddress:
        plan = self._plan
        return ServerAddress(
            plan.server, plan.host, plan.control_port, plan.bulk_port, plan.rack, plan.local_socket
        )

    def _told(self, heard: asyncio.Future[object]) -> None:
        error = None if heard.cancelled() else heard.exception()
        if isinstance(error, Unavailable):
            # The master finds out by the report that follows the next registration.
            log.info("outcome of a command was not heard: %s", error)
        elif error is not None:
            self._fail(error, "chunkserver")


def _tell(links: list[MasterLink], outcome: Outcome) -> None:
    """Answer the master of a cell that gave the command."""
    epoch = epoch_of_command(outcome.command_id)
    for link in links:
        if link.leads and link.epoch == epoch:
            link.tell(outcome)


def _cells(config: ClusterConfig) -> tuple[CellPlan, ...]:
    numbers = {DFS_MASTER: ROOT_CELL} | {cell.role: cell.number for cell in config.dfs.cells}
    return tuple(
        CellPlan(number, role, tuple(config.master_addresses(role).values()))
        for role, number in numbers.items()
    )


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
        cells=_cells(config),
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
