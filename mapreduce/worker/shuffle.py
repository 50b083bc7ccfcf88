"""The shuffle of one reduce attempt: hears of finished maps from its worker, fetches, gives runs.

Lives in the attempt's process. News come over the attempt's own socket while maps still run; what
the fetcher meets is told to the worker by the same way back. Never decides whether a map is to be
run again.
"""

from __future__ import annotations

import os
import select
import threading

import msgspec

from mrstream.cluster.config.config import WORKER
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.messages import reader_of
from mrstream.mapreduce.attempt.attempt_report import Shuffled, Unfetched
from mrstream.mapreduce.attempt.pipe_frames import Cutter, framed
from mrstream.mapreduce.attempt.task_context import Attempt, Source
from mrstream.mapreduce.dataflow.fetched_runs import FetchedRun, MergeRule
from mrstream.mapreduce.dataflow.fetcher import Fetcher
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.job.record_forms import framed_shape, map_output_types, segment_codec
from mrstream.mapreduce.protocol import SegmentNews
from mrstream.mapreduce.worker import host_figures
from mrstream.streaming.conf.jobconf import JobConf

_READ_BYTES = 1 << 16
TOUCH_EVERY_S = 1.0
SHUFFLE_BYTES_MAX = 512 << 20
SHUFFLE_HOST_SHARE = 4
"""Of a host's memory a quarter, shared by as many reduces as it has cores."""
SHUFFLE_LIMIT_SHARE = 2
"""Of what the attempt's processes may hold together."""


def shuffle_bytes(conf: JobConf, host_bytes: int, cores: int) -> int:
    """How much of what it fetches a reduce keeps in memory: what the job says it may take to sort;
    if it says nothing, more where the host has it, for the rest is written and read once more."""
    if conf.is_given_setting("io_sort_bytes"):
        return conf.io_sort_bytes
    share_bytes = min(SHUFFLE_BYTES_MAX, host_bytes // (SHUFFLE_HOST_SHARE * cores))
    if conf.reduce_memory_bytes:
        share_bytes = min(share_bytes, conf.reduce_memory_bytes // SHUFFLE_LIMIT_SHARE)
    return max(conf.io_sort_bytes, share_bytes)


_encode = msgspec.msgpack.Encoder().encode
_read = reader_of(SegmentNews)


def packed(news: SegmentNews) -> bytes:
    """Return the bytes of some news on an attempt's socket."""
    return framed(_encode(news))


class NewsShuffle:
    """Fetches the attempt's partition of every map, as news of them come in."""

    def __init__(self, attempt: Attempt, socket: int, identity: Identity) -> None:
        conf = attempt.conf
        self._attempt = attempt
        self._socket = socket
        self._fetched_bytes = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._fetcher = Fetcher(
            attempt.order.task_index,
            attempt.order.maps,
            MergeRule(
                conf.comparator_spec,
                framed_shape(*map_output_types(conf)),
                shuffle_bytes(conf, host_figures.memory_limit_bytes(), os.cpu_count() or 1),
                attempt.scratch,
                segment_codec(conf),
            ),
            self,
            identity,
            role=WORKER,
            parallel=conf.shuffle_parallel_copies,
        )

    def gather(self) -> list[Source]:
        """Fetch until every map's partition is here."""
        threading.Thread(target=self._hear, name="news", daemon=True).start()
        try:
            runs = self._fetcher.run()
        finally:
            self._over.set()
        self._attempt.tell(Shuffled())
        return [_source_of(run) for run in runs]

    def progress(self) -> tuple[float, int, int]:
        """The share of maps that are done with, no records yet, and bytes."""
        return self._fetcher.progress, 0, self._fetched_bytes

    # --- what the fetcher meets

    def fetched(self, length_bytes: int) -> None:
        with self._lock:
            self._fetched_bytes += length_bytes

    def failed(self, place: SegmentAt, reason: str, *, gone: bool) -> None:
        self._attempt.tell(Unfetched(place.attempt_id, f"{place.worker_id}: {reason}", gone))

    # --- what the worker says

    def _hear(self) -> None:
        """Take news; waiting for maps is a sign of life too, since only they can be late."""
        cutter = Cutter()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self._over.is_set():
            if poll.poll(TOUCH_EVERY_S * 1000):
                data = os.read(self._socket, _READ_BYTES)
                if not data:
                    return  # the worker is gone, and the lifeline ends us
                for body in cutter.feed(data):
                    self._take(_read(body))
            self._attempt.watch.touch()

    def _take(self, news: SegmentNews) -> None:
        for attempt in news.withdrawn:
            self._fetcher.withdraw(attempt)
        for place in news.added:
            self._fetcher.add(place)
        for map_index in news.abandoned:
            self._fetcher.abandon(map_index)


def _source_of(run: FetchedRun) -> Source:
    entry = run.entry
    return Source(
        run.run,
        run.last_map - run.first_map + 1,
        entry.records,
        entry.length,
        entry.raw_bytes,
        entry.hadoop_bytes,
    )
