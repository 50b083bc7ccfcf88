"""Keys to the doors: who may come in over HTTP, as whom, and where (no secret is among it).

The table is part of the log, so that every gateway that asks has the same one. A revoked id is
remembered for as long as somebody may ask what changed since. Never does any IO.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mrstream.dfs.chunk import FileId
from mrstream.dfs.errors import AlreadySpent, BadRequest, FileExists, NoSuchKey
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import TIME_S_MAX
from mrstream.dfs.metadata.entries import Requests
from mrstream.dfs.metadata.paths import NAME_BYTES_MAX, join_path, split_path
from mrstream.dfs.protocol import DoorKey, KeysSince, KeyTable, MakeKey, RevokeKey, SpendLink

KEYS_MAX = 10_000
PATHS_MAX = 64
REVOKED_MAX = 10_000
LINKS_MAX = 10_000
AHEAD_S_MAX = 366 * 86_400.0
"""Until when a token or link may be remembered as void: longer than any is good for."""
ID = re.compile(r"MR[A-Z2-7]{18}")
NAME = re.compile(r"[a-z0-9-]{1,32}")
TOKEN = re.compile(r"[!-~]{1,128}")


@dataclass
class Doors:
    """The keys by id, each with the version of the table that it came with."""

    requests: Requests
    version: int = 0
    known_since: int = 0
    """What was revoked before this version is not remembered."""
    keys: dict[str, tuple[int, DoorKey]] = field(default_factory=dict)
    revoked: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Ids with the version they went with and their own end (0: kept while there is room)."""
    spent: dict[str, float] = field(default_factory=dict)
    """Links that may be used once and were, and when they would have ended."""

    @property
    def appliers(self) -> dict[type[Any], Callable[[Any], None]]:
        return {
            op.KeyMade: self._made,
            op.KeyRevoked: self._revoked,
            op.LinkSpent: self._spent,
        }

    def _made(self, record: op.KeyMade) -> None:
        self.version += 1
        key = DoorKey(
            record.id, record.name, record.user, record.paths, record.rights, record.at_s,
            record.expires_at_s,
        )  # fmt: skip
        self.keys[record.id] = (self.version, key)
        self.requests.remember(record.request, FileId(0))

    def _revoked(self, record: op.KeyRevoked) -> None:
        self.version += 1
        self.keys.pop(record.id, None)
        over = [i for i, (_, until_s) in self.revoked.items() if 0 < until_s < record.at_s]
        for old in over:
            del self.revoked[old]
        self.revoked[record.id] = (self.version, record.until_s)
        while len(self.revoked) > REVOKED_MAX:
            oldest = next(i for i, (_, until_s) in self.revoked.items() if until_s == 0)
            self.known_since = max(self.known_since, self.revoked.pop(oldest)[0])
        self.requests.remember(record.request, FileId(0))

    def _spent(self, record: op.LinkSpent) -> None:
        for old in [nonce for nonce, until_s in self.spent.items() if until_s < record.at_s]:
            del self.spent[old]
        self.spent[record.nonce] = record.until_s
        self.requests.remember(record.request, FileId(0))

    def since(self, ask: KeysSince) -> KeyTable:
        """What changed after a version, or all where that is not known any more."""
        is_whole = not self.known_since <= ask.version <= self.version or ask.version <= 0
        begin = -1 if is_whole else ask.version
        keys = tuple(key for version, key in self.keys.values() if version > begin)
        revoked = tuple(name for name, (version, _) in self.revoked.items() if version > begin)
        return KeyTable(self.version, is_whole, keys, revoked)


class DoorChanges:
    """Decides on keys."""

    def __init__(self, doors: Doors, emit: Callable[[op.OneRecord], None]) -> None:
        self._doors = doors
        self._emit = emit

    def make(self, ask: MakeKey, at_s: float, request: op.RequestId) -> None:
        doors = self._doors
        if not ID.fullmatch(ask.id):
            raise BadRequest(f"key id {ask.id[:40]!r} is not `MR` and 18 of A-Z and 2-7")
        if not NAME.fullmatch(ask.name):
            raise BadRequest(f"key name {ask.name[:40]!r} is not 1 to 32 of a-z, 0-9 and -")
        if ask.rights not in ("r", "rw"):
            raise BadRequest(f"rights of {ask.name} are {ask.rights[:40]!r}; they must be r or rw")
        if not 0 < len(ask.user.encode()) <= NAME_BYTES_MAX or "\0" in ask.user:
            raise BadRequest(f"{ask.user[:40]!r} cannot be the name of a user")
        if not 0 < len(ask.paths) <= PATHS_MAX:
            raise BadRequest(f"{ask.name}: {len(ask.paths)} paths; 1 to {PATHS_MAX} can be")
        if ask.expires_at_s != 0 and not at_s < ask.expires_at_s <= TIME_S_MAX:
            raise BadRequest(
                f"{ask.name}: expires at {ask.expires_at_s!r}, before now or after 9999"
            )
        if ask.id in doors.keys or ask.id in doors.revoked:
            raise FileExists(f"key {ask.id}: there is, or was, one with this id")
        if any(key.name == ask.name for _, key in doors.keys.values()):
            raise FileExists(f"key {ask.name}: exists already; revoke it, or take another name")
        if len(doors.keys) >= KEYS_MAX:
            raise BadRequest(f"there are {KEYS_MAX} keys, the most; revoke some")
        paths = tuple(join_path(split_path(path)) for path in ask.paths)
        self._emit(
            op.KeyMade(
                ask.id, ask.name, ask.user, paths, ask.rights, ask.expires_at_s, at_s, request
            )
        )

    def revoke(self, ask: RevokeKey, at_s: float, request: op.RequestId) -> None:
        doors = self._doors
        if ask.until_s:
            self._check_token("token", ask.key, ask.until_s, at_s)
            lasting = sum(1 for _, until_s in doors.revoked.values() if until_s >= at_s)
            if lasting >= REVOKED_MAX and ask.key not in doors.revoked:
                raise BadRequest(
                    f"{REVOKED_MAX} tokens are void already, the most; wait for their end"
                )
            self._emit(op.KeyRevoked(ask.key, ask.until_s, at_s, request))
            return
        found = [key.id for _, key in doors.keys.values() if ask.key in (key.id, key.name)]
        if not found:
            raise NoSuchKey(f"{ask.key[:40]}: there is no key of this name or id")
        self._emit(op.KeyRevoked(found[0], 0.0, at_s, request))

    def spend(self, ask: SpendLink, at_s: float, request: op.RequestId) -> None:
        self._check_token("link", ask.nonce, ask.until_s, at_s)
        spent = self._doors.spent
        if ask.nonce in spent:
            raise AlreadySpent("the link was used before; ask for a new one")
        if sum(1 for until_s in spent.values() if until_s >= at_s) >= LINKS_MAX:
            raise BadRequest(f"{LINKS_MAX} links were used lately, the most; wait a while")
        self._emit(op.LinkSpent(ask.nonce, ask.until_s, at_s, request))

    def _check_token(self, what: str, name: str, until_s: float, at_s: float) -> None:
        if not TOKEN.fullmatch(name):
            raise BadRequest(f"{what} {name[:40]!r} is not 1 to 128 printable characters")
        if not at_s <= until_s <= at_s + AHEAD_S_MAX:
            raise BadRequest(f"{what}: its end, {until_s!r}, is over, or more than a year ahead")
