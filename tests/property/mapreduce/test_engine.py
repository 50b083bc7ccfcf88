"""Any bytes, any split size, any number of reduces, any memory: the result is the oracle's.

The first property runs the attempts of a job in this process, which is quick; the second runs whole
jobs as users do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mrstream.mapreduce.attempt.attempt import run_map, run_reduce
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Split, plan_splits
from mrstream.mapreduce.job import job
from mrstream.mapreduce.job.job import JobSpec
from mrstream.streaming.command import options
from mrstream.streaming.command.command import command_of
from tests.support import oracle
from tests.support.examples import examples
from tests.support.local_jobs import Desk

# Bytes that lines, keys and hashes care about come often.
BYTES = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\t", b"\0", b"a", b"b", b"\xff", b"\xc3\xa9", b"key"])
    | st.binary(max_size=8),
    max_size=60,
).map(b"".join)


def lines_of_splits(data: bytes, splits: tuple[Split, ...]) -> list[bytes]:
    """Give each split's own lines, cut here once more: a line that starts at p belongs to the split
    with start < p <= end, the first line to the first (spec 3.2)."""
    starts = []
    at = 0
    for line in oracle.lines_of(data):
        starts.append((at, line))
        at += len(line)
        at += 2 if data[at : at + 2] == b"\r\n" else 1
    found = []
    for split in splits:
        (piece,) = split.pieces
        end = piece.start + piece.length
        mine = [
            line for p, line in starts if piece.start < p <= end or (p == 0 and piece.start == 0)
        ]
        found.append(b"".join(line + b"\n" for line in mine))
    return found


def spec_for(words: list[str]) -> JobSpec:
    return job.spec_from(command_of(options.parse(words)))


def run_attempts(spec: JobSpec, splits: tuple[Split, ...], room: Path) -> list[bytes]:
    """Run every map and every reduce of a job here, one after the other; give its parts."""

    def attempt(name: str, **order: object) -> Attempt:
        directory = room / name
        directory.mkdir()
        return Attempt(
            spec,
            AttemptOrder(
                f"attempt_local1_0001_{name}_0",
                maps=len(splits),
                directory=str(directory),
                cache=str(room),
                log_directory=str(directory),
                **order,  # type: ignore[arg-type]
            ),
            tell=lambda _: None,
        )

    segments = []
    for number, split in enumerate(splits):
        segments.append(str(room / f"segment{number}"))
        run_map(attempt(f"m_{number:06d}", split=split, segment_path=segments[-1]))
    parts = []
    for number in range(spec.reduces):
        out = room / f"out{number}"
        run_reduce(
            attempt(f"r_{number:06d}", segments=tuple(segments), output_directory=f"file:{out}")
        )
        parts.append((out / f"part-{number:05d}").read_bytes())
    return parts


@settings(max_examples=examples(50), deadline=None)
@given(
    data=BYTES,
    repeats=st.sampled_from([1, 1, 2, 50]),
    split_bytes=st.integers(1, 200),
    reduces=st.integers(1, 5),
    reducer=st.sampled_from(["cat", ""]),
)
@example(b"a\r", 1, 1, 1, "cat")
@example(b"\r\n\r\n", 1, 1, 2, "")
@example(b"", 1, 1, 2, "cat")
def test_the_attempts_of_a_job_give_what_the_oracle_gives(
    data: bytes, repeats: int, split_bytes: int, reduces: int, reducer: str
) -> None:
    data *= repeats
    with tempfile.TemporaryDirectory() as directory:
        room = Path(directory)
        (room / "in").write_bytes(data)
        words = ["-D", f"fs.local.block.size={max(split_bytes, len(data) // 8)}"]
        words += ["-D", f"mapreduce.job.reduces={reduces}", "-D", "mapreduce.task.io.sort.mb=1"]
        words += ["-input", str(room / "in"), "-output", "x", "-mapper", "cat"]
        spec = spec_for(words + (["-reducer", reducer] if reducer else []))
        splits = plan_splits(spec.conf(), spec.inputs, RoutedFiles("file:///", directory)).splits

        parts = run_attempts(spec, splits, room)

    assert parts == oracle.run(lines_of_splits(data, splits), list, list, reduces)


def upper(lines: list[bytes]) -> list[bytes]:
    return [line.upper() for line in lines]


PROGRAMS: dict[str, tuple[str, Callable[[list[bytes]], list[bytes]]]] = {
    "cat": ("cat", list),
    "upper": ("tr a-z A-Z", upper),
    "reverse": ("tac", lambda lines: lines[::-1]),
}


@settings(max_examples=examples(6), deadline=None)
@given(
    line=st.binary(min_size=1, max_size=200).map(
        lambda b: b.translate(None, b"\r\n\x80\x81") or b"x"
    ),
    end=st.sampled_from([b"\n", b"\r\n"]),
    megabytes=st.sampled_from([0.01, 3]),
    splits=st.integers(1, 4),
    reduces=st.integers(1, 3),
    memory_mb=st.sampled_from([1, 2, 100]),
    mapper=st.sampled_from(sorted(PROGRAMS)),
    compress=st.booleans(),
)
def test_whole_jobs_give_what_the_oracle_gives(
    line: bytes,
    end: bytes,
    megabytes: float,
    splits: int,
    reduces: int,
    memory_mb: int,
    mapper: str,
    compress: bool,
) -> None:
    """Enough records for several spills and merges, unlike each other only by a number."""
    count = int(megabytes * 1_000_000) // (len(line) + 8) + 1
    data = b"".join(b"%d\t%d" % (n * 7919 % 1000, n) + line + end for n in range(count))
    with tempfile.TemporaryDirectory() as directory:
        desk = Desk(Path(directory))
        source = desk.write("in", data)
        command, program = PROGRAMS[mapper]
        words = ["-D", f"mapreduce.job.maps={splits}", "-D", f"mapreduce.job.reduces={reduces}"]
        words += ["-D", f"mapreduce.task.io.sort.mb={memory_mb}"]
        words += ["-D", f"mapreduce.map.output.compress={str(compress).lower()}"]
        # The environment of `tr` must not make it think in characters.
        words += ["-cmdenv", "LC_ALL=C", "-mapper", command, "-reducer", "cat"]
        spec = spec_for([*words, "-input", str(source), "-output", "x"])
        plan = plan_splits(spec.conf(), spec.inputs, RoutedFiles("file:///", directory)).splits

        ran = desk.job(*words)

        assert ran.status == 0, ran.stderr
        parts = [data for name, data in desk.parts().items() if name.startswith("part-")]
        assert parts == oracle.run(lines_of_splits(data, plan), program, list, reduces)
