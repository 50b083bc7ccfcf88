"""A field of the brain that breaks its law is found out by `check_invariants`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, Epoch
from mrstream.dfs.metadata.chunk_table import ChunkTable, ServerIndex
from mrstream.dfs.metadata.entries import Policy
from mrstream.dfs.metadata.leases import Lease, Leases
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import FILE, ROOT

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


def an_empty_list_of_odd_ones(chunks: ChunkTable) -> None:
    chunks._odd[H] = {}


def ahead_of_nothing(chunks: ChunkTable) -> None:
    chunks._ahead[H] = ChunkVersion(1)


def listed_as_changing(chunks: ChunkTable) -> None:
    chunks.unsealed[H] = None


def held_by_nobody(chunks: ChunkTable) -> None:
    chunks._unhold(PRIMARY, H)


@pytest.mark.parametrize(
    "spoil", [an_empty_list_of_odd_ones, ahead_of_nothing, listed_as_changing, held_by_nobody]
)
def test_the_tables_of_a_chunk_say_the_same(spoil: Callable[[ChunkTable], None]) -> None:
    chunks = ChunkTable()
    chunks.add(H, owner=1, index=0, goal=3)
    chunks.seal(H, ChunkVersion(1), 100)
    chunks.report(H, PRIMARY, ChunkVersion(1), 100)
    chunks.check_invariants(H)

    spoil(chunks)

    with pytest.raises(AssertionError):
        chunks.check_invariants(H)


def an_epoch_of_no_writer(space: Namespace) -> None:
    space.epochs[Epoch(7)] = ROOT


def a_free_row_that_is_used(space: Namespace) -> None:
    space.nodes.free.append(ROOT)


def rules_of_a_file(space: Namespace) -> None:
    space.policies[space.nodes.add(FILE, ROOT, b"f", 0.0)] = Policy()


def a_count_that_is_off(space: Namespace) -> None:
    space.nodes.file_count += 1


@pytest.mark.parametrize(
    "spoil", [an_epoch_of_no_writer, a_free_row_that_is_used, rules_of_a_file, a_count_that_is_off]
)
def test_the_tables_of_names_say_the_same(spoil: Callable[[Namespace], None]) -> None:
    space = Namespace(ChunkTable())
    space.chunk_sizes.append(64)
    space.check_invariants()

    spoil(space)

    with pytest.raises(AssertionError):
        space.check_invariants()
