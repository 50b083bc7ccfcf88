"""Spark as an engine: `parallelize(tasks).flatMap(attempt)`, `partitionBy(reduces)`, then a reduce
for each partition.

Maps give pieces of at most 64 MiB of their sorted partitions, kept on the executors' disks; Spark's
shuffle brings them to the reduces, which put them into order. Spark runs a task again when its
executor died, or as a speculative copy, and rebuilds what was lost; a task whose program failed
ends well for Spark, with an outcome that says so, and the brain decides. All attempts that are
asked for together are one job of Spark. Never uses `RDD.pipe`: that knows lines alone, and no exit
status.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.engine.choice import EngineChoice
from mrstream.mapreduce.engine.packet import Outcome, Task, encode
from mrstream.mapreduce.engine.pool import Finished, Work
from mrstream.mapreduce.engine.reach import Look, Seen, judge, look
from mrstream.mapreduce.engine.task import run_task
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.scheduler.events import JobSettings

PIECE_BYTES_MAX = 64 << 20
ROUND = "mrstream.round"
"""The local property by which a task knows whether it was asked for, or rebuilds what was lost."""
OUTCOME = -1
"""The key of an outcome, among partitions."""
ANY_CORES = "local[*]"
"""The master of a Spark that nobody told where it is."""
QUIET = {
    "spark.app.name": "mrstream",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",  # a task that fails is told by us, without Java's stack
}
CLOSE_S_MAX = 60.0
LINE_CHARS_MAX = 500

Piece = tuple[int, tuple[int, int, bytes]]
"""(partition, (token of the map, number of the piece, bytes))"""


class NoSpark(UserError):
    """Spark cannot be reached or started."""


class _Asked(msgspec.Struct, frozen=True):
    token: int
    task: Task
    segments: tuple[str, ...]


class SparkEngine:
    def __init__(
        self, choice: EngineChoice, settings: JobSettings, remove_at_end: Callable[[str], None]
    ) -> None:
        """Nothing is imported or reached before `check`."""
        self._choice = choice
        self._settings = settings
        self._context: Any = None
        self._is_ours = False
        self._packet: Any = None
        self._job: Work | None = None
        self._finished: Finished | None = None
        self._maps: list[Any] = []
        self._tokens: dict[str, int] = {}
        self._shuffled: Any = None
        self._asked: list[_Asked] = []
        self._expected = 1
        self._waiting: set[int] = set()
        self._killed: set[int] = set()
        self._round = 0
        self._is_closed = False
        self._lock = threading.Condition()
        self._runner: threading.Thread | None = None

    def check(
        self, looks: Sequence[Look], filesystem: str, environment: Environment | None
    ) -> bool:
        """Reach Spark, and see on its executors whether the job can run there."""
        self._connect()
        context = self._context
        width = max(1, context.defaultParallelism)
        given = list(looks)
        key = environment.key if environment is not None else ""
        try:
            seen: list[Seen] = (
                context.parallelize(range(width), width)
                .map(lambda _: look(given, filesystem, key))
                .collect()
            )
        except Exception as error:  # Py4J has one for all, with Java's words inside
            raise NoSpark(
                f"-engine {self._choice}: tasks cannot run there: {_line(error)}"
            ) from None
        return judge(self._choice, seen, environment)

    def begin(self, job: Work, finished: Finished) -> None:
        """Broadcast the job."""
        self._job, self._finished = job, finished
        self._expected = job.maps or job.reduces
        self._packet = self._context.broadcast(job.packet)
        self._runner = threading.Thread(target=self._run, name="spark rounds", daemon=True)
        self._runner.start()

    def start(self, token: int, task: Task, segments: Sequence[str]) -> None:
        """Put an attempt into the next round."""
        with self._lock:
            self._asked.append(_Asked(token, task, tuple(segments)))
            self._lock.notify_all()

    def kill(self, token: int) -> None:
        """End an attempt: a round is cancelled when nobody waits for any of it."""
        with self._lock:
            self._killed.add(token)
            is_idle = bool(self._waiting) and self._waiting <= self._killed
        if is_idle:
            self._context.cancelAllJobs()

    def close(self) -> None:
        """Cancel what runs, wait for it, and stop the context."""
        if self._context is None:
            return
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        with contextlib.suppress(Exception):  # a Spark that is gone has nothing to cancel
            self._context.cancelAllJobs()
        if self._runner is not None:
            self._runner.join(CLOSE_S_MAX)
        if self._is_ours:
            with contextlib.suppress(Exception):
                self._context.stop()

    def _connect(self) -> None:
        pyspark = importlib.import_module("pyspark")
        tries = max(self._settings.map_attempts_max, self._settings.reduce_attempts_max)
        has_files = {"SPARK_HOME", "SPARK_CONF_DIR"} & set(os.environ)
        if self._choice.address.startswith("local") or not (self._choice.address or has_files):
            # A Spark of this machine listens on loopback only, and its workers are our Python.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        try:
            self._is_ours = pyspark.SparkContext._active_spark_context is None
            pyspark.SparkContext._ensure_initialized()  # what its own files say is known from here
            conf = pyspark.SparkConf()
            for name, value in {**QUIET, "spark.task.maxFailures": str(tries)}.items():
                conf.setIfMissing(name, value)
            master = self._choice.address or conf.get("spark.master", ANY_CORES)
            if master == ANY_CORES:  # that would try each task once
                master = f"local[{len(os.sched_getaffinity(0))},{tries}]"
            self._context = pyspark.SparkContext.getOrCreate(conf.setMaster(master))
        except Exception as error:  # a Java that is not there, a master that does not answer
            raise NoSpark(
                f"-engine {self._choice}: Spark cannot be reached: {_line(error)}"
            ) from None

    # --- rounds: each is one job of Spark

    def _run(self) -> None:
        while asked := self._next_round():
            why = "Spark lost its outcome"
            told: dict[int, bytes] = {}
            try:
                is_map = asked[0].task.order.is_map
                told = self._run_maps(asked) if is_map else self._run_reduces(asked)
            except Exception as error:  # a task that failed too often, or a cancelled round
                why = f"Spark gave up on it: {_line(error)}"
            self._tell(asked, told, why)

    def _next_round(self) -> list[_Asked]:
        """Take all attempts of one kind that were asked for, once as many are here as will come."""
        with self._lock:
            while len(self._asked) < self._expected and not self._is_closed:
                self._lock.wait()
            if self._is_closed:
                return []
            is_map = self._asked[0].task.order.is_map
            taken = [item for item in self._asked if item.task.order.is_map is is_map]
            self._asked = [item for item in self._asked if item not in taken]
            self._waiting = {item.token for item in taken}
            self._expected = 1
            self._round += 1
            return taken

    def _tell(self, asked: Sequence[_Asked], told: dict[int, bytes], why: str) -> None:
        assert self._finished is not None and self._job is not None
        outcomes: list[tuple[int, Outcome | None]] = []
        for item in asked:
            data = told.get(item.token)
            outcome = None if data is None else msgspec.msgpack.decode(data, type=Outcome)
            outcomes.append((item.token, outcome))
            if item.task.order.segment_path and outcome and isinstance(outcome.messages[-1], Done):
                self._tokens[item.task.order.segment_path] = item.token
        with self._lock:
            self._waiting = set()
            if asked[0].task.order.is_map and len(self._tokens) == self._job.maps:
                # The last map is here, and the brain asks for all reduces in one go.
                self._expected = self._job.reduces
        for token, outcome in outcomes:
            self._finished(token, outcome, why if outcome is None else "")

    def _run_maps(self, asked: Sequence[_Asked]) -> dict[int, bytes]:
        assert self._job is not None
        own = str(self._round)
        self._context.setLocalProperty(ROUND, own)
        work = _MapWork(self._job.job_id, self._packet, own)
        papers = [(item.token, encode(item.task)) for item in asked]
        given = self._context.parallelize(papers, len(papers)).flatMap(work)
        if any(item.task.order.segment_path for item in asked):
            storage = importlib.import_module("pyspark").StorageLevel
            given = given.persist(storage.DISK_ONLY)
            self._maps.append(given)
        return dict(given.filter(_is_outcome).values().collect())

    def _run_reduces(self, asked: Sequence[_Asked]) -> dict[int, bytes]:
        assert self._job is not None
        own = str(self._round)
        context = self._context
        context.setLocalProperty(ROUND, own)
        if self._shuffled is None:
            pieces = context.union(self._maps) if self._maps else context.emptyRDD()
            self._shuffled = pieces.filter(_is_piece).partitionBy(self._job.reduces, _itself)
        papers = {
            item.task.order.task_index: (
                item.token,
                encode(item.task),
                [self._tokens[path] for path in item.segments],
            )
            for item in asked
        }
        work = _ReduceWork(self._job.job_id, self._packet, own, papers)
        reduced = self._shuffled.mapPartitionsWithIndex(work)
        return dict(context.runJob(reduced, list, sorted(papers)))


class _MapWork:
    """What Spark runs for a map: its outcome first, then its partitions in pieces."""

    def __init__(self, job_id: str, packet: Any, own: str) -> None:
        self._job_id = job_id
        self._packet = packet
        self._own = own

    def __call__(self, paper: tuple[int, bytes]) -> Iterator[tuple[int, Any]]:
        token, data = paper
        task = msgspec.msgpack.decode(data, type=Task)
        outcome, parts = run_task(
            self._job_id, lambda: bytes(self._packet.value), task, _repeat(self._own)
        )
        yield OUTCOME, (token, encode(outcome))
        for partition, part in enumerate(parts):
            view = memoryview(part)
            for number, start in enumerate(range(0, len(view), PIECE_BYTES_MAX)):
                yield partition, (token, number, bytes(view[start : start + PIECE_BYTES_MAX]))


class _ReduceWork:
    """What Spark runs for a partition: the reduce of it, if it is asked for."""

    def __init__(
        self, job_id: str, packet: Any, own: str, papers: dict[int, tuple[int, bytes, list[int]]]
    ) -> None:
        self._job_id = job_id
        self._packet = packet
        self._own = own
        self._papers = papers

    def __call__(self, partition: int, pieces: Iterable[Piece]) -> Iterator[tuple[int, bytes]]:
        token, data, maps = self._papers[partition]
        task = msgspec.msgpack.decode(data, type=Task)
        with tempfile.TemporaryFile(prefix="mrstream-pieces-") as spool:
            outcome, _ = run_task(
                self._job_id,
                lambda: bytes(self._packet.value),
                task,
                _repeat(self._own),
                _in_order(spool, pieces, maps),
            )
        yield token, encode(outcome)


def _in_order(spool: Any, pieces: Iterable[Piece], maps: Sequence[int]) -> Iterator[bytes]:
    """Yield the pieces map by map: the shuffle brings them as they come. Those of executions that
    do not count, because another attempt of the map did, are left out."""
    places: dict[int, list[tuple[int, int, int]]] = {token: [] for token in maps}
    for _, (token, number, data) in pieces:
        if token in places:
            places[token].append((number, spool.tell(), len(data)))
            spool.write(data)
    for token in maps:
        for _, offset, length in sorted(places[token]):
            spool.seek(offset)
            yield spool.read(length)


def _repeat(own: str) -> int:
    """Return 0 for a task's first execution, else a number that no other execution has: Spark's
    own, of the task attempt. What a later round rebuilds is another execution, too."""
    context = importlib.import_module("pyspark").TaskContext.get()
    is_first = context.attemptNumber() == 0 and context.getLocalProperty(ROUND) == own
    return 0 if is_first else 1 + int(context.taskAttemptId())


def _is_outcome(item: tuple[int, Any]) -> bool:
    return item[0] == OUTCOME


def _is_piece(item: tuple[int, Any]) -> bool:
    return item[0] != OUTCOME


def _itself(partition: int) -> int:
    return partition


def _line(error: BaseException) -> str:
    """Return the line of the Python exception inside of Java's words, else of Java's own, else the
    first line."""
    text = str(error).strip()
    for pattern in (r"^(\w+(?:Error|Exception): .*)$", r"^: ((?:\w+\.)+\w+: .*)$", r"^(.*)"):
        if found := re.search(pattern, text, re.MULTILINE):
            return found.group(1)[:LINE_CHARS_MAX]
    return type(error).__name__
