"""What the source tells the screens."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class ClusterChanged(Message):
    """The picture of hosts, jobs or chunks differs from before."""


@dataclass
class JobChanged(Message):
    """The picture of the job being watched differs from before."""


@dataclass
class MasterLost(Message):
    """A master does not answer; the last picture stays."""

    reason: str


@dataclass
class MasterBack(Message):
    """The master answers again."""


@dataclass
class ActionDone(Message):
    """An action that the user asked for ended."""

    text: str
    failed: bool
