"""The life of a chunk, and of each of its replicas: all states, what changes them, and who may.

Everything that says which state may follow which is in this file. No state is stored: it is read
off what the tables know, since a million chunks have 28 bytes each.

    gone ──make──▶ being made ──add──▶ leased ◀──lease── unsealed ──seal──▶ sealed ──share──▶ shared
      ▲               │                  └──────expire──────▲ ▲                │ ▲               │
      │◀──give up─────┘                                       └─────grant──────┘ └─────drop──────┘
      └◀──drop── (leased, unsealed, sealed: the last file that had it is gone)

What the log does (`add grant seal share drop`) is done the same by recovery and by a shadow, which
know neither of leases nor of chunks being made: they go from gone to unsealed. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from mrstream.dfs.chunk import ChunkHandle, handle_name
from mrstream.dfs.protocol import StoryLine


class Chunk(StrEnum):
    """What a chunk can be."""

    GONE = "gone"
    """No file has it: its handle was never given out, or what servers hold of it is garbage."""
    BEING_MADE = "being made"
    """Servers were told to make it; no file has it, and no client knows its handle."""
    UNSEALED = "unsealed"
    """One file has it, and it may have changed: its length is not certain."""
    LEASED = "leased"
    """Unsealed, and a primary may order mutations at its version. (A lease may outlive the seal of
    its chunk: no mutation at that version can succeed then.)"""
    SEALED = "sealed"
    """One file has it; its length is logged, and no mutation at its version can succeed."""
    SHARED = "shared"
    """As sealed, and several files have it: never changed again, but copied for a writer."""


class Change(StrEnum):
    """What can happen to a chunk."""

    MAKE = "made"
    GIVE_UP = "given up"
    ADD = "added"
    LEASE = "leased"
    EXPIRE = "expired"
    GRANT = "granted"
    SEAL = "sealed"
    SHARE = "shared"
    DROP = "dropped"
    COPY = "copied"


_GONE, _MADE, _UNSEALED, _LEASED, _SEALED, _SHARED = Chunk

CHUNK: Mapping[Change, Mapping[Chunk, tuple[Chunk, ...]]] = {
    Change.MAKE: {_GONE: (_MADE,)},
    Change.GIVE_UP: {_MADE: (_GONE,)},
    Change.ADD: {_MADE: (_LEASED, _UNSEALED), _GONE: (_UNSEALED,)},
    Change.LEASE: {_MADE: (_MADE,), _UNSEALED: (_LEASED,)},
    Change.EXPIRE: {_LEASED: (_UNSEALED,)},
    # A grant is of a new version, which no lease is for yet.
    Change.GRANT: {_UNSEALED: (_UNSEALED,), _LEASED: (_UNSEALED,), _SEALED: (_UNSEALED,)},
    # Sealed again: the close of a file says once more what the master found out.
    Change.SEAL: {_UNSEALED: (_SEALED,), _LEASED: (_SEALED,), _SEALED: (_SEALED,)},
    Change.SHARE: {_SEALED: (_SHARED,), _SHARED: (_SHARED,)},
    Change.DROP: {
        _UNSEALED: (_GONE,),
        _LEASED: (_GONE,),
        _SEALED: (_GONE,),
        _SHARED: (_SHARED, _SEALED),
    },
    Change.COPY: {_SHARED: (_SHARED,)},
}
"""What each change may make of a chunk in each state; a state without a row forbids it."""

WHO: Mapping[Change, tuple[str, ...]] = {
    Change.MAKE: ("grants",),
    Change.GIVE_UP: ("grants",),
    Change.ADD: ("contents",),
    Change.LEASE: ("grants",),
    Change.EXPIRE: ("leases",),
    Change.GRANT: ("contents",),
    Change.SEAL: ("contents",),
    Change.SHARE: ("namespace",),
    Change.DROP: ("namespace", "contents"),
    Change.COPY: ("grants",),
}
"""The modules that may. `contents` and `namespace` fold the log: there a change is a record."""

BEGUN_BY: Mapping[str, Change] = {
    "create": Change.MAKE,
    "copy-target": Change.MAKE,
    "copy": Change.COPY,
    "grant": Change.GRANT,
    "seal": Change.SEAL,
}
"""What each kind of work under way will do: it may only begin where that is allowed."""


class Replica(StrEnum):
    """What one server's replica of a chunk can be. All but the first two are called odd: they may
    not be read, and are kept until the chunk is whole without them."""

    NONE = "none"
    GOOD = "good"
    """At the chunk's highest known version; every acknowledged byte is in it (M4)."""
    STALE = "stale"
    """At a lower version: it missed mutations."""
    SHORT = "short"
    """At the version of a sealed chunk, with fewer bytes."""
    CORRUPT = "corrupt"
    """Its server says that it fails its checksums."""
    LEAVING = "leaving"
    """Its server was told to delete it, and may have done so."""


class News(StrEnum):
    """What can be learnt of a replica, or decided about it."""

    REPORTED = "reported"
    """Its server named it. A corrupt or leaving one is judged anew only at another version."""
    PREPARED = "prepared"
    """Its server has made a new version durable."""
    OUTDATED = "outdated"
    """A higher version is logged, or was seen, and this replica is not known to have it."""
    FELL_BACK = "fallen back on"
    """Nothing is left of the higher version, which no client was told of."""
    DAMAGED = "found damaged"
    TO_GO = "to be deleted"


_NONE, *_HELD = Replica
_GOOD, _STALE, _SHORT, _CORRUPT, _LEAVING = _HELD

REPLICA: Mapping[News, Mapping[Replica, tuple[Replica, ...]]] = {
    News.REPORTED: dict.fromkeys((_NONE, *_HELD), (_GOOD, _STALE, _SHORT)),
    News.PREPARED: dict.fromkeys((_NONE, _GOOD, _STALE, _SHORT), (_GOOD,)),
    News.OUTDATED: {_GOOD: (_STALE,)},
    News.FELL_BACK: {_STALE: (_GOOD,)},
    News.DAMAGED: dict.fromkeys((_GOOD, _STALE, _SHORT, _CORRUPT), (_CORRUPT,)),
    News.TO_GO: dict.fromkeys(_HELD, (_LEAVING,)),
}
"""What each piece of news makes of a replica. Any replica may be lost at any time (`NONE`)."""


class ForbiddenChange(AssertionError):
    """Something was to happen to a chunk that may not: the brain is wrong, and must not go on."""

    def __init__(
        self, handle: ChunkHandle, state: str, change: str, story: Iterable[StoryLine]
    ) -> None:
        lines = "; ".join(line.text for line in story) or "nothing is known of it"
        super().__init__(
            f"chunk {handle_name(handle)} is {state}: it cannot be {change}. Its story: {lines}"
        )


def state_of(
    *,
    exists: bool,
    unsealed: bool = False,
    references: int = 1,
    leased: bool = False,
    made: bool = False,
) -> Chunk:
    """What a chunk is, by what the tables know of it."""
    if not exists:
        return Chunk.BEING_MADE if made else Chunk.GONE
    if references > 1:
        return Chunk.SHARED
    if unsealed:
        return Chunk.LEASED if leased else Chunk.UNSEALED
    return Chunk.SEALED
