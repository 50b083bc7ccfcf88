"""Real hosts for the tests here: network namespaces and docker containers, never skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.docker_hosts import DockerHosts, Engine
from tests.cluster.hosted import Operator
from tests.cluster.hosted_cluster import ROOM, HostedCluster
from tests.cluster.job_faults import JobRoom
from tests.cluster.machine import TestHosts
from tests.cluster.netns import NetnsHosts

MakeHosts = Callable[..., TestHosts]
BOTH = ["netns", "docker"]
KINDS = os.environ.get("MRSTREAM_HOSTS", "netns").split()
"""Where a fault is tried, of `BOTH`: in the gate once, in `make soak` on containers too."""


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A docker engine for the whole run."""
    made = Engine()
    yield made
    made.close()


@pytest.fixture(params=BOTH)
def make_both(request: pytest.FixtureRequest) -> Iterator[MakeHosts]:
    """Make hosts of either kind: `make_both(3)`, with `disk_bytes` and `sshd_extra` if need be."""
    yield from _maker(request, request.param)


@pytest.fixture(params=KINDS)
def make_hosts(request: pytest.FixtureRequest) -> Iterator[MakeHosts]:
    """As `make_both`, of one kind in the gate."""
    yield from _maker(request, request.param)


@pytest.fixture
def make_netns(request: pytest.FixtureRequest) -> Iterator[MakeHosts]:
    """As `make_both`, network namespaces only: for tests where the kind makes no difference."""
    yield from _maker(request, "netns")


def _maker(request: pytest.FixtureRequest, kind: str) -> Iterator[MakeHosts]:
    made: list[TestHosts] = []

    def make(count: int, **settings: object) -> TestHosts:
        if kind == "docker":
            hosts: TestHosts = DockerHosts(request.getfixturevalue("engine"), count, **settings)
        else:
            hosts = NetnsHosts(count, **settings)
        made.append(hosts)
        return hosts

    yield make
    for hosts in made:
        hosts.close()


@pytest.fixture(scope="module", params=KINDS)
def hosted_room(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JobRoom]:
    """Five hosts of either kind for all tests of a module, with an input for jobs in their dfs."""
    if request.param == "docker":
        hosts: TestHosts = DockerHosts(request.getfixturevalue("engine"), 5)
    else:
        hosts = NetnsHosts(5)
    directory = tmp_path_factory.mktemp("hosted")
    try:
        cluster = HostedCluster(Operator(directory / "home", hosts), **ROOM)
        yield JobRoom(cluster, directory)
        cluster.close()
    finally:
        hosts.close()


@pytest.fixture
def operator_at(tmp_path: Path) -> Callable[[TestHosts], Operator]:
    """Return a function that gives a person at the keyboard for some hosts."""
    return lambda hosts: Operator(tmp_path / "home", hosts)
