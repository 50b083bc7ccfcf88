"""The workers that the master knows, and how it speaks to each.

A link outlives its connection: a worker that comes back within the silence allowed finds itself
where it was. What is pushed to a worker that is away is dropped; when it registers, the scheduler
compares what it has with what it should have. Never decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mrstream.cluster.wire.network import Peer
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.job.environment import Platform
from mrstream.mapreduce.master.job_ledger import JobLedger
from mrstream.mapreduce.protocol import Order, RunAttempt, SegmentNews
from mrstream.mapreduce.scheduler.ids import WorkerId


class WorkerLink:
    def __init__(self, worker_id: WorkerId, epoch: int = 0) -> None:
        self.worker_id = worker_id
        self._epoch = epoch
        self.peer: Peer | None = None
        self.incarnation = 0
        self.address = ""
        self.bulk_address = ""
        self.is_full = False
        self.platform = Platform()
        self._knows: dict[str, None] = {}
        """Jobs whose spec went down this connection."""
        self._hears: dict[str, None] = {}
        """Jobs of whose segments it is told."""

    def connect(self, peer: Peer) -> None:
        """From now on this is its connection; what went down another does not count."""
        self.peer = peer
        self._knows.clear()
        self._hears.clear()

    def push(self, order: Order) -> None:
        """Send an order, if the worker is there; it obeys the latest leader that it met."""
        if self.peer is not None:
            self.peer.push(msgspec.structs.replace(order, epoch=self._epoch))

    def knows(self, job_id: str) -> bool:
        """Whether the spec of a job went to it; it has, after this."""
        known = job_id in self._knows
        self._knows[job_id] = None
        return known

    def start_hearing(self, job_id: str) -> bool:
        """Have it told of a job's segments from now on; says whether that is new."""
        is_new = job_id not in self._hears
        self._hears[job_id] = None
        return is_new

    def hears(self, job_id: str) -> bool:
        """Whether it is told of a job's segments."""
        return job_id in self._hears

    def forget(self, job_id: str) -> None:
        """A job is over."""
        self._knows.pop(job_id, None)
        self._hears.pop(job_id, None)


class WorkerLinks:
    """All of them, by id; also what is about to be told of segments."""

    def __init__(self) -> None:
        self.epoch = 0
        """Of our lead; 0: there is no other master."""
        self._links: dict[WorkerId, WorkerLink] = {}
        self._added: dict[str, dict[int, SegmentAt]] = {}
        self._withdrawn: dict[str, dict[str, None]] = {}
        self._abandoned: dict[str, dict[int, None]] = {}

    def __iter__(self) -> Iterator[WorkerLink]:
        return iter(list(self._links.values()))

    def __len__(self) -> int:
        return len(self._links)

    def get(self, worker_id: str) -> WorkerLink | None:
        """Return a worker that registered and was not lost since."""
        return self._links.get(WorkerId(worker_id))

    def meet(self, worker_id: str) -> WorkerLink:
        """Return the link of a worker, made if it is new."""
        link = WorkerLink(WorkerId(worker_id), self.epoch)
        return self._links.setdefault(link.worker_id, link)

    def lose(self, worker_id: str) -> None:
        """Forget a worker, and end its connection."""
        link = self._links.pop(WorkerId(worker_id), None)
        if link is not None and link.peer is not None:
            link.peer.close()

    def push(self, worker_id: str, order: Order) -> None:
        """Send to one worker, if it is there."""
        link = self.get(worker_id)
        if link is not None:
            link.push(order)

    def run(self, worker_id: str, ledger: JobLedger, order: RunAttempt, *, is_map: bool) -> None:
        """Send an order, with the job if the worker has not got it, and with all places of map
        output to the first reduce of a job there."""
        link = self.get(worker_id)
        if link is None:
            return
        link.push(
            order
            if link.knows(ledger.job_id)
            else msgspec.structs.replace(order, spec=ledger.for_workers)
        )
        self.retell(worker_id, ledger, is_map=is_map)

    def retell(self, worker_id: str, ledger: JobLedger, *, is_map: bool) -> None:
        """Tell a worker with a reduce of a job of all its segments, unless it is told already."""
        link = self.get(worker_id)
        if link is not None and not is_map and link.start_hearing(ledger.job_id):
            link.push(
                SegmentNews(
                    ledger.job_id,
                    tuple(ledger.segments.values()),
                    (),
                    tuple(ledger.abandoned),
                    self._addresses(ledger.segments.values()),
                )
            )

    # --- news of segments, gathered and told together

    def publish(self, job_id: str, at: SegmentAt) -> None:
        """A map's output is there."""
        self._added.setdefault(job_id, {})[at.map_index] = at

    def withdraw(self, job_id: str, map_index: int, attempt_id: str) -> None:
        """A map's output is lost."""
        self._added.get(job_id, {}).pop(map_index, None)
        self._withdrawn.setdefault(job_id, {})[attempt_id] = None

    def abandon(self, job_id: str, map_index: int) -> None:
        """A map has failed for good; the job goes on without it."""
        self._abandoned.setdefault(job_id, {})[map_index] = None

    def tell_news(self) -> None:
        """Push what was gathered to the workers that run reduces of those jobs."""
        for job_id in dict.fromkeys([*self._withdrawn, *self._added, *self._abandoned]):
            added = self._added.get(job_id, {})
            news = SegmentNews(
                job_id,
                tuple(added.values()),
                tuple(self._withdrawn.get(job_id, ())),
                tuple(self._abandoned.get(job_id, ())),
                self._addresses(added.values()),
            )
            for link in self._links.values():
                if link.hears(job_id):
                    link.push(news)
        self._added.clear()
        self._withdrawn.clear()
        self._abandoned.clear()

    def _addresses(self, places: Iterable[SegmentAt]) -> dict[str, str]:
        workers = dict.fromkeys(at.worker_id for at in places)
        found = ((worker_id, self.get(worker_id)) for worker_id in workers)
        return {worker_id: link.bulk_address for worker_id, link in found if link is not None}
