"""Who asks, and what they may do.

A proof of identity (a key with its secret, a token, or a network whose word is taken) becomes a
`Principal`; every path that a request names is then checked against its rights, on whole components
of the canonical path. The dfs itself trusts whoever has the cluster's secret, so what is checked
here is narrower than the inside, never wider (G3). Without IO: keys are brought by whoever polls
for them, and a table of keys that is too old refuses everything.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from mrstream.web.http.head import Refused
from mrstream.web.http.request import Request
from mrstream.web.http.tokens import KEY_ID, key_secret

T = TypeVar("T")
OWN = (b".mrstream", b".trash")
"""Directories of the file system's own, which no key reaches."""
KEYS_AGE_S_MAX = 30.0
GUESSES_MAX = 20
GUESS_WINDOW_S = 60.0
GUESSERS_MAX = 10_000
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,254}\$?")
"""Hadoop's pattern of user names."""
_ASK = ("WWW-Authenticate", 'Basic realm="mrstream", charset="UTF-8"')


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who has proven a key, a token or a session."""

    user: str
    """Owner of what is made."""
    key: str = ""
    """The name of the key; empty: believed because of where the request came from."""
    key_id: str = ""
    paths: tuple[str, ...] = ("/",)
    """Prefixes of whole components, canonical."""
    can_write: bool = True

    def reaches(self, parts: tuple[bytes, ...]) -> bool:
        """Is this path (its names, canonical) within what the principal may see?"""
        if parts[:1] and parts[0] in OWN:
            return False
        return any(_is_within(parts, path) for path in self.paths)

    def check(self, parts: tuple[bytes, ...], *, writes: bool) -> None:
        """Raise 403 unless the principal may read (or change) what has this path."""
        if not self.reaches(parts):
            raise Refused(403, f"key {self.key or self.user} does not reach this path")
        if writes and not self.can_write:
            raise Refused(403, f"key {self.key or self.user} may only read")


def _is_within(parts: tuple[bytes, ...], prefix: str) -> bool:
    names = tuple(name for name in prefix.encode().split(b"/") if name)
    return parts[: len(names)] == names


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the dfs master's log has it: everything but its secret."""

    id: str
    name: str
    user: str
    paths: tuple[str, ...]
    can_write: bool
    made_at_s: float = 0.0
    expires_at_s: float = 0.0
    """0: never."""

    def principal(self) -> Principal:
        """Whoever has proven it."""
        return Principal(self.user, self.name, self.id, self.paths, self.can_write)


class Keys:
    """The keys that are good now, and what was revoked before its end."""

    def __init__(self) -> None:
        self._by_id: dict[str, Key] = {}
        self._revoked: set[str] = set()
        self.version = 0
        self.known_at_s = float("-inf")
        """When the master last said that this is all, by the monotonic clock."""

    def __len__(self) -> int:
        return len(self._by_id)

    def update(
        self,
        version: int,
        keys: Iterable[Key],
        revoked: Iterable[str],
        *,
        whole: bool,
        now_s: float,
    ) -> None:
        """Take over what the master says: all there is, or what changed."""
        if whole:
            self._by_id.clear()
            self._revoked.clear()
        for key in keys:
            self._by_id[key.id] = key
        for id in revoked:
            self._by_id.pop(id, None)
            self._revoked.add(id)
        self.version = version
        self.known_at_s = now_s

    def get(self, id: str, wall_s: float) -> Key | None:
        """The key of that id, if it is good."""
        key = self._by_id.get(id)
        if key is None or id in self._revoked:
            return None
        return key if not key.expires_at_s or wall_s < key.expires_at_s else None

    def has(self, id: str) -> bool:
        """Is anything known of this id?"""
        return id in self._by_id or id in self._revoked

    def is_revoked(self, id: str) -> bool:
        return id in self._revoked

    def all(self) -> list[Key]:
        """Every key, by name."""
        return sorted(self._by_id.values(), key=lambda key: key.name)


class Guesses:
    """Refusals by address and key: who guesses too often is not listened to for a while.

    A key that is there is counted for itself, all that are not together: one program with an old
    key does not shut out the others of its host.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], deque[float]] = {}

    def check(self, address: str, key_id: str, now_s: float) -> None:
        """Raise 429 if too many guesses at this key (empty: at none of ours) came from there."""
        times = self._times.get((address, key_id))
        if times is None:
            return
        while times and times[0] <= now_s - GUESS_WINDOW_S:
            times.popleft()
        if not times:
            del self._times[address, key_id]
        elif len(times) >= GUESSES_MAX:
            wait = ("Retry-After", str(int(times[0] + GUESS_WINDOW_S - now_s) + 1))
            raise Refused(429, "too many refused keys from this address; wait a minute", [wait])

    def note(self, address: str, key_id: str, now_s: float) -> None:
        """One more from there."""
        who = (address, key_id)
        if who not in self._times and len(self._times) >= GUESSERS_MAX:
            self._times.pop(next(iter(self._times)))
        self._times.setdefault(who, deque(maxlen=GUESSES_MAX)).append(now_s)


class UnknownKey(Refused):
    """Nobody has a key of that id."""


class WrongProof(Refused):
    """The key is there, and the proof was not made with it."""


TokenReader = Callable[[str], tuple[str, str] | None]
"""From the text of a token to the key's id and the user, if it is one of ours and good."""


class Access:
    """Proofs → principals, for one gateway."""

    def __init__(
        self,
        door_secret: bytes,
        keys: Keys,
        *,
        now_s: Callable[[], float],
        wall_s: Callable[[], float],
        trusted: Iterable[str] = (),
        trusted_writes: bool = False,
        behind: Iterable[str] = (),
        read_only: bool = False,
    ) -> None:
        self._door_secret = door_secret
        self._keys = keys
        self._now_s = now_s
        self._wall_s = wall_s
        self._trusted = [ipaddress.ip_network(network) for network in trusted]
        self._trusted_writes = trusted_writes
        self._behind = frozenset(behind)
        self._read_only = read_only
        self._guesses = Guesses()
        self.read_token: TokenReader = lambda text: None
        """What delegation tokens mean; a face that gives them out says it."""
        self.look_again: Callable[[], Awaitable[bool]] = self._is_fresh
        """Asks for keys that are new; False if nobody answers."""

    def is_trusted(self, address: str) -> bool:
        """Is the word of whoever calls from there taken?"""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._trusted)

    async def principal(
        self,
        request: Request,
        *,
        token: str = "",
        user_name: str = "",
        key: tuple[str, str] | None = None,
    ) -> Principal:
        """Return who asks, by the first proof there is; 401 if there is none or it is wrong.

        `token` and `user_name` are what a face found in the query, `key` (its id and secret) what
        it found in a form.
        """
        if key is not None:
            self._check_private(request)
            found = await self._by_key(request, key)
        else:
            found = await self._proven(request, token, user_name)
        if self._read_only:
            found = replace(found, can_write=False)
        request.principal = found
        request.note.key, request.note.user = found.key, found.user
        return found

    async def signer(
        self, request: Request, key_id: str, verify: Callable[[str], T | None], *, reusable: bool
    ) -> tuple[Principal, T]:
        """Return who signed a request, and what `verify` made of the key's secret.

        `reusable`: whoever reads the request on its way could use it again for something else.
        """
        if reusable:
            self._check_private(request)
        key = await self._good_key(request, key_id)
        # The same work for an id that nobody has.
        signed = verify(key_secret(self._door_secret, key_id))
        if key is None or signed is None:
            self._note_guess(request, key_id)
            if key is None:
                raise UnknownKey(403, "there is no such key here")
            raise WrongProof(403, "the request is not signed with the secret of this key")
        found = key.principal()
        if self._read_only:
            found = replace(found, can_write=False)
        request.principal = found
        request.note.key, request.note.user = found.key, found.user
        return found, signed

    async def _proven(self, request: Request, token: str, user_name: str) -> Principal:
        header = request.headers.get("authorization", "")
        kind, _, value = header.partition(" ")
        if header or token:
            self._check_private(request)
        if token:
            return await self._by_token(request, token)
        if kind.lower() == "basic":
            return await self._by_key(request, _unpacked(value.strip()))
        if kind.lower() == "bearer":
            id, colon, secret = value.strip().partition(":")
            if colon:
                return await self._by_key(request, (id, secret))
            return await self._by_token(request, value.strip())
        if user_name and not header and self.is_trusted(request.peer):
            if not USER_NAME.fullmatch(user_name):
                raise Refused(400, f"user.name {user_name[:80]!r} is not a user's name")
            return Principal(user_name, can_write=self._trusted_writes)
        raise Refused(401, "a key is needed: `mrstream key add` makes one", [_ASK])

    def _check_private(self, request: Request) -> None:
        """A secret that anybody on the way could read is none: refuse it before it is looked at."""
        address = ipaddress.ip_address(request.address)
        if not (
            request.is_secure
            or address.is_loopback
            or request.address in self._behind
            or self.is_trusted(request.address)
        ):
            raise Refused(
                403, "keys are taken over TLS only; revoke this one, it was sent in plain"
            )

    async def _by_key(self, request: Request, given: tuple[str, str] | None) -> Principal:
        id, secret = given or ("", "")
        key = await self._good_key(request, id)
        # The same work for an id that nobody has: time tells nothing.
        right = key_secret(self._door_secret, id)
        is_right = hmac.compare_digest(right.encode(), secret.encode("utf-8", "replace"))
        if key is None or not is_right:
            raise self._refused(request, id)
        return key.principal()

    async def _by_token(self, request: Request, text: str) -> Principal:
        claims = self.read_token(text)
        # A token that is not ours has a key that nobody has.
        key = await self._good_key(request, claims[0] if claims is not None else "")
        if claims is None or key is None:
            raise self._refused(request, "")
        return replace(key.principal(), user=claims[1])

    async def _is_fresh(self) -> bool:
        return self._now_s() - self._keys.known_at_s <= KEYS_AGE_S_MAX

    async def _good_key(self, request: Request, id: str) -> Key | None:
        self._guesses.check(request.peer, self._guessed(id), self._now_s())
        if not self._keys.has(id) and KEY_ID.fullmatch(id):
            # It may have been made a moment ago.
            is_sure = await self.look_again()
        else:
            # A key that was revoked meanwhile would still be good here.
            is_sure = await self._is_fresh()
        if not is_sure:
            raise Refused(
                503, "the table of keys is out of date; try again later", [("Retry-After", "5")]
            )
        return self._keys.get(id, self._wall_s())

    def _guessed(self, id: str) -> str:
        return id if self._keys.has(id) else ""

    def _note_guess(self, request: Request, id: str) -> None:
        self._guesses.note(request.peer, self._guessed(id), self._now_s())

    def _refused(self, request: Request, id: str) -> Refused:
        self._note_guess(request, id)
        return Refused(401, "the key or token is not good here", [_ASK])


def _unpacked(value: str) -> tuple[str, str] | None:
    """User and password of `Authorization: Basic`."""
    try:
        text = base64.b64decode(value.encode("ascii"), validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return None
    id, colon, secret = text.partition(":")
    return (id, secret) if colon else None
