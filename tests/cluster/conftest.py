"""Real hosts for the tests here: network namespaces and docker containers, never skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.docker_hosts import DockerHosts, Engine
from tests.cluster.hosted import Operator
from tests.cluster.machine import TestHosts
from tests.cluster.netns import NetnsHosts

MakeHosts = Callable[..., TestHosts]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A docker engine for the whole run."""
    made = Engine()
    yield made
    made.close()


@pytest.fixture(params=["netns", "docker"])
def make_hosts(request: pytest.FixtureRequest) -> Iterator[MakeHosts]:
    """Make hosts of either kind: `make_hosts(3)`, with `disk_bytes` and `sshd_extra` if need be."""
    made: list[TestHosts] = []

    def make(count: int, **settings: object) -> TestHosts:
        if request.param == "docker":
            hosts: TestHosts = DockerHosts(request.getfixturevalue("engine"), count, **settings)
        else:
            hosts = NetnsHosts(count, **settings)
        made.append(hosts)
        return hosts

    yield make
    for hosts in made:
        hosts.close()


@pytest.fixture
def make_netns() -> Iterator[MakeHosts]:
    """As `make_hosts`, network namespaces only: for tests where the kind makes no difference."""
    made: list[TestHosts] = []

    def make(count: int, **settings: object) -> TestHosts:
        made.append(NetnsHosts(count, **settings))
        return made[-1]

    yield make
    for hosts in made:
        hosts.close()


@pytest.fixture
def operator_at(tmp_path: Path) -> Callable[[TestHosts], Operator]:
    """Return a function that gives a person at the keyboard for some hosts."""
    return lambda hosts: Operator(tmp_path / "home", hosts)
