"""Brains that are deliberately wrong about one rule each: every one is caught within seconds, by a
directed history or by a kept seed of the simulator; else the rule is not guarded."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mrstream.cluster.errors import ClusterError
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import FileId
from mrstream.dfs.metadata import image, namespace
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.chunk_table import ChunkTable
from mrstream.dfs.metadata.contents import Contents
from mrstream.dfs.metadata.entries import Done, Requests
from mrstream.dfs.metadata.events import Log
from mrstream.dfs.metadata.fences import Fences, Fencing
from mrstream.dfs.metadata.grants import Grants
from mrstream.dfs.metadata.inspect import Inspect
from mrstream.dfs.metadata.joining import Joining
from mrstream.dfs.metadata.keys import Doors
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.outbox import Outbox
from mrstream.dfs.metadata.quotas import Quotas
from mrstream.dfs.metadata.snapshots import Snapshots
from mrstream.dfs.metadata.taking import Takings
from mrstream.dfs.metadata.writers import Writers
from tests.simulation.dfs.directed import (
    DIRECTED,
    attributes,
    conditions,
    copies_on_write,
    fences,
    implicit_directories,
    joins,
    keys,
    quotas,
    repeats,
    several_fences,
    whole_decisions,
)
from tests.simulation.dfs.run import SECONDS, Run

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("history", DIRECTED, ids=lambda h: h.__name__)
def test_the_right_brain_passes(history: Callable[[], None]) -> None:
    history()


# --- wrong brains --------------------------------------------------------------------------------


def instead(owner: Any, name: str, wrong: Callable[..., Any]) -> Patch:
    return lambda patch: patch.setattr(owner, name, wrong)


def but(owner: Any, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Patch:
    """The method as `change` makes it of the right one."""
    right = getattr(owner, name)
    return instead(owner, name, change(right))


def nothing(*_: Any, **__: Any) -> None:
    return None


def forgets_small(key: str) -> Patch:
    """A checkpoint without one of its tables."""

    def change(right: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*args: Any) -> dict[str, Any]:
            small: dict[str, Any] = right(*args)
            small[key] = small[key][:0]
            return small

        return wrong

    return but(image, "_small", change)


def remembers_no_answer(self: Requests, request: Any, file_id: FileId, answer: Any = None) -> None:
    if request != (0, 0):
        self._done[request] = Done(file_id, None)


def admits_all(self: Fencing, fences: Any, at_s: float, request: Any = (0, 0)) -> None:
    for name, generation in fences:
        if generation > self._fences.generation(name):
            self._emit(op.FenceRaised(name, generation, at_s, request))


def admits_by_the_first(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, fences, *more: right(self, fences[:1], *more)


def admits_one_by_one(right: Callable[..., Any]) -> Callable[..., Any]:
    """So that those before the one that is over are raised."""

    def wrong(self: Fencing, fences: Any, *more: Any) -> None:
        for fence in fences:
            right(self, (fence,), *more)

    return wrong


def keeps_the_first(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any) -> dict[str, Any]:
        small: dict[str, Any] = right(*args)
        small["writers"] = [row[:5] for row in small["writers"]]
        return small

    return wrong


def logs_apart(self: Outbox) -> None:
    records, self._together = self._together or [], []
    for record in records:
        self._commands.append(Log(record))


def drops_references(self: Namespace, record: Any) -> None:
    """As if the sources of a join were deleted."""
    for file_id in record.sources[1:]:
        row = self.row_of(file_id)
        for handle in self.nodes.chunks(row):
            self.chunks.reference(handle, -1)  # type: ignore[arg-type]
    JOINED(self, record)


JOINED = Namespace._joined


class NoAttributes:
    """Reads a section of a checkpoint, and keeps nothing of it."""

    def decode(self, payload: bytes) -> list[tuple[int, bytes]]:
        return []


def drops_no_attributes(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Namespace, row: int) -> None:
        kept = self.attributes.get(row)
        right(self, row)
        if kept is not None:
            self.attributes[row] = kept

    return wrong


def closes_what_was_hidden(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Writers, row: int, *rest: Any, **more: Any) -> None:
        self._t.space.writers[row].is_first = False
        right(self, row, *rest, **more)

    return wrong


def by_path(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Inspect, ask: p.Locate) -> Any:
        return right(self, p.Locate(ask.path, ask.first_index, ask.count))

    return wrong


def tells_nothing_revoked(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Doors, record: Any) -> None:
        right(self, record)
        self.revoked.clear()

    return wrong


def shares_what_is_written(patch: pytest.MonkeyPatch) -> None:
    """A snapshot that does not wait until every chunk is sealed."""
    patch.setattr(Snapshots, "_freeze", lambda *_: False)


def _without_request(record: Any) -> Any:
    return msgspec.structs.replace(record, request=(0, 0))


def _lists_everything(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: Namespace, *args: Any) -> None:
        right(self, *args)
        self.nodes.visible_after = self.nodes.names_after  # type: ignore[method-assign]

    return wrong


MUTANTS: dict[str, tuple[Patch, Callable[[], None]]] = {
    "repeats: a change of mode does not remember": (
        but(Namespace, "_mode_set", lambda right: lambda s, r: right(s, _without_request(r))),
        repeats,
    ),
    "repeats: a close does not remember": (
        but(Contents, "_file_closed", lambda right: lambda s, r: right(s, _without_request(r))),
        repeats,
    ),
    "repeats: answers are not kept": (
        instead(Requests, "remember", remembers_no_answer), repeats,
    ),
    "repeats: a checkpoint forgets them": (forgets_small("requests"), repeats),
    "fences: nobody is refused": (instead(Fencing, "admit", admits_all), fences),
    "fences: files are not taken over": (instead(Writers, "take_over_fenced", nothing), fences),
    "fences: a checkpoint forgets them": (forgets_small("fences"), fences),
    "fences: the lowest counts": (
        instead(Fences, "generation", lambda self, name: -1), fences,
    ),
    "fences: only the first of two is looked at": (
        but(Fencing, "admit", admits_by_the_first), several_fences,
    ),
    "fences: one is raised though the other is over": (
        but(Fencing, "admit", admits_one_by_one), several_fences,
    ),
    "fences: a file is known by the first of two": (
        instead(namespace, "fences_of", lambda first, more: (first,)), several_fences,
    ),
    "fences: a checkpoint keeps the first of two": (
        but(image, "_small", keeps_the_first), several_fences,
    ),
    "fences: two are raised by two records": (
        instead(Outbox, "_log_together", logs_apart), several_fences,
    ),
    "joins: anything is aligned": (instead(Joining, "_check_aligned", nothing), joins),
    "joins: chunks go with the sources": (
        instead(Namespace, "_joined", drops_references), joins,
    ),
    "joins: chunks keep their place": (
        instead(ChunkTable, "belongs", nothing), joins,
    ),
    "conditions: the id is not compared": (
        but(Takings, "_check_condition", lambda right: nothing), conditions,
    ),
    "conditions: what is replaced is not kept": (
        instead(Changes, "trash_after_s", lambda self, row: 0.0), conditions,
    ),
    "conditions: a reader is shown what has the path": (
        but(Inspect, "locate", by_path), conditions,
    ),
    "conditions: what is unfinished is listed": (
        but(Namespace, "__init__", _lists_everything), conditions,
    ),
    "conditions: what was hidden is closed for a dead writer": (
        but(Writers, "take_over", closes_what_was_hidden), conditions,
    ),
    "decisions: several records": (instead(Outbox, "_log_together", logs_apart), whole_decisions),
    "attributes: kept by what overwrites": (
        but(Namespace, "_drop_tree", drops_no_attributes), attributes,
    ),
    "attributes: a checkpoint forgets them": (
        instead(image, "_attributes", NoAttributes()), attributes,
    ),
    "quotas: what is dropped still counts": (instead(Quotas, "dropping", nothing), quotas),
    "quotas: what is moved counts where it was": (instead(Quotas, "moving", nothing), quotas),
    "quotas: bytes are not settled": (
        but(Contents, "_charged", lambda right: lambda self, apply: apply), quotas,
    ),
    "quotas: a chunk may always be added": (instead(Quotas, "check_chunk", nothing), quotas),
    "quotas: names are not limited": (instead(Quotas, "_check_one", nothing), quotas),
    "quotas: the trash counts": (
        instead(Quotas, "holders", lambda self, row: list(self.by_row)), quotas,
    ),
    "quotas: a checkpoint forgets them": (forgets_small("quotas"), quotas),
    "implicit: what was asked for goes": (
        instead(Namespace, "_directory_kept", nothing), implicit_directories,
    ),
    "implicit: nothing goes": (instead(Changes, "_prune", nothing), implicit_directories),
    "keys: nobody hears of a revocation": (but(Doors, "_revoked", tells_nothing_revoked), keys),
    "keys: a checkpoint forgets what is void": (forgets_small("revoked"), keys),
    "keys: a link is good twice": (instead(Doors, "_spent", nothing), keys),
    "life: a shared chunk is granted": (instead(Grants, "copy", Grants.grant), copies_on_write),
}  # fmt: skip


S_MAX = 3.0
"""In so much time a wrong brain is to be caught."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_brain_that_is_wrong_about_one_rule_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, history = MUTANTS[name]
    history()
    patch(monkeypatch)
    began_s = time.process_time()

    with pytest.raises((AssertionError, ClusterError)):
        history()

    assert time.process_time() - began_s < S_MAX


SEEDED: dict[str, tuple[Patch, int, str]] = {
    "fences: nobody is refused": (instead(Fencing, "admit", admits_all), 5, "F6: "),
    "fences: only the first of two is looked at": (
        but(Fencing, "admit", admits_by_the_first),
        38,
        "F6: ",
    ),
    "repeats: answers and requests are forgotten": (
        instead(Requests, "remember", nothing),
        12,
        "was refused and is in the log",
    ),
    "conditions: the id is not compared": (
        but(Takings, "_check_condition", lambda right: nothing),
        13,
        "compared and swapped twice",
    ),
    "quotas: bytes are not settled": (
        but(Contents, "_charged", lambda right: lambda self, apply: apply),
        2,
        "kept, .* counted",
    ),
    "quotas: what is moved counts where it was": (
        instead(Quotas, "moving", nothing),
        2,
        "kept, .* counted",
    ),
    "joins: anything is aligned": (instead(Joining, "_check_aligned", nothing), 2, "N1: "),
    "life: a shared chunk is granted": (
        instead(Grants, "copy", Grants.grant),
        1,
        "is shared: it cannot be granted",
    ),
    "life: what is written is shared": (
        shares_what_is_written,
        1,
        "is unsealed: it cannot be shared",
    ),
    "attributes: kept by what overwrites": (
        but(Namespace, "_drop_tree", drops_no_attributes),
        1,
        "is free, and something is told of it",
    ),
}
"""Wrong brains that the simulator's own checks find, each with the seed that does it soonest and
what is said then."""


@pytest.mark.parametrize("name", SEEDED)
def test_the_simulator_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, seed, why = SEEDED[name]
    patch(monkeypatch)
    run = Run(seed)
    began_s = time.process_time()

    with pytest.raises(AssertionError, match=why):
        run.live(SECONDS)
        run.settle()
        run.check()

    assert time.process_time() - began_s < S_MAX
