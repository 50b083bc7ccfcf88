"""Client → any master: a question that may be answered from a state that is a little old."""

from __future__ import annotations

from typing import Any, ClassVar

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.protocol.attributes import FindKeys, GetAttributes
from mrstream.dfs.protocol.keys import KeysSince
from mrstream.dfs.protocol.names import (
    FindTree,
    GetPolicy,
    Glob,
    ListDirectory,
    ListTrash,
    Locate,
    Stat,
    Summarise,
)
from mrstream.dfs.protocol.rules import GetQuota, ListFences
from mrstream.dfs.protocol.state import Fsck, Report, Story

Question = (
    Stat
    | ListDirectory
    | Glob
    | FindTree
    | Summarise
    | ListTrash
    | GetPolicy
    | GetAttributes
    | GetQuota
    | FindKeys
    | KeysSince
    | ListFences
    | Locate
    | Fsck
    | Story
    | Report
)
"""What only reads."""


class ShadowAnswer(Message, frozen=True):
    """What a shadow knows (GFS §5.1.3)."""

    as_of: int
    """The last record of the log that the answer rests on."""
    behind_s: float
    """The answer was true at some moment at most so long ago."""
    answer: bytes
    """The reply to the question, packed."""


class AskShadow(Request, frozen=True):
    """Answer this as far as you know. A master that leads refuses: it is asked the question itself.
    A refusal (no such file) may be as old as an answer."""

    reply: ClassVar[Any] = ShadowAnswer
    query: Question
