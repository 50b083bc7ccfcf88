"""A lock cell in one process for tests of the brain: the real `Cell`, a clock moved by hand, and
clients that keep no cache of their own.

`Model.call` gives the reply or raises the refusal; `Model.crash` throws the brain away and folds
the log that a real leader would find on its disk, for a leader of the next epoch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request, pack, unpack
from mrstream.lock import protocol as p
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.events import Called, Event, LeadershipBegan, Log, Refuse, Reply, Tick
from mrstream.lock.cell.image import load_image, pack_image
from mrstream.lock.cell.records import AnyRecord, decode_record, encode_record
from mrstream.lock.cell.settings import Settings

SECRET = b"the secret of the cluster"
R, W, RW = p.READ, p.WRITE, p.READ | p.WRITE


class Waits(Exception):
    """The call was not answered yet; `Model.outcome(call)` has the answer later."""

    def __init__(self, call: int) -> None:
        super().__init__(f"call {call} waits")
        self.call = call


class Model:
    """One cell over the lives of its leaders."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.now_s = 100.0
        self.log: list[bytes] = []
        self.epoch = 0
        self._next_call = 1
        self.answers: dict[int, Any] = {}
        self.lead()

    def lead(self) -> None:
        """A leader of the next epoch takes over, from the log alone."""
        self.cell = Cell(self.settings, SECRET, "demo")
        for payload in self.log:
            self.cell.apply(decode_record(payload))
        self.epoch += 1
        self.answers.clear()
        self.event(LeadershipBegan(self.epoch))

    crash = lead

    def event(self, event: Event) -> None:
        for command in self.cell.handle(event, self.now_s, 1_000_000_000.0 + self.now_s):
            match command:
                case Log(record):
                    self.log.append(encode_record(record))
                case Reply(call, value):
                    assert call not in self.answers, f"call {call} was answered twice"
                    self.answers[call] = value
                case Refuse(call, error):
                    assert call not in self.answers, f"call {call} was answered twice"
                    self.answers[call] = error
        self.cell.check_invariants()

    def begin(self, request: Request) -> int:
        """Send a request; return the number of the call."""
        call, self._next_call = self._next_call, self._next_call + 1
        crossed = unpack(pack(request), type(request))
        self.event(Called(call, crossed))
        return call

    def outcome(self, call: int) -> Any:
        """The reply to a call, or its refusal raised, or `Waits`."""
        if call not in self.answers:
            raise Waits(call)
        value = self.answers[call]
        if isinstance(value, ClusterError):
            raise value
        return value

    def call(self, request: Request) -> Any:
        return self.outcome(self.begin(request))

    def is_waiting(self, call: int) -> bool:
        return call not in self.answers

    def wait(self, seconds: float, step_s: float = 0.25) -> None:
        """Let time pass, with its ticks."""
        for _ in range(round(seconds / step_s)):
            self.now_s += step_s
            self.event(Tick())

    def records(self, kind: type[AnyRecord] | None = None) -> list[AnyRecord]:
        """The log, or the records of one kind in it."""
        records = [decode_record(payload) for payload in self.log]
        return records if kind is None else [r for r in records if isinstance(r, kind)]

    def through_an_image(self) -> Cell:
        """The state written to a checkpoint and read back."""
        again = Cell(self.settings, SECRET, "demo")
        load_image(again, pack_image(self.cell))
        return again


class Client:
    """A session that answers every KeepAlive at once, unless it is `silent`."""

    def __init__(self, model: Model, user: str = "ada", nonce: int = 0) -> None:
        self.model = model
        self.numbers = 0
        nonce = nonce or 1000 + model._next_call
        granted = model.call(p.OpenSession(nonce, user, "h1", "test"))
        self.session: int = granted.session
        self.epoch: int = granted.epoch
        self.acked = 0
        self.kept: int | None = None
        self.events: list[p.Happened] = []
        self.lease_s = granted.lease_s

    # --- calls

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def open(self, path: str, mode: int = RW, **fields: Any) -> p.Opened:
        opened: p.Opened = self.model.call(self.opening(path, mode, **fields))
        return opened

    def opening(self, path: str, mode: int = RW, **fields: Any) -> p.OpenNode:
        return p.OpenNode(self.session, self.epoch, self.number(), path, mode, **fields)

    def make(self, path: str, contents: bytes = b"", **fields: Any) -> p.Handle:
        return self.open(path, create=p.MAY_CREATE, contents=contents, **fields).handle

    def on(self, kind: type[p.HandleCall], handle: p.Handle, **fields: Any) -> p.HandleCall:
        return kind(self.session, self.epoch, self.number(), handle, **fields)

    def do(self, kind: type[p.HandleCall], handle: p.Handle, **fields: Any) -> Any:
        return self.model.call(self.on(kind, handle, **fields))

    def putting(self, path: str, contents: bytes, **fields: Any) -> p.PutContents:
        return p.PutContents(self.session, self.epoch, self.number(), path, contents, **fields)

    def acquire(self, handle: p.Handle, **fields: Any) -> str:
        sequencer: str = self.do(p.AcquireLock, handle, **fields).sequencer
        return sequencer

    def look(self, path: str, handle: p.Handle | None = None) -> p.Seen:
        seen: p.Seen = self.model.call(p.Look(self.session, self.epoch, path, handle))
        return seen

    # --- KeepAlives

    def keep_alive(self) -> p.Kept | None:
        """Send one, acknowledging everything; return the answer if there is one at once."""
        self.kept = self.model.begin(p.KeepAlive(self.session, self.epoch, self.acked))
        return self.hear()

    def hear(self) -> p.Kept | None:
        """Take the answer to the KeepAlive that is out, if it has come."""
        if self.kept is None or self.model.is_waiting(self.kept):
            return None
        call, self.kept = self.kept, None
        kept: p.Kept = self.model.outcome(call)
        for event in kept.events:
            if event.number > self.acked:
                self.acked = event.number
                self.events.append(event)
        return kept

    def stay(self, seconds: float) -> None:
        """Live on for so long, with KeepAlives sent again at once."""
        keep(self.model, seconds, self)

    def kinds(self) -> list[int]:
        """The kinds of events heard so far, but invalidations."""
        return [event.kind for event in self.events if event.kind != p.INVALIDATE]

    def follow(self) -> None:
        """A new leader is there: adopt its epoch."""
        self.epoch, self.acked, self.kept = self.model.epoch, 0, None


def keep(model: Model, seconds: float, *clients: Client) -> None:
    """Let time pass for clients that keep their sessions."""
    for _ in range(round(seconds / 0.25)):
        settle(*clients)
        model.wait(0.25)
    settle(*clients)


def settle(*clients: Client) -> None:
    """Let each client hear, acknowledge and ask again until nothing is left to be said."""
    for _ in range(20):
        said = 0
        for client in clients:
            said += client.hear() is not None
            if client.kept is None:
                client.keep_alive()
                said += client.kept is None
        if not said:
            return
    raise AssertionError("the cell does not stop talking")


def changed(message: Any, **fields: Any) -> Any:
    """The message with other fields."""
    return msgspec.structs.replace(message, **fields)
