"""What the brain has decided so far in this turn, and the questions it waits to have answered.

`Outbox` collects the commands of one `handle`; `Gather` asks several chunkservers the same thing
and goes on when each has answered, failed, gone, or been silent for too long. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.dfs.chunk import first_command_id
from mrstream.dfs.metadata.chunk_table import ServerIndex
from mrstream.dfs.metadata.events import (
    Called,
    Command,
    Halt,
    Log,
    Outrun,
    Refuse,
    Reply,
    Send,
)
from mrstream.dfs.metadata.operations import OneRecord, Together
from mrstream.dfs.metadata.servers import Server
from mrstream.dfs.protocol import Command as ServerCommand
from mrstream.dfs.protocol import CommandDone

TOGETHER_MAX = 10_000
"""Records in one; only expunging takes more, and it may well be done in parts."""

OnDone = Callable[[CommandDone | None], None]
"""Called with the answer, or with None when there will be none."""


@dataclass(slots=True)
class _Question:
    server: ServerIndex
    incarnation: int
    until_s: float
    on_done: OnDone


class Outbox:
    """The commands of this turn; the time of this turn; questions under way."""

    def __init__(self, apply: Callable[[OneRecord], None]) -> None:
        self._apply = apply
        self._commands: list[Command] = []
        """Of this turn, in the order of decision: what is to be durable before it may be said
        stands before it (M1)."""
        self._together: list[OneRecord] | None = None
        """Records that become one; None between decisions of that kind, and between turns."""
        self._questions: dict[int, _Question] = {}
        """By the id of the command; each is answered, or given up, once."""
        self._next_command_id = 1
        """No two commands of an epoch have the same, nor have those of two epochs."""
        self._since_s: dict[int, float] = {}
        """When requests that wait were first looked at; they go with the answer."""
        self._halted = ""
        """Why nothing more may be done; never taken back."""
        self.leads = False
        """Before that nothing is decided and nobody commanded (F4)."""
        self.again: list[Called] = []
        """Requests that waited for something that is settled now: to be handled once more."""
        self.now_s = 0.0
        self.wall_s = 0.0

    def begin(self, now_s: float, wall_s: float) -> None:
        self.now_s, self.wall_s = now_s, wall_s

    def take(self) -> list[Command]:
        """Return what this turn decided, in order."""
        assert self._together is None, "a decision was begun and not ended"
        commands, self._commands = self._commands, []
        return [Halt(self._halted)] if self._halted else commands

    # --- decisions

    def emit(self, record: OneRecord) -> None:
        """Change the metadata: apply at once, durable before whatever follows is said."""
        assert self.leads, f"F4: a shadow decides nothing: {record}"
        self._apply(record)
        if self._together is None:
            self._commands.append(Log(record))
            return
        self._together.append(record)
        if len(self._together) == TOGETHER_MAX:
            self._log_together()

    def begin_together(self) -> None:
        """What is emitted from here on is one record of the log: a crash leaves all or nothing."""
        assert self._together is None, "one decision inside another"
        self._together = []

    def end_together(self) -> None:
        self._log_together()
        self._together = None

    def _log_together(self) -> None:
        records, self._together = self._together, []
        if records:
            whole = records[0] if len(records) == 1 else Together(tuple(records))
            self._commands.append(Log(whole))

    def reply(self, call: int, value: Any) -> None:
        self._since_s.pop(call, None)
        self._commands.append(Reply(call, value))

    def refuse(self, call: int, error: ClusterError) -> None:
        self._since_s.pop(call, None)
        self._commands.append(Refuse(call, error))

    def outrun(self, epoch: int) -> None:
        """A later master has been seen."""
        self._commands.append(Outrun(epoch))

    def halt(self, why: str) -> None:
        """Nothing that was decided, or will be, may be done."""
        assert self.leads, f"F4: a shadow may be behind, and judges nobody's log: {why}"
        self._halted = self._halted or why

    def waited_s(self, call: int) -> float:
        """How long this request has been waiting (0 the first time)."""
        return self.now_s - self._since_s.setdefault(call, self.now_s)

    # --- questions

    def number_in(self, epoch: int) -> None:
        """Give commands the ids of this epoch."""
        self._next_command_id = first_command_id(epoch)
        self.leads = True

    def ask(
        self,
        server: Server,
        make: Callable[[int], ServerCommand],
        wait_s: float,
        on_done: OnDone,
    ) -> int:
        """Send a command, made with the id it gets; `on_done` hears the outcome once."""
        command_id = self._send(server, make)
        self._questions[command_id] = _Question(
            server.index, server.incarnation, self.now_s + wait_s, on_done
        )
        return command_id

    def tell(self, server: Server, make: Callable[[int], ServerCommand]) -> None:
        """Send a command whose outcome changes nothing here."""
        self._send(server, make)

    def _send(self, server: Server, make: Callable[[int], ServerCommand]) -> int:
        assert self.leads, "F4: a shadow commands nobody"
        command_id = self._next_command_id
        self._next_command_id += 1
        # It dies of age on its way: what was decided on old news is not done (F2).
        command = msgspec.structs.replace(make(command_id), since=server.number)
        self._commands.append(Send(server.id, server.incarnation, command))
        return command_id

    def answered(self, done: CommandDone) -> None:
        """Take in an answer; one that nobody waits for (late, repeated) is dropped."""
        question = self._questions.pop(done.command_id, None)
        if question is not None:
            question.on_done(done)

    def server_left(self, server: ServerIndex) -> None:
        """No answers will come from there."""
        self._give_up([i for i, q in self._questions.items() if q.server == server])

    def time_out(self) -> None:
        """Give up on questions that are too old."""
        if self._questions:
            self._give_up([i for i, q in self._questions.items() if q.until_s <= self.now_s])

    def _give_up(self, ids: list[int]) -> None:
        for command_id in ids:
            question = self._questions.pop(command_id, None)
            if question is not None:
                question.on_done(None)


class Gather:
    """One question to several servers; `then(self)` when all is said that will be said."""

    def __init__(
        self,
        outbox: Outbox,
        servers: Sequence[Server],
        make: Callable[[int, Server], ServerCommand],
        wait_s: float,
        then: Callable[[Gather], None],
    ) -> None:
        assert servers, "nobody to ask"
        self.acks: dict[ServerIndex, CommandDone] = {}
        """Who did it."""
        self.failed: list[ServerIndex] = []
        """Who refused, or was not heard: it may have done it all the same."""
        self.errors: list[str] = []
        """Of each that failed, why."""
        self._left = len(servers)
        """How many are neither; at 0 `then` is called, once."""
        self._then = then
        for server in servers:
            outbox.ask(
                server,
                lambda command_id, server=server: make(command_id, server),  # type: ignore[misc]
                wait_s,
                lambda done, server=server: self._answered(server, done),  # type: ignore[misc]
            )

    def _answered(self, server: Server, done: CommandDone | None) -> None:
        if done is not None and done.ok:
            self.acks[server.index] = done
        else:
            self.failed.append(server.index)
            self.errors.append(f"{server.id}: {done.error if done is not None else 'no answer'}")
        self._left -= 1
        if self._left == 0:
            self._then(self)
