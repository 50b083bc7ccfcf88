"""The recent past of a replica, so that an election can be told; never grows beyond its bound."""

from __future__ import annotations

from collections import deque

from mrstream.cluster.consensus.commands import (
    Command,
    Committed,
    SavePromise,
    Send,
    SendLog,
    Write,
)
from mrstream.cluster.consensus.events import Event, Received
from mrstream.cluster.consensus.messages import AppendLog, Position

REMEMBERED_MAX = 500
_SMALL_TALK = (Committed, SavePromise, SendLog, Write)


class Story:
    """A ring of what mattered: votes, leads, cuts, members; not beats and records."""

    __slots__ = ("_ring",)

    def __init__(self, length_max: int = REMEMBERED_MAX) -> None:
        self._ring: deque[tuple[float, Event, list[Command]]] = deque(maxlen=length_max)

    def add(self, now_s: float, event: Event, commands: list[Command]) -> None:
        told = [command for command in commands if not _is_small_talk(command)]
        if told:
            self._ring.append((now_s, event, told))

    def lines(self) -> list[str]:
        """Return one line for each event and what it led to, oldest first."""
        told: list[str] = []
        for now_s, event, commands in self._ring:
            told.append(f"{now_s:.3f}s  {_line(event)}")
            told.extend(f"{now_s:.3f}s    → {_line(command)}" for command in commands)
        return told


def _is_small_talk(command: Command) -> bool:
    if isinstance(command, Send):
        return isinstance(command.word, Position) and command.word.matches
    return isinstance(command, _SMALL_TALK)


def _line(record: Event | Command) -> str:
    if isinstance(record, Received) and isinstance(record.word, AppendLog):
        word = record.word
        return f"Received {record.sender} AppendLog epoch={word.epoch} after={word.previous}"
    return repr(record)
