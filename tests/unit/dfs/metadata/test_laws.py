"""A field of the brain that breaks its law is found out by `check_invariants`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion
from mrstream.dfs.metadata.chunk_table import ServerIndex
from mrstream.dfs.metadata.leases import Lease, Leases

H = ChunkHandle(7)
PRIMARY, OTHER = ServerIndex(1), ServerIndex(2)


def no_replicas(lease: Lease) -> None:
    lease.replicas = frozenset()


def without_its_primary(lease: Lease) -> None:
    lease.replicas = frozenset({OTHER})


def not_confirmed(lease: Lease) -> None:
    lease.confirmed = False


def of_another_chunk(lease: Lease) -> None:
    lease.handle = ChunkHandle(8)


@pytest.mark.parametrize(
    "spoil", [no_replicas, without_its_primary, not_confirmed, of_another_chunk]
)
def test_a_lease_that_clients_are_sent_to_names_all_who_have_its_version(
    spoil: Callable[[Lease], None],
) -> None:
    """Were one of them missing, it would miss mutations and still look good."""
    leases = Leases()
    lease = Lease(H, ChunkVersion(3), PRIMARY, 60.0)
    leases.begin(lease, 0.0)
    leases.check_invariants()
    lease.confirmed, lease.replicas = True, frozenset({PRIMARY, OTHER})
    leases.check_invariants()

    spoil(lease)

    with pytest.raises(AssertionError):
        leases.check_invariants()
