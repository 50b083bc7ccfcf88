"""Hosts in words (view/hosts.py)."""

from __future__ import annotations

from mrstream.cluster.config.config import DFS_MASTER, LOCK_MASTER, MAPREDUCE_MASTER
from mrstream.mapreduce.snapshot import Changes, ClusterSnapshot, DiskRow, HostRow
from mrstream.view.hosts import COLUMNS, Fact, Host, facts, host_cells, host_named, listed, trouble
from mrstream.view.picture import Picture, Storage, StorageRow
from tests.support.tui_states import group, groups

GIB = 1 << 30
WORKER = HostRow(
    "h2", "10.0.0.2", "r1", "up", 2, 1, 0.5, GIB, 4 * GIB, (DiskRow("/data", GIB, 9 * GIB),),
    99.0, ("attempt_1", "attempt_2"),
)  # fmt: skip
SERVER = StorageRow("h2", "r1", "up", 3 * GIB, 12 * GIB, 480, 98.0)


def picture(workers: list[HostRow], servers: list[StorageRow]) -> Picture:
    made = Picture()
    made.see_cluster(ClusterSnapshot(1.0, Changes(1, tuple(workers), whole=True), Changes(1)))
    made.storage = Storage(1.0, tuple(servers))
    return made


def test_both_roles_of_a_host_are_one_row() -> None:
    cells = host_cells(Host("h2", WORKER, SERVER), now_s=100.0)

    assert [cell.text for cell in cells] == [
        "h2", "■ up", "1s", "1/2", "0.5", "1.0G/4.0G", "3.0G/12G", "480", "r1", "",
    ]  # fmt: skip
    assert cells[6].share == 0.25
    assert len(cells) == len(COLUMNS)


def test_a_role_that_is_not_there_leaves_dashes() -> None:
    worker_only = [cell.text for cell in host_cells(Host("h2", WORKER, None), 100.0)]
    server_only = [cell.text for cell in host_cells(Host("h2", None, SERVER), 100.0)]

    assert worker_only[6:8] == ["–", "–"]
    assert server_only[3:6] == ["–", "–", "–"]
    assert server_only[8] == "r1"


def test_a_silent_host_is_warned_of() -> None:
    heard = [host_cells(Host("h2", WORKER, SERVER), now_s)[2] for now_s in (102.0, 102.1)]

    assert [cell.loud for cell in heard] == [False, True]


def test_hosts_are_sorted_as_people_count_or_by_what_is_heaviest() -> None:
    busy = HostRow("h10", slots=2, slots_used=2, load=9.0)
    seen = picture([busy, WORKER], [SERVER, StorageRow("h3", "r1", "up", 9, 10, 1, 0.0)])
    orders = {
        sort: [host.name for host in listed(seen, sort=sort)]
        for sort in ("name", "load", "slots", "disk")
    }

    assert orders == {
        "name": ["h2", "h3", "h10"],
        "load": ["h10", "h2", "h3"],
        "slots": ["h10", "h2", "h3"],
        "disk": ["h3", "h2", "h10"],
    }
    assert [host.name for host in listed(seen, wanted="H1")] == ["h10"]


def test_a_host_says_what_it_is_in_each_group_of_masters() -> None:
    """After one of them has failed over, they are led by different hosts."""
    led = groups(
        group(DFS_MASTER, "h2", 8, silent=("h1",)),
        group(MAPREDUCE_MASTER, "h3", 3),
        group(LOCK_MASTER, "h2", 5),
    )

    def first_of(name: str) -> str:
        return facts(Host(name, WORKER, SERVER), led)[0].text

    assert [first_of(name) for name in ("h1", "h2", "h3", "h4")] == [
        "dfs does not answer; jobs shadow 0.0 s behind; lock shadow 0.0 s behind",
        "dfs leader epoch 8; jobs shadow 0.0 s behind; lock leader epoch 5",
        "dfs shadow 0.0 s behind; jobs leader epoch 3; lock shadow 0.0 s behind",
        "chunkserver up, 480 chunks; worker up, 1 of 2 slots",
    ]


def test_a_host_whose_master_does_not_answer_is_not_called_up() -> None:
    """Its worker and its chunkserver are heard of: nothing else would say so in the table."""
    seen = picture([WORKER], [SERVER])
    seen.see_groups(groups(group(DFS_MASTER), group(LOCK_MASTER, silent=("h2",))), 1.0)

    (host,) = listed(seen)

    assert host_cells(host, 100.0)[1].text == "✗ no lock master"
    assert host == host_named(seen, "h2")


def test_the_facts_of_a_host() -> None:
    told = facts(Host("h2", WORKER, SERVER), groups(group(DFS_MASTER, "h2")))

    assert told == [
        Fact("master", "dfs leader epoch 7"),
        Fact("roles", "chunkserver up, 480 chunks; worker up, 1 of 2 slots"),
        Fact("disk", "/data  1.0G of 9.0G used"),
        Fact("runs", "attempt_1\nattempt_2"),
    ]


def test_a_disk_and_a_worker_that_are_not_well_say_so() -> None:
    ill = HostRow(
        "h2",
        state="quarantined",
        reason="6 failed in a row",
        disks=(DiskRow("/d", 1, 2, "failed"),),
    )
    host = host_named(picture([ill], []), "h2")

    assert trouble(host) == "quarantined: 6 failed in a row"
    assert [fact.trouble for fact in facts(host, {})] == ["", "failed", ""]
    assert facts(host, {})[-1].text == "nothing"


def test_of_a_host_that_nobody_knows_nothing_is_told() -> None:
    host = host_named(picture([], []), "")

    assert facts(host, {}) == [Fact("roles", "")]
    assert trouble(host) == ""
