"""Stage 7: bring one partition of every map to this host, while maps still run.

Takes news of finished maps from any thread (`add`, `withdraw`, `abandon`); gives, once it has them
all, runs for `merger` in the order of the maps. Segments of this host are read where they are. What
comes over the network is verified when it arrives, held in memory up to a bound, and beyond it
merged to disk: adjacent maps only, so that equal keys stay in the order of map numbers. Never talks
to a master.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

from mrstream.cluster.errors import ClusterError, Corrupt, Speechless
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import BulkStream, bulk_connect
from mrstream.mapreduce.dataflow import segment
from mrstream.mapreduce.dataflow.fetched_runs import FetchedRun, FetchedRuns, MergeRule
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.dataflow.segment_server import FetchSegments, SegmentHead

BATCH_MAPS_MAX = 64
"""Maps asked for in one request: enough to hide the round trip, few enough to share a host."""
RETRY_FIRST_S, RETRY_MAX_S = 0.2, 10.0
FAILURES_UNTOLD_MAX = 3
"""A host may fail so often in a row before anyone hears of it: its worker may be restarting."""
CONNECT_S_MAX = 3.0
TRANSFER_S_MAX = 20.0


class Listener(Protocol):
    """Who hears of what the fetcher meets."""

    def fetched(self, length_bytes: int) -> None:
        """So many bytes came."""

    def failed(self, place: SegmentAt, reason: str, *, gone: bool) -> None:
        """A fetch failed; `gone` if the segment is surely lost or corrupt."""


@dataclass(slots=True)
class _Host:
    """What is still to be fetched from one host, and when it may be asked again."""

    address: str
    """The last that was told: a worker that starts again may have another."""
    waiting: dict[int, SegmentAt] = field(default_factory=dict)
    """By map; of each the very place that `Fetcher._place_of` has."""
    busy: bool = False
    """A thread asks it right now: no other does, so that one host serves a reduce one stream."""
    failures: int = 0
    """In a row; 0 after every answer, so that a pause is the host's present state, not its past."""
    not_before_s: float = 0.0


class Fetcher:
    """Fetches until every map's partition is here; `run` blocks, news may come from any thread."""

    def __init__(
        self,
        partition: int,
        maps: int,
        rule: MergeRule,
        listener: Listener,
        identity: Identity | None,
        *,
        role: str = "",
        parallel: int = 5,
    ) -> None:
        self._partition = partition
        self._listener = listener
        self._identity = identity
        self._role = role
        self._parallel = max(1, parallel)
        self._runs = FetchedRuns(partition, rule)
        self._changed = threading.Condition()
        """Guards all below; told whenever a thread that waits may have something to do."""
        self._missing: dict[int, None] = dict.fromkeys(range(maps))
        """Maps that `run` waits for: neither kept nor abandoned. It only shrinks, so `run` ends."""
        self._taken: dict[int, None] = {}
        """Maps whose partition has come, kept or about to be: no second copy of one is merged. It
        only grows; a map is in both until its partition is kept, which may take a merge to disk."""
        self._maps = maps
        self._hosts: dict[str, _Host] = {}
        """By name; the segments on this host's own disks stand under no name."""
        self._place_of: dict[int, SegmentAt] = {}
        """Where a map that is missing and not taken is to be had; it waits at that host, and at no
        other, so that one withdrawal is enough."""
        self._corrupt: dict[str, int] = {}
        """By attempt: how often its segment came damaged."""
        self._failure: BaseException | None = None
        """What ends `run`: of many the first."""

    # --- news

    def add(self, place: SegmentAt) -> None:
        """This map's output is there; a later place for the same map replaces an earlier one."""
        with self._changed:
            if place.map_index not in self._missing or place.map_index in self._taken:
                return
            self._drop(place.map_index)
            self._place_of[place.map_index] = place
            key = place.worker_id if not place.path else ""
            host = self._hosts.setdefault(key, _Host(place.address))
            host.address = place.address
            host.waiting[place.map_index] = place
            self._changed.notify_all()

    def withdraw(self, attempt: str) -> None:
        """This output is lost; unless it is here already, another place will come."""
        with self._changed:
            for index, place in list(self._place_of.items()):
                if place.attempt_id == attempt and index in self._missing:
                    self._drop(index)

    def abandon(self, map_index: int) -> None:
        """This map failed for good and the job goes on without it."""
        with self._changed:
            self._drop(map_index)
            self._missing.pop(map_index, None)
            self._changed.notify_all()

    @property
    def progress(self) -> float:
        """The share of maps that are done with."""
        return 1.0 - len(self._missing) / self._maps if self._maps else 1.0

    # --- fetching

    def run(self) -> list[FetchedRun]:
        """Fetch everything; give the runs in map order."""
        threads = [
            threading.Thread(target=self._fetch_for_ever, name=f"fetch-{number}", daemon=True)
            for number in range(self._parallel)
        ]
        for thread in threads:
            thread.start()
        with self._changed:
            while self._missing and self._failure is None:
                self._changed.wait()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        self._check()
        return self._runs.in_map_order()

    def close(self) -> None:
        """Delete what was brought here."""
        self._runs.close()

    def _fetch_for_ever(self) -> None:
        streams: dict[str, BulkStream] = {}
        try:
            while (work := self._next_host()) is not None:
                host, places = work
                try:
                    self._fetch_from(host, places, streams)
                finally:
                    with self._changed:
                        host.busy = False
                        self._changed.notify_all()
        except BaseException as error:  # a full disk, a bug: `run` raises it to the attempt
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
        finally:
            for stream in streams.values():
                stream.close()

    def _next_host(self) -> tuple[_Host, list[SegmentAt]] | None:
        """Wait for a host that nobody asks right now; None when all is here."""
        with self._changed:
            while self._missing and self._failure is None:
                now_s = time.monotonic()
                wake_s: float | None = None
                for host in self._hosts.values():
                    if host.busy or not host.waiting:
                        continue
                    if host.not_before_s <= now_s:
                        host.busy = True
                        return host, list(host.waiting.values())[:BATCH_MAPS_MAX]
                    wait_s = host.not_before_s - now_s
                    wake_s = wait_s if wake_s is None else min(wake_s, wait_s)
                self._changed.wait(wake_s)
            return None

    def _fetch_from(
        self, host: _Host, places: list[SegmentAt], streams: dict[str, BulkStream]
    ) -> None:
        if places[0].path:
            for place in places:
                self._take_local(place)
            return
        try:
            stream = streams.get(host.address) or self._connect(host.address)
            streams[host.address] = stream
            stream.send(FetchSegments(self._partition, tuple(place.attempt_id for place in places)))
            for place in places:
                head = stream.receive(SegmentHead)
                if head.attempt != place.attempt_id:
                    raise Speechless(f"asked for {place.attempt_id}, got {head.attempt[:80]!r}")
                self._take(place, head, stream)
            host.failures = 0
        except (ClusterError, EOFError) as error:
            broken = streams.pop(host.address, None)
            if broken is not None:
                broken.close()
            self._host_failed(host, str(error))

    def _connect(self, address: str) -> BulkStream:
        assert self._identity is not None, "a segment elsewhere needs a cluster's identity"
        return bulk_connect(
            address,
            self._identity,
            role=self._role,
            connect_s_max=CONNECT_S_MAX,
            timeout_s=TRANSFER_S_MAX,
        )

    def _take(self, place: SegmentAt, head: SegmentHead, stream: BulkStream) -> None:
        if head.missing:
            self._gone(place, head.missing)
            return
        entry = segment.PartitionEntry(
            0, head.length, head.records, head.raw_bytes, head.hadoop_bytes
        )
        try:
            run = self._runs.receive(place.map_index, entry, stream, place.attempt_id)
        except Corrupt as error:
            self._corrupted(place, str(error))
            return
        self._have(place, run)

    def _take_local(self, place: SegmentAt) -> None:
        try:
            run = self._runs.local(place.map_index, place.path)
        except (OSError, Corrupt) as error:
            self._gone(place, str(error))
            return
        self._have(place, run)

    # --- what became of it

    def _have(self, place: SegmentAt, run: FetchedRun) -> None:
        with self._changed:
            if place.map_index not in self._missing or place.map_index in self._taken:
                return  # another copy was faster, or nobody wants it any more
            self._drop(place.map_index)
            self._taken[place.map_index] = None
        self._runs.keep(run)  # may merge to disk, which news must not wait for
        with self._changed:
            self._missing.pop(place.map_index, None)
            self._changed.notify_all()
        self._listener.fetched(run.entry.length)

    def _corrupted(self, place: SegmentAt, reason: str) -> None:
        """A flipped bit on the way comes once; one on the disk comes again."""
        seen = self._corrupt.get(place.attempt_id, 0) + 1
        self._corrupt[place.attempt_id] = seen
        if seen >= 2:
            self._gone(place, reason)
        else:
            self._listener.failed(place, reason, gone=False)

    def _gone(self, place: SegmentAt, reason: str) -> None:
        with self._changed:
            if self._place_of.get(place.map_index) == place:
                self._drop(place.map_index)
        self._listener.failed(place, reason, gone=True)

    def _host_failed(self, host: _Host, reason: str) -> None:
        with self._changed:
            host.failures += 1
            pause_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** (host.failures - 1))
            host.not_before_s = time.monotonic() + pause_s
            unserved = next(iter(host.waiting.values()), None)
        if unserved is not None and host.failures > FAILURES_UNTOLD_MAX:
            self._listener.failed(unserved, reason, gone=False)

    def _check(self) -> None:
        """What the fields say of each other, in words above."""
        waiting = {
            index: place for host in self._hosts.values() for index, place in host.waiting.items()
        }
        assert waiting == self._place_of, f"{waiting} waits, {self._place_of} is known"
        left = self._place_of.keys() - (self._missing.keys() - self._taken.keys())
        assert not left, f"maps {sorted(left)} are fetched though nobody needs them"

    def _drop(self, map_index: int) -> None:
        self._place_of.pop(map_index, None)
        for host in self._hosts.values():
            host.waiting.pop(map_index, None)
