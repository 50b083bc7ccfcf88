"""What goes into a flow's brain and what comes out: events, commands, records of its log."""

from __future__ import annotations

import msgspec

Counters = dict[str, dict[str, int]]


class Begin(msgspec.Struct, frozen=True):
    """The flow begins, or goes on: what there is now."""

    digests: dict[str, str]
    """Of each step: its programs, settings and inputs from outside."""
    whole: frozenset[str]
    """The places that are there, whole."""
    holds: dict[str, str] = {}
    """Of each final name that is there: which place was moved to it."""


class StepEnded(msgspec.Struct, frozen=True):
    key: str
    succeeded: bool
    reason: str = ""
    counters: Counters = {}


class OutputPublished(msgspec.Struct, frozen=True):
    """A step's output has its final name."""

    name: str


Event = Begin | StepEnded | OutputPublished


class StartStep(msgspec.Struct, frozen=True):
    """Run a step, its output into `place`."""

    key: str
    name: str
    place: str
    words: tuple[str, ...]


class Publish(msgspec.Struct, frozen=True):
    """Move a place to its final name, at once; what had the name before goes. Whoever looks at the
    name later can tell the place, so that this needs no record."""

    name: str
    place: str
    final: str


class Clear(msgspec.Struct, frozen=True):
    """Remove places that nobody needs any more."""

    places: tuple[str, ...]


class Finish(msgspec.Struct, frozen=True):
    """The flow is over, for now if it failed."""

    succeeded: bool
    reason: str = ""


class Started(msgspec.Struct, frozen=True, tag=True):
    """Record: an attempt of a step may write into a place."""

    key: str
    fingerprint: str
    place: str


class Completed(msgspec.Struct, frozen=True, tag=True):
    """Record: a step is complete, its output in a place."""

    key: str
    fingerprint: str
    place: str
    counters: Counters = {}


class Cleared(msgspec.Struct, frozen=True, tag=True):
    """Record: places are gone."""

    places: tuple[str, ...]


Record = Started | Completed | Cleared


class Write(msgspec.Struct, frozen=True):
    """Make a record durable before any later command is done."""

    record: Record


Command = Write | StartStep | Publish | Clear | Finish
