"""Connections to chunkservers: which way they go."""

from __future__ import annotations

from pathlib import Path

from mrstream.cluster.wire.network import Identity
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.protocol import ServerAddress
from mrstream.dfs.transfer.bulk_pool import BulkPool

IDENTITY = Identity("c1", b"k" * 32)


def address(path: Path) -> ServerAddress:
    return ServerAddress(ServerId("h1"), "::1", 1, 2, "", str(path))


def test_the_server_of_the_own_host_is_reached_through_its_socket(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    socket.touch()
    near = BulkPool(IDENTITY, timeout_s=1.0, is_here=lambda server: server.server == "h1")
    far = BulkPool(IDENTITY, timeout_s=1.0)

    assert near.address_of(address(socket)) == f"unix:{socket}"
    assert far.address_of(address(socket)) == "[::1]:2"


def test_a_socket_that_is_not_there_is_no_way(tmp_path: Path) -> None:
    """Another user's client, or one in a container, may not see it."""
    near = BulkPool(IDENTITY, timeout_s=1.0, is_here=lambda server: True)

    assert near.address_of(address(tmp_path / "gone")) == "[::1]:2"
