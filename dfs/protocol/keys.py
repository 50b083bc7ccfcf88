"""Gateway → master: keys to the doors. No secret is in any message or record."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import NO_FENCE, Fence, Fences


class DoorKey(Message, frozen=True):
    """What whoever has a key may do; the secret follows from the id and the gateway's own."""

    id: str
    name: str
    user: str
    paths: tuple[str, ...]
    """With all below them."""
    rights: str
    """r | rw"""
    made_at_s: float
    expires_at_s: float = 0.0
    """0: never."""


class MakeKey(Request, frozen=True):
    """Make a key known; FileExists if the name or the id is taken."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    id: str
    """`MR` and 18 characters of base32."""
    name: str
    user: str
    paths: tuple[str, ...] = ("/",)
    rights: str = "rw"
    expires_at_s: float = 0.0
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class RevokeKey(Request, frozen=True):
    """A key, by name or id, is void from now on; NoSuchKey if there is none.

    With `until_s` it is the id of a token that was made with a key, void until its own end.
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    key: str
    until_s: float = 0.0
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class SpendLink(Request, frozen=True):
    """Use a link that may be used once; AlreadySpent the second time."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    nonce: str
    until_s: float
    """When it would have ended."""
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class KeyTable(Message, frozen=True):
    """What changed since the version that was named, or (`is_whole`) all there is."""

    version: int
    is_whole: bool
    keys: tuple[DoorKey, ...]
    revoked: tuple[str, ...] = ()
    """Ids of keys and tokens that are void."""


class KeysSince(Request, frozen=True):
    """Which keys are there? 0: all."""

    reply: ClassVar[Any] = KeyTable
    diagnosed: ClassVar[bool] = False
    version: int = 0
