"""A join of CSV and Parquet on a cluster, with named outputs and rejects, while workers die.

Every file of a task is there, or none of it: the files of an undisturbed run are the measure
(MR-29, MR-37, NU-13, NU-14).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.job_faults import NO_BACKUPS, ROLES, ROOM_DFS, SLOTS, WORKER, JobRoom, RunningJob
from tests.cluster.local import LocalCluster
from tests.cluster.preludes import STAGES

USERS = """
import json, os, sys
seen = open(os.environ["MRSTREAM_OUTPUTS"] + "/seen", "w")
assert os.environ["mrstream_input_index"] == "0"
for line in sys.stdin:
    row = json.loads(line)
    seen.write(row["id"] + "\\n")
    print(row["id"], "name=" + json.dumps(row["name"]), sep="\\t")
"""
ORDERS = """
import json, os, sys
assert os.environ["mrstream_input_index"] == "1"
for line in sys.stdin:
    row = json.loads(line)
    assert list(row) == ["user", "total"]
    print(row["user"], row["total"], sep="\\t")
"""
JOIN = """
import json, os, sys
from itertools import groupby
outputs = os.environ["MRSTREAM_OUTPUTS"]
os.makedirs(outputs + "/index/deep")
strangers = open(outputs + "/strangers", "w")
clean = open(outputs + "/clean", "w")
count = 0
for user, group in groupby(sys.stdin, key=lambda line: line.split("\\t")[0]):
    values = [line.rstrip("\\n").split("\\t", 1)[1] for line in group]
    names = [json.loads(value[5:]) for value in values if value.startswith("name=")]
    total = sum(int(value) for value in values if not value.startswith("name="))
    count += 1
    if not names:
        strangers.write(user + "\\n")
        continue
    odd = int(user) % 10 == 3
    clean.write(json.dumps({"name": names[0], "total": "odd" if odd else total}) + "\\n")
    print(json.dumps({"user": int(user), "total": total}))
open(outputs + "/index/deep/count", "w").write(str(count))
"""
WORDS = (
    *("-input", "/users.csv", "-as", "users.py", "csv", "-input", "/orders", "-as", "orders.py"),
    *("parquet", "columns=user,total", "-reducer", "join.py", "-numReduceTasks", "2"),
    *("-outputformat", "avro", "-D", "mrstream.output.schema=user:int,total:long"),
    *("-D", "mrstream.outputs=seen,strangers,index,clean:parquet"),
    *("-D", "mrstream.outputs.clean.schema=name:string,total:long"),
    *("-D", "mrstream.output.rejects=20%", "-D", "mapreduce.job.maps=4", *NO_BACKUPS),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    """A cluster whose workers can be stopped around a commit, with both inputs in its dfs."""
    directory = tmp_path_factory.mktemp("records")
    for name, code in (("users.py", USERS), ("orders.py", ORDERS), ("join.py", JOIN)):
        (directory / name).write_text(code)
    users = "".join(f'{n},"user\n{n}, ""quoted"""\n' for n in range(400))
    (directory / "users.csv").write_text("id,name\n" + users)
    orders = [{"user": n % 450, "total": n, "other": "x" * 20} for n in range(5000)]
    pq.write_table(pa.Table.from_pylist(orders), directory / "orders", row_group_size=500)
    with LocalCluster(
        directory, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS, extras=("records",)
    ) as cluster:
        for name in ("users.csv", "orders"):
            put = cluster.mrstream("dfs", "-put", str(directory / name), f"/{name}")
            assert put.returncode == 0, put.stderr
        room = JobRoom(cluster, directory)
        stages = {stage: STAGES[stage] for stage in ("before commit", "after commit")}
        room.restart_with(room.stops(stages), WORKER)
        yield room


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    yield shared
    shared.clear()


@pytest.fixture(scope="module")
def undisturbed(shared: JobRoom) -> dict[str, bytes]:
    """The files of the job when nothing happens."""
    return finished(shared, start(shared, "plain"), "plain")


def start(room: JobRoom, name: str) -> RunningJob:
    return RunningJob(room.cluster, name, (*WORDS, "-output", f"/{name}"))


def finished(room: JobRoom, job: RunningJob, name: str) -> dict[str, bytes]:
    """Wait for the job; give its files, by their paths below the output directory."""
    ended = job.wait()
    assert ended.status == 0, ended.stderr
    copy = room.directory / f"copy-{name}"
    got = room.cluster.mrstream("dfs", "-get", f"/{name}", str(copy))
    assert got.returncode == 0, got.stderr
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    return {str(path.relative_to(copy)): path.read_bytes() for path in files}


def comparable(files: dict[str, bytes], room: Path) -> dict[str, object]:
    """Records where a file has a random mark in it, bytes where it has none."""
    import fastavro

    found: dict[str, object] = {}
    for name, data in files.items():
        path = room / "file"
        path.write_bytes(data)
        if name.endswith(".avro"):
            with open(path, "rb") as file:
                found[name] = list(fastavro.reader(file))
        else:
            found[name] = pq.read_table(path).to_pylist() if name.endswith(".parquet") else data
    return found


def test_a_join_of_two_formats_with_named_outputs(
    undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """MR-37, NU-13, NU-14: all parts of all outputs, rejects apart, and every record once."""
    found = comparable(undisturbed, tmp_path)
    maps = sorted(name for name in found if name.startswith("seen/"))
    reduces = [
        f"{name}/part-0000{number}{suffix}"
        for name, suffix in (
            ("clean", ".parquet"),
            ("index", "/deep/count"),
            ("strangers", ""),
            ("_rejected/clean", ""),
        )
        for number in (0, 1)
    ]
    plain = ["_SUCCESS", "part-00000.avro", "part-00001.avro"]
    totals = {user: sum(n for n in range(5000) if n % 450 == user) for user in range(450)}

    assert sorted(found) == sorted([*plain, *maps, *reduces])
    assert all("/part-m-" in name for name in maps) and maps
    joined = [row for name in plain[1:] for row in found[name]]  # type: ignore[attr-defined]
    assert {row["user"]: row["total"] for row in joined} == {n: totals[n] for n in range(400)}
    clean = [row for name in reduces[:2] for row in found[name]]  # type: ignore[attr-defined]
    assert sorted((row["name"], row["total"]) for row in clean) == sorted(
        (f'user\n{n}, "quoted"', totals[n]) for n in range(400) if n % 10 != 3
    )
    seen = b"".join(undisturbed[name] for name in maps).split()
    assert sorted(map(int, seen)) == list(range(400))
    rejected = b"".join(undisturbed[name] for name in reduces[6:])
    assert len(rejected.splitlines()) == 40 and b'"odd" is no long' in rejected


@pytest.mark.parametrize("stage", ["before commit", "after commit"])
def test_a_worker_killed_around_a_commit_leaves_all_files_of_a_task_or_none(
    room: JobRoom, undisturbed: dict[str, bytes], stage: str, tmp_path: Path
) -> None:
    """The first to commit is a map with named outputs: its worker dies before it can report, and
    another attempt's files take the place of all of its."""
    name = stage.replace(" ", "-")
    room.stop_at(stage)
    job = start(room, name)
    victim = room.arrival(stage, job).host

    room.cluster.kill(WORKER, victim)
    room.send_on(stage)

    found = comparable(finished(room, job, name), tmp_path)
    assert found == comparable(undisturbed, tmp_path)
