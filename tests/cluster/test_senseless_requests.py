"""Requests that are well-formed and make no sense: from holders of the secret, of any version.

Each is answered or refused, and the daemon serves on: a number below zero, a name that nobody has,
a job that does not decode are the request's fault, never a reason to end.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from typing import Any

import msgspec
import pytest
from msgspec import inspect

import mrstream.lock.protocol as lock_protocol
from mrstream.cluster.config.config import CHUNKSERVER_BULK, WORKER_BULK
from mrstream.cluster.consensus import standing
from mrstream.cluster.errors import ClusterError
from mrstream.cluster.journal import peers
from mrstream.cluster.wire.messages import Request, Stop, unpack
from mrstream.cluster.wire.network import Connection, bulk_connect
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.protocol import SubmitJob
from tests.cluster.local import LocalCluster
from tests.property.fuzz.hostile import value_of
from tests.property.fuzz.rooms import BULK, CONTROL, requests_of

ROLES = ("dfs.master", "dfs.chunkserver", "mapreduce.master", "mapreduce.worker", "lock.master")
BULK_PORTS = {"dfs.chunkserver": CHUNKSERVER_BULK, "mapreduce.worker": WORKER_BULK}
EACH = int(os.environ.get("MRSTREAM_SENSELESS", "8"))
ANSWER_S_MAX = 10.0
KINDS = {
    role.partition(".")[0]: [kind for kind in kinds if kind is not Stop]
    for role, kinds in CONTROL.items()
}
# What members of a group say to each other, and what anybody may ask one: here nobody is in one.
GROUP = requests_of(peers, standing)
KINDS["dfs"] += GROUP
KINDS["lock"] = [*requests_of(lock_protocol), *GROUP]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LocalCluster(
        tmp_path_factory.mktemp("room"), 1, roles=ROLES, slots=1, more="lock: {}\n"
    ) as cluster:
        (cluster.directory / "words").write_text("b\na\nb\n")
        put = cluster.mrstream("dfs", "-put", "words", "/words")
        assert put.returncode == 0, put.stderr
        yield cluster


@pytest.mark.parametrize("role", ROLES)
def test_no_request_ends_a_daemon(room: LocalCluster, role: str) -> None:
    """Of every type that its half of the house knows."""
    host = room.hosts[0]
    pid = room.health(role, host).pid
    for kind in KINDS[role.partition(".")[0]]:
        for seed in range(EACH):
            ask(room, role, made(kind, seed))
        assert room.is_up(role, host), f"{kind.__name__}: {room.output(role, host)[-3000:]}"
        assert room.health(role, host).pid == pid, kind.__name__


def made(kind: Any, seed: int) -> Request | None:
    """A request of that type, or nothing where its own bounds forbid what was drawn."""
    rng = random.Random(f"{kind.__name__} {seed}")
    value = value_of(inspect.type_info(kind), rng)
    if kind is SubmitJob:
        value[2] = msgspec.msgpack.encode(value_of(inspect.type_info(JobSpec), rng))
    try:
        found: Request = unpack(msgspec.msgpack.encode(value), kind)
    except msgspec.DecodeError:
        return None
    return found


def ask(room: LocalCluster, role: str, request: Request | None) -> None:
    if request is None:
        return
    address = room.config.address(room.hosts[0], role)
    try:
        with Connection(address, room.cluster.identity(), role=role) as connection:
            connection.call(request, 1.0)
    except ClusterError:
        return


@pytest.mark.parametrize("role", sorted(BULK))
def test_no_bulk_request_ends_a_daemon(room: LocalCluster, role: str) -> None:
    """Of every type that its bulk port takes; nothing follows where bytes are announced."""
    host = room.hosts[0]
    pid = room.health(role, host).pid
    for kind in BULK[role].__args__ if hasattr(BULK[role], "__args__") else [BULK[role]]:
        for seed in range(EACH):
            ask_bulk(room, role, made(kind, seed))
        assert room.is_up(role, host), f"{kind.__name__}: {room.output(role, host)[-3000:]}"
        assert room.health(role, host).pid == pid, kind.__name__


def ask_bulk(room: LocalCluster, role: str, request: Any) -> None:
    if request is None:
        return
    address = room.config.address(room.hosts[0], BULK_PORTS[role])
    with contextlib.suppress(ClusterError), bulk_connect(address, room.cluster.identity()) as sent:
        sent.send(request)
        sent.sock.shutdown(socket.SHUT_WR)
        while sent.sock.recv(1 << 16):
            pass
