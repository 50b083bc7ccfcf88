"""Three job masters with real processes: the leader is killed, stopped or cut off under a job.

Running attempts go on, committed tasks stay committed, the output is byte for byte that of local
mode (EV-01). `MRSTREAM_JOB_FAULTS` names the faults of a run, one after another (`make soak`); with
`cut` among them each host has a network of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.config.config import Cluster, load
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.hosts.switch import switch
from mrstream.cluster.wire.network import Connection
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.job import job as jobs
from mrstream.mapreduce.protocol import ListJobs, ReportOfJob, SpecOfJob, SubmitJob, WaitForNews
from tests.cluster.job_faults import (
    GATED_REDUCE,
    JOB_MASTER,
    MAPS,
    NO_BACKUPS,
    REDUCES,
    ROLES,
    ROOM_DFS,
    SLOTS,
    WORKER,
    JobRoom,
    host_of,
)
from tests.cluster.local import MASTER, LocalCluster, wait_for
from tests.cluster.netns import NetnsHosts

MORE = "masters: [h1, h2, h3]\nfailover_after: 2s\n"
FAULTS = os.environ.get("MRSTREAM_JOB_FAULTS", "kill freeze").split()
CUT = "cut"
networks: list[NetnsHosts] = []
"""That of the cluster, where it has one of its own."""


def standing(cluster: LocalCluster, host: str, role: str = JOB_MASTER) -> Standing:
    with Connection(cluster.config.address(host, role), cluster.cluster.identity()) as one:
        found: Standing = one.call(WhoLeads(), 5.0)
        return found


def leader_of(cluster: LocalCluster, other_than: str = "", role: str = JOB_MASTER) -> str:
    """The host that serves, as soon as there is one."""

    def look() -> str:
        for host in cluster.hosts:
            try:
                if host != other_than and standing(cluster, host, role).is_serving:
                    return host
            except Unavailable:
                continue
        return ""

    return wait_for(look, 60, "a leader")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRoom]:
    directory = tmp_path_factory.mktemp("jobs")
    with ExitStack() as stack:
        places: dict[str, Any] = {}
        if CUT in FAULTS:
            networks.append(NetnsHosts(3))
            stack.callback(networks.pop)
            stack.callback(networks[0].close)
            names = networks[0].names
            places["addresses"] = [networks[0].address(name) for name in names]
            places["within"] = {name: networks[0].enter(name) for name in names}
        cluster = stack.enter_context(
            LocalCluster(directory, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS, more=MORE, **places)
        )
        yield JobRoom(cluster, directory)


@pytest.fixture
def room(shared: JobRoom) -> Iterator[JobRoom]:
    shared.heal()
    leader_of(local(shared))
    yield shared
    shared.clear()


def local(room: JobRoom) -> LocalCluster:
    assert isinstance(room.cluster, LocalCluster)
    return room.cluster


def strike(cluster: LocalCluster, fault: str, role: str) -> tuple[str, str, float]:
    """Let the leader of a role fall; give it, its successor, and the seconds between."""
    leader = leader_of(cluster, role=role)
    began_s = time.monotonic()
    if fault == "kill":
        cluster.kill(role, leader)
    elif fault == CUT:
        networks[0].cut(leader)
    else:
        cluster.signal(role, leader, signal.SIGSTOP)
    successor = leader_of(cluster, other_than=leader, role=role)
    return leader, successor, time.monotonic() - began_s


def bring_back(cluster: LocalCluster, fault: str, role: str, host: str) -> None:
    if fault == "kill":
        cluster.start(role, host)
    elif fault == CUT:
        networks[0].heal()
    else:
        cluster.signal(role, host, signal.SIGCONT)
    wait_for(lambda: "shadow" in cluster.health(role, host).detail, 60, "it to follow")


def run_again(notes: list[str], count: int, under_way: set[str]) -> list[str]:
    """The tasks that were run twice for no reason; `under_way`: the notes of attempts that ran on a
    host while it was cut off. Those may be run once more, elsewhere."""
    attempts: dict[str, list[str]] = {}
    for note in notes:  # in the order of their numbers
        attempts.setdefault(note.rpartition("_")[0], []).append(note)
    assert len(attempts) == count, notes
    return [
        note
        for first, *others in attempts.values()
        for at, note in enumerate(others)
        if first not in under_way or at > 0 or host_of(note) == host_of(first)
    ]


@pytest.mark.parametrize(("fault", "turn"), [(fault, turn) for turn, fault in enumerate(FAULTS)])
def test_a_job_goes_on_when_its_master_falls_and_repeats_nothing(
    room: JobRoom, fault: str, turn: int
) -> None:
    """Running maps are held and go on under the next leader; those that were done stay so. Then the
    leader falls again, with reduces that run."""
    cluster = local(room)
    reducer = room.program("held_reduce.py", GATED_REDUCE)
    room.hold("hold-reduce")
    job, hosts = room.start_held_maps(*NO_BACKUPS, reducer=reducer)
    first, *others = hosts
    room.release_maps(first)
    room.wait_for_attempts(job, "m", "succeeded", 1)
    epoch = standing(cluster, leader_of(cluster)).epoch
    maps_then = [note for note in room.noted("map-") if note.split("_")[4] != first]

    fallen, leader, seconds = strike(cluster, fault, JOB_MASTER)
    print(f"{fault}: {leader} leads after {seconds:.1f} s")
    if fault == CUT:  # the host's worker with it, which is not to be given up
        bring_back(cluster, fault, JOB_MASTER, fallen)
    wait_for(lambda: _has_workers(cluster, leader), 60.0, "the workers to have found it")
    if fault != CUT:
        bring_back(cluster, fault, JOB_MASTER, fallen)
    room.release_maps(*others)
    wait_for(lambda: len(room.noted("reduce-")) >= REDUCES, 60.0, "all reduces to run")
    reduces_then = room.noted("reduce-")
    again, _, _ = strike(cluster, fault, JOB_MASTER)
    if fault == CUT:
        bring_back(cluster, fault, JOB_MASTER, again)
    room.release("hold-reduce")

    room.check(job)
    assert again == leader and standing(cluster, leader_of(cluster)).epoch > epoch + 1
    for prefix, count, then, cut_off in (
        ("map-", MAPS, maps_then, fallen), ("reduce-", REDUCES, reduces_then, again),
    ):  # fmt: skip
        under_way = {note for note in then if fault == CUT and host_of(note) == cut_off}
        notes = room.noted(prefix)
        print(f"{fault}: {len(notes) - count} again of {len(under_way)} that were cut off")
        assert run_again(notes, count, under_way) == [], f"for no reason: {notes}"
    if fault != CUT:
        bring_back(cluster, fault, JOB_MASTER, again)
    report = room.report(job)
    assert report is not None and report.job.state == "succeeded"


def test_what_ended_is_known_to_every_leader(room: JobRoom) -> None:
    """History is in the dfs, a repeated submission finds its job, job numbers go on; also after the
    lead was handed over on purpose."""
    cluster = local(room)
    ended = room.start(*NO_BACKUPS)
    room.check(ended)
    known = room.report(ended)
    assert known is not None
    listed = {
        entry.path.rpartition("/")[2] for entry in cluster.client().list("/.mrstream/history")
    }
    assert known.job.key in listed
    with JobClient(cluster.cluster) as client:
        failed = room.start(*NO_BACKUPS, mapper="false")
        assert failed.wait().status != 0
        (row,) = [row for row in client.call_patiently(ListJobs(True)) if row.name == failed.mark]
        spec = jobs.decode(client.call_patiently(SpecOfJob(row.key)))
        # The same again, under a name that we know.
        said = SubmitJob("once and for all", jobs.encode(spec), 1)
        job_id = client.call_patiently(said)
        leader = leader_of(cluster)
        heir = next(host for host in cluster.hosts if host != leader)
        wait_for(lambda: _has_switched(cluster, heir), 60.0, f"{heir} to lead")

        assert client.call_patiently(said) == job_id
        while client.call_patiently(WaitForNews(job_id)).end is None:
            pass
        fallen, _, _ = strike(cluster, "kill", JOB_MASTER)
        assert client.call_patiently(said) == job_id, "it had ended, and is known"
        assert client.call_patiently(ReportOfJob(known.job.key)).job == known.job
        assert client.call_patiently(SpecOfJob(row.key)) == jobs.encode(spec)
        numbers = [int(key.rpartition("_")[2]) for key in (known.job.key, row.key, job_id)]
    assert numbers == sorted(numbers) and len(set(numbers)) == 3
    assert {key.rpartition("_")[0] for key in (known.job.key, row.key, job_id)} == {
        job_id.rpartition("_")[0]
    }
    bring_back(cluster, "kill", JOB_MASTER, fallen)


def _has_workers(cluster: LocalCluster, leader: str) -> bool:
    return f"{len(cluster.hosts)} workers" in cluster.health(JOB_MASTER, leader).detail


def _has_switched(cluster: LocalCluster, heir: str) -> bool:
    switch(cluster.cluster, heir, "jobs")
    return True


def test_both_leaders_on_one_host_may_fall_at_once(room: JobRoom) -> None:
    """A host that leads jobs and the dfs is lost: the job master waits for the dfs, and fences."""
    cluster = local(room)
    job, hosts = room.start_held_maps(*NO_BACKUPS)
    leader = leader_of(cluster)
    if leader_of(cluster, role=MASTER) != leader:
        switch(cluster.cluster, leader, "dfs")

    cluster.kill(MASTER, leader)
    cluster.kill(JOB_MASTER, leader)
    leader_of(cluster, other_than=leader)
    room.release_maps(*hosts)

    room.check(job)
    assert len(room.noted("map-")) == MAPS, "a map was run twice"
    (fence,) = [fact for fact in cluster.client().fences() if fact.name == "jobs"]
    assert fence.generation == standing(cluster, leader_of(cluster, leader)).epoch


def test_the_journal_of_a_master_that_was_alone_becomes_the_groups(tmp_path: Path) -> None:
    """A job of before goes on, under one leader and then under another; ids and history too."""
    with LocalCluster(tmp_path, 3, roles=ROLES, dfs=ROOM_DFS, slots=SLOTS) as cluster:
        room = JobRoom(cluster, tmp_path)
        before = room.start(*NO_BACKUPS)
        room.check(before)
        job, hosts = room.start_held_maps(*NO_BACKUPS)
        first, *others = hosts
        room.release_maps(first)
        room.wait_for_attempts(job, "m", "succeeded", 1)
        for role in cluster.roles:
            for host in cluster.hosts_of(role):
                cluster.kill(role, host)
        places = [cluster.host_directory(host) / "cluster.yaml" for host in cluster.hosts]
        for path in [Path(cluster.file), *places]:
            path.write_text(path.read_text() + MORE)
        cluster.config = load(cluster.file)
        cluster.cluster = Cluster(cluster.config, cluster.secret)

        cluster.start_all()
        assert leader_of(cluster) == "h1" and standing(cluster, "h1").epoch > 1
        room.release_maps(*others)

        room.check(job)
        kept = room.report(before)
        assert kept is not None and kept.job.state == "succeeded"
        done = [name for name in room.noted("map-") if name.split("_")[4] == first]
        assert len(done) == 1, "a map that was committed before was run again"
        cluster.kill(JOB_MASTER, "h1")
        leader_of(cluster, other_than="h1")
        room.check(room.start(*NO_BACKUPS))


def test_without_a_majority_nothing_is_accepted_and_nothing_lost(room: JobRoom) -> None:
    cluster = local(room)
    job, hosts = room.start_held_maps(*NO_BACKUPS)
    leader = leader_of(cluster)
    others = [host for host in cluster.hosts if host != leader]
    for host in others:
        cluster.kill(JOB_MASTER, host)
    wait_for(lambda: not standing(cluster, leader).is_serving, 60.0, "the leader to lose its lease")

    with JobClient(cluster.cluster) as client, pytest.raises(ClusterError):
        client.call(ListJobs(), 2.0)
    room.release_maps(*hosts)
    for host in others:
        cluster.start(JOB_MASTER, host)

    room.check(job)
    assert cluster.is_up(WORKER, leader)
