"""Ray as an engine: a map is a remote task with a return for each partition, a reduce takes
references.

Partitions are plain bytes in Ray's object store, which moves, spills and, from the maps' lineage,
rebuilds them. Ray runs a task again when its worker or host died, and tells its own attempt number;
a task whose program failed ends well for Ray, with an outcome that says so, and the brain decides.
Never commits, never reads a record.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import random
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.engine.choice import BadEngine, EngineChoice
from mrstream.mapreduce.engine.packet import Outcome, Task, encode
from mrstream.mapreduce.engine.pool import Finished, Work
from mrstream.mapreduce.engine.reach import Look, Seen, judge, look
from mrstream.mapreduce.engine.task import run_task
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.scheduler.events import JobSettings

FETCH_BYTES = 64 << 20
"""A reduce asks for so many bytes of partitions at a time."""
OBJECTS_MAX = 1_000_000
"""Partitions of all maps together: the driver's memory has a record of each."""
CANCEL_S_MAX = 30.0
PROBE_S_MAX = 120.0
_UNKNOWN_REPEATS = 900_000


class NoRay(UserError):
    """Ray cannot be reached or started, or lost what it was given."""


class RayEngine:
    def __init__(
        self, choice: EngineChoice, settings: JobSettings, remove_at_end: Callable[[str], None]
    ) -> None:
        """Nothing is imported or reached before `check`."""
        self._choice = choice
        self._settings = settings
        self._remove_at_end = remove_at_end
        self._ray: Any = None
        self._is_ours = False
        self._directory = ""
        self._packet: Any = None
        self._job_id = ""
        self._reduces = 0
        self._work: Any = None
        self._outcomes: dict[int, Any] = {}
        self._segments: dict[str, list[Any]] = {}
        self._over: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._listener: threading.Thread | None = None

    def check(
        self, looks: Sequence[Look], filesystem: str, environment: Environment | None
    ) -> bool:
        """Reach Ray, and see on every host of it whether the job can run there."""
        self._connect()
        ray = self._ray
        affinity = importlib.import_module("ray.util.scheduling_strategies")
        key = environment.key if environment is not None else ""
        probe = ray.remote(num_cpus=0, max_retries=1)(_look)
        asked = [
            probe.options(
                scheduling_strategy=affinity.NodeAffinitySchedulingStrategy(
                    node["NodeID"], soft=False
                )
            ).remote(list(looks), filesystem, key)
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) > 0
        ]
        if not asked:
            raise NoRay(f"-engine {self._choice}: no host of it has a CPU to give")
        try:
            seen: list[Seen] = ray.get(asked, timeout=PROBE_S_MAX)
        except Exception as error:  # Ray has a tree of them, and any means that no task can run
            raise NoRay(f"-engine {self._choice}: tasks cannot run there: {_line(error)}") from None
        return judge(self._choice, seen, environment)

    def begin(self, job: Work, finished: Finished) -> None:
        if job.maps * job.reduces > OBJECTS_MAX:
            raise BadEngine(
                f"{job.maps:,} maps of {job.reduces:,} partitions are "
                f"{job.maps * job.reduces:,} objects for Ray; a job may have {OBJECTS_MAX:,}: "
                "larger splits or fewer reduces help"
            )
        self._job_id, self._reduces = job.job_id, job.reduces
        self._packet = self._ray.put(job.packet)
        self._work = self._ray.remote(_work)
        self._listener = threading.Thread(
            target=self._listen, args=(finished,), name="ray outcomes", daemon=True
        )
        self._listener.start()

    def start(self, token: int, task: Task, segments: Sequence[str]) -> None:
        order = task.order
        is_map = order.is_map
        settings = self._settings
        tries = settings.map_attempts_max if is_map else settings.reduce_attempts_max
        partitions = self._reduces if order.segment_path else 0
        sources = [
            self._segments[path][order.task_index]
            for path, size in zip(segments, task.inputs, strict=True)
            if size.length
        ]
        sizes = [size.length for size in task.inputs if size.length]
        given = self._work.options(
            name=order.attempt_id, num_returns=1 + partitions, max_retries=tries - 1
        ).remote(self._job_id, [self._packet], encode(task), partitions, sources, sizes)
        outcome, *stored = given if partitions else [given]
        if partitions:
            self._segments[order.segment_path] = stored
        with self._lock:
            self._outcomes[token] = outcome
        outcome.future().add_done_callback(lambda future: self._over.put((token, future)))

    def kill(self, token: int) -> None:
        """Have Ray interrupt the task; its worker ends the attempt."""
        with self._lock:
            outcome = self._outcomes.get(token)
        if outcome is not None:
            self._ray.cancel(outcome, force=False)

    def close(self) -> None:
        """Cancel what runs, wait for it, and disconnect; a Ray that we started ends."""
        if self._ray is None:
            return
        with contextlib.suppress(Exception):  # a Ray that is gone has nothing to cancel
            self._cancel_all()
        if self._listener is not None:
            self._over.put(None)
            self._listener.join()
        self._segments.clear()
        self._packet = None
        if self._is_ours:
            with contextlib.suppress(Exception):
                self._ray.shutdown()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _cancel_all(self) -> None:
        with self._lock:
            waiting = list(self._outcomes.values())
        for outcome in waiting:
            self._ray.cancel(outcome, force=False)
        until_s = time.monotonic() + CANCEL_S_MAX
        with self._lock:
            while self._outcomes and time.monotonic() < until_s:
                self._lock.wait(until_s - time.monotonic())

    def _connect(self) -> None:
        # Figures about its users would go over the network; a job of ours asks for none of that.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = self._choice.address or os.environ.get("RAY_ADDRESS", "")
        if not address:
            self._shut_in()
        ray = importlib.import_module("ray")
        if not ray.is_initialized():
            try:
                ray.init(
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **({"address": address} if address else self._own_options()),
                )
            except Exception as error:  # each way of not being there has an exception of its own
                raise NoRay(
                    f"-engine {self._choice}: Ray cannot be reached: {_line(error)}"
                ) from None
            self._is_ours = True
        self._ray = ray

    def _shut_in(self) -> None:
        """Have a Ray that we start listen on loopback only, and serve who has its secret; both are
        read when it is imported."""
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        if "RAY_AUTH_MODE" not in os.environ:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)

    def _own_options(self) -> dict[str, Any]:
        """Describe a Ray of this machine, for this job; its files are gone at the end."""
        # Paths of its sockets have at most 107 bytes, and it appends some 70.
        self._directory = tempfile.mkdtemp(prefix="mrray-", dir="/tmp")
        self._remove_at_end(self._directory)
        return {
            "num_cpus": len(os.sched_getaffinity(0)),
            "include_dashboard": False,
            "_temp_dir": self._directory,
        }

    def _listen(self, finished: Finished) -> None:
        while (item := self._over.get()) is not None:
            token, future = item
            error = future.exception()
            if error is None:
                outcome = msgspec.msgpack.decode(future.result(), type=Outcome)
                finished(token, outcome, "")
            else:
                finished(token, None, f"Ray gave up on it: {_line(error)}")
            with self._lock:
                self._outcomes.pop(token, None)
                self._lock.notify_all()


def _work(
    job_id: str,
    packet: list[Any],
    paper: bytes,
    partitions: int,
    sources: list[Any],
    sizes: list[int],
) -> Any:
    """Be Ray's task: run the attempt, and give its outcome and its partitions."""
    ray = importlib.import_module("ray")
    task = msgspec.msgpack.decode(paper, type=Task)
    outcome, parts = run_task(
        job_id, lambda: ray.get(packet[0]), task, _repeat(ray), _fetched(ray, sources, sizes)
    )
    given = [encode(outcome), *parts]
    # An attempt that failed has no partitions: nobody will ask for them.
    given += [b""] * (1 + partitions - len(given))
    return given if partitions else given[0]


def _look(looks: list[Look], filesystem: str, environment_key: str) -> Seen:
    return look(looks, filesystem, environment_key)


def _repeat(ray: Any) -> int:
    """Return how often Ray has run this task before."""
    try:
        worker = ray._private.worker.global_worker.core_worker
        return int(worker.get_current_task_attempt_number())
    except AttributeError:  # a Ray that does not tell: what counts is that no two are the same
        return 1 + random.SystemRandom().randrange(_UNKNOWN_REPEATS)


def _fetched(ray: Any, sources: list[Any], sizes: list[int]) -> Iterator[bytes]:
    """Yield partitions in their order, as many at a time as fit into `FETCH_BYTES`."""
    batch: list[Any] = []
    batch_bytes = 0
    for source, size in zip(sources, sizes, strict=True):
        if batch and batch_bytes + size > FETCH_BYTES:
            yield from ray.get(batch)
            batch, batch_bytes = [], 0
        batch.append(source)
        batch_bytes += size
    if batch:
        yield from ray.get(batch)


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[-1] if text else ''}"
