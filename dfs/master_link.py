"""A chunkserver's link to one master: register, report everything held, then a heartbeat a second.

It tells of and is told about the chunks of that master's cell alone (`Cell`).
Whatever the master says is weighed by `Allegiance` first: a registration's answer, a heartbeat's
and each command (F2). A master that does not lead is told the same, and nothing that it says is an
order. Before anything is reported to a master of a new epoch, what an older one had
asked for has ended, so that the report stays true (M6). Runs on the chunkserver's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mrstream.cluster.clock import Clock
from mrstream.cluster.errors import ClusterError, DiskFailed
from mrstream.cluster.leader.link import Link
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import Channel
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion, pack_reports
from mrstream.dfs.chunks.allegiance import Allegiance
from mrstream.dfs.chunks.cell import Cell
from mrstream.dfs.chunks.chunk_service import ChunkService
from mrstream.dfs.chunks.commands import CommandRunner, describe
from mrstream.dfs.command_queue import CommandQueue, Outcome
from mrstream.dfs.errors import NotRegistered, StaleMaster, WrongCell
from mrstream.dfs.protocol import (
    COMMANDS,
    Command,
    CommandDone,
    DiskUse,
    Heartbeat,
    HeartbeatReply,
    HeldLease,
    Register,
    ReportChunks,
    ServerAddress,
    ServerSettings,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

SAMPLE_CHUNKS = 1000
NOT_YET = ServerSettings(1.0, 60.0, 5.0, 64 << 20, 0)
"""What holds until a master has said otherwise."""


@dataclass(frozen=True)
class Holdings:
    """What a chunkserver has to tell the masters of one cell, and to be told about."""

    cell: Cell
    role: str
    """Of its masters."""
    address: ServerAddress
    incarnation: int
    identity: Identity
    clock: Clock
    service: ChunkService
    allegiance: Allegiance
    commands: CommandQueue
    news: News
    is_busy: Callable[[], bool]
    on_settings: Callable[[ServerSettings], None]
    """Heard of each registration that was taken."""
    on_told: Callable[[asyncio.Future[object]], None]
    """Heard of the answer to each outcome of a command."""
    beat_thread: ThreadPoolExecutor = field(
        # Heartbeats never wait for a thread that waits for something else.
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="heartbeat")
    )


@dataclass
class Gathered:
    """Chunks to be told of in the next heartbeat of a link."""

    changed: dict[int, None] = field(default_factory=dict)
    """By writers."""
    touched: dict[int, None] = field(default_factory=dict)
    """By writers, or by commands: whoever gave them knows the outcome, a shadow does not."""
    lost: dict[int, None] = field(default_factory=dict)


class News:
    """What happened since the last heartbeat of each link, which each tells in its own time."""

    def __init__(self, service: ChunkService, runner: CommandRunner) -> None:
        self._service = service
        self._runner = runner
        self._gathered: dict[MasterLink, Gathered] = {}

    def begin(self, link: MasterLink) -> None:
        """The link is about to report all there is; from here on it needs what comes."""
        self._gathered[link] = Gathered()

    def end(self, link: MasterLink) -> None:
        """It will report all again."""
        self._gathered.pop(link, None)

    def take(self, link: MasterLink) -> Gathered:
        """What the link has not told yet."""
        changed, lost = self._service.take_changed(), self._service.store.take_lost()
        touched = self._runner.take_touched()
        for other, gathered in self._gathered.items():
            own = other.cell.own
            gathered.changed.update(dict.fromkeys(own(changed)))
            gathered.touched.update(dict.fromkeys(own([*changed, *touched])))
            gathered.lost.update(dict.fromkeys(own(lost)))
        news, self._gathered[link] = self._gathered[link], Gathered()
        return news


class MasterLink(Link):
    """In touch with the master at one address, again and again; registered with one that leads."""

    def __init__(self, master: str, holdings: Holdings) -> None:
        super().__init__(log)
        self.master = master
        self.leads = False
        self.epoch = 0
        """Of the master there, since the last registration."""
        self._h = holdings
        self.cell = holdings.cell
        self._settings = NOT_YET
        self._to_sample: list[int] = []
        self._early: list[Command] | None = None
        """Orders that came right behind the answer to a registration, while that is being taken in
        (an epoch has to be on disk); None: no registration is under way."""

    @property
    def address(self) -> str:
        return self.master

    async def connect(self) -> Channel:
        return await Channel.connect(
            self.master,
            self._h.identity,
            role=self._h.role,
            on_push=self._pushed,
            push_types=COMMANDS,
        )

    def is_ours(self, error: ClusterError) -> bool:
        """Whether a disk of this server has failed."""
        return isinstance(error, DiskFailed)

    def parted(self) -> None:
        """The next registration reports all there is; whether the one that is there then leads, and
        in which epoch, it says."""
        self.leads, self.epoch, self._early = False, 0, None
        self._h.news.end(self)

    # --- what is told

    async def register(self, channel: Channel) -> None:
        """Say who we are and what we hold."""
        h = self._h
        sent_at_s = h.clock.now_s()
        disks = await self._looked(self._disk_uses)
        registration = h.allegiance.numbered(sent_at_s)
        request = Register(
            h.address,
            h.incarnation,
            h.identity.cluster_id,
            disks,
            h.cell.held(sent_at_s),
            number=registration,
            epoch=h.allegiance.epoch,
        )
        self._early = []
        settings: ServerSettings = await channel.call(request, timeout_s=30.0)
        if settings.leads:
            await self._looked(lambda: h.allegiance.meet(settings.epoch))
            h.cell.void(settings.void)
            h.cell.contact(sent_at_s, settings.contact_s)
            h.on_settings(settings)
            await h.commands.settled(settings.epoch)
        self.leads, self.epoch, self._settings = settings.leads, settings.epoch, settings
        self.beat_s = settings.heartbeat_s
        h.news.begin(self)
        early, self._early = self._early, None
        for command in early:
            self._pushed(command)
        await self._report(channel, registration)
        self.is_registered = settings.leads

    async def _report(self, channel: Channel, registration: int) -> None:
        h, size = self._h, self._settings.report_chunks
        reports = h.cell.reports()
        parts = [reports[at : at + size] for at in range(0, len(reports), size)] or [[]]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            request = ReportChunks(
                h.address.server, h.incarnation, number, pack_reports(part), is_last, registration
            )
            await channel.call(request, timeout_s=30.0)
        log.info(
            "registered master=%s epoch=%d leads=%s chunks=%d",
            self.master, self.epoch, self.leads, len(reports),
        )  # fmt: skip

    async def beat(self, channel: Channel) -> bool:
        """Say what is new, and take what the master says to that."""
        h = self._h
        sent_at_s = h.clock.now_s()
        news = h.news.take(self)
        leases: tuple[HeldLease, ...] = ()
        if self.leads:
            leases = h.cell.to_extend(sent_at_s, self._settings.lease_s / 2)
        request = Heartbeat(
            h.address.server,
            h.incarnation,
            h.allegiance.numbered(sent_at_s),
            await self._looked(self._disk_uses),
            leases,
            pack_reports(self._reports_of(list(news.changed if self.leads else news.touched))),
            pack_reports(self._sample()),
            tuple(ChunkHandle(handle) for handle in news.lost),
            h.cell.corrupt(),
            h.is_busy(),
        )
        try:
            reply: HeartbeatReply = await channel.call(request, timeout_s=self._settings.contact_s)
        except NotRegistered:
            return False
        self._take(reply, sent_at_s)
        return True

    async def _looked(self, function: Callable[[], T]) -> T:
        """Have something looked up that touches the disks."""
        return await asyncio.get_running_loop().run_in_executor(self._h.beat_thread, function)

    def _sample(self) -> list[ChunkReport]:
        """The next few of all chunks held, in turn (GFS §4.4.1)."""
        if not self._to_sample:
            self._to_sample = self._h.cell.handles()
        following, self._to_sample = (
            self._to_sample[:SAMPLE_CHUNKS],
            self._to_sample[SAMPLE_CHUNKS:],
        )
        return self._reports_of(following)

    def _reports_of(self, handles: list[int]) -> list[ChunkReport]:
        reports = []
        for handle in sorted(handles):
            try:
                replica = self._h.service.store.get(handle)
            except ClusterError:
                continue  # gone or bad since: said in another field
            reports.append(
                ChunkReport(ChunkHandle(handle), ChunkVersion(replica.version), replica.length)
            )
        return reports

    def _disk_uses(self) -> tuple[DiskUse, ...]:
        return tuple(
            DiskUse(use.name, use.total_bytes, use.free_bytes, use.chunk_bytes, bool(use.failure))
            for use in self._h.service.store.uses()
        )

    # --- what is heard

    def _take(self, reply: HeartbeatReply, sent_at_s: float) -> None:
        if not self.leads:
            return  # F4
        h = self._h
        h.allegiance.check(self.epoch, "a heartbeat's answer")
        h.cell.contact(sent_at_s, self._settings.contact_s)
        h.cell.extend(reply, sent_at_s)
        for handle, version in h.cell.garbage(reply):
            h.commands.collect(handle, version, self.epoch)

    def _pushed(self, command: Command) -> None:
        if self._early is not None:
            self._early.append(command)
            return
        h = self._h
        try:
            if not self.leads:
                raise StaleMaster(f"{type(command).__name__} comes from a shadow")
            h.cell.check(command)
            since_s = h.allegiance.admit(command, h.clock.now_s(), self._settings.contact_s)
        except (StaleMaster, WrongCell) as refused:
            log.warning("master=%s command refused: %s", self.master, refused)
            self.tell(Outcome(command.command_id, 0, 0, describe(refused)))
            return
        # However late it comes, a lease began when the master decided, or before.
        h.commands.put(command, since_s)

    def tell(self, outcome: Outcome) -> None:
        """Answer a command, if the master is there to hear it."""
        if self.channel is None:
            return
        done = CommandDone(
            self._h.address.server,
            self._h.incarnation,
            outcome.command_id,
            not outcome.error,
            ChunkVersion(outcome.version),
            outcome.length_bytes,
            outcome.error,
        )
        heard: asyncio.Future[Any] = self.channel.call(done, timeout_s=self._settings.contact_s)
        heard.add_done_callback(self._h.on_told)
