"""The master's duties in order: decide, log, wait until it is durable, then answer and send (M1).

Sits between the brain and whatever carries messages: the asyncio shell of `dfs.master`, or a
simulator. Everything decided waits at the gate behind the records that it rests on, a question's
answer too, and for the leader's lease. Never does any IO itself, never decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.metadata.events import Command, Event, Halt, Log, Refuse, Reply
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.oplog import encode_record


class Duties:
    """What was decided and may not be said yet."""

    def __init__(
        self,
        brain: Metadata,
        log: RecordLog,
        gate: Gate[Command],
        halt: Callable[[Command], None],
    ) -> None:
        """`halt` rests on nothing, and nothing may go before it."""
        self._brain = brain
        self._log = log
        self._gate = gate
        self._halt = halt

    def event(self, event: Event, now_s: float, wall_s: float) -> None:
        """Take one event; what comes of it is said once what it rests on is durable."""
        rest: list[Command] = []
        for command in self._brain.handle(event, now_s, wall_s):
            if type(command) is Log:
                self._log.append(encode_record(command.record))
            elif type(command) is Halt:
                self._halt(command)
            else:
                rest.append(command)
        self._gate.say(rest)

    def ask(self, call: int, request: Request, now_s: float) -> None:
        """Answer a question, or say why not; as `event`."""
        answer: Command
        try:
            answer = Reply(call, self._brain.query(request, now_s))
        except ClusterError as error:
            # "No such file" may rest on a deletion that is not durable yet.
            answer = Refuse(call, error)
        self._gate.say([answer])

    def answer(self, call: int, value: Any) -> None:
        """Give the answer to a question that was put to the brain a slice at a time; as `event`."""
        self._gate.say([Reply(call, value)])
