"""An engine without an engine: what travels, and a pool whose workers are threads of this test.

The nests are real processes, and so are the attempts; only who hands out tasks is small.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.attempt.attempt_report import Done, Failed, PartitionSize, death_text
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.engine import choice, packet, reach, task
from mrstream.mapreduce.engine.choice import BadEngine, EngineChoice
from mrstream.mapreduce.engine.packet import Outcome, Packet, Task, execution_id, placed
from mrstream.mapreduce.engine.pool import EngineOutput, EnginePool, Finished, Work
from mrstream.mapreduce.engine.reach import Look, Seen, Unreachable
from mrstream.mapreduce.environment import store
from mrstream.mapreduce.history import JobRecord
from mrstream.mapreduce.job.environment import BadEnvironment, Environment, Platform
from mrstream.mapreduce.job.job import JobSpec, plan_input, spec_from
from mrstream.mapreduce.local.output import StandardOutput
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command import options
from mrstream.streaming.command.command import command_of

JOB = JobId("job_local1_0001")
MAP = "attempt_local1_0001_m_000000_0"
REDUCE = "attempt_local1_0001_r_000000_0"


def spec_of(*words: str) -> JobSpec:
    spec = spec_from(command_of(options.parse(["-input", "in", *words])))
    return msgspec.structs.replace(spec, job_id=JOB)


def order_of(attempt_id: str, **more: object) -> AttemptOrder:
    fields = {"maps": 1, "directory": "/d", "cache": "/c", "log_directory": "/l"}
    return AttemptOrder(attempt_id=attempt_id, **{**fields, **more})  # type: ignore[arg-type]


# ---- which engine --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("ray", EngineChoice("ray")),
        ("ray://head", EngineChoice("ray", "ray://head:10001")),
        ("ray://head:7", EngineChoice("ray", "ray://head:7")),
        ("ray:10.0.0.1:6379", EngineChoice("ray", "10.0.0.1:6379")),
        ("spark", EngineChoice("spark")),
        ("spark://m:7077", EngineChoice("spark", "spark://m:7077")),
        ("spark:local[2]", EngineChoice("spark", "local[2]")),
        ("hadoop:/opt/hadoop", EngineChoice("hadoop", "/opt/hadoop")),
        ("own", None),
    ],
)
def test_the_name_of_an_engine_says_where_it_is(text: str, chosen: EngineChoice | None) -> None:
    assert choice.parse(text) == chosen


@pytest.mark.parametrize("text", ["dask", "ray:", "ray://", "Ray", "local", "spark:"])
def test_what_is_no_engine_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(BadEngine, match="ray://HOST"):
        choice.parse(text)


# ---- what travels --------------------------------------------------------------------------------


def test_shipped_files_arrive_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "a").write_bytes(b"\0\xff")
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    spec = spec_of("-mapper", "cat", "-files", "tree,run.sh#run")

    there = tmp_path / "there"
    there.mkdir()
    arrived = packet.unpack(msgspec.msgpack.decode(packet.pack(spec), type=Packet), str(there))

    tree, run = (Path(item.source) for item in arrived.shipped)
    assert (tree / "deep" / "a").read_bytes() == b"\0\xff"
    assert run.name == "run.sh" and os.access(run, os.X_OK)
    assert run.is_relative_to(there)
    assert [item.link for item in arrived.shipped] == ["tree", "run"]


def test_an_execution_has_an_id_and_places_of_its_own() -> None:
    """E1: what an engine repeats writes nowhere where an earlier execution might."""
    given = order_of(MAP, output_directory="file:/out/_temporary/0/_temporary/" + MAP)

    first, again = (placed(given, repeat, "/nest", prints=False) for repeat in (0, 1))

    assert first.attempt_id == MAP and again.attempt_id == MAP[:-1] + "1000"
    assert first.output_directory.endswith(MAP) and again.output_directory.endswith(
        "_m_000000_1000"
    )
    assert first.directory != again.directory


@given(number=st.integers(0, 999), repeat=st.integers(0, 900_000))
def test_no_two_executions_share_an_id(number: int, repeat: int) -> None:
    attempt = f"attempt_local1_0001_m_000000_{number}"

    name = execution_id(attempt, repeat)

    assert int(name.rpartition("_")[2]) == number + 1000 * repeat


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "..", "."])
def test_nothing_that_a_worker_sends_leaves_its_directory(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(ValueError, match="is not inside"):
        packet.write_files(str(home), [(name, b"x")])

    assert list(tmp_path.rglob("*")) == []


# ---- environments --------------------------------------------------------------------------------


@pytest.fixture
def with_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """A job with an environment that a driver has: a directory that the user made."""
    made = tmp_path / "made"
    (made / "bin").mkdir(parents=True)
    library = made / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
    library.mkdir(parents=True)
    (library / "rare.py").write_text("word = 'rare'\n")
    (made / "bin" / "python").symlink_to(sys.executable)
    (made / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "driver"))
    return store.use_here(spec_of("-mapper", "cat", "-env", str(made)), print)


def unpacked(data: bytes, place: Path) -> JobSpec:
    place.mkdir(parents=True)
    return packet.unpack(msgspec.msgpack.decode(data, type=Packet), str(place))


def test_an_environment_arrives_once_a_host_and_runs_there(
    with_environment: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert with_environment.environment is not None
    key = with_environment.environment.key
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "host"))
    assert not reach.look([], "file:///", key).has_environment

    arrived = unpacked(packet.pack(with_environment, with_environment=True), tmp_path / "nest")
    again = unpacked(packet.pack(with_environment), tmp_path / "another")

    assert arrived.environment is not None and arrived.environment == again.environment
    root = Path(arrived.environment.path)
    assert root.is_relative_to(tmp_path / "host")
    said = subprocess.run(
        [root / "bin" / "python", "-c", "import rare, sys; print(rare.word, sys.prefix)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == f"rare {root}\n"
    assert reach.look([], "file:///", key).has_environment


def test_a_host_that_came_later_says_what_it_lacks(
    with_environment: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent, because all hosts that there were had it."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "host"))
    with pytest.raises(packet.CannotTravel, match=r"does not have the environment .*/made"):
        unpacked(packet.pack(with_environment), tmp_path / "nest")
    assert not reach.look([], "file:///", str(with_environment.environment.key)).has_environment  # type: ignore[union-attr]


def test_a_host_that_an_environment_cannot_run_on_is_named(with_environment: JobSpec) -> None:
    assert with_environment.environment is not None
    here = reach.look([], "file:///")
    other = msgspec.structs.replace(here, host="h9", platform=Platform("3.1", "sparc64", "musl"))

    with pytest.raises(BadEnvironment, match=r"cannot run on h9: it is for Python 3\.\d+"):
        reach.judge(EngineChoice("ray"), [here, other], with_environment.environment)


def test_an_environment_goes_along_where_a_host_lacks_it(
    with_environment: JobSpec, tmp_path: Path
) -> None:
    sizes = []
    for has_it in (True, False):
        engine = _Threads()
        engine.has_environment = has_it
        pool = pool_with(engine, tmp_path)
        pool.start(msgspec.msgpack.encode((with_environment, order_of(MAP))), MAP)
        assert engine.job is not None
        given = msgspec.msgpack.decode(engine.job.packet, type=Packet)
        sizes.append(len(given.environment))

    assert sizes[0] == 0 and sizes[1] > 0


# ---- reach ---------------------------------------------------------------------------------------


def test_a_host_that_has_another_file_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text("a")
    url = f"file:{path}"
    (here,) = reach.looks_at(order_of(REDUCE), url)

    found = reach.look([here], "file:///")
    other = reach.look([Look(url, (here.identity[0] + 1, 0))], "file:///")

    assert reach.judge(EngineChoice("ray"), [found], None)
    with pytest.raises(Unreachable, match=f"{found.host} does not reach {url}.*shared disk"):
        reach.judge(EngineChoice("ray"), [found, other], None)


def test_a_host_with_another_version_is_named() -> None:
    with pytest.raises(Unreachable, match=r"h7 has mrstream 0\.0\.9.*install the same"):
        reach.judge(EngineChoice("ray", "ray://head:10001"), [Seen("h7", "0.0.9")], None)


# ---- tasks ---------------------------------------------------------------------------------------


@pytest.fixture
def no_nest() -> Iterator[None]:
    yield
    task.drop_nest()


def test_a_map_and_a_reduce_run_beside_a_worker(tmp_path: Path, no_nest: None) -> None:
    """What maps give, by partitions, is what reduces take; nothing of either stays on the disk."""
    source = tmp_path / "in"
    source.write_text("b\na\nb\n")
    spec = spec_of("-mapper", "cat", "-reducer", "uniq -c", "-numReduceTasks", "2",
                   "-D", f"mapreduce.cluster.local.dir={tmp_path / 'nests'}")  # fmt: skip
    spec = msgspec.structs.replace(spec, inputs=(str(source),))
    (split,) = plan_input(spec, RoutedFiles("file:///", str(tmp_path))).splits
    data = packet.pack(spec)

    mapped, parts = task.run_task(
        JOB, lambda: data, Task(order_of(MAP, split=split, segment_path="x")), 0
    )
    partitions = list(parts)
    done = mapped.messages[-1]
    assert isinstance(done, Done), done
    printed = b""
    for number, (size, partition) in enumerate(zip(done.partitions, partitions, strict=True)):
        order = order_of(REDUCE.replace("000000", f"{number:06d}"), output_directory="print:x")
        reduced, _ = task.run_task(JOB, _never, Task(order, (size,)), 2, [partition])
        assert reduced.attempt_id.endswith("_2000")
        printed += b"".join(data for name, data in reduced.files if name.startswith("output/"))

    assert sorted(printed.split(b"\n")) == [b"", b"      1 a\t", b"      2 b\t"]
    (nest,) = (tmp_path / "nests").iterdir()
    assert not list(nest.glob("attempt_*"))
    task.drop_nest()
    assert list((tmp_path / "nests").iterdir()) == []


def _never() -> bytes:
    raise AssertionError("this worker knows the job")


def test_an_attempt_that_dies_beside_a_worker_says_how_as_anywhere(
    tmp_path: Path, no_nest: None
) -> None:
    source = tmp_path / "in"
    source.write_text("a\n")
    spec = spec_of("-mapper", "bash -c 'kill -9 $PPID'", "-reducer", "NONE",
                   "-D", f"mapreduce.cluster.local.dir={tmp_path / 'nests'}")  # fmt: skip
    spec = msgspec.structs.replace(spec, inputs=(str(source),))
    (split,) = plan_input(spec, RoutedFiles("file:///", str(tmp_path))).splits
    order = order_of(MAP, split=split, output_directory="print:x")

    outcome, _ = task.run_task(JOB, lambda: packet.pack(spec), Task(order), 0)

    said = outcome.messages[-1]
    assert isinstance(said, Failed)
    assert said.failure.message == death_text(-signal.SIGKILL)
    assert "out of memory?" in said.failure.message


def test_a_job_that_cannot_be_laid_out_fails_its_attempt_in_words(no_nest: None) -> None:
    spec = spec_of("-mapper", "cat", "-D", "mapreduce.cluster.local.dir=/proc/nowhere")

    outcome, _ = task.run_task(JOB, lambda: packet.pack(spec), Task(order_of(MAP)), 0)

    (said,) = outcome.messages
    assert isinstance(said, Failed)
    assert "the job cannot be laid out here" in said.failure.message


# ---- the pool ------------------------------------------------------------------------------------


class _Threads:
    """An engine that answers when it is told to, and twice if it likes."""

    def __init__(self) -> None:
        self.finished: Finished | None = None
        self.started: list[tuple[int, Task, Sequence[str]]] = []
        self.has_environment = True
        self.job: Work | None = None

    def check(
        self, looks: Sequence[Look], filesystem: str, environment: Environment | None
    ) -> bool:
        self.looks = looks
        return self.has_environment

    def begin(self, job: Work, finished: Finished) -> None:
        self.job = job
        self.finished = finished

    def start(self, token: int, task: Task, segments: Sequence[str]) -> None:
        self.started.append((token, task, segments))

    def kill(self, token: int) -> None: ...

    def close(self) -> None: ...


class _Sweeper:
    def remove_at_end(self, path: str) -> None: ...
    def keep(self, path: str) -> None: ...
    def hold(self, descriptor: int) -> None: ...
    def close(self) -> None: ...


def pool_with(engine: _Threads, tmp_path: Path) -> EnginePool:
    record = JobRecord(JOB, str(tmp_path / "job"))
    output = EngineOutput(StandardOutput(str(tmp_path / "job" / "work" / "output")))
    return EnginePool(engine, _Sweeper(), record, output)  # type: ignore[arg-type]


def test_only_the_first_word_about_an_attempt_counts(tmp_path: Path) -> None:
    """E1: an engine that tells the end of an attempt twice, from two threads, is heard once."""
    engine = _Threads()
    pool = pool_with(engine, tmp_path)
    size = PartitionSize(0, 3, 1, 3, 5)
    done = Outcome(MAP, (Done({}, (size,), segment_bytes=3),))
    paper = msgspec.msgpack.encode((spec_of("-mapper", "cat"), order_of(MAP, segment_path="s")))

    token, report = pool.start(paper, MAP)
    assert engine.finished is not None
    told = engine.finished
    threads = [threading.Thread(target=told, args=(token, done, "")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert report == -1
    assert pool.ended().token == token
    assert list(pool.last_words(token)) == list(done.messages)
    assert not _is_readable(pool)
    order = order_of(REDUCE, segments=("s",))
    pool.start(msgspec.msgpack.encode((spec_of("-mapper", "cat"), order)), REDUCE)
    assert engine.started[-1][1].inputs == (size,)


def test_what_an_engine_gave_up_is_a_failed_attempt(tmp_path: Path) -> None:
    engine = _Threads()
    pool = pool_with(engine, tmp_path)
    token, _ = pool.start(msgspec.msgpack.encode((spec_of("-mapper", "cat"), order_of(MAP))), MAP)
    assert engine.finished is not None

    engine.finished(token, None, "the host burns")

    assert pool.ended().status == 1
    (word,) = pool.last_words(token)
    assert isinstance(word, Failed) and word.failure.message == "the host burns"


def _is_readable(pool: EnginePool) -> bool:
    import select

    return bool(select.select([pool], [], [], 0)[0])


# ---- Spark, without Spark ------------------------------------------------------------------------


def test_pieces_are_put_into_the_order_of_maps() -> None:
    """The shuffle brings them as they come; those of attempts that do not count are left out."""
    import tempfile

    from mrstream.mapreduce.engine.spark import _in_order

    pieces = [(0, (7, 1, b"B")), (0, (3, 0, b"x")), (0, (9, 0, b"C")), (0, (7, 0, b"A"))]
    with tempfile.TemporaryFile() as spool:
        assert list(_in_order(spool, pieces, [7, 9, 11])) == [b"A", b"B", b"C"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("An error.\n: org.a.NoRoom: too few\n\tat x.y(Z:1)", "org.a.NoRoom: too few"),
        ("An error.\n: org.a.E: 4 times\nTraceback\nOSError: disk\n", "OSError: disk"),
        ("gone", "gone"),
    ],
)
def test_of_javas_words_the_line_that_says_why_is_told(text: str, line: str) -> None:
    from mrstream.mapreduce.engine.spark import _line

    assert _line(RuntimeError(text)) == line
