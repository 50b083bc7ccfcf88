"""What is kept of flows, in the state directory: plan, journal, logs of steps.

    HOME/flows/ID/plan.json        the flow as it was last run
                  journal/         what has started, what is complete (docs/formats/journal.md)
                  logs/KEY         what a step said
                  work/            outputs that have no name of their own, of flows on this machine
                  lock             held while the flow runs: one process at a time

Takes records and gives them back. Never decides anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.cluster.journal.journal import Journal
from mrstream.mapreduce.flow.brain.messages import Record
from mrstream.mapreduce.flow.brain.plan import FlowPlan
from mrstream.mapreduce.history import home, write_whole

_PLAN = "plan.json"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class FlowState(msgspec.Struct):
    """A flow as it was last run, and where it came from."""

    plan: FlowPlan
    source: str = ""
    """The file it was read from; empty: from Python."""
    variables: dict[str, str] = {}
    chosen: tuple[str, ...] = ()
    """The steps that were asked for; none: all."""
    cluster: str | None = None
    working_directory: str = ""
    state: str = "running"
    began_at_s: float = 0.0
    ended_at_s: float = 0.0
    reason: str = ""
    user: str = ""
    """Who submitted it, if it is detached."""


class BadFlowBook(UserError):
    """What is kept of a flow cannot be read."""


class NoSuchFlow(UserError):
    """There is no flow of that id."""


class FlowIsRunning(UserError):
    """Another process runs this flow."""


def new_id() -> str:
    return f"flow_{time.strftime('%Y%m%d_%H%M%S')}_{secrets.token_hex(2)}"


def flows_directory() -> str:
    """Return where flows are kept."""
    return os.path.join(home(), "flows")


def all_flows() -> list[str]:
    """Return the ids of all flows, oldest first."""
    directory = flows_directory()
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    # One that was killed before it had written its plan never was.
    return [name for name in names if os.path.exists(os.path.join(directory, name, _PLAN))]


class FlowBook:
    def __init__(self, flow_id: str) -> None:
        self.flow_id = flow_id
        self.directory = os.path.join(flows_directory(), flow_id)
        self._journal: Journal | None = None

    @property
    def work(self) -> str:
        """Where intermediate outputs lie, if the flow runs on this machine."""
        return os.path.join(self.directory, "work")

    def log_path(self, key: str) -> str:
        """Return where a step's words are kept."""
        return os.path.join(self.directory, "logs", key)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the one process that runs this flow."""
        os.makedirs(os.path.join(self.directory, "logs"), mode=0o700, exist_ok=True)
        with open(os.path.join(self.directory, "lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FlowIsRunning(f"{self.flow_id} is being run by another process") from None
            try:
                yield
            finally:
                if self._journal is not None:
                    self._journal.close()
                    self._journal = None

    def is_held(self) -> bool:
        """Whether some process runs this flow."""
        try:
            with open(os.path.join(self.directory, "lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def open(self) -> list[Record]:
        """Open the journal to go on with it; return what it holds."""
        self._journal = self._new_journal()
        found = self._journal.look()
        records = [_decode(payload) for _, payload in found.records]
        self._journal.recover(found)
        return records

    def records(self) -> list[Record]:
        """Return what the journal holds, and change nothing."""
        if not os.path.isdir(os.path.join(self.directory, "journal")):
            return []
        return [_decode(payload) for _, payload in self._new_journal().look().records]

    def _new_journal(self) -> Journal:
        return Journal(os.path.join(self.directory, "journal"), self.flow_id)

    def write(self, record: Record) -> None:
        assert self._journal is not None, "opened before anything is written"
        self._journal.append(_encode(record))
        self._journal.commit()

    def write_state(self, state: FlowState) -> None:
        path = os.path.join(self.directory, _PLAN)
        write_whole(path, msgspec.json.format(msgspec.json.encode(state)), sync=True)

    def read_state(self) -> FlowState:
        try:
            with open(os.path.join(self.directory, _PLAN), "rb") as file:
                return msgspec.json.decode(file.read(), type=FlowState)
        except FileNotFoundError:
            raise NoSuchFlow(
                f"there is no flow {self.flow_id}; `mrstream flow list` shows those there are"
            ) from None

    def read_log(self, key: str) -> bytes:
        """Return what a step said; nothing if it has not ended yet."""
        try:
            with open(self.log_path(key), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def keep_log(self, key: str) -> None:
        """Keep what a step said: it is where it was written."""

    def remove(self) -> None:
        """Forget the flow, the outputs without a name of their own included."""
        shutil.rmtree(self.directory, ignore_errors=True)
