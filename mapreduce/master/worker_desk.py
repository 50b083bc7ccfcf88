"""Where workers report: registration, heartbeats, what becomes of attempts.

Turns what workers say into events of the scheduler, and into figures for people. Never decides what
that means, nor what a silence does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from mrstream.cluster.wire.network import Handler, Peer
from mrstream.mapreduce.attempt.attempt_report import AttemptNews
from mrstream.mapreduce.master.master_shell import MasterShell
from mrstream.mapreduce.protocol import (
    AttemptEnded,
    AttemptSaid,
    AttemptShuffled,
    AttemptWantsCommit,
    FetchTrouble,
    Heartbeat,
    Register,
    WorkerSettings,
)
from mrstream.mapreduce.scheduler.events import (
    AttemptFailed,
    AttemptKilled,
    AttemptProgress,
    AttemptSucceeded,
    CommitRequested,
    FetchFailed,
    OutputLost,
    ShuffleFinished,
    WorkerDraining,
    WorkerHeard,
    WorkerRegistered,
    WorkerResumed,
)
from mrstream.mapreduce.scheduler.ids import (
    HostName,
    RackName,
    TaskKind,
    WorkerId,
    parse_attempt_id,
)

log = logging.getLogger(__name__)


class WorkerDesk:
    def __init__(self, shell: MasterShell, settings: WorkerSettings) -> None:
        self._shell = shell
        self._settings = settings
        self.handlers: Mapping[type[Any], Handler] = {
            Register: self._register,
            Heartbeat: self._heartbeat,
            AttemptEnded: self._attempt_ended,
            AttemptWantsCommit: self._wants_commit,
            AttemptShuffled: self._shuffled,
            FetchTrouble: self._fetch_trouble,
            AttemptSaid: self._attempt_said,
        }

    # --- coming and going

    def _register(self, request: Register, peer: Peer) -> WorkerSettings:
        shell = self._shell
        link = shell.links.meet(request.worker_id)
        if link.peer is not None and link.peer is not peer:
            link.peer.close()
        peer.context = request.worker_id
        link.connect(peer)
        link.incarnation = request.incarnation
        link.address, link.bulk_address = request.address, request.bulk_address
        link.is_full = False
        link.platform = request.platform
        segments = []
        for kept in request.segments:
            attempt_id = parse_attempt_id(kept.attempt_id)
            segments.append(attempt_id)
            shell.books.notices.offer(attempt_id, kept.done)
        log.info("worker=%s registered slots=%d running=%d segments=%d", request.worker_id,
                 request.slots, len(request.running), len(segments))  # fmt: skip
        shell.event(
            WorkerRegistered(
                link.worker_id,
                HostName(request.worker_id),
                request.slots,
                request.slots,
                request.slots,
                RackName(request.rack),
                tuple(parse_attempt_id(text) for text in request.running),
                tuple(segments),
            )
        )
        self._retell(link.worker_id)
        return msgspec.structs.replace(self._settings, epoch=shell.links.epoch)

    def _retell(self, worker_id: WorkerId) -> None:
        """Tell a worker that came back of the segments that its running reduces wait for."""
        for attempt_id in self._shell.scheduler.running_on(worker_id):
            ledger = self._shell.books.jobs.get(attempt_id.task_id.job_id)
            if ledger is not None:
                is_map = attempt_id.task_id.kind is TaskKind.MAP
                self._shell.links.retell(worker_id, ledger, is_map=is_map)

    def disconnected(self, peer: Peer) -> None:
        """A connection ended: its worker may come back before its silence is too long."""
        if isinstance(peer.context, str):
            link = self._shell.links.get(peer.context)
            if link is not None and link.peer is peer:
                link.peer = None
                log.info("worker=%s disconnected", peer.context)

    # --- heartbeats

    def _heartbeat(self, request: Heartbeat, peer: Peer) -> bool:
        shell = self._shell
        link = shell.links.get(request.worker_id)
        if link is None or link.peer is not peer or link.incarnation != request.incarnation:
            return False
        self._heard_from(link.worker_id)
        for news in request.attempts:
            self._progress(news)
        shell.books.notices.host_figures(
            link.worker_id,
            load=request.load,
            memory_used_bytes=request.memory_used_bytes,
            memory_total_bytes=request.memory_total_bytes,
            disks=request.disks,
            now_s=shell.clock.wall_s(),
        )
        if request.is_full != link.is_full:
            link.is_full = request.is_full
            log.warning("worker=%s disks full=%s", link.worker_id, link.is_full)
            shell.event(
                WorkerDraining(link.worker_id) if link.is_full else WorkerResumed(link.worker_id)
            )
        return True

    def _progress(self, news: AttemptNews) -> None:
        attempt_id = parse_attempt_id(news.attempt_id)
        self._shell.books.notices.heard(attempt_id, news)
        self._shell.event(AttemptProgress(attempt_id, news.fraction))

    # --- attempts

    def _attempt_ended(self, request: AttemptEnded, peer: Peer) -> Any:
        shell = self._shell
        attempt_id = parse_attempt_id(request.attempt_id)
        ledger = shell.books.jobs.get(attempt_id.task_id.job_id)
        self._heard_from(request.worker_id)
        if request.done is not None:
            shell.books.notices.offer(attempt_id, request.done)
            shell.event(AttemptSucceeded(attempt_id))
        elif request.failure is not None:
            if ledger is not None and attempt_id in ledger.tally.running:
                ledger.failed(attempt_id, request.failure, request.worker_id)
            shell.event(AttemptFailed(attempt_id, request.failure.message))
        else:
            shell.event(AttemptKilled(attempt_id, request.killed))
        # Acknowledged only when it is durable: until then the worker says it again.
        return None if shell.duties.is_clear else shell.settled()

    def _wants_commit(self, request: AttemptWantsCommit, peer: Peer) -> None:
        self._heard_from(request.worker_id)
        self._shell.event(CommitRequested(parse_attempt_id(request.attempt_id)))

    def _shuffled(self, request: AttemptShuffled, peer: Peer) -> None:
        self._heard_from(request.worker_id)
        self._shell.event(ShuffleFinished(parse_attempt_id(request.attempt_id)))

    def _fetch_trouble(self, request: FetchTrouble, peer: Peer) -> None:
        reduce_id = parse_attempt_id(request.reduce_attempt_id)
        map_id = parse_attempt_id(request.map_attempt_id)
        log.info("fetch reduce=%s map=%s gone=%s: %s", reduce_id, map_id, request.gone,
                 request.reason)  # fmt: skip
        if request.gone:
            self._shell.event(OutputLost(map_id, request.reason))
        else:
            self._shell.event(FetchFailed(reduce_id, map_id))

    def _attempt_said(self, request: AttemptSaid, peer: Peer) -> None:
        attempt_id = parse_attempt_id(request.attempt_id)
        ledger = self._shell.books.jobs.get(attempt_id.task_id.job_id)
        if ledger is not None:
            ledger.attempt_said(request.attempt_id, request.level, request.text)

    def _heard_from(self, worker_id: str) -> None:
        self._shell.event(WorkerHeard(WorkerId(worker_id)))
