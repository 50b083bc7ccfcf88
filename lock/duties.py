"""The cell's duties in order: decide, log, wait until it is durable, then answer.

Sits between the brain and whatever carries messages: the asyncio shell of `lock.master`, or a
simulator. Everything decided waits at the gate behind the records that it rests on: a read's
answer, and a KeepAlive's with the events on it, too (CH-26); and for the leader's lease. Never does
any IO itself, never decides.
"""

from __future__ import annotations

from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.events import Event, Log, Refuse, Reply
from mrstream.lock.cell.records import encode_record


class Duties:
    def __init__(self, brain: Cell, log: RecordLog, gate: Gate[Reply | Refuse]) -> None:
        self._brain = brain
        self._log = log
        self._gate = gate

    def event(self, event: Event, now_s: float, wall_s: float) -> None:
        """Take one event; what comes of it is said once what it rests on is durable."""
        said: list[Reply | Refuse] = []
        for command in self._brain.handle(event, now_s, wall_s):
            if isinstance(command, Log):
                self._log.append(encode_record(command.record))
            else:
                said.append(command)
        self._gate.say(said)
