"""The job master: one process that runs every job of the cluster (MapReduce §3.1).

`duties` lets the brain, `mapreduce.scheduler`, decide and journals that; `master_shell` sends what
may be sent; `job_desk` takes jobs in and closes them; `worker_desk` hears workers; `job_questions`
answers people. Killed and started again it goes on with running jobs: finished maps are not
repeated, since workers bring their segments when they register, and clients that wait ask again.
Never sees a record, never decides anything itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from mrstream.cluster.config.config import MAPREDUCE_MASTER
from mrstream.cluster.daemon import Daemon, run
from mrstream.cluster.wire.network import Handler, Peer
from mrstream.mapreduce.dataflow import dfs_files
from mrstream.mapreduce.master.job_desk import JobDesk
from mrstream.mapreduce.master.job_history import JobHistory
from mrstream.mapreduce.master.job_questions import JobQuestions
from mrstream.mapreduce.master.master_shell import TICK_S, MasterShell
from mrstream.mapreduce.master.worker_desk import WorkerDesk
from mrstream.mapreduce.protocol import WorkerSettings
from mrstream.mapreduce.scheduler.events import Tick

log = logging.getLogger(MAPREDUCE_MASTER)

THREADS: Final = 32
"""For what blocks: the output directories of jobs that begin or end, and reports."""


class Master:
    """The service of the `mapreduce.master` daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._shell = MasterShell(daemon)
        history = JobHistory(os.path.join(daemon.state_directory, "history"))
        self._job_desk = JobDesk(self._shell, history, daemon.config)
        dfs = daemon.config.dfs
        self._worker_desk = WorkerDesk(
            self._shell, WorkerSettings(dfs.heartbeat_s, dfs.dead_after_s)
        )
        self._ticker: asyncio.TimerHandle | None = None
        self.handlers: Mapping[type[Any], Handler] = {
            **JobQuestions(daemon, self._shell, history).handlers,
            **self._job_desk.handlers,
            **self._worker_desk.handlers,
        }

    async def start(self) -> None:
        """Recover what was acknowledged; then workers and clients may come."""
        dfs_files.serve(self._daemon.cluster)
        self._daemon.loop.set_default_executor(ThreadPoolExecutor(THREADS, "dfs"))
        shell = self._shell
        shell.start()
        self._job_desk.restore()
        self._ticker = shell.loop.call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """Make durable what was decided; jobs go on when a master starts again."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self._shell.close()

    def ready(self) -> tuple[bool, str]:
        """Serving, and how much there is to do."""
        if self._shell.journal.blocked:
            return False, f"cannot journal: {self._shell.journal.blocked}"
        return True, f"{len(self._shell.books.jobs)} jobs, {len(self._shell.links)} workers"

    def metrics(self) -> dict[str, float]:
        """Counters for whoever asks."""
        return {
            "jobs": float(len(self._shell.books.jobs)),
            "workers": float(len(self._shell.links)),
            "attempts_failed": float(self._shell.books.notices.attempts_failed),
            "journal_sequence": float(self._shell.journal.sequence),
            "journal_durable": float(self._shell.journal.durable),
        }

    def connected(self, peer: Peer) -> None:
        """Nothing is known of a client until it asks."""

    def disconnected(self, peer: Peer) -> None:
        """A client's connection ended; a worker's may have."""
        self._worker_desk.disconnected(peer)

    def _tick(self) -> None:
        shell = self._shell
        shell.event(Tick())
        shell.books.notices.tick(shell.clock.wall_s())
        self._job_desk.tell_counters()
        self._job_desk.clear_leftovers_if_due()
        shell.checkpoint_if_due()
        self._ticker = shell.loop.call_later(TICK_S, self._tick)


def main(argv: Sequence[str] | None = None) -> int:
    """Be the job master."""
    return run(MAPREDUCE_MASTER, Master, argv)
