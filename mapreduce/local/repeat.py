"""Runs a failed attempt again, under the user's eyes; and finds the record that makes it fail.

`repeat` runs the very attempt: same program, environment, links and input, in the foreground, its
output on standard output and its complaints on standard error. `bisect` runs its command on ever
smaller parts of that input. Both read what history kept, and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import msgspec

from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.terminal import show
from mrstream.mapreduce import history
from mrstream.mapreduce.attempt.attempt import failure_of, run_map, run_reduce
from mrstream.mapreduce.attempt.attempt_report import (
    KEPT_FAILURE,
    KEPT_INPUT,
    KEPT_ORDER,
    KEPT_SEGMENT,
    Failure,
    Message,
    Noted,
    Said,
)
from mrstream.mapreduce.attempt.narrow import RecordIndex, narrow
from mrstream.mapreduce.attempt.reduce_task import ReduceTask
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.program.children import become_subreaper, kill_descendants
from mrstream.mapreduce.program.ending import ExitRule
from mrstream.mapreduce.program.errors import CommandFailed, TaskTimedOut
from mrstream.mapreduce.report import exit_code_means, failure_text

_ECHO_BYTES_MAX = 1 << 62


class CannotNarrow(UserError):
    """The failure cannot be narrowed: it does not come back, or no command is to blame."""


def repeat(attempt_id: str) -> int:
    """Run a kept attempt again; 0 if it succeeds this time, else 1."""
    with _kept(attempt_id) as (spec, order, _):
        _say(f"Repeating {attempt_id}: its output is on stdout, what it says on stderr.")
        attempt = Attempt(spec, order, _tell, echo_bytes_max=_ECHO_BYTES_MAX)
        attempt.tee = sys.stdout.buffer.write
        failure = _run(attempt)
        sys.stdout.buffer.flush()
        if failure is None:
            _say("It succeeds this time.")
            return 0
        _say(
            failure_text(
                attempt_id,
                msgspec.structs.replace(failure, log_directory="", input=None),
                repeatable=False,
            )
        )
        return 1


def bisect(attempt_id: str) -> int:
    """Find the record that makes a kept attempt fail; prints it on standard output."""
    with _kept(attempt_id) as (spec, order, failure):
        attempt = Attempt(spec, order, lambda _: None)
        stage = failure.stage or ("map" if order.is_map else "reduce")
        program = attempt.program_of(stage)
        if program is None or not program.command:
            raise CannotNarrow(
                f"{attempt_id}: it is no command that failed ({failure.message}); repeat it with "
                f"`mrstream -repeat {attempt_id}`"
            )
        path = _input_file(attempt)
        conf = attempt.conf
        is_map = order.is_map
        index = RecordIndex(
            path, conf.map_input_identifier if is_map else conf.reduce_input_identifier
        )
        trial = _Trial(attempt, index, stage)
        found = narrow(trial.fails, len(index))
        if found is None:
            raise CannotNarrow(
                f"{attempt_id} does not fail this time, so it cannot be narrowed; "
                "does it depend on chance, time or a service?"
            )
        _tell_found(attempt, index, found, trial, path)
        return 0


class _Trial:
    """Runs the command of an attempt on a range of its records.

    What a combiner reads is made by the map command from the map's records: so those are what its
    failure is narrowed to, and each run is one of the whole map.
    """

    def __init__(self, attempt: Attempt, index: RecordIndex, stage: str) -> None:
        self._attempt = attempt
        self._index = index
        self._stage = stage
        self._part = os.path.join(attempt.order.directory, "part")
        conf = attempt.conf
        skip_after = conf.skip_after_records if stage == "map" else None
        self._rule = ExitRule(conf.nonzero_exit_is_failure, skip_after)
        self.runs = 0
        self.failure: Failure | None = None

    def fails(self, first: int, behind: int) -> bool:
        """Whether the command fails on records [first, behind)."""
        self.runs += 1
        _say(f"  run {self.runs}: records {first} to {behind} …", end="")
        run = self._run_map if self._stage == "combine" else self._run_alone
        try:
            run(self._index.blobs(first, behind))
        except (CommandFailed, TaskTimedOut) as error:
            self.failure = failure_of(self._attempt, error)
            _say(" fails")
            return True
        _say(" is fine")
        return False

    def _run_alone(self, feed: Iterator[bytes]) -> None:
        program = self._attempt.program_of(self._stage)
        assert program is not None
        command = self._attempt.command(program, self._stage)
        command.run(feed, lambda _: None, self._rule, lambda: 1 << 62)

    def _run_map(self, feed: Iterator[bytes]) -> None:
        with open(self._part, "wb") as file:
            file.writelines(feed)
        self._attempt.order = msgspec.structs.replace(self._attempt.order, replay=self._part)
        run_map(self._attempt)


@contextlib.contextmanager
def _kept(attempt_id: str) -> Iterator[tuple[JobSpec, AttemptOrder, Failure]]:
    """Yield a kept attempt, its order changed to run here in a directory of its own."""
    record, directory = history.find_attempt(attempt_id)
    spec = record.read_spec()
    with open(os.path.join(directory, KEPT_ORDER), "rb") as file:
        order = msgspec.msgpack.decode(file.read(), type=AttemptOrder)
    with open(os.path.join(directory, KEPT_FAILURE), "rb") as file:
        failure = msgspec.msgpack.decode(file.read(), type=Failure)
    become_subreaper()
    room = tempfile.mkdtemp(prefix="mrstream-repeat-")
    kept_input = os.path.join(directory, KEPT_INPUT)
    segment = os.path.join(directory, KEPT_SEGMENT)
    here = msgspec.structs.replace(
        order,
        directory=os.path.join(room, "attempt"),
        cache=os.path.join(room, "cache"),
        log_directory=os.path.join(room, "logs"),
        segment_path=os.path.join(room, "segment.out") if order.segment_path else "",
        output_directory=f"file:{room}/output" if order.output_directory else "",
        keep_directory="",
        replay=kept_input if os.path.exists(kept_input) else "",
        segments=(segment,) if os.path.exists(segment) else order.segments,
        segment_partition=0 if os.path.exists(segment) else None,
    )
    for path in ("attempt", "cache", "logs", "output"):
        os.makedirs(os.path.join(room, path))
    try:
        yield spec, here, failure
    finally:
        kill_descendants(os.getpid())
        shutil.rmtree(room, ignore_errors=True)


def _run(attempt: Attempt) -> Failure | None:
    try:
        if attempt.order.is_map:
            run_map(attempt)
        else:
            run_reduce(attempt)
    except (ClusterError, OSError) as error:
        return failure_of(attempt, error)
    finally:
        attempt.log.close()
    return None


def _input_file(attempt: Attempt) -> str:
    """Return the file with the bytes that the failed command was given; a reduce's is made now."""
    order = attempt.order
    if order.is_map:
        if not order.replay:
            raise CannotNarrow(f"the input of {order.attempt_id} was too large to be kept")
        return order.replay
    path = os.path.join(order.directory, "stdin")
    with open(path, "wb") as file:
        file.writelines(ReduceTask(attempt).input_blobs())
    return path


def _tell_found(
    attempt: Attempt, index: RecordIndex, found: tuple[int, int], trial: _Trial, path: str
) -> None:
    first, behind = found
    failure = trial.failure
    code = failure.exit_code if failure is not None else None
    if first == behind:
        _say("It fails without any input: the program itself, or how it is started, is at fault.")
    elif behind - first == 1:
        _say(f"Record {first} alone makes it fail, of {len(index)} (counted from 0):")
    else:
        _say(
            f"Records {first} to {behind - 1} together make it fail, of {len(index)} "
            "(counted from 0); none of them alone does, and no shorter run of them that ends there:"
        )
    if first < behind:
        for line in _places(attempt, index, first, behind):
            _say(f"  {line}")
    if code:
        _say(f"  exit code {code}: {exit_code_means(code)}")
    for line in failure.stderr_tail[-5:] if failure is not None else ():
        _say(f"  | {line}")
    _say(f"  found in {trial.runs} runs; the record follows on stdout")
    data = index.read(first, behind)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _places(attempt: Attempt, index: RecordIndex, first: int, behind: int) -> Iterator[str]:
    start, end = index.start(first), index.start(behind)
    yield f"bytes {start} to {end} of what the command was given"
    split = attempt.order.split
    if split is None:
        return
    reader = SplitReader(split, attempt.conf, attempt.files)
    given = 0
    url, offset = split.pieces[0].url, split.pieces[0].start
    try:
        for blob in reader:
            before = (given, url, offset)
            given += len(blob)
            url, offset = reader.position()
            if given > start:
                exact = before[1] == url and offset - before[2] == len(blob)
                at = before[2] + start - before[0]
                where = f"at byte {at}" if exact else f"between bytes {before[2]} and {offset}"
                yield f"{url}, {where}"
                return
    except (ClusterError, OSError):
        return  # the input is gone or changed since: its kept copy was enough
    finally:
        reader.close()


def _tell(message: Message) -> None:
    match message:
        case Said(text=text):
            show(sys.stderr, text)
        case Noted(text=text):
            _say(text)


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
