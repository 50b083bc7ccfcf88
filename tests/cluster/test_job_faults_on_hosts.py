"""Faults of whole hosts and of users' programs while jobs run, on five hosts of either kind.

Each time the output is byte for byte that of local mode for the same splits, and no process is left
behind. Which host suffers is decided by where the tasks are, never by where they might be. Killed
processes: test_job_stages_on_hosts.py; faults of SSH (gate 25): test_up_and_down.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.hosted_cluster import HostedCluster
from tests.cluster.job_faults import (
    GATED_REDUCE,
    JOB_MASTER,
    MAPS,
    NO_BACKUPS,
    REDUCES,
    REDUCES_LATE,
    WORKER,
    JobRoom,
    RunningJob,
    host_of,
)
from tests.cluster.local import wait_for
from tests.cluster.machine import TestHosts
from tests.cluster.preludes import SAID_TWICE, TOLD_TWICE

LINE_BYTES = 32 << 20
# Of one CPU: ten times less than another host gets even while this machine is busy.
SLOW_SHARE = 0.02
# A second of CPU time on any host.
BURNING_MAP = (
    "note('map-' + attempt + '@' + host)\n"
    "hold('hold-burning')\n"
    "lines = sys.stdin.readlines()\n"
    "until_s = time.process_time() + 1.0\n"
    "while time.process_time() < until_s: pass\n"
    "sys.stdout.writelines(lines)\n"
)


@pytest.fixture
def room(hosted_room: JobRoom) -> Iterator[JobRoom]:
    hosted_room.heal()
    yield hosted_room
    hosted_room.clear()


@pytest.fixture
def cluster(room: JobRoom) -> HostedCluster:
    assert isinstance(room.cluster, HostedCluster)
    return room.cluster


@pytest.fixture
def hosts(cluster: HostedCluster) -> TestHosts:
    return cluster.operator.hosts


def start_held_reduces(room: JobRoom) -> tuple[RunningJob, str]:
    """Start a job whose reduces wait in the middle of their work; give a host that has one."""
    room.hold("hold-reduce")
    job = room.start(*NO_BACKUPS, reducer=room.program("held_reduce.py", GATED_REDUCE))
    wait_for(lambda: len(room.noted("reduce-")) >= REDUCES, 60.0, "all reduces to run")
    # No host has more of them than slots, so that not all of them are on the masters' host.
    return job, next(host for name in room.noted("reduce-") if (host := host_of(name)) != "h1")


def test_finished_maps_of_a_host_without_power_are_run_again(
    room: JobRoom, cluster: HostedCluster
) -> None:
    """Gate 19, MR-14: their output died with the host before any reduce had fetched it."""
    job, at = room.start_held_maps(*NO_BACKUPS, *REDUCES_LATE)
    victim = next(host for host in at.values() if host != "h1")
    last = next(task for task, host in at.items() if host != victim)
    room.release_maps(*(task for task in at if task != last))
    room.wait_for_attempts(job, "m", "succeeded", MAPS - 1)

    cluster.power_off(victim)
    again = MAPS + list(at.values()).count(victim)
    wait_for(lambda: len(room.noted("map-")) >= again, 60.0, "lost maps to be run again")
    room.release_maps(last)

    room.check(job)
    cluster.power_on(victim)


@pytest.mark.parametrize("fault", ["cut off", "frozen"])
def test_a_host_that_comes_back_too_late_changes_nothing(
    room: JobRoom, hosts: TestHosts, fault: str
) -> None:
    """Gates 11, 12 and 18: a partition or a pause that heals. Its reduces are run elsewhere; what
    it brings when it is back is dropped."""
    job, victim = start_held_reduces(room)

    (hosts.cut if fault == "cut off" else hosts.pause)(victim)
    wait_for(lambda: len(room.noted("reduce-")) > REDUCES, 60.0, "its reduce to be run elsewhere")
    room.release("hold-reduce")
    if fault == "cut off":
        hosts.heal()
    else:
        hosts.resume(victim)

    room.check(job)


def test_backups_win_against_a_host_ten_times_slower(room: JobRoom, hosts: TestHosts) -> None:
    """Gates 14 and 21, §3.6 (MR-24): what the slow host began is finished by others."""
    room.hold("hold-burning")
    job = room.start(mapper=room.program("burning.py", BURNING_MAP))
    wait_for(lambda: len(room.noted("map-")) >= MAPS, 60.0, "all maps to have started")
    slow = next(host for name in room.noted("map-") if (host := host_of(name)) != "h1")

    hosts.slow(slow, SLOW_SHARE)
    try:
        room.release("hold-burning")
        job.wait()
    finally:
        hosts.slow(slow, 2.0)

    room.check(job)
    report = room.report(job)
    assert report is not None
    maps = [each for each in report.attempts if "_m_" in each.attempt_id and each.host == slow]
    assert maps and "succeeded" not in {each.state for each in maps}, maps


def test_a_full_disk_fails_its_attempts_only_and_is_used_again_when_there_is_room(
    room: JobRoom, hosts: TestHosts
) -> None:
    """Gate 7: no room for a segment is a clear error of that attempt; others finish the job."""
    job, at = room.start_held_maps(*NO_BACKUPS)
    victim = next(host for host in at.values() if host != "h1")

    hosts.fill_disk(victim)
    try:
        room.release_maps(*at)
        room.check(job)
    finally:
        hosts.free_disk(victim)

    report = room.report(job)
    assert report is not None
    maps = [each for each in report.attempts if "_m_" in each.attempt_id and each.host == victim]
    assert maps and "succeeded" not in {each.state for each in maps}, maps
    assert any("No space left on device" in each.diagnosis for each in maps), maps

    def is_used_again() -> bool:
        job = room.start()
        room.check(job)
        report = room.report(job)
        return report is not None and victim in {each.host for each in report.attempts}

    wait_for(is_used_again, 60.0, f"{victim} to get work again")


def test_messages_that_come_twice_count_once(room: JobRoom) -> None:
    """Gate 30: every report to the master, and every order to a worker; MR-34 for the counters."""
    plain = room.check(room.start(*NO_BACKUPS))
    room.restart_with(TOLD_TWICE, JOB_MASTER)
    room.restart_with(SAID_TWICE, WORKER)

    try:
        doubled = room.check(room.start(*NO_BACKUPS))
    finally:
        for role in (JOB_MASTER, WORKER):
            room.restart_with("", role)

    for counter in ("Map input records", "Reduce output records", "Launched map tasks"):
        assert doubled.count(counter) == plain.count(counter) > 0


def test_programs_that_misbehave_end_as_documented(room: JobRoom) -> None:
    """Gate 23: whatever a program does costs its own job only; all of these run at once."""
    put(room, "/small", b"one\ntwo\nthree\n")
    put(room, "/large", b"x" * 99 + b"\n" + b"y" * 1_000_000)
    put(room, "/bytes", b"k\xff\xfe\t\x00v\n")
    put(room, "/line", b"z" * LINE_BYTES + b"\n")
    failures = {
        "exits 1": ("/small", "bash -c 'exit 1'", "subprocess failed with code 1"),
        "is killed": ("/small", "bash -c 'kill -9 $$'", "exit code 137: SIGKILL"),
        "crashes": ("/small", "bash -c 'kill -11 $$'", "exit code 139: SIGSEGV"),
        "never reads": ("/large", "true", "Broken pipe"),
    }
    results = {
        "talks": (
            "/small",
            "bash -c 'cat; head -c 200000000 /dev/zero >&2'",
            b"one\t\ntwo\t\nthree\t\n",
        ),
        "closes early": ("/small", "bash -c 'echo a; exec >&-; cat >/dev/null'", b"a\t\n"),
        "ends without newline": ("/small", "printf 'k\tv'", b"k\tv\n"),
        "passes bytes": ("/bytes", "cat", b"k\xff\xfe\t\x00v\n"),
        "passes a long line": ("/line", "cat", b"z" * LINE_BYTES + b"\t\n"),
    }
    jobs = {
        name: run_maps(room, name, path, program)
        for name, (path, program, _) in {**failures, **results}.items()
    }

    for name, (_, _, words) in failures.items():
        ended = jobs[name].wait()
        assert (ended.status, words in ended.stderr) == (1, True), f"{name}: {ended.stderr}"
    for name, (_, _, expected) in results.items():
        ended = jobs[name].wait()
        assert ended.status == 0, f"{name}: {ended.stderr}"
        assert len(ended.stderr) < 100_000
        assert room.parts(output_of(name))["part-00000"] == expected, name
    for job in jobs.values():
        room.check_nothing_runs(job)


def test_a_poisoned_record_is_named_and_skipped_only_when_asked(room: JobRoom) -> None:
    """Gate 24, MR-31: across hosts; the report says where it is."""
    put(room, "/poisoned", b"".join(b"line %d\n" % number for number in range(1000)))
    program = room.program(
        "fussy.py",
        "for line in sys.stdin:\n"
        "    if line == 'line 417\\n': sys.exit(3)\n"
        "    print(line, end='', flush=True)\n",
    )

    plain = run_maps(room, "plain", "/poisoned", program).wait()
    skipping = run_maps(
        room, "skipping", "/poisoned", program, "-D", "mapreduce.map.skip.maxrecords=1"
    ).wait()

    assert plain.status == 1
    assert "subprocess failed with code 3" in plain.stderr and "dfs://t/poisoned" in plain.stderr
    assert skipping.status == 0, skipping.stderr
    assert skipping.count("Map skipped records") == 1
    kept = room.parts(output_of("skipping"))["part-00000"].splitlines()
    assert kept == [b"line %d\t" % number for number in range(1000) if number != 417]


def put(room: JobRoom, path: str, content: bytes) -> None:
    local = room.directory / path.strip("/")
    local.write_bytes(content)
    done = room.cluster.mrstream("dfs", "-put", "-f", str(local), path)
    assert done.returncode == 0, done.stderr


def output_of(name: str) -> str:
    return f"/results/{name.replace(' ', '-')}"


def run_maps(room: JobRoom, name: str, path: str, mapper: str, *words: str) -> RunningJob:
    """Start a job of one map over a file, two attempts at most unless it may skip records."""
    mark = f"job-mark-{name.replace(' ', '-')}-{id(room)}"
    limits = words or ("-D", "mapreduce.map.maxattempts=2")
    return RunningJob(
        room.cluster,
        mark,
        (
            *limits, "-D", f"mapreduce.input.fileinputformat.split.minsize={1 << 30}",
            "-cmdenv", f"MARK={mark}", "-input", path, "-output", output_of(name),
            "-mapper", mapper, "-reducer", "NONE",
        ),
    )  # fmt: skip
