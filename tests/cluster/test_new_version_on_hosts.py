"""The lead is handed over, and everything replaced by `up`, while writers go on: no outage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.conftest import MakeHosts
from tests.cluster.hosted import Operator
from tests.cluster.ledger import Worker
from tests.cluster.machine import TestHosts
from tests.cluster.test_dfs_failover_on_hosts import LIMIT_S, all_go_on, leader_of, new_client

MASTERS = ["h1", "h2", "h3"]
LEASE_S = 60
"""So long, that nobody is elected because hosts are busy: whoever leads was handed the lead. A lead
that is not handed over costs writers all of it."""
CLUSTER = {
    "dfs": {"replication": 2, "chunk_size": "1MiB"},
    "masters": MASTERS,
    "failover_after": f"{LEASE_S}s",
}


@pytest.fixture
def hosts(make_netns: MakeHosts) -> TestHosts:
    return make_netns(3)


@pytest.fixture
def operator(hosts: TestHosts, operator_at: Callable[[TestHosts], Operator]) -> Operator:
    one = operator_at(hosts)
    one.good("cluster", "up", "-f", one.write_cluster(**CLUSTER))
    return one


@pytest.fixture
def workers(operator: Operator) -> Iterator[list[Worker]]:
    stopped = threading.Event()
    clients = [new_client(operator) for _ in range(2)]
    working = [Worker(client, number, stopped) for number, client in enumerate(clients)]
    for worker in working:
        worker.start()
    yield working
    stopped.set()
    for worker, client in zip(working, clients, strict=True):
        worker.join(LIMIT_S)
        client.close()


@pytest.mark.timeout(600)
def test_the_lead_is_handed_over_and_all_is_replaced_while_writers_go_on(
    operator: Operator, workers: list[Worker]
) -> None:
    """Every daemon is replaced (here by one with another extra): shadows first, the leader last."""
    all_go_on(workers)
    assert leader_of(operator) == "h1"
    said = operator.good("cluster", "switch", "h2", "dfs")
    assert said.startswith("h2 leads after h1, epoch 2, in ")
    all_go_on(workers)
    print(said, "slowest write:", [f"{worker.ledger.slowest_s:.2f} s" for worker in workers])

    before = operator.status()["hosts"]
    for worker in workers:
        worker.ledger.slowest_s = 0.0
    path = operator.write_cluster(**CLUSTER, extras=["records"])
    lines = operator.good("cluster", "up", "-f", path, timeout_s=LIMIT_S).splitlines()
    all_go_on(workers)
    slowest = [worker.ledger.slowest_s for worker in workers]
    print("slowest write:", [f"{one_s:.2f} s" for one_s in slowest])

    assert max(slowest) < LEASE_S / 2, lines
    replaced = [line.split(":")[0] for line in lines if "dfs.master ran with other extras" in line]
    assert sorted(replaced) == MASTERS and replaced[-1] == "h2"
    handed = next((line for line in lines if "leads dfs.master after h2, epoch " in line), "")
    assert handed, lines
    assert lines.index(handed) < max(
        at for at, line in enumerate(lines) if "h2: dfs.master ran" in line
    )
    after = operator.status()["hosts"]
    for host in MASTERS:
        for role in ("dfs.master", "dfs.chunkserver", "mapreduce.worker"):
            assert after[host]["roles"][role]["pid"] != before[host]["roles"][role]["pid"]
    for worker in workers:
        worker._stopped.set()
        worker.join(LIMIT_S)
    with new_client(operator) as client:
        for worker in workers:
            worker.check(client)
