"""One cluster with two gateways for all tests here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.doors.gateway_cluster import GatewayCluster, Secret
from tests.doors.s3_clients import client


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    with GatewayCluster(tmp_path_factory.mktemp("doors")) as running:
        yield running


@pytest.fixture(scope="session")
def key(doors: GatewayCluster) -> Secret:
    """A key to everything."""
    return doors.key("all", "--user", "ann")


@pytest.fixture
def session(doors: GatewayCluster, key: Secret) -> Iterator[requests.Session]:
    with doors.session(key) as made:
        yield made


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A path of the test's own."""
    return f"/{request.node.name[:80]}".replace("[", "-").replace("]", "")


@pytest.fixture(scope="session")
def s3(doors: GatewayCluster, key: Secret) -> Any:
    """A boto3 client as it comes, but for the address."""
    return client(doors, key)


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    """A bucket of the test's own."""
    name = f"b-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:20]}"
    s3.create_bucket(Bucket=name)
    return name
