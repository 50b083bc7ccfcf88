"""What is kept of a detached flow, in the dfs: the same face as `FlowBook`.

    /.mrstream/flows/ID/_flow/plan.json    the flow as it was last run
                              journal      its records, all of them in one file that is replaced
                              id           the flow's id: the input of that job, never replaced
                              job          the id of the job that runs it, or ran it last
                              logs/KEY     what a step said
                              run.N        the output directory of that job

A flow has few records, so each one replaces the whole file, at once. Whoever writes does it under
the fence `flow/ID`: a runner whose host was taken for lost writes nothing any more. The page is
docs/formats/flow-journal.md. Never decides anything.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator

import msgspec

from mrstream.dfs.chunk import Fence
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import create_hidden
from mrstream.dfs.errors import NoSuchFile
from mrstream.mapreduce.dfs_layout import FLOWS
from mrstream.mapreduce.flow.book import BadFlowBook, FlowState, NoSuchFlow
from mrstream.mapreduce.flow.brain.messages import Record

JOURNAL_VERSION = 1
_BOOK = "_flow"
_BYTES_MAX = 64 << 20
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[Record]]).decode


class DfsFlowBook:
    def __init__(self, flow_id: str, client: DfsClient) -> None:
        self.flow_id = flow_id
        self._client = client
        self._records: list[Record] | None = None
        self._logs = ""

    @property
    def directory(self) -> str:
        return f"{FLOWS}/{self.flow_id}/{_BOOK}"

    # --- one at a time

    def next_fence(self) -> Fence:
        """Return a fence above every other of this flow: later by the clock, or by one."""
        name = f"flow/{self.flow_id}"
        known = [fact.generation for fact in self._client.fences() if fact.name == name]
        return name, max([time.time_ns(), *(generation + 1 for generation in known)])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Run this flow; the fence keeps others from it."""
        with tempfile.TemporaryDirectory(prefix="mrstream-flow-") as room:
            self._logs = room
            yield

    # --- the journal

    def open(self) -> list[Record]:
        """Open the journal to go on with it; return what it holds."""
        self._records = self.records()
        return list(self._records)

    def records(self) -> list[Record]:
        """Return what the journal holds, and change nothing."""
        try:
            version, records = _decode(self._read("journal"))
        except NoSuchFile:
            return []
        except msgspec.MsgspecError as error:
            raise BadFlowBook(f"the journal of {self.flow_id} cannot be read: {error}") from None
        if version != JOURNAL_VERSION:
            raise BadFlowBook(
                f"the journal of {self.flow_id} has version {version}, and {JOURNAL_VERSION} is "
                "known here"
            )
        return records

    def write(self, record: Record) -> None:
        assert self._records is not None, "opened before anything is written"
        self._records.append(record)
        self._replace("journal", _encode((JOURNAL_VERSION, self._records)))

    def make(self, state: FlowState) -> None:
        self._replace("id", f"{self.flow_id}\n".encode())
        self.write_state(state)

    # --- the rest

    def write_state(self, state: FlowState) -> None:
        self._replace("plan.json", msgspec.json.encode(state))

    def read_state(self) -> FlowState:
        try:
            return msgspec.json.decode(self._read("plan.json"), type=FlowState)
        except NoSuchFile:
            raise NoSuchFlow(
                f"there is no flow {self.flow_id}; `mrstream flow list` shows those there are"
            ) from None
        except msgspec.MsgspecError as error:
            raise BadFlowBook(f"the plan of {self.flow_id} cannot be read: {error}") from None

    def log_path(self, key: str) -> str:
        """Return where a step's words are written to, on this host."""
        return os.path.join(self._logs, key)

    def keep_log(self, key: str) -> None:
        with open(self.log_path(key), "rb") as file:
            self._replace(f"logs/{key}", file.read(_BYTES_MAX))

    def read_log(self, key: str) -> bytes:
        """Return what a step said; nothing if it has not ended yet."""
        try:
            return self._read(f"logs/{key}")
        except NoSuchFile:
            return b""

    @property
    def job_id(self) -> str:
        """The job that runs the flow; empty if there never was one."""
        try:
            return self._read("job").decode("ascii", "replace").strip()
        except NoSuchFile:
            return ""

    @job_id.setter
    def job_id(self, job_id: str) -> None:
        self._replace("job", job_id.encode())

    def new_run(self) -> str:
        """Return an output directory that no job of this flow has had."""
        try:
            names = [os.path.basename(each.path) for each in self._client.list(self.directory)]
        except NoSuchFile:
            names = []
        numbers = [int(n[4:]) for n in names if n.startswith("run.") and n[4:].isdecimal()]
        return f"{self.directory}/run.{max(numbers, default=0) + 1}"

    def remove(self) -> None:
        """Forget the flow, the outputs without a name of their own included."""
        self._client.delete(f"{FLOWS}/{self.flow_id}", recursive=True, skip_trash=True)

    def _read(self, name: str) -> bytes:
        with DfsReader(self._client, f"{self.directory}/{name}") as file:
            return b"".join(bytes(piece) for piece in file.pieces(0, _BYTES_MAX))

    def _replace(self, name: str, data: bytes) -> None:
        path = f"{self.directory}/{name}"
        with create_hidden(self._client, path, overwrite=True, parents=True) as file:
            file.write(data)


def detached_flows(client: DfsClient) -> list[str]:
    """Return the ids of all detached flows, oldest first."""
    try:
        names = [os.path.basename(entry.path) for entry in client.list(FLOWS)]
    except NoSuchFile:
        return []
    found = []
    for name in sorted(names):
        with contextlib.suppress(NoSuchFile):
            client.stat(f"{FLOWS}/{name}/{_BOOK}/plan.json")
            found.append(name)
    return found
