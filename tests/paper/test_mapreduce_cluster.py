"""MapReduce, sections 2–5: what needs several hosts and a dfs to be seen. A test a requirement.

Three hosts as processes of this machine. What the master decides is in test_mapreduce.py, what
programs see in test_mapreduce_jobs.py; faults of real hosts are in tests/cluster.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.dfs.client.reader import DfsReader
from mrstream.mapreduce.dataflow import segment
from tests.cluster.job_faults import (
    MAPS,
    NO_BACKUPS,
    REDUCES,
    REDUCES_LATE,
    ROLES,
    ROOM_DFS,
    SLOTS,
    WORKER,
    Ended,
    JobRoom,
    host_of,
)
from tests.cluster.local import LocalCluster, wait_for

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    directory = tmp_path_factory.mktemp("paper")
    with LocalCluster(directory, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS) as cluster:
        yield JobRoom(cluster, directory)


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    yield shared
    shared.clear()


def run(room: JobRoom, *words: str) -> Ended:
    """Run a job that must succeed."""
    done = room.cluster.mrstream(*words)
    ended = Ended(done.returncode, done.stderr.decode())
    assert ended.status == 0, ended.stderr
    return ended


def good(room: JobRoom, *words: str) -> str:
    done = room.cluster.mrstream(*words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_map_output_lies_on_the_disk_of_its_worker_in_as_many_partitions_as_reduces(
    room: JobRoom,
) -> None:
    """§3.1 step 4 (MR-06): and the master knows on whose."""
    job, at = room.start_held_maps(*NO_BACKUPS, *REDUCES_LATE)
    last, *others = at
    room.release_maps(*others)
    room.wait_for_attempts(job, "m", "succeeded", MAPS - 1)
    report = room.report(job)
    assert report is not None
    done = {each.attempt_id: each.host for each in report.attempts if each.state == "succeeded"}

    found = {
        path.stem: (host, segment.Reader(str(path)))
        for host in room.cluster.hosts
        for path in (room.directory / "hosts" / "test" / host).rglob(f"{report.job.key}/*.segment")
    }
    assert {name: host for name, (host, _) in found.items()} == done
    assert {reader.partitions for _, reader in found.values()} == {REDUCES}
    room.release_maps(last)

    room.check(job)


def test_shuffling_starts_before_the_last_map_has_ended(room: JobRoom) -> None:
    """§3.2, §5.3 (MR-12): bytes arrive at a reduce while a map still runs."""
    job, at = room.start_held_maps("-D", "mapreduce.job.reduce.slowstart.completedmaps=0.2")
    last, *others = at
    room.release_maps(*others)

    def shuffled() -> bool:
        report = room.report(job)
        return report is not None and report.job.shuffle_bytes > 0

    wait_for(shuffled, 60.0, "some bytes to be shuffled")
    report = room.report(job)
    assert report is not None and report.job.maps_done < MAPS
    room.release_maps(last)

    room.check(job)


def test_without_determinism_each_reduce_sees_one_execution_of_each_map(room: JobRoom) -> None:
    """§3.3 (MR-20): maps that say something else each time, and are run again for some reduces."""
    mapper = room.program(
        "fickle_map.py",
        "note('map-' + attempt + '@' + host)\n"
        "sys.stdin.read()\n"
        "hold('hold-map-' + task)\n"
        "said = os.urandom(8).hex()\n"
        "for number in range(1000): print(f'k{number:04d}\\t{task} {said}')\n",
    )
    reducer = room.program(
        "fickle_reduce.py",
        "note('reduce-' + attempt + '@' + host)\n"
        "said = os.urandom(8).hex()\n"
        "lines = sys.stdin.readlines()\n"
        "hold('hold-reduce')\n"
        "for line in lines: print(line.rstrip('\\n') + ' ' + said)\n",
    )
    room.hold("hold-reduce")
    job, at = room.start_held_maps(*NO_BACKUPS, *REDUCES_LATE, mapper=mapper, reducer=reducer)
    room.release_maps(*at)
    wait_for(lambda: len(room.noted("reduce-")) >= REDUCES, 60.0, "all reduces to run")
    victim = host_of(room.noted("reduce-")[0])
    room.cluster.kill(WORKER, victim)  # with a reduce, and with maps that it needs again
    wait_for(lambda: len(room.noted("map-")) > MAPS, 60.0, "lost maps to be run again")
    room.release("hold-reduce")

    ended = job.wait()
    assert ended.status == 0, ended.stderr
    parts = room.parts(room.output)
    lines = [line.split() for name in parts for line in parts[name].splitlines()]
    assert len(lines) == MAPS * 1000, "each record of each map, once"
    for name, data in parts.items():
        by_map: dict[bytes, set[bytes]] = {}
        by_reduce: set[bytes] = set()
        for line in data.splitlines():
            _, task, said_by_map, said_by_reduce = line.split()
            by_map.setdefault(task, set()).add(said_by_map)
            by_reduce.add(said_by_reduce)
        assert all(len(said) == 1 for said in by_map.values()), name
        assert len(by_reduce) <= 1, name


def test_side_files_of_a_task_appear_when_it_commits_and_only_then(room: JobRoom) -> None:
    """§4.5 (MR-30): a task may write more files beside its output; a failed attempt's are gone."""
    mapper = room.program(
        "side.py",
        "import subprocess\n"
        "side = os.environ['mapreduce_task_output_dir'] + '/side-' + task\n"
        "put = [os.environ['PYTHON'], '-P', '-m', 'mrstream.streaming.cli']\n"
        "put += ['dfs', '-put', '-', side]\n"
        "subprocess.run(put, input=attempt.encode(), check=True)\n"
        "sys.stdin.read()\n"
        "if attempt.endswith('_m_000002_0'): sys.exit(1)\n",
    )

    run(
        room, *NO_BACKUPS, "-input", "/in", "-output", "/side", "-mapper", mapper,
        "-reducer", "NONE", "-cmdenv", f"GATE={room.cluster.shared}",
        "-cmdenv", f"PYTHON={sys.executable}", "-cmdenv", f"PYTHONPATH={ROOT}",
        "-cmdenv", f"MRSTREAM_HOME={room.directory / 'home'}",
    )  # fmt: skip

    found = room.parts("/side")
    sides = {name: data.decode() for name, data in found.items() if name.startswith("side-")}
    assert sorted(sides) == [f"side-{number:06d}" for number in range(MAPS)]
    assert sides["side-000002"].endswith("_m_000002_1")


def test_a_person_can_follow_a_job_and_what_a_lost_worker_ran(room: JobRoom) -> None:
    """§4.8 (MR-33): tasks done and running, bytes, each task's stderr, failed workers."""
    program = room.program(
        "talking.py",
        "print('here speaks ' + attempt, file=sys.stderr, flush=True)\n"
        "print('reporter:counter:Own,Begun,1', file=sys.stderr, flush=True)\n"
        "note('map-' + attempt + '@' + host)\n"
        "lines = sys.stdin.readlines()\n"
        "hold('hold-map-' + task)\n"
        "sys.stdout.writelines(lines)\n",
    )
    # Reduces late, so that there are slots for lost maps while one map is held.
    job, at = room.start_held_maps(*NO_BACKUPS, *REDUCES_LATE, mapper=program)
    victim = at["000000"]
    last = next(task for task, host in at.items() if host != victim)
    room.release_maps(*(task for task in at if task not in ("000000", last)))
    room.wait_for_attempts(job, "m", "succeeded", MAPS - 2)
    report = room.report(job)
    assert report is not None
    job_id = report.job.key

    listed = good(room, "job", "-list")
    # Tallies of tasks are made once a second.
    tally = f"Number of maps: {MAPS} ({MAPS - 2} done, 2 running)"
    wait_for(lambda: tally in good(room, "job", "-status", job_id), 60.0, tally)
    status = good(room, "job", "-status", job_id)
    running = good(room, "job", "-list-attempt-ids", job_id, "MAP", "running").split()
    logs = good(room, "job", "-logs", job_id, running[0])
    assert job_id in listed and "RUNNING" in listed
    assert "Bytes Read=" in status
    assert sorted(name.split("_")[4] for name in running) == sorted(["000000", last])
    assert f"here speaks {running[0]}" in logs
    counter = ("job", "-counter", job_id, "Own", "Begun")
    # Of tasks that still run too (§4.9, MR-34): heartbeats carry it.
    wait_for(lambda: good(room, *counter).strip() == str(MAPS), 60.0, "counters of running maps")

    room.cluster.kill(WORKER, victim)
    wait_for(lambda: len(room.noted("map-")) > MAPS, 60.0, "its maps to be run again")
    room.release_maps("000000", last)
    room.check(job)
    history = good(room, "job", "-history", job_id)
    assert "Worker deaths: 1" in history and "Intermediate data: " in history
    lost = next(line for line in history.splitlines() if "_m_000000_0" in line)
    assert victim in lost.split() and "SUCCEEDED" not in lost
    assert good(room, *counter).strip() == str(MAPS), "a task that ran twice counts once"


def test_a_sample_gives_the_cuts_of_a_total_order_with_equal_shares(room: JobRoom) -> None:
    """§5.3 (MR-38): a pass over a part of the keys, then the sort; keys are far from uniform."""
    keys = [f"{number * number * 7919 % 999_983:06d}" for number in range(20_000)]
    keys = [f"0{key}" if int(key) % 3 else f"9{key}" for key in keys]
    lines = [f"{key}\t{number}" for number, key in enumerate(keys)]
    (room.directory / "keys").write_text("\n".join(lines) + "\n")
    good(room, "dfs", "-put", str(room.directory / "keys"), "/keys")

    run(
        room, "-input", "/keys", "-output", "/sample", "-mapper", "awk 'NR % 50 == 1'",
        "-reducer", "NONE",
    )  # fmt: skip
    good(room, "dfs", "-getmerge", "/sample", str(room.directory / "sample"))
    sample = ROOT / "examples" / "sort" / "sample.py"
    cuts = subprocess.run(
        [sys.executable, sample, "3", room.directory / "sample"], capture_output=True, check=True
    )
    (room.directory / "_partition.lst").write_bytes(cuts.stdout)
    run(
        room, "-files", str(room.directory / "_partition.lst"), "-numReduceTasks", "3",
        "-partitioner", "TotalOrderPartitioner", "-input", "/keys", "-output", "/sorted",
        "-mapper", "cat", "-reducer", "cat",
    )  # fmt: skip

    parts = [data for name, data in room.parts("/sorted").items() if name.startswith("part-")]
    found = [line for data in parts for line in data.decode().splitlines()]
    assert sorted(found) == sorted(lines)
    assert [line.split("\t")[0] for line in found] == sorted(keys)
    assert all(0.2 < len(data.splitlines()) / len(lines) < 0.47 for data in parts)


def test_output_may_have_fewer_replicas_than_other_files(room: JobRoom) -> None:
    """§5.3 (MR-40): "… two-way replicated" output of the sort, on a cluster that keeps three."""
    run(
        room, "-D", "dfs.replication=2", "-input", "/in", "-output", "/twice", "-mapper", "cat",
        "-reducer", "cat",
    )  # fmt: skip

    client = room.cluster.client()
    assert client.stat("/in").replication == 3
    assert client.stat("/twice/part-00000").replication == 2
    with DfsReader(client, "/twice/part-00000") as file:
        assert file.size > 0
    located = client.locate("/twice/part-00000", 0, 100).chunks
    assert {len(chunk.replicas) for chunk in located} == {2}


def test_start_up_is_measured_apart_from_the_work(room: JobRoom) -> None:
    """§5.2 (MR-41): planning the input, shipping programs, until the first map runs."""
    job = room.start(mapper=room.program("m.py", "sys.stdout.writelines(sys.stdin)\n"))
    room.check(job)

    report = room.report(job)
    assert report is not None
    facts = report.facts
    assert 0.0 < facts["prepared_s"] <= facts["start_up_s"]
    first_s = min(each.started_at_s for each in report.attempts)
    waited_s = first_s - report.job.submitted_at_s
    assert facts["start_up_s"] == pytest.approx(facts["prepared_s"] + waited_s)
    history = good(room, "job", "-history", report.job.key)
    assert "Start-up: " in history
