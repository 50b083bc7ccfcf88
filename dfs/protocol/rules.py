"""Client → master: who may still change things, and how much of them there may be."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import NO_FENCE, Fence, Fences

QUOTA_STAYS = -1
NO_QUOTA = -1
"""In a question: leave it as it is. In an answer: there is none."""


class RaiseFence(Request, frozen=True):
    """Refuse, from now on, changes under an older generation; FencedOff if a newer one was seen.

    Every change that carries a fence raises it, too; this one changes nothing else.
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    fence: Fence
    more_fences: Fences = ()


class FenceFact(Message, frozen=True):
    """The highest generation seen of a name."""

    name: str
    generation: int
    raised_at_s: float


class ListFences(Request, frozen=True):
    """Which fences are there?"""

    reply: ClassVar[Any] = tuple[FenceFact, ...]


class SetQuota(Request, frozen=True):
    """Limit a directory with all below it: so many files and directories, so many bytes with all
    replicas. `QUOTA_STAYS` leaves one as it is."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    names: int = QUOTA_STAYS
    space_bytes: int = QUOTA_STAYS
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class ClearQuota(Request, frozen=True):
    """Take limits of a directory away."""

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    user: str
    names: bool = False
    space: bool = False
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class QuotaReply(Message, frozen=True):
    """Limits of a directory itself (`NO_QUOTA` where it has none) and what is used of them."""

    names: int
    names_used: int
    space_bytes: int
    space_used_bytes: int


class GetQuota(Request, frozen=True):
    """Which limits does this directory have? What it uses is known only where it has any."""

    reply: ClassVar[Any] = QuotaReply
    path: str
