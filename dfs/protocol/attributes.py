"""Client → master: what is told of a file beside its bytes, and names in the order of keys."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from mrstream.cluster.wire.messages import Message, Request
from mrstream.dfs.chunk import NO_FENCE, Fence, Fences, FileId
from mrstream.dfs.protocol.shared import FileStatus


class SetAttributes(Request, frozen=True):
    """Change attributes of a file or directory: at most 16 names, 4 KiB in all.

    They stay with it when it is renamed, deleted or snapshot, and go when it is overwritten.
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = True
    path: str
    changed: dict[str, bytes | None]
    """None takes a name away."""
    user: str
    replace_all: bool = False
    """Do names that are not in `changed` go?"""
    file_id: FileId = FileId(0)
    """Only if this very file has the path; 0: whatever has it."""
    fence: Fence = NO_FENCE
    more_fences: Fences = ()


class AttributesReply(Message, frozen=True):
    """A file or directory with its attributes."""

    status: FileStatus
    values: dict[str, bytes]


class GetAttributes(Request, frozen=True):
    """What has this path, and what is told of it?"""

    reply: ClassVar[Any] = AttributesReply
    path: str


class KeyEntry(Message, frozen=True):
    """One key of an object store: a path below the root, without its first slash. A directory that
    has attributes is a key that ends with a slash."""

    key: str
    file_id: FileId
    length_bytes: int
    modified_at_s: float
    owner: str
    is_prefix: bool = False
    """Not a key but what several may begin with (`by_directory`); ends with a slash."""
    attributes: dict[str, bytes] = msgspec.field(default_factory=dict)


class KeyPage(Message, frozen=True):
    """A part of the keys; `next` is what to pass as `after` for more, empty at the end. It may
    have fewer than were asked for, and yet not be the last."""

    entries: tuple[KeyEntry, ...]
    next: str = ""


class FindKeys(Request, frozen=True):
    """The keys below a directory that begin with `prefix`, in the order of their bytes, in which a
    directory is `name/`: `a-b` comes before `a/b`.

    `by_directory` gives what lies behind the next slash after the prefix as one entry.
    """

    reply: ClassVar[Any] = KeyPage
    root: str
    prefix: str = ""
    after: str = ""
    by_directory: bool = False
    limit: int = 1000
    attributes: tuple[str, ...] = ()
    """The names of attributes to be told."""
