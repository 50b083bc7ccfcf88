"""The job master: one process runs every job of the cluster, others wait (MapReduce §3.1).

`duties` lets the brain, `mapreduce.scheduler`, decide and journals that; `master_shell` sends what
may be sent; `job_desk` takes jobs in and closes them; `worker_desk` hears workers; `job_questions`
answers people. Killed and started again it goes on with running jobs: finished maps are not
repeated, since workers bring their segments when they register, and clients that wait ask again. So
it is when another host takes over: who leads, and whether anything may be said, is the office's to
know (`cluster/leader`); a master that does not lead folds the journal and opens no desk. Never sees
a record, never decides anything itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mrstream.cluster.config.config import MAPREDUCE_MASTER
from mrstream.cluster.daemon import Daemon, Service, run
from mrstream.cluster.wire.network import Handler, Peer
from mrstream.mapreduce.master.job_desk import JobDesk
from mrstream.mapreduce.master.job_history import InDfs, JobHistory, OwnDisk
from mrstream.mapreduce.master.job_questions import JobQuestions
from mrstream.mapreduce.master.master_shell import TICK_S, MasterShell
from mrstream.mapreduce.master.worker_desk import WorkerDesk
from mrstream.mapreduce.protocol import WorkerSettings
from mrstream.mapreduce.scheduler.events import Tick

log = logging.getLogger(MAPREDUCE_MASTER)

THREADS = 32
"""For what blocks: the output directories of jobs that begin or end, and reports."""


class Master(Service):
    """The service of the `mapreduce.master` daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._shell = MasterShell(daemon)
        own_disk = OwnDisk(os.path.join(daemon.state_directory, "history"))
        if self._shell.is_alone:
            history = JobHistory(own_disk)
        else:
            history = JobHistory(InDfs(), before=own_disk)
        self._job_desk = JobDesk(self._shell, history, daemon.config)
        dfs = daemon.config.dfs
        self._worker_desk = WorkerDesk(
            self._shell, WorkerSettings(dfs.heartbeat_s, dfs.dead_after_s)
        )
        self._ticker: asyncio.TimerHandle | None = None
        office = self._shell.office
        self.handlers: Mapping[type[Any], Handler] = {
            **office.handlers,
            **office.guard(
                {
                    **JobQuestions(daemon, self._shell, history).handlers,
                    **self._job_desk.handlers,
                    **self._worker_desk.handlers,
                }
            ),
        }

    async def start(self) -> None:
        """Take up what was acknowledged; then lead (workers and clients may come), or follow."""
        self._daemon.loop.set_default_executor(ThreadPoolExecutor(THREADS, "dfs"))
        await self._shell.office.start()
        self._ticker = self._shell.loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Make durable what was decided; jobs go on when a master starts again."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self._shell.close()

    def ready(self) -> tuple[bool, str]:
        """Serving, and how much there is to do; or whose shadow."""
        shell = self._shell
        is_well, words = shell.office.ready()
        if not is_well or not shell.office.is_leading:
            return is_well, words
        serving = f"{len(shell.books.jobs)} jobs, {len(shell.links)} workers"
        return True, serving if shell.is_alone else f"{serving}, {words}"

    def metrics(self) -> dict[str, float]:
        return {
            "jobs": float(len(self._shell.books.jobs)),
            "workers": float(len(self._shell.links)),
            "attempts_failed": float(self._shell.books.notices.attempts_failed),
            "epoch": float(self._shell.office.epoch),
            "journal_sequence": float(self._shell.office.seen),
            "journal_durable": float(self._shell.office.durable),
        }

    def disconnected(self, peer: Peer) -> None:
        """A client's connection ended; a worker's may have."""
        self._worker_desk.disconnected(peer)

    def _tick(self) -> None:
        shell = self._shell
        # Without its lease a leader can say nothing to anybody: that time is ours, and a gap
        # between ticks is nobody's silence. In a shadow no time passes.
        if shell.office.is_leading:
            shell.event(Tick())
            shell.books.notices.tick(shell.clock.wall_s())
            self._job_desk.tell_counters()
            self._job_desk.clear_leftovers_if_due()
        shell.office.checkpoint_if_due(shell.journaled.pieces)
        self._ticker = shell.loop.call_later(TICK_S, self._tick)


def main(argv: Sequence[str] | None = None) -> int:
    return run(MAPREDUCE_MASTER, Master, argv)
