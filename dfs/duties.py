"""The master's duties in order: decide, log, wait until it is durable, then answer and send (M1).

Sits between the brain and whatever carries messages: the asyncio shell of `dfs.master`, or a
simulator. Everything decided waits in line behind the records that it rests on, a question's answer
too. Never does any IO itself, never decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cluster.errors import ClusterError
from cluster.messages import Request
from dfs.metadata.events import Command, Event, Log, Refuse, Reply
from dfs.metadata.metadata import Metadata
from dfs.oplog import OperationLog


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

    def event(self, event: Event, now_s: float, wall_s: float) -> int:
        """Take one event; return the sequence that must be durable before its outcome is said,
        or 0 if it was said already."""
        rest: list[Command] = []
        for command in self._brain.handle(event, now_s, wall_s):
            if type(command) is Log:
                self._oplog.append(command.record)
            else:
                rest.append(command)
        return self._say(rest) if rest else 0

    def ask(self, call: int, request: Request, now_s: float) -> int:
        """Answer a question, or say why not; as `event`."""
        answer: Command
        try:
            answer = Reply(call, self._brain.query(request, now_s))
        except ClusterError as error:
            # "No such file" may rest on a deletion that is not durable yet.
            answer = Refuse(call, error)
        return self._say([answer])

    def _say(self, commands: list[Command]) -> int:
        seen = self._oplog.seen
        if self._oplog.durable >= seen and not self._held:
            for command in commands:
                self._carry_out(command)
            return 0
        self._held.append((seen, commands))
        return seen

    def release(self) -> None:
        """The log is durable further than before: say what waited for that."""
        held, durable = self._held, self._oplog.durable
        while held and held[0][0] <= durable:
            for command in held.popleft()[1]:
                self._carry_out(command)
