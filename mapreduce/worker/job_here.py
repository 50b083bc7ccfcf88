"""One job as a worker knows it: its spec with local files, the places of map output, its output.

Takes what the master sends once a job; gives attempts their orders and news. Fetches shipped files
and commits through the dfs, in threads: its blocking methods say so. Never talks to the master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property

import msgspec

from mrstream.cluster.errors import Unavailable
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import NoSuchFile
from mrstream.mapreduce.dataflow.committer import Committer, committer_for
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.environment import refuse_misfit, this_platform
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.protocol import SegmentNews
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.mapreduce.worker.host_cache import HostCache


class Fenced(Unavailable):
    """The attempt's output is gone: the master has given its task to another attempt."""


class JobHere:
    """What attempts of one job share on this host."""

    def __init__(self, packed: bytes, filesystem: str) -> None:
        self.spec: JobSpec = job.decode(packed)
        self.job_id: JobId = self.spec.job_id
        self.filesystem = filesystem
        self.localised: asyncio.Future[bytes] | None = None
        """The packed spec with its shipped files as they lie on this host."""
        self._places: dict[int, SegmentAt] = {}
        self._abandoned: dict[int, None] = {}

    def localise(self, cache: HostCache, client: Callable[[], DfsClient]) -> bytes:
        """Bring the job's files to this host; blocks."""
        shipped, environment = self.spec.shipped, self.spec.environment
        if shipped:
            shipped = cache.localise(self.job_id, shipped, client())
        if environment is not None:
            # The master has looked at the hosts that it knew then: this one may be new.
            refuse_misfit(environment, this_platform(), "this host")
            environment = cache.environment(self.job_id, environment, client())
        here = msgspec.structs.replace(
            self.spec, shipped=shipped, environment=environment, splits=()
        )
        return job.encode(here)

    # --- where map output is

    def hear(self, news: SegmentNews, own: str, find: Callable[[str], str | None]) -> SegmentNews:
        """Take the master's news; return them as reduces here need them."""
        withdrawn = set(news.withdrawn)
        for index, place in list(self._places.items()):
            if place.attempt_id in withdrawn:
                del self._places[index]
        added = []
        for at in news.added:
            path = find(at.attempt_id) if at.worker_id == own else None
            address = news.addresses.get(at.worker_id, "")
            place = msgspec.structs.replace(at, address=address, path=path or "")
            self._places[at.map_index] = place
            added.append(place)
        self._abandoned.update(dict.fromkeys(news.abandoned))
        return msgspec.structs.replace(news, added=tuple(added), addresses={})

    def all_news(self) -> SegmentNews:
        """Return all that a reduce which starts now must know."""
        places = tuple(self._places.values())
        return SegmentNews(self.job_id, places, abandoned=tuple(self._abandoned))

    def forget_places(self) -> None:
        """A new connection to the master tells everything anew."""
        self._places.clear()
        self._abandoned.clear()

    # --- output

    def commit(self, attempt_id: str, is_allowed: Callable[[], bool]) -> bool:
        """Make an attempt's output visible if that is (still) allowed, else say no; blocks.
        `Fenced` if the master took it away."""
        if not is_allowed():
            return False
        try:
            was_there = self._committer.commit_task(attempt_id)
        except NoSuchFile:
            was_there = False  # taken away in the middle: whoever may commit now does all of it
        if not was_there:
            raise Fenced(f"the output of {attempt_id} is gone: another attempt may commit")
        return True

    def drop_output(self, attempt_id: str) -> None:
        """Throw away what an attempt wrote; blocks."""
        self._committer.abort_task(attempt_id)

    @cached_property
    def _committer(self) -> Committer:
        assert self.spec.output is not None, "a job of the cluster has an output directory"
        files = RoutedFiles(self.filesystem, self.spec.working_directory, self.spec.fences)
        return committer_for(self.spec.conf(), self.spec.output, files)
