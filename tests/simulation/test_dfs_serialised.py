"""For all histories of serialised appends (EV-08): replicas equal, one order, each record once,
under everything that `tests.simulation.dfs.run` breaks; and wrong brains and chunkservers, each
caught by a kept seed. `MRSTREAM_SERIALISED_SEEDS=FROM:TO` runs others (`make soak`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mrstream.dfs.chunks.chunk_service import ChunkService
from mrstream.dfs.chunks.chunk_store import ChunkStore
from mrstream.dfs.chunks.commands import CommandRunner
from mrstream.dfs.chunks.mutation import MutationOrder
from mrstream.dfs.chunks.replica import Replica
from tests.simulation.dfs.run import SECONDS
from tests.simulation.dfs.serialised import (
    DIRECTED,
    SerialisedRun,
    primary_fails_alone,
    repeated_at_a_clone,
    repeated_in_the_next_chunk,
    secondary_fails_alone,
)

SEEDS = range(*map(int, os.environ.get("MRSTREAM_SERIALISED_SEEDS", "0:8").split(":")))


def carry_out(seed: int) -> SerialisedRun:
    run = SerialisedRun(seed)
    run.live(SECONDS)
    run.settle()
    run.check()
    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_there_once_in_one_order_on_equal_replicas(seed: int) -> None:
    """EV-08, GFS-43…48 where the directory asks for more than the paper gives."""
    try:
        carry_out(seed)
    except BaseException as error:
        command = f"{sys.executable} -m tests.simulation.dfs.serialised {seed} -v"
        raise AssertionError(f"seed {seed} fails; replay it with\n  {command}") from error


@pytest.mark.parametrize("history", DIRECTED, ids=lambda h: h.__name__)
def test_what_is_right_passes(history: Callable[[], None]) -> None:
    """EV-08, one failure at a time."""
    history()


def nothing(*_: Any, **__: Any) -> None:
    return None


def whole_length(self: ChunkService, handle: int, version: int) -> int:
    return self.store.get(handle).length


def notes_nothing(
    self: ChunkStore, handle: int, version: int, length: int, appended: Any = ()
) -> Replica:
    return RECEIVE(self, handle, version, length)


RECEIVE = ChunkStore.receive
History = Callable[[], object]


def seeded(seed: int) -> History:
    return lambda: carry_out(seed)


WRONG: dict[str, tuple[Any, str, Callable[..., Any], History]] = {
    "a primary goes on at a version at which an append failed": (
        MutationOrder, "ended", nothing, primary_fails_alone,
    ),
    "replicas keep what was not agreed on": (Replica, "truncate", nothing, secondary_fails_alone),
    "a repeated append is appended again": (Replica, "last_append_of", nothing, seeded(1)),
    "a new chunk knows nothing of the appends before it": (
        CommandRunner, "_appended_before", lambda self, before: [], seeded(3),
    ),
    "the same, when one is repeated": (
        CommandRunner, "_appended_before", lambda self, before: [], repeated_in_the_next_chunk,
    ),
    "a cloned chunk knows nothing of its appends": (
        ChunkStore, "receive", notes_nothing, repeated_at_a_clone,
    ),
    "readers are shown what one replica alone may have": (
        ChunkService, "agreed_length", whole_length, secondary_fails_alone,
    ),
}  # fmt: skip
"""What is wrong, in place of what, and what shows it."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_about_one_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong, history = WRONG[name]
    monkeypatch.setattr(owner, attribute, wrong)

    with pytest.raises((AssertionError, KeyError)):
        history()
