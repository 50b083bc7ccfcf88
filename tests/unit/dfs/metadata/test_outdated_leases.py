"""Leases of chunks that many write to end with the fence that they were told under (CH-20), and no
others do."""

from __future__ import annotations

import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import NO_FENCE, ChunkVersion, Fence
from tests.support.dfs_model import Model


def appended_under(fence: Fence) -> tuple[Model, p.ChunkGrant]:
    """Somebody has a lease to append records by."""
    model = Model()
    model.put("/f", 5)
    return model, model.call(p.AppendTarget("/f", "me", fence=fence))


def granted(model: Model) -> ChunkVersion:
    """The version of the chunk that the master goes by."""
    (chunk,) = model.brain.tables.chunks
    return model.brain.tables.chunks.version(chunk)


def test_a_lease_ends_with_its_generation() -> None:
    model, grant = appended_under(("lock", 1))

    model.call(p.RaiseFence(("lock", 2)))
    model.pass_time(1)

    assert granted(model) > grant.version


def test_of_those_that_were_told_of_it_the_oldest_counts() -> None:
    model, grant = appended_under(("lock", 1))
    again = model.call(p.AppendTarget("/f", "me", fence=("lock", 2)))
    assert again.version > grant.version, "raising it ended the first one's"
    model.call(p.AppendTarget("/f", "me", fence=("other", 1)))

    model.call(p.RaiseFence(("other", 2)))
    model.pass_time(1)

    assert granted(model) > again.version


@pytest.mark.parametrize("fence", [NO_FENCE, ("other", 1), ("lock", 2)])
def test_nobody_else_is_disturbed(fence: Fence) -> None:
    model, grant = appended_under(fence)

    model.call(p.RaiseFence(("lock", 2)))
    model.pass_time(1)

    assert granted(model) == grant.version


def test_an_overwrite_is_no_exception() -> None:
    model = Model()
    model.put("/f", 5)
    grant = model.call(p.FindLease("/f", 0, fence=("lock", 1)))

    model.call(p.MakeDirectory("/d", "me", fence=("lock", 2)))
    model.pass_time(1)

    assert granted(model) > grant.version


def test_a_lease_of_before_a_take_over_may_be_anybodys() -> None:
    model, grant = appended_under(("lock", 1))
    model.crash()

    model.call(p.RaiseFence(("lock", 2)))
    model.pass_time(1)

    assert granted(model) > grant.version
