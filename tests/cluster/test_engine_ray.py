"""`-engine ray`: the bytes, counters and failure reports of local mode on a real Ray (E1, E2).

One Ray serves the whole file; all golden cases run on it in `make interop`. Programs that kill or
freeze find their victims among their own ancestors.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mrstream as mr
from tests.conformance import cases
from tests.support.local_jobs import MRSTREAM, Desk, Ran, processes_with
from tests.support.object_store import client_of, keys_in, made_bucket, running_store, uploads_in
from tests.support.ray_here import driver, running_ray

TEN = (
    "cachefile",  # a shipped file
    "combiner_sum",
    "counter_user",
    "env_reduce",  # -cmdenv, and what tasks see
    "fail_reduce_exit",
    "kfbp_k2",  # a partitioner by fields
    "out_gz",
    "secondary_sort",
    "tb_wordcount",  # typed bytes
    "wc_3red",
)
# Walks up from a program to the processes that run it: its attempt, the zygote and the nest of its
# worker, then the worker itself, which Ray calls by the name of its task.
ANCESTORS = """
import os, signal, sys, time
def parents():
    pid = os.getpid()
    while pid > 1:
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        yield pid, open(f"/proc/{pid}/cmdline").read()
def worker():
    return next(pid for pid, words in parents() if words.startswith("ray::"))
def beside():
    return [pid for pid, words in parents() if "engine.nest" in words][1:]
def wait_for(path):
    until = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < until, path
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """An object store that driver and workers reach."""
    with running_store() as variables:
        yield variables


@pytest.fixture(scope="module")
def hosts_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Ray's workers keep between jobs: nothing that a driver has is theirs."""
    return tmp_path_factory.mktemp("hosts") / "home"


@pytest.fixture(scope="module")
def ray(store: dict[str, str], hosts_home: Path) -> Iterator[dict[str, str]]:
    # Sockets below it have long names already.
    directory = Path(os.path.realpath("/tmp")) / f"ray-{os.getpid()}"
    directory.mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**store, "MRSTREAM_HOME": str(hosts_home)}.items():
                patch.setenv(name, value)
            with running_ray(directory) as environment:
                yield {**environment, **store}
    finally:
        subprocess.run(["rm", "-rf", str(directory)], check=True)


@pytest.fixture(scope="module")
def mrstream(ray: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with driver("ray", ray, tmp_path_factory.mktemp("driver")) as command:
        yield command


@pytest.fixture
def desk(
    tmp_path: Path, ray: dict[str, str], mrstream: list[str], monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """Where jobs are run by a driver that is connected; it says `-engine ray` itself."""
    for name, value in ray.items():
        monkeypatch.setenv(name, value)
    desk = Desk(tmp_path, mrstream)
    desk.write("in", "b a\nc a\nb a\n")
    return desk


def job(desk: Desk, mapper: str, *words: str) -> Ran:
    """Run a job of two reduces on Ray."""
    common = ("-numReduceTasks", "2", "-reducer", "uniq -c")
    return desk.job(*common, "-mapper", mapper, *words)


def script(desk: Desk, text: str) -> str:
    """Give the command of a Python mapper that says each word of its input in the end."""
    say = "\nfor line in sys.stdin:\n    print(*line.split(), sep='\\n')\n"
    return f"python3 {desk.write('mapper.py', ANCESTORS + text + say)}"


def is_right(desk: Desk, ran: Ran) -> None:
    """Judge the job of `job`: its bytes, once, and nothing else there."""
    assert ran.status == 0, ran.stderr
    parts = desk.parts()
    assert sorted(parts) == ["_SUCCESS", "part-00000", "part-00001"]
    lines = sorted((parts["part-00000"] + parts["part-00001"]).split(b"\n"))
    assert lines == [b"", b"      1 c\t", b"      2 b\t", b"      3 a\t"]
    assert counter(ran, "Map input records") == 3
    assert counter(ran, "Reduce input records") == 6
    assert desk.left_behind() == []


def counter(ran: Ran, name: str) -> int:
    return int(ran.line(f"\t\t{name}=").rpartition("=")[2])


@pytest.mark.parametrize("name", TEN)
def test_a_golden_case_gives_its_bytes_and_counters(
    name: str, mrstream: list[str], tmp_path: Path
) -> None:
    """E2; the rest of the cases are run by `make interop`."""
    case = cases.Case(name)

    outcome = case.run(mrstream, tmp_path)

    assert case.differences(outcome) == [], case.expected["title"]


def test_a_worker_that_dies_costs_its_task_another_execution(desk: Desk) -> None:
    """E1: Ray runs the task again under its next number; its output and counters count once."""
    mark = desk.cwd / "died"
    ran = job(
        desk,
        script(
            desk,
            f"""
if not os.path.exists({str(mark)!r}):
    open({str(mark)!r}, "w").close()
    os.kill(worker(), signal.SIGKILL)
    time.sleep(1000)
print("again", os.environ["mapreduce_task_attempt_id"], file=sys.stderr)
""",
        ),
    )

    is_right(desk, ran)
    assert mark.exists()
    assert ran.line("again").endswith("_m_000000_1000")


def test_an_execution_that_is_taken_for_dead_and_goes_on_changes_nothing(desk: Desk) -> None:
    """E1: its nest is frozen, so that it outlives its worker and writes its part beside the other
    one, before that one is committed."""
    late, done = desk.cwd / "late", desk.cwd / "done"
    try:
        ran = desk.job(
            "-reducer", "NONE", "-mapper", script(
                desk,
                f"""
if not os.path.exists({str(late)!r}):
    frozen = beside()
    open({str(late)!r} + ".new", "w").write(" ".join(map(str, frozen)))
    os.rename({str(late)!r} + ".new", {str(late)!r})
    doomed = worker()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    os.kill(doomed, signal.SIGKILL)
    wait_for({str(done)!r} + ".begun")
    print("wrong")
    sys.stdout.close()
    open({str(done)!r}, "w").close()
    sys.exit(0)
open({str(done)!r} + ".begun", "w").close()
wait_for({str(done)!r})
""",
            ),
        )  # fmt: skip
    finally:
        for pid in late.read_text().split() if late.exists() else ():
            os.kill(int(pid), signal.SIGCONT)

    assert ran.status == 0, ran.stderr
    assert desk.parts() == {"_SUCCESS": b"", "part-00000": b"b\t\na\t\nc\t\na\t\nb\t\na\t\n"}
    assert counter(ran, "Map input records") == 3
    assert desk.left_behind() == []


def test_a_program_that_fails_is_tried_again_as_the_job_says(desk: Desk) -> None:
    flaky = "if os.environ['mapreduce_task_attempt_id'].endswith('_0'): sys.exit('not today')"

    ran = job(desk, script(desk, flaky))

    is_right(desk, ran)
    assert counter(ran, "Failed map tasks") == 1
    assert "| not today" in ran.stderr
    assert "exit code 1" in ran.stderr


def test_a_failure_for_good_comes_home_with_its_input(desk: Desk) -> None:
    """The report is that of local mode, and `-bisect` finds the record here, without Ray."""
    fails_at_c = script(desk, "").replace("mapper.py", "picky.py")
    desk.write("picky.py", "import sys\nfor line in sys.stdin:\n    assert 'c' not in line\n")

    ran = job(desk, fails_at_c, "-D", "mapreduce.map.maxattempts=2")
    attempt = ran.line("repeat it:").split()[-1]
    desk.command = MRSTREAM
    found = desk.run("-bisect", attempt)

    assert ran.status == 1
    assert attempt.endswith("_m_000000_1")
    assert "AssertionError" in ran.stderr
    assert found.status == 0, found.stderr
    assert found.stdout == b"c a\n"


def test_an_interrupt_ends_the_job_everywhere(desk: Desk) -> None:
    mark = desk.cwd / "started"
    mapper = script(desk, f"open({str(mark)!r}, 'w').close(); time.sleep(1000)")
    words = ("-engine", "ray", "-mapper", mapper, "-input", "in", "-output", str(desk.out))
    desk.command = MRSTREAM  # a driver of its own, to be interrupted
    process = desk.start(*words)
    until = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 130, stderr
    assert b"Interrupted: the job is stopped" in stderr
    assert not desk.out.exists()
    assert desk.left_behind() == []
    assert processes_with(str(desk.cwd / "mapper.py")) == []


def test_functions_of_the_library_run_there_and_fail_in_the_same_words(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(line: str) -> Iterator[tuple[str, int]]:
        if "c" in line:
            mr.count("seen", "c")
        for word in line.split():
            yield word, 1

    def fails(line: str) -> None:
        raise ValueError(f"cannot take {line}")

    monkeypatch.setenv("MRSTREAM_HOME", str(desk.home))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    source = desk.cwd / "in"

    result = mr.Job(
        source, mapper=words, reducer=lambda word, ones: [(word, sum(ones))],
        output=desk.out, engine="ray",
    ).run()  # fmt: skip
    with pytest.raises(mr.JobFailed, match="ValueError: cannot take b a") as failed:
        mr.Job(source, mapper=fails, engine="ray", D={"mapreduce.map.maxattempts": 1}).run()

    assert list(result) == [("a", 3), ("b", 2), ("c", 1)]
    assert result.counter("seen", "c") == 1
    assert result.report["state"] == "succeeded"
    assert (failed.value.record, failed.value.exit_code) == ("'b a'", 1)
    assert failed.value.repeat == f"mrstream -repeat {failed.value.attempt_id}"


def test_an_environment_goes_to_workers_once(desk: Desk, hosts_home: Path) -> None:
    """The driver's own copy is not theirs; the second job finds it there."""
    packages = (
        desk.cwd / "env" / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
    )
    packages.mkdir(parents=True)
    (packages / "rare.py").write_text("word = 'rare'\n")
    (desk.cwd / "env" / "bin").mkdir()
    (desk.cwd / "env" / "bin" / "python").symlink_to(sys.executable)
    (desk.cwd / "env" / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    words = ("-env", "env", "-reducer", "NONE")
    mapper = "python -c 'import rare, sys; print(rare.word, sys.prefix)'"

    first = desk.job(*words, "-mapper", mapper)
    assert first.status == 0, first.stderr
    said, prefix = desk.parts()["part-00000"].split()
    (mark,) = (hosts_home / "environments").glob("*/.mrstream-environment")
    unpacked_at = mark.stat().st_ino
    desk.out = desk.cwd / "second"
    second = desk.job(*words, "-mapper", mapper)

    assert second.status == 0, second.stderr
    assert said == b"rare" and Path(prefix.decode()).is_relative_to(hosts_home)
    assert desk.parts()["part-00000"].split() == [said, prefix]
    assert mark.stat().st_ino == unpacked_at


def test_output_on_an_object_store_is_committed_once(desk: Desk, store: dict[str, str]) -> None:
    """E1 where nothing can be renamed: the reduce's worker dies when its part is half uploaded, and
    what another execution uploads is what appears, when the driver commits."""
    s3 = client_of(store)
    bucket = made_bucket(s3, "on-ray")
    s3.put_object(Bucket=bucket, Key="in/a", Body=b"b a\nc a\nb a\n")
    mark = desk.cwd / "died"
    once = f"""
if not os.path.exists({str(mark)!r}):
    open({str(mark)!r}, "w").close()
    os.kill(worker(), signal.SIGKILL)
    time.sleep(1000)
"""
    desk.write("reducer.py", ANCESTORS + "\nsys.stdout.writelines(sys.stdin)\n" + once)

    ran = desk.run(
        "-input", f"s3://{bucket}/in", "-output", f"s3://{bucket}/out", "-mapper", "tr ' ' '\\n'",
        "-reducer", f"python3 {desk.cwd / 'reducer.py'}",
    )  # fmt: skip

    assert ran.status == 0, ran.stderr
    assert mark.exists()
    assert keys_in(s3, bucket, "out/") == ["out/_SUCCESS", "out/part-00000"]
    body = s3.get_object(Bucket=bucket, Key="out/part-00000")["Body"].read()
    assert body == b"a\t\na\t\na\t\nb\t\nb\t\nc\t\n"
    assert uploads_in(s3, bucket) == []
    assert counter(ran, "Reduce input records") == 6
