"""Leases and serial numbers, without any IO (GFS §3.1)."""

from __future__ import annotations

import pytest

from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.errors import LeaseExpired, NotPrimary, StaleReplica
from mrstream.dfs.protocol import HeldLease

CHUNK = 7


def primary(*, at_s: float = 100.0) -> MutationOrder:
    order = MutationOrder()
    order.contact(at_s, contact_s=5.0)
    order.granted(CHUNK, 1, at_s + 60.0, at_s)
    return order


def test_serial_numbers_count_from_one_in_each_version() -> None:
    order = primary()
    assert [order.assign(CHUNK, 1, 101.0) for _ in range(3)] == [1, 2, 3]

    order.given_up(CHUNK)
    order.granted(CHUNK, 2, 160.0, 101.0)

    assert order.assign(CHUNK, 2, 101.0) == 1


def test_nobody_orders_without_a_lease_of_that_version() -> None:
    order = primary()

    with pytest.raises(NotPrimary, match="holds no lease"):
        order.assign(CHUNK + 1, 1, 101.0)
    with pytest.raises(NotPrimary, match="version 1, the request of 2"):
        order.assign(CHUNK, 2, 101.0)


def test_a_lease_ends_with_its_term_or_with_the_master_s_silence() -> None:
    """Fault gates 12 and 13: whichever comes first, by a clock that does not jump."""
    order = primary()
    assert order.assign(CHUNK, 1, 104.9) == 1

    with pytest.raises(LeaseExpired, match=r"has not answered for 5\.0 s"):
        order.assign(CHUNK, 1, 105.0)
    order.contact(158.0, 5.0)
    assert order.assign(CHUNK, 1, 159.9) == 2
    with pytest.raises(LeaseExpired, match=r"ended 0\.0 s ago"):
        order.assign(CHUNK, 1, 160.0)


def test_only_leases_in_use_are_extended_and_only_towards_their_end() -> None:
    """GFS-34: while the chunk is being changed."""
    order = primary()
    order.granted(CHUNK + 1, 1, 160.0, 100.0)
    order.contact(130.0, 5.0)
    order.assign(CHUNK, 1, 130.0)

    assert order.to_extend(129.0, 30.0) == ()
    assert order.to_extend(131.0, 30.0) == (HeldLease(CHUNK, 1, 29.0),)
    order.extended(CHUNK, 1, 190.0)
    order.extended(CHUNK, 2, 999.0)
    order.contact(170.0, 5.0)
    assert order.assign(CHUNK, 1, 170.0) == 2
    assert order.held(170.0) == (HeldLease(CHUNK, 1, 20.0),)


def test_a_lease_that_was_given_up_is_not_revived_by_an_extension() -> None:
    """GFS-35: a revoked lease is over, whatever is still on its way."""
    order = primary()
    order.given_up(CHUNK)

    order.extended(CHUNK, 1, 999.0)

    with pytest.raises(NotPrimary):
        order.assign(CHUNK, 1, 101.0)


def test_a_secondary_applies_in_order_and_knows_repeats() -> None:
    """B3: a number that comes after a higher one was given up by its primary."""
    order = MutationOrder()
    assert order.accept(CHUNK, 1, 1)
    order.applied(CHUNK, 1, 1)

    assert not order.accept(CHUNK, 1, 1), "a repeat of what is on disk"
    assert order.accept(CHUNK, 1, 3), "2 failed elsewhere before it came here"
    assert order.accept(CHUNK, 1, 3), "a repeat of what has not been applied"
    with pytest.raises(StaleReplica, match="mutation 2 of version 1 comes after 3"):
        order.accept(CHUNK, 1, 2)
    assert order.accept(CHUNK, 2, 1), "a new version counts anew"
