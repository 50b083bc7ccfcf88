"""Whole jobs on one machine, run as a user runs them: output, attempts, failures, interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mrstream.mapreduce.attempt.in_turn import ATTEMPTS_MAX
from tests.support import oracle
from tests.support.local_jobs import TREE, Desk, Ran, processes_with


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("in", "b\t1\na\t2\nc\t3\na\t4\n")
    return desk


class WithoutCompiler(Desk):
    """A desk whose `mrstream` was installed where there is no C compiler."""

    def environment(self) -> dict[str, str]:
        place = self.home.parent / "installed" / "mrstream"
        if not place.exists():
            place.mkdir(parents=True)
            for part in (TREE / "mrstream").iterdir():
                (place / part.name).symlink_to(part.resolve())
            (place / "mapreduce").unlink()
            without = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(TREE / "mapreduce", place / "mapreduce", ignore=without)
        return {**super().environment(), "PYTHONPATH": str(place.parent)}


def test_without_a_c_compiler_jobs_are_the_same_and_it_is_said(desk: Desk, tmp_path: Path) -> None:
    """And what makes them fast."""
    (tmp_path / "bare").mkdir()
    bare = WithoutCompiler(tmp_path / "bare")
    bare.write("in", (desk.cwd / "in").read_bytes())
    words = ("-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "2")

    slow, fast = bare.job(*words), desk.job(*words)

    assert (slow.status, fast.status) == (0, 0), slow.stderr
    assert bare.parts() == desk.parts()
    assert slow.stderr.count("the C kernel is not built, so the slower Python one is in use") == 1
    assert "with a C compiler at hand, installing mrstream again builds it" in slow.stderr
    assert "kernel" not in fast.stderr


def wait_for(path: Path, process: subprocess.Popen[bytes], seconds_max: float = 30.0) -> None:
    """Wait until a program of the job has made a file."""
    until = time.monotonic() + seconds_max
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, "the job did not get there"
        time.sleep(0.02)


def gone(desk: Desk) -> bool:
    """Wait a moment for what is being killed, then say whether nothing of the job runs."""
    until = time.monotonic() + 10
    while processes_with(str(desk.home)) and time.monotonic() < until:
        time.sleep(0.05)
    return not processes_with(str(desk.home))


# ---- programs ------------------------------------------------------------------------------------


def test_a_job_that_names_an_extra_finds_the_python_that_has_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other job finds the one of its PATH, as ever."""
    monkeypatch.setenv("PATH", f"{desk.cwd}/bin:/usr/bin:/bin")
    desk.write("bin/python3", "#!/bin/sh\necho another\n").chmod(0o755)
    desk.write("m.py", "import sys\nprint(sys.prefix)\n")
    words = ["-input", "in", "-reducer", "NONE", "-files", "m.py", "-mapper"]

    named = [
        desk.run("-D", "mrstream.job.extras=mount", *words, mapper).stdout
        for mapper in ("python3 m.py", "m.py")
    ]
    plain = desk.run(*words, "python3 m.py").stdout

    assert named == [f"{sys.prefix}\t\n".encode()] * 2
    assert plain == b"another\t\n"


# ---- output --------------------------------------------------------------------------------------


def test_without_output_results_go_to_stdout_in_partition_order(desk: Desk) -> None:
    ran = desk.run("-input", "in", "-mapper", "cat", "-reducer", "cat", "-numReduceTasks", "3")

    parts = oracle.run([desk.cwd.joinpath("in").read_bytes()], list, list, 3)
    assert ran.status == 0
    assert ran.stdout == b"".join(parts)
    assert "completed successfully" in ran.stderr
    assert desk.left_behind() == []


def test_an_existing_output_directory_is_refused_before_anything_runs(desk: Desk) -> None:
    desk.out.mkdir()
    (desk.out / "keep").touch()

    ran = desk.job("-mapper", "touch ran", "-reducer", "NONE")

    assert ran.status == 5
    assert f"Output directory file:{desk.out} already exists" in ran.stderr
    assert [path.name for path in desk.out.iterdir()] == ["keep"]


def test_what_a_failed_job_leaves_does_not_block_the_next(desk: Desk) -> None:
    """Hadoop leaves the empty directory too, and then refuses it."""
    assert desk.job("-mapper", "false", "-reducer", "NONE").status == 1
    assert list(desk.out.iterdir()) == []

    assert desk.job("-mapper", "cat", "-reducer", "NONE").status == 0
    assert sorted(desk.parts()) == ["_SUCCESS", "part-00000"]


def test_overwrite_replaces_the_output_of_a_job_and_nothing_else(desk: Desk) -> None:
    assert desk.job("-mapper", "cat", "-reducer", "NONE").status == 0
    before = desk.parts()

    # A job that cannot start leaves what is there.
    missing = desk.run("-overwrite", "-input", "nope", "-mapper", "cat", "-output", str(desk.out))
    assert missing.status == 5 and desk.parts() == before
    own = desk.run(
        "-overwrite", "-input", str(desk.out), "-mapper", "cat", "-output", str(desk.out)
    )
    assert own.status == 5 and "-overwrite would delete the input" in own.stderr
    assert desk.parts() == before

    assert desk.job("-overwrite", "-mapper", "tr a-z A-Z", "-reducer", "NONE").status == 0
    assert desk.parts()["part-00000"] == before["part-00000"].upper()

    thesis = desk.write("home/thesis.tex", "years of work")
    refused = desk.run(
        "-overwrite", "-input", "in", "-mapper", "cat", "-output", str(thesis.parent)
    )  # fmt: skip
    assert refused.status == 5 and "is not the output of a job" in refused.stderr
    assert thesis.read_text() == "years of work"


def test_quiet_says_nothing_but_what_went_wrong_and_programs_can_ask(desk: Desk) -> None:
    good = desk.job("-quiet", "-mapper", "cat", "-reducer", "NONE")
    assert (good.status, good.stdout, good.stderr) == (0, b"", "")

    bad = desk.run("-quiet", "-input", "in", "-mapper", "bash -c 'echo oh >&2; exit 3'")
    (listed,) = [
        each
        for each in json.loads(desk.run("job", "-list", "--json").stdout)
        if each["state"] == "failed"
    ]
    assert json.loads(desk.run("job", "-status", listed["job_id"], "--json").stdout) == listed
    assert bad.status == 1
    assert "exit code 3" in bad.stderr and "| oh" in bad.stderr
    assert " INFO " not in bad.stderr


def test_a_script_is_shipped_by_itself_and_needs_no_run_bit(desk: Desk) -> None:
    desk.write("m.py", "import sys\nfor line in sys.stdin: print(line.strip().upper())\n")

    ran = desk.job("-mapper", "m.py", "-reducer", "NONE")

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b"B\t1\nA\t2\nC\t3\nA\t4\n"


def test_side_files_in_the_tasks_output_directory_are_committed_with_it(desk: Desk) -> None:
    """Spec 7.4: mapreduce_task_output_dir is the attempt's own."""
    script = 'cat; echo side > "$mapreduce_task_output_dir/extra"'
    ran = desk.job("-mapper", f"bash -c '{script}'", "-reducer", "NONE")

    assert ran.status == 0
    assert desk.parts()["extra"] == b"side\n"


# ---- attempts and failures -----------------------------------------------------------------------


def test_a_task_fails_at_once_unless_more_attempts_are_asked_for(desk: Desk) -> None:
    count = f"echo x >> {desk.cwd}/tries; exit 1"
    ran = desk.job("-mapper", f"bash -c '{count}'", "-reducer", "NONE")

    assert ran.status == 1
    assert desk.cwd.joinpath("tries").read_text() == "x\n"


def test_an_attempt_that_fails_is_tried_again_as_often_as_asked(desk: Desk) -> None:
    script = (
        f"cat >/dev/null; echo $mapreduce_task_attempt_id >> {desk.cwd}/tries; "
        f"[ $(wc -l < {desk.cwd}/tries) = 3 ] && echo done"
    )
    ran = desk.job(
        "-D", "mapreduce.map.maxattempts=3", "-mapper", f"bash -c '{script}'", "-reducer", "NONE"
    )

    tries = desk.cwd.joinpath("tries").read_text().split()
    assert ran.status == 0
    assert [name[-1] for name in tries] == ["0", "1", "2"]
    assert desk.parts()["part-00000"] == b"done\t\n"
    assert "Failed map tasks=2" in ran.stderr


def test_counters_of_failed_attempts_do_not_count(desk: Desk) -> None:
    """MapReduce §4.9: duplicates are not counted twice."""
    script = (
        f"echo reporter:counter:mine,n,1 >&2; cat; echo x >> {desk.cwd}/tries; "
        f"[ $(wc -l < {desk.cwd}/tries) = 2 ]"
    )
    ran = desk.job(
        "-D", "mapreduce.map.maxattempts=2", "-mapper", f"bash -c '{script}'", "-reducer", "NONE"
    )

    assert ran.status == 0
    assert "\t\tn=1\n" in ran.stderr
    assert "Map input records=4" in ran.stderr


def test_a_share_of_the_maps_may_fail(desk: Desk) -> None:
    for name in ("in/a", "in/b", "in/c", "in/d"):
        desk.cwd.joinpath("in").unlink(missing_ok=True) if name == "in/a" else None
        desk.write(name, f"{name[-1]}\n")
    script = 'x=$(cat); [ "$x" != c ] && echo $x'
    words = ("-mapper", f"bash -c '{script}'", "-reducer", "cat")

    assert desk.job("-D", "mapreduce.map.failures.maxpercent=25", *words).status == 0
    assert desk.parts()["part-00000"] == b"a\t\nb\t\nd\t\n"


def test_the_first_real_error_is_told_in_full_and_the_others_in_a_line(desk: Desk) -> None:
    desk.cwd.joinpath("in").unlink()
    for name in "abcdef":
        desk.write(f"in/{name}", "x\n")

    ran = desk.job("-mapper", "bash -c 'echo sad >&2; exit 7'", "-reducer", "cat")

    assert ran.status == 1
    assert ran.stderr.count("repeat it:") == 1
    assert "failed with state FAILED due to:" in ran.stderr
    assert "Job not successful!" in ran.stderr


def test_a_failure_names_program_input_range_stderr_and_logs(desk: Desk) -> None:
    script = "head -c 4 >/dev/null; echo what happened >&2; exit 3"
    ran = desk.job("-mapper", f"bash -c '{script}'", "-reducer", "cat")

    assert "subprocess failed with code 3" in ran.line("why:")
    assert script in ran.line("map command:")
    assert "| what happened" in ran.stderr
    assert f"file:{desk.cwd}/in, bytes 0 to 16" in ran.line("input:")
    assert "was given up to byte 16" in ran.line("surely read up to byte")
    logs = Path(ran.line("logs:").split()[-1])
    assert logs.joinpath("stderr").read_text() == "what happened\n"


def test_a_failing_combiner_is_named_as_such(desk: Desk) -> None:
    ran = desk.job("-mapper", "cat", "-combiner", "bash -c 'exit 5'", "-reducer", "cat")

    assert ran.status == 1
    assert "exit 5" in ran.line("combine command:")


# ---- what is kept, repeated and narrowed ---------------------------------------------------------


def failed_attempt(ran_stderr: str) -> str:
    (word,) = [line.split()[-1] for line in ran_stderr.splitlines() if "mrstream -repeat" in line]
    return word


BAD_TWO = (
    "import sys\nfor line in sys.stdin:\n    assert '\\t2' not in line, line\n    print(line)\n"
)


@pytest.mark.parametrize("side", ["map", "combine", "reduce"])
def test_a_failed_attempt_can_be_repeated_and_narrowed_to_its_record(desk: Desk, side: str) -> None:
    desk.write("bad.py", BAD_TWO)
    programs = {
        "map": ("-mapper", "bad.py", "-reducer", "cat"),
        "combine": ("-mapper", "cat", "-combiner", "bad.py", "-reducer", "cat"),
        "reduce": ("-mapper", "cat", "-reducer", "bad.py"),
    }
    attempt = failed_attempt(desk.job(*programs[side]).stderr)

    again = desk.run("-repeat", attempt)
    narrowed = desk.run("-bisect", attempt)

    assert again.status == 1
    assert "AssertionError: a\t2" in again.stderr
    assert narrowed.status == 0
    assert narrowed.stdout == b"a\t2\n"
    if side == "map":
        assert again.stdout == b"b\t1\n\n"
        assert f"file:{desk.cwd}/in, at byte 4" in narrowed.stderr


def test_a_repeated_attempt_runs_the_program_as_it_is_now(desk: Desk) -> None:
    """Change the script and repeat: that is how one sees whether the fault is gone."""
    desk.write("bad.py", BAD_TWO)
    attempt = failed_attempt(desk.job("-mapper", "bad.py", "-reducer", "cat").stderr)
    desk.cwd.joinpath("in").unlink()

    desk.write("bad.py", "import sys\nfor line in sys.stdin: print(line, end='')\n")
    again = desk.run("-repeat", attempt)

    assert again.status == 0
    assert again.stdout == b"b\t1\na\t2\nc\t3\na\t4\n"


def test_an_attempt_that_is_not_kept_is_refused_with_what_is(desk: Desk) -> None:
    ran = desk.run("-repeat", "attempt_local1_0001_m_000000_0")
    nonsense = desk.run("-bisect", "nonsense")

    assert (ran.status, nonsense.status) == (1, 1)
    assert "nothing is kept of job_local1_0001" in ran.stderr
    assert "is not an attempt id" in nonsense.stderr


def test_a_good_job_keeps_its_report_only(desk: Desk) -> None:
    desk.job("-mapper", "cat", "-reducer", "cat")

    (job,) = (desk.home / "jobs").iterdir()
    assert [path.name for path in job.iterdir()] == ["report.json"]
    report = json.loads(job.joinpath("report.json").read_text())
    assert report["state"] == "succeeded"
    assert report["counters"]["Map-Reduce Framework"]["Map input records"] == 4


# ---- interruptions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_an_interrupted_job_leaves_nothing(desk: Desk, number: int, status: int) -> None:
    process = desk.start(
        *("-input", "in", "-output", str(desk.out)),
        *("-mapper", f"bash -c 'touch {desk.cwd}/there; setsid sleep 1237 & sleep 1237'"),
    )
    wait_for(desk.cwd / "there", process)

    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)

    assert process.returncode == status, stderr
    assert gone(desk)
    assert desk.left_behind() == []
    assert not desk.out.exists()
    assert list((desk.home / "jobs").iterdir()) == []


def test_a_killed_mrstream_leaves_no_process_and_no_temporary_file(desk: Desk) -> None:
    process = desk.start(
        *("-input", "in", "-output", str(desk.out)),
        *("-mapper", f"bash -c 'touch {desk.cwd}/there; setsid sleep 1238 & sleep 1238'"),
    )
    wait_for(desk.cwd / "there", process)

    process.kill()
    process.communicate(timeout=30)

    assert gone(desk)
    assert desk.left_behind() == []


def test_the_output_of_a_job_that_runs_is_its_own_until_it_is_killed(desk: Desk) -> None:
    """Nothing of the first is lost while it runs; when it was killed the next need not wait for
    anybody to take a lock away, and is not disturbed by what clears up after the first."""
    first = desk.start(
        *("-input", "in", "-output", str(desk.out)),
        *("-mapper", f"bash -c 'touch {desk.cwd}/there; sleep 1239'"),
    )
    wait_for(desk.cwd / "there", first)
    room = desk.out / "_temporary"

    second = desk.job("-overwrite", "-mapper", "cat", "-reducer", "NONE")
    assert second.status == 5, second.stderr
    second.line("is being written by another job: wait for it, or end it")
    assert room.exists() and first.poll() is None

    first.kill()
    first.communicate(timeout=30)
    until = time.monotonic() + 30
    while (third := desk.job("-overwrite", "-mapper", "cat", "-reducer", "NONE")).status == 5:
        third.line("is being written by another job")
        assert time.monotonic() < until, third.stderr
    assert third.status == 0, third.stderr
    assert sorted(desk.parts()) == ["_SUCCESS", "part-00000"]


def test_a_reader_that_goes_away_ends_the_job(desk: Desk) -> None:
    """`mrstream … | head`."""
    desk.write("in", b"x\n" * 200_000)
    process = desk.start("-input", "in", "-mapper", "cat", "-reducer", "cat")
    assert process.stdout is not None
    process.stdout.close()

    assert process.wait(timeout=60) != 0
    assert process.stderr is not None
    process.stderr.close()
    assert gone(desk)


# ---- slots, choices, memory ----------------------------------------------------------------------


def test_as_many_maps_run_at_once_as_the_job_allows(desk: Desk) -> None:
    desk.cwd.joinpath("in").unlink()
    for name in "abcd":
        desk.write(f"in/{name}", "x\n")
    script = (
        f"cat >/dev/null; mkdir {desk.cwd}/busy || echo two at once; sleep 0.05; "
        f"rmdir {desk.cwd}/busy"
    )

    ran = desk.job(
        "-D",
        "mapreduce.local.map.tasks.maximum=1",
        *("-mapper", f"bash -c '{script}'", "-reducer", "cat"),
    )

    assert ran.status == 0
    assert desk.parts()["part-00000"] == b""


def test_a_process_takes_one_map_after_another_up_to_a_number(desk: Desk) -> None:
    """Decision 16, on one machine: a thousand small maps are not a thousand forks."""
    maps = ATTEMPTS_MAX + 20
    desk.write("in", "a line\n" * maps)

    job = desk.run(
        *("-D", "mapreduce.local.map.tasks.maximum=1", "-inputformat", "NLineInputFormat"),
        *("-input", "in", "-mapper", "sh -c 'cat > /dev/null; echo $PPID'", "-reducer", "cat"),
    )

    assert job.status == 0, job.stderr
    counts = Counter(job.stdout.split())
    assert sum(counts.values()) == maps
    assert max(counts.values()) <= ATTEMPTS_MAX
    assert len(counts) < maps // 2


def test_a_process_whose_memory_is_limited_runs_one_map(desk: Desk) -> None:
    """What an attempt is charged for is its own."""
    desk.write("in", "a line\n" * 10)

    job = desk.run(
        *("-D", "mapreduce.map.memory.mb=2000", "-inputformat", "NLineInputFormat"),
        *("-input", "in", "-mapper", "sh -c 'cat > /dev/null; echo $PPID'", "-reducer", "NONE"),
    )

    assert len(set(job.stdout.split())) == 10, job.stderr


def test_a_process_that_is_killed_while_it_waits_costs_nothing(desk: Desk) -> None:
    """With one map at a time, all processes but one's own wait, or are about to."""
    desk.write(
        "m.sh",
        "cat; echo $PPID >> pids; for pid in $(grep -vx $PPID pids); do kill -9 $pid; done; true",
    )
    desk.write("in", "".join(f"{number}\n" for number in range(12)))

    job = desk.run(
        *("-D", "mapreduce.local.map.tasks.maximum=1", "-inputformat", "NLineInputFormat"),
        *("-input", "in", "-mapper", f"sh -c 'cd {desk.cwd}; . ./m.sh'", "-reducer", "NONE"),
    )

    assert job.status == 0, job.stderr
    values = [int(line.split()[-1]) for line in job.stdout.splitlines()]
    assert sorted(values) == list(range(12))


def test_chosen_maps_run_alone_under_their_own_numbers(desk: Desk) -> None:
    """MapReduce §4.7: a job that is limited to some of its map tasks."""
    desk.cwd.joinpath("in").unlink()
    for name, size in (("a", 4), ("b", 3), ("c", 2), ("d", 1)):
        desk.write(f"in/{name}", f"{name}\n" * size)

    ran = desk.job("-tasks", "m0,m2-3", "-mapper", "cat", "-reducer", "NONE")

    parts = desk.parts()
    assert ran.status == 0
    assert sorted(parts) == ["_SUCCESS", "part-00000", "part-00002", "part-00003"]
    assert parts["part-00002"] == b"c\t\nc\t\n"


def test_maps_that_do_not_exist_cannot_be_chosen(desk: Desk) -> None:
    ran = desk.job("-tasks", "m7", "-mapper", "cat")

    assert ran.status == 1
    assert "'m7' is not among the job's maps, m0 to m0" in ran.stderr


def pss_bytes(pid: int) -> int:
    """Give the memory of one process, shared pages counted by share."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def framework_pss_bytes(root: int) -> tuple[int, int]:
    """Give (bytes, attempts) of mrstream's own processes: the parent, the zygote, the attempts."""
    own, attempts = [root], 0
    for pid in _children(root):
        own.append(pid)
        for attempt in _children(pid):
            attempts += 1
            own.append(attempt)
    return sum(map(pss_bytes, own)), attempts


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                found += map(int, children.read().split())
    except OSError:
        pass  # it has just ended
    return found


@pytest.mark.parametrize("sort_mb", [4, 50])
def test_the_frameworks_memory_is_bounded_whatever_the_input(desk: Desk, sort_mb: int) -> None:
    """PSS at most io.sort.mb + 60 MB a slot + twice the largest record."""
    record = b"k" * 50 + b"\t" + b"v" * 49 + b"\n"
    desk.write("in", record * 1_200_000 + b"L" * 5_000_000 + b"\n")
    slots = 2

    process = desk.start(
        *("-D", f"mapreduce.task.io.sort.mb={sort_mb}", "-D", "fs.local.block.size=30000000"),
        *("-D", f"mapreduce.local.map.tasks.maximum={slots}"),
        *("-D", f"mapreduce.local.reduce.tasks.maximum={slots}"),
        *("-input", "in", "-output", str(desk.out), "-mapper", "cat", "-reducer", "cat"),
    )
    peak = 0
    while process.poll() is None:
        used, _ = framework_pss_bytes(process.pid)
        peak = max(peak, used)
        time.sleep(0.02)
    process.communicate()

    assert process.returncode == 0
    assert peak <= slots * ((sort_mb << 20) + 60_000_000 + 2 * 5_000_000), f"{peak / 1e6:.0f} MB"


# ---- skipping bad records, checking --------------------------------------------------------------


def test_a_poison_record_is_found_and_skipped_if_the_job_allows_it(desk: Desk) -> None:
    """MapReduce §4.6; the attempts before it have failed."""
    desk.write("bad.py", BAD_TWO.replace("print(line)", "print(line, end='')"))

    ran = desk.job(
        *("-D", "mapreduce.map.skip.maxrecords=1", "-D", f"mapreduce.job.skip.outdir={desk.cwd}/s"),
        *("-mapper", "bad.py", "-reducer", "NONE"),
    )

    assert ran.status == 0, ran.stderr
    assert desk.parts()["part-00000"] == b"b\t1\nc\t3\na\t4\n"
    assert "Map skipped records=1" in ran.stderr
    assert "Map input records=3" in ran.stderr
    assert desk.cwd.joinpath("s/skipped-m-00000").read_bytes() == b"a\t2\n"


def test_a_poison_group_of_a_reduce_is_skipped_whole(desk: Desk) -> None:
    desk.write("bad.py", BAD_TWO.replace("print(line)", "print(line, end='')"))

    ran = desk.job(
        *("-D", "mapreduce.reduce.skip.maxgroups=1"), *("-mapper", "cat", "-reducer", "bad.py")
    )

    assert ran.status == 0, ran.stderr
    assert desk.parts()["part-00000"] == b"b\t1\nc\t3\n"
    assert "Reduce skipped groups=1" in ran.stderr
    assert "Reduce skipped records=2" in ran.stderr


def test_nothing_is_skipped_unless_asked(desk: Desk) -> None:
    desk.write("bad.py", BAD_TWO)

    assert desk.job("-mapper", "bad.py", "-reducer", "NONE").status == 1


def test_a_check_finds_a_combiner_that_cannot_take_its_own_output(desk: Desk) -> None:
    count = "cut -f1 | uniq -c | sed 's/ *\\([0-9]*\\) \\(.*\\)/\\2\t\\1/'"
    add = "awk -F '\\t' '{ n[$1] += $2 } END { for (k in n) print k \"\\t\" n[k] }' | sort"
    good, bad = desk.write("good.sh", f"{add}\n"), desk.write("bad.sh", f"{count}\n")
    words = ("-check", "-input", "in", "-mapper", "cat", "-reducer", f"sh {good}")

    sound = desk.run(*words, "-combiner", f"sh {good}")
    unsound = desk.run(*words, "-combiner", f"sh {bad}")

    assert sound.status == 0, sound.stderr
    assert "All runs agree." in sound.stderr
    assert unsound.status == 1
    assert "combiner twice: DIFFERENT" in unsound.stderr


def test_a_check_finds_a_mapper_that_carries_things_from_record_to_record(desk: Desk) -> None:
    desk.write("in", "".join(f"{n}\n" for n in range(1000)))

    ran = desk.run("-check", "-input", "in", "-mapper", "cat -n", "-reducer", "cat")

    assert ran.status == 1
    assert "two maps: DIFFERENT" in ran.stderr
    assert "the same again: the same" in ran.stderr


def test_a_check_compares_records_and_not_how_a_file_holds_them(desk: Desk) -> None:
    """Sequence and Avro files have random marks in them."""
    desk.write("in", "".join(f'{{"k": {n % 7}, "v": {n}}}\n' for n in range(600)))
    text = ("-D", "mapreduce.job.output.key.class=org.apache.hadoop.io.Text")
    named = ("-D", "mrstream.outputs=t:avro", "-D", "mrstream.outputs.t.schema=k:long,v:long")

    to_t = "sh -c 'tee $MRSTREAM_OUTPUTS/t'"

    def check(*words: str, reducer: str = "cat") -> Ran:
        job = ("-input", "in", "-output", "out", "-mapper", "cat", "-reducer", reducer)
        return desk.run("-check", *words, *job)

    checks = {
        "sequence file": check(*text, "-outputformat", "SequenceFileOutputFormat"),
        "avro": check("-outputformat", "avro"),
        "named avro": check(*named, reducer=to_t),
    }

    for kind, ran in checks.items():
        assert "two maps: the same" in ran.stderr, f"{kind}: {ran.stderr}"


def test_jobs_of_this_machine_can_be_looked_at(desk: Desk) -> None:
    desk.job("-mapper", "bash -c 'echo sorry >&2; exit 1'")
    (job,) = (path.name for path in (desk.home / "jobs").iterdir())

    assert b"FAILED" in desk.run("job", "-list").stdout
    assert b"subprocess failed with code 1" in desk.run("job", "-status", job).stdout
    assert b"sorry" in desk.run("job", "-logs", job).stdout
    assert b"Status: FAILED" in desk.run("job", "-history", job).stdout
    counter = desk.run("job", "-counter", job, "Job Counters", "Failed map tasks")
    assert counter.stdout == b"1\n"
    missing = desk.run("job", "-counter", job, "Job Counters", "no such counter")
    assert (missing.status, missing.stdout) == (0, b"0\n"), "as Hadoop's"
    assert desk.run("job", "-status", "job_local1_0001").status == 1


def test_intermediate_files_lie_where_the_job_wants_them_and_go_with_it(desk: Desk) -> None:
    disk = desk.cwd / "disk"
    disk.mkdir()
    seen = desk.cwd / "seen"

    ran = desk.job(
        *("-D", f"mapreduce.cluster.local.dir={disk}"),
        *("-mapper", f"bash -c 'ls {disk} > {seen}; pwd >> {seen}; cat'", "-reducer", "cat"),
    )

    assert ran.status == 0, ran.stderr
    name, directory = seen.read_text().split()
    assert name.startswith("mrstream-job_local")
    assert directory.startswith(str(disk))
    assert list(disk.iterdir()) == []


# ---- places that cannot be written ---------------------------------------------------------------


def test_an_output_directory_that_cannot_be_made_is_told_in_a_line(desk: Desk) -> None:
    desk.write("file", "not a directory")

    ran = desk.run("-input", "in", "-output", str(desk.cwd / "file" / "out"), "-mapper", "cat")

    assert ran.status == 1
    assert "Mkdirs failed to create" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_state_directory_that_cannot_be_made_is_told_in_a_line(desk: Desk) -> None:
    desk.home.write_text("not a directory")

    ran = desk.job("-mapper", "cat")

    assert ran.status == 1
    assert "set MRSTREAM_HOME to one that can" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_output_that_cannot_be_committed_fails_the_task_not_the_program(desk: Desk) -> None:
    """The mapper takes the output directory away from under its own feet."""
    ran = desk.job(
        *("-mapper", f"bash -c 'cat; rm -rf {desk.out}; touch {desk.out}'", "-reducer", "NONE")
    )

    assert ran.status == 1
    assert "Traceback" not in ran.stderr
    assert "Streaming Command Failed!" in ran.stderr


@pytest.mark.parametrize("name", ["t.parquet", "t.AVRO", "plain.txt"])
def test_records_given_as_text_bring_a_warning(desk: Desk, name: str) -> None:
    desk.write(name, b"PAR1\x00\x01\n")

    ran = desk.run("-input", name, "-mapper", "cat", "-reducer", "NONE")

    assert ran.status == 0
    said = "and is read as lines of text" in ran.stderr
    assert said == (name != "plain.txt")
