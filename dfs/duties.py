"""The master's duties in order: decide, log, wait until it is durable, then answer and send (M1).

Sits between the brain and whatever carries messages: the asyncio shell of `dfs.master`, or a
simulator. Everything decided waits in line behind the records that it rests on, a question's answer
too. Never does any IO itself, never decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.metadata.events import Command, Event, Halt, Log, Refuse, Reply
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.oplog import OperationLog


class Duties:
    """What was decided and may not be said yet."""

    def __init__(
        self, brain: Metadata, oplog: OperationLog, carry_out: Callable[[Command], None]
    ) -> None:
        self._brain = brain
        self._oplog = oplog
        self._carry_out = carry_out
        self._held: deque[tuple[int, list[Command]]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_clear(self) -> bool:
        """Is everything decided so far durable and said? Then questions need not wait in line."""
        return not self._held and self._oplog.durable >= self._oplog.seen

    @property
    def waits_for(self) -> int:
        """The sequence that must be durable before the next thing can be said; 0: nothing waits."""
        return self._held[0][0] if self._held else 0

    def event(self, event: Event, now_s: float, wall_s: float) -> None:
        """Take one event; what comes of it is said once what it rests on is durable."""
        rest: list[Command] = []
        for command in self._brain.handle(event, now_s, wall_s):
            if type(command) is Log:
                self._oplog.append(command.record)
            elif type(command) is Halt:
                self._carry_out(command)  # it rests on nothing, and nothing may go before it
            else:
                rest.append(command)
        if rest:
            self._say(rest)

    def ask(self, call: int, request: Request, now_s: float) -> None:
        """Answer a question, or say why not; as `event`."""
        answer: Command
        try:
            answer = Reply(call, self._brain.query(request, now_s))
        except ClusterError as error:
            # "No such file" may rest on a deletion that is not durable yet.
            answer = Refuse(call, error)
        self._say([answer])

    def answer(self, call: int, value: Any) -> None:
        """Give the answer to a question that was put to the brain a slice at a time; as `event`."""
        self._say([Reply(call, value)])

    def _say(self, commands: list[Command]) -> None:
        if self.is_clear:
            for command in commands:
                self._carry_out(command)
        else:
            self._held.append((self._oplog.seen, commands))

    def release(self) -> None:
        """The log is durable further than before: say what waited for that."""
        held, durable = self._held, self._oplog.durable
        while held and held[0][0] <= durable:
            for command in held.popleft()[1]:
                self._carry_out(command)
