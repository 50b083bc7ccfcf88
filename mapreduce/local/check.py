"""`mrstream -check …`: does a job's result depend on what it must not depend on?

Runs the job on a sample of its input: again, with other splits, without its combiner, with the
combiner once and with the combiner on its own output; then tells where results differ. A framework
may cut and combine as it likes (MapReduce §4.3), so a difference is a fault of the programs that a
small test does not show and a large job does. Writes nothing but to a directory of its own, which
it removes.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.attempt.attempt import failure_of, run_map, run_reduce
from mrstream.mapreduce.attempt.attempt_report import Done, Message
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.dataflow.files import Files, LocalFiles, RoutedFiles, copy_parts
from mrstream.mapreduce.dataflow.record_form import RECORD_OVERHEAD_BYTES
from mrstream.mapreduce.dataflow.split_plan import plan_splits
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.program.children import become_subreaper, kill_descendants
from mrstream.mapreduce.program.errors import TaskFailed
from mrstream.mapreduce.report import failure_text
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming import classes
from mrstream.streaming.command.command import StreamingCommand
from mrstream.streaming.command.options import BadCommandLine
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.formats.codec import codec_by_suffix
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.output_format import OutputFormat

SAMPLE_BYTES_MAX = 1_000_000
# So little memory that a sample needs several spills: then the combiner runs on its own output
# too. Not less than it takes for that: each spill starts the combiner anew.
SPILLS = 8
SORT_BYTES_MIN = 16 << 10
SORT_BYTES_MAX = 256 << 10  # with more, the sort buffer keeps equal keys once and holds far more
COMBINED_BYTES_MIN = 60_000
WHOLE_BYTES_MAX = 64 << 20
SAME, DIFFERENT = 0, 1
_SHOWN_CHARS_MAX = 200


class CannotSample(UserError):
    """The input is of a kind of which a part is no input."""


class Variation(msgspec.Struct, frozen=True):
    """One way to run the sample, and why its result must be the same."""

    name: str
    maps: int = 1
    combines: bool = False
    spills: bool = False
    is_order_free: bool = False
    """Whether values of a key may come in another order than in the first run."""


BASELINE = Variation("one map, no combiner")
VARIATIONS = (
    Variation("the same again"),
    Variation("two maps", maps=2, is_order_free=True),
    Variation("seven maps", maps=7, is_order_free=True),
)
COMBINER_VARIATIONS = (
    Variation("combiner once", combines=True, is_order_free=True),
    Variation("combiner twice", combines=True, spills=True, is_order_free=True),
    Variation("combiner twice, three maps", 3, combines=True, spills=True, is_order_free=True),
)


def run(command: StreamingCommand) -> int:
    """Check a job; 0 if all runs agree, else 1."""
    spec = msgspec.structs.replace(job.spec_from(command), job_id=JobId("job_local0_0001"))
    kind = InputFormat.by_class_name(spec.conf().input_format_class)
    if spec.sources or (kind is not None and kind.is_rows):
        raise BadCommandLine(
            "-check runs a job on a sample of lines: it cannot with -as, nor with a format whose "
            "records are none"
        )
    if spec.reducer is not None and spec.reducer.builtin == classes.SAW:
        raise BadCommandLine(
            "-check compares lines of output, and this job writes shards; the tables of a Sawzall "
            "program are the same however its input is cut"
        )
    job.require_extras(spec)
    if spec.environment is not None:
        from mrstream.mapreduce.environment.store import use_here  # few jobs have one

        spec = use_here(spec, lambda text: print(f"environment: {text}", file=sys.stderr))
    become_subreaper()
    room = tempfile.mkdtemp(prefix="mrstream-check-")
    try:
        return _Check(spec, room).run()
    finally:
        kill_descendants(os.getpid())
        shutil.rmtree(room, ignore_errors=True)


class _Check:
    """One check, in a directory of its own."""

    def __init__(self, spec: JobSpec, room: str) -> None:
        self._spec = spec
        self._room = room
        self._files: Files = RoutedFiles("file:///", spec.working_directory)
        self._runs = 0
        self._map_output_bytes = 0
        """What all maps together held in their sort buffers, in a run without a combiner."""
        sample = os.path.join(room, "sample")
        os.mkdir(sample)
        self._sampled = _take_sample(spec, self._files, sample)
        self._source = sample

    def run(self) -> int:
        _say(f"Checking on a sample of {self._sampled}.")
        baseline = self._result(BASELINE)
        if baseline is None:
            return DIFFERENT
        _say(f"  {BASELINE.name}: {sum(len(part) for part in baseline):,} lines of output")
        variations = [*VARIATIONS]
        if self._spec.combiner is not None:
            variations += COMBINER_VARIATIONS
        if not self._spec.reduces:
            variations = [v for v in variations if v.maps == 1]
        different = sum(not self._agrees(baseline, variation) for variation in variations)
        if different:
            _say(f"{different} of {len(variations)} runs differ: the job's result is not its own.")
            return DIFFERENT
        _say("All runs agree.")
        return SAME

    def _agrees(self, baseline: list[list[bytes]], variation: Variation) -> bool:
        result = self._result(variation)
        if result is None:
            return False
        difference = first_difference(baseline, result)
        if difference is None:
            _say(f"  {variation.name}: the same")
            return True
        sorted_difference = first_difference(
            [sorted(part) for part in baseline], [sorted(part) for part in result]
        )
        if variation.is_order_free and sorted_difference is None:
            _say(f"  {variation.name}: the same lines in another order (fine, if you expect none)")
            return True
        _say(f"  {variation.name}: DIFFERENT, {difference}")
        if variation.combines:
            _say("    a combiner may run never, once or often: it must accept its own output")
        elif variation.maps > 1:
            _say("    a mapper must not carry anything from one record to a far later one")
        else:
            _say("    it depends on time, chance, or the order of a set or dictionary")
        return False

    def _result(self, variation: Variation) -> list[list[bytes]] | None:
        """Run the sample; give the lines of each part, None if it fails."""
        self._runs += 1
        spec = self._spec_for(variation)
        room = os.path.join(self._room, f"run{self._runs}")
        os.mkdir(room)
        try:
            return [part.splitlines(keepends=True) for part in self._parts(spec, variation, room)]
        except _Failed as failed:
            _say(f"  {variation.name}: FAILS")
            _say(failed.text)
            return None

    def _spec_for(self, variation: Variation) -> JobSpec:
        properties = {
            **self._spec.properties,
            **_as_lines(self._spec.conf()),
            setting_name("maps_hint"): str(variation.maps),
            setting_name("combine_spills_min"): "1",
        }
        return msgspec.structs.replace(
            self._spec,
            properties=properties,
            inputs=(self._source,),
            combiner=self._spec.combiner if variation.combines else None,
        )

    def _parts(self, spec: JobSpec, variation: Variation, room: str) -> Iterator[bytes]:
        splits = plan_splits(spec.conf(), spec.inputs, self._files).splits
        sort_bytes = self._map_output_bytes // len(splits) // SPILLS if splits else 0
        sort_bytes = min(max(sort_bytes, SORT_BYTES_MIN), SORT_BYTES_MAX)
        held_bytes = 0
        segments = []

        def attempt(name: str) -> AttemptOrder:
            directory, cache = os.path.join(room, name), os.path.join(room, "cache")
            name = f"attempt_local0_0001_{name}_0"
            return AttemptOrder(name, len(splits), directory, cache, directory)

        for split in splits:
            name = f"m_{split.index:06d}"
            path = os.path.join(room, f"{name}.segment")
            order = msgspec.structs.replace(
                attempt(name),
                split=split,
                segment_path=path if spec.reduces else "",
                output_directory="" if spec.reduces else f"file:{room}/out/{name}",
                sort_bytes=sort_bytes if variation.spills else 0,
            )
            done = _run(spec, order)
            held_bytes += sum(
                part.raw_bytes + part.records * RECORD_OVERHEAD_BYTES for part in done.partitions
            )
            segments.append(path)
            if not spec.reduces:
                yield _read_all(os.path.join(room, "out", name))
        if not variation.combines:
            self._map_output_bytes = held_bytes
        for number in range(spec.reduces):
            name = f"r_{number:06d}"
            order = msgspec.structs.replace(
                attempt(name), segments=tuple(segments), output_directory=f"file:{room}/out/{name}"
            )
            _run(spec, order)
            yield _read_all(os.path.join(room, "out", name))


def _as_lines(conf: JobConf) -> dict[str, str]:
    """Properties with which a job writes its records as lines: files of many formats have random
    marks in them, and packed ones differ as a whole where two values changed places."""
    properties = {
        setting_name("output_compress"): "false",
        setting_name("outputs"): ",".join(conf.outputs),
    }
    kind = OutputFormat.by_class_name(conf.output_format_class)
    if kind is not None and (kind.is_rows or kind.is_sequence_file):
        properties[setting_name("declared_output_format_class")] = classes.TEXT_OUTPUT
    return properties


class _Failed(Exception):
    """A run of the sample failed; `text` is its report."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _run(spec: JobSpec, order: AttemptOrder) -> Done:
    os.makedirs(order.directory, exist_ok=True)
    attempt = Attempt(spec, order, _ignore)
    try:
        return run_map(attempt) if order.is_map else run_reduce(attempt)
    except TaskFailed as error:
        failure = msgspec.structs.replace(failure_of(attempt, error), log_directory="")
        raise _Failed(failure_text(order.attempt_id, failure, repeatable=False)) from None
    finally:
        attempt.log.close()


def first_difference(expected: list[list[bytes]], found: list[list[bytes]]) -> str | None:
    """Say where two results first differ; None if they are the same."""
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one == other:
            continue
        for line, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return f"part {number}, line {line + 1}: {_shown(right)} instead of {_shown(left)}"
        longer, word = (one, "lacks") if len(one) > len(other) else (other, "has one too many:")
        return f"part {number} {word} {_shown(longer[min(len(one), len(other))])}"
    return None


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip("\n")
    return repr(text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…")


def _take_sample(spec: JobSpec, files: Files, directory: str) -> str:
    """Copy the beginnings of the input files, whole lines; say how much that is."""
    plan = plan_splits(spec.conf(), spec.inputs, files)
    urls = list(dict.fromkeys(piece.url for split in plan.splits for piece in split.pieces))
    share = max(1, SAMPLE_BYTES_MAX // max(1, len(urls)))
    binary = any(split.input_format.is_sequence_file for split in plan.splits)
    lines, is_repeated = 0, False
    for number, url in enumerate(urls):
        name = f"{number:05d}-{url.rpartition('/')[2]}"
        is_text = not binary and codec_by_suffix(url) is None
        with files.open(url) as source:
            data = _read_lines(source, share) if is_text else _read_whole(source, url)
        lines += data.count(b"\n")
        if is_text and spec.combiner is not None:
            is_repeated = is_repeated or len(data) < COMBINED_BYTES_MIN
            data = _repeated(data)
        with open(os.path.join(directory, name), "wb") as sample:
            sample.write(data)
    why = ", repeated so that combiners run more than once" if is_repeated else ""
    return f"{lines:,} lines of {len(urls):,} {'file' if len(urls) == 1 else 'files'}{why}"


def _repeated(data: bytes) -> bytes:
    """Repeat a small sample until its map needs several spills: only then combiners run twice."""
    if not data:
        return data
    if not data.endswith(b"\n"):
        data += b"\n"
    return data * -(-COMBINED_BYTES_MIN // len(data))


def _read_lines(source: BinaryIO, bytes_max: int) -> bytes:
    """Read about so many bytes, up to the end of a line; a first line is read whole."""
    data = _read_up_to(source, bytes_max)
    if len(data) < bytes_max:
        return data
    cut = data.rfind(b"\n") + 1
    while cut == 0 and (more := source.read(1 << 20)):
        end = more.find(b"\n") + 1
        data += more[:end] if end else more
        cut = len(data) if end else 0
    return data[:cut] if cut else data


def _read_whole(source: BinaryIO, url: str) -> bytes:
    data = _read_up_to(source, WHOLE_BYTES_MAX + 1)
    if len(data) > WHOLE_BYTES_MAX:
        raise CannotSample(
            f"{url}: no sample can be cut out of it, and it is larger than "
            f"{WHOLE_BYTES_MAX >> 20} MiB; check the job on a smaller file of that kind"
        )
    return data


def _read_up_to(source: BinaryIO, bytes_max: int) -> bytes:
    parts = []
    left = bytes_max
    while left > 0 and (data := source.read(min(left, 1 << 20))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _read_all(directory: str) -> bytes:
    """Return the files of an output directory, one behind the other."""
    found = io.BytesIO()
    copy_parts(LocalFiles(), f"file:{directory}", found)
    return found.getvalue()


def _ignore(message: Message) -> None:
    """What programs of a check say is told only if they fail."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
