"""Looking at a job before it runs for good: `test` on a few lines, `check` on a sample.

`test` runs a job's functions in this process, in order, through its codecs: for unit tests and
debuggers. `check` is the command's `-check`: does the result depend on what it must not depend on?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mrstream.api import loops, reporter
from mrstream.api.child import result_lines
from mrstream.api.codecs import LINE_END, TAB, Codec
from mrstream.api.functions import stage_of
from mrstream.api.job import Job, is_function
from mrstream.api.layout import FIELD_END
from mrstream.mapreduce.launch import Launch


class Tested(list[Any]):
    """The records of a job that was tested; `counters` are what its functions counted."""

    counters: dict[str, dict[str, int]]


class Checked:
    """What `check` found: true if all runs of the sample agreed; `text` says more."""

    def __init__(self, agrees: bool, text: str) -> None:
        self.agrees = agrees
        self.text = text

    def __bool__(self) -> bool:
        return self.agrees

    def __repr__(self) -> str:
        return f"<Checked: {'all runs agree' if self.agrees else 'runs differ'}>\n{self.text}"


def test(job: Job, lines: Iterable[Any]) -> Tested:
    """Run a job's functions on these lines, here and now, and give its records.

    Lines are text; for a mapper of two parameters they may be pairs. The combiner runs once on the
    output of the mapper. There are as many reduces as the job says, and the records come in the
    order in which the job would give them. Commands are not run: `ValueError`.
    """
    for role in ("mapper", "combiner", "reducer"):
        given = getattr(job, role)
        if given is not None and not is_function(given):
            raise ValueError(f"the {role} is a command ({given!r}); test() runs functions only")
    reporter.take()
    reduces = 1 if job.reduces is None else job.reduces
    mapped = _mapped(job, list(lines), reduces)
    if job.reducer is None:
        outputs = [mapped]
    else:
        outputs = [_reduced(job, job.reducer, part) for part in _parts(job, mapped, reduces)]
    found = Tested(job.writes.record(line) for part in outputs for line in _split(part))
    found.counters = reporter.take()
    return found


def check(job: Job, *, timeout: float | None = None) -> Checked:
    """Run a job on a sample of its input again and again, with other splits and combiner passes,
    and say whether the results agree (`mrstream -check`)."""
    launch = Launch(["-check", *job.words()], ends_with_us=True)
    try:
        if not launch.wait(timeout):
            raise TimeoutError(f"the check still runs after {timeout} s")
    finally:
        launch.kill()
    return Checked(launch.status == 0, "\n".join(launch.lines))


class _Memory:
    """Takes the records of functions and holds them as lines."""

    def __init__(self, codec_lines: Any) -> None:
        self._lines = codec_lines
        self.data = b""

    def take(self, records: Iterable[Any] | None) -> None:
        if records is not None:
            self.data += self._lines(list(records))

    def flush(self) -> None:
        """Nothing waits."""


def _mapped(job: Job, lines: list[Any], reduces: int) -> bytes:
    out = _Memory(job.writes.lines if job.reducer is None else job.layout.writer(reduces))
    if job.mapper is None:
        # The identity: a line is what a command would have written.
        return b"".join(f"{line}\n".encode("utf-8", "surrogateescape") for line in lines)
    does = stage_of(job.mapper, "map")
    records = [_argument(line, job.reads) for line in lines]
    out.take(does.setup() if does.setup else None)
    loops.run_map(does.call, [records] if records else [], out, loops.Place())
    out.take(does.close() if does.close else None)
    if job.combiner is None:
        return out.data
    combined = _Memory(job.layout.writer(reduces))
    _run_reduce(job, job.combiner, _sorted(out.data), combined)
    return combined.data


def _argument(line: Any, reads: Codec | None) -> Any:
    if reads is None or isinstance(line, tuple):
        return line
    record = reads.record(line.encode() if isinstance(line, str) else line)
    return record if isinstance(record, tuple) else (record, None)


def _parts(job: Job, mapped: bytes, reduces: int) -> Iterator[bytes]:
    """Cut map output as the framework does, and sort each part."""
    from mrstream.streaming.records.partitioner import HashPartition, key_field_partition, partition

    layout = job.layout
    spec = (
        HashPartition()
        if layout.is_plain
        else key_field_partition(f"-k1,{layout.partition_fields}", FIELD_END)
    )
    parts: list[list[bytes]] = [[] for _ in range(max(1, reduces))]
    for line in _split(mapped):
        parts[partition(spec, line.partition(TAB)[0], len(parts))].append(line)
    for part in parts:
        yield _sorted(b"".join(line + LINE_END for line in part))


def _sorted(data: bytes) -> bytes:
    """Sort lines by the bytes of their keys."""
    lines = sorted(_split(data), key=lambda line: line.partition(TAB)[0])
    return b"".join(line + LINE_END for line in lines)


def _reduced(job: Job, given: Any, part: bytes) -> bytes:
    out = _Memory(result_lines(job.functions()))
    _run_reduce(job, given, part, out)
    return out.data


def _run_reduce(job: Job, given: Any, part: bytes, out: _Memory) -> None:
    does = stage_of(given, "reduce")
    out.take(does.setup() if does.setup else None)
    source = [part.removesuffix(LINE_END)] if part else []
    loops.run_reduce(does.call, source, job.layout, out, loops.Place())
    out.take(does.close() if does.close else None)


def _split(data: bytes) -> list[bytes]:
    return data.split(LINE_END)[:-1]
