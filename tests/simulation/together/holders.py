"""Programs that take a lock and work in the file system under its fence, and what they must find.

Whoever has got a lock first raises its fence in the dfs, then has files closed that the holder
before it may have open, then looks: what was acknowledged to any holder before is there, and from
then on nothing changes there but by itself (CH-20, end to end). `Ledger` knows what was
acknowledged; what is in the log of the dfs is looked at in `dfs.book`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.dfs import protocol as d
from mrstream.dfs.chunk import NO_FENCE, Fence
from mrstream.dfs.errors import FencedOff, FileBusy, NoSuchFile, WriterFenced
from mrstream.lock import protocol as p
from mrstream.lock.paths import ROOT
from mrstream.lock.sequencer import parse
from tests.simulation.dfs.book import Truth
from tests.simulation.dfs.client import GaveUp, Program
from tests.simulation.dfs.reading import Handover, ReadingClient
from tests.simulation.lock.group import GroupClient

if TYPE_CHECKING:
    from tests.simulation.together.run import Together

LOCKS = (f"{ROOT}/a", f"{ROOT}/b")
ENTRY = re.compile(rb"<(\d+)\.(\d+)>")
Entry = tuple[int, int]
"""(generation, number): one thing that a holder wrote."""


@dataclass
class Ledger:
    """What holders of one lock were told is done."""

    values: dict[int, None] = field(default_factory=dict)
    """What was written; each holder writes what it read, and one more."""
    tokens: dict[int, None] = field(default_factory=dict)
    """The same, of a name."""
    lines: dict[Entry, None] = field(default_factory=dict)
    """What was appended, file by file, by holders that had it open for themselves."""
    records: dict[Entry, None] = field(default_factory=dict)
    """What was appended as records."""


def entries(content: bytes) -> list[Entry]:
    return [(int(g), int(n)) for g, n in ENTRY.findall(content)]


def under(request: Any, fence: Fence) -> Any:
    """The request under that fence, as the client library makes it (`DfsClient._fenced`)."""
    if getattr(request, "fence", None) == NO_FENCE:
        return msgspec.structs.replace(request, fence=fence)
    return request


class FencedClient(ReadingClient):
    """What a program has as long as it holds a lock: `connect(fence=held.fence)`."""

    def __init__(self, run: Together, name: str, held: Fence, fence: Fence | None = None) -> None:
        """`fence` is what it tells the dfs, where that is not what it holds."""
        super().__init__(run.world, next(run.numbers), run.master, run.servers, run.book)
        self.name = name
        self.held = held
        self.fence = fence or held
        self.ledger = run.ledgers[held[0]]
        self.cell_book = run.cell.book
        self.directory = f"/held/{held[0].rpartition('/')[2]}"
        self.numbers = itertools.count(1)
        self.seen: dict[str, bytes] = {}
        """What this holder found in a file when it looked last."""
        self.refused = 0

    # --- calls

    def call(self, request: Any) -> Program:
        if request.mutates:
            self.book.under[self.next_id] = (self.held,)
        try:
            return (yield from super().call(under(request, self.fence)))
        except FencedOff:
            self.refused += 1
            newest = self.cell_book.generation.get(self.held[0], 0)
            assert newest > self.held[1], (
                f"CH-20: {self.name} is refused under {self.fence}, and nobody came after {newest}"
            )
            raise

    def tries(self, request: Any) -> Program:
        """Ask for one thing, which may be refused."""
        try:
            yield from self.call(request)
        except ClusterError as error:
            self.world.note(f"{self.name} under {self.fence}: {type(error).__name__}")

    def read(self, path: str) -> Program:
        """The whole file, as the real client reads it; nothing if there is none."""
        until_s = self.world.now_s + 40.0
        while True:
            try:
                hand = Handover(lambda h: self._read(h, path, 0, 1 << 30))
                _, content = yield from hand.program()
                return content
            except NoSuchFile:
                return b""
            except Unavailable as error:
                if self.world.now_s > until_s:
                    raise GaveUp(f"{path}: {error}") from error
                yield self._pause(0.3)

    # --- what a holder does

    def work(self, believes: Callable[[], bool]) -> Program:
        """As long as it believes to hold the lock."""
        try:
            yield from self.call(d.RaiseFence(self.fence))
            yield from self._look_round()
            for _ in range(self.chance.randint(0, 3)):
                act = self.chance.choice([self._replace, self._append, self._record, self._rename])
                if not believes():
                    return
                # What it believes may be over before it acts: for that there is the fence.
                yield self._pause(self.chance.choice([0.0, 0.1, 1.0]))
                yield from act()
        except (GaveUp, FencedOff, WriterFenced) as error:
            self.world.note(f"{self.name} under {self.fence}: {type(error).__name__}")
        except ClusterError as error:
            raise AssertionError(
                f"{self.name} under {self.fence} cannot go on: {error!r}"
            ) from error

    def _look_round(self) -> Program:
        """After the fence is raised and all is closed: the work of those before, and no more."""
        ledger = self.ledger
        value, token = max(ledger.values, default=0), max(ledger.tokens, default=-1)
        found = yield from self._value()
        self._check(found >= value, f"{found} is read, {value} was written")
        found = yield from self._token()
        self._check(found >= token, f"the token is {found}, and was {token}")
        yield from self._look_at("lines", ledger.lines)
        yield from self._look_at("records", ledger.records)

    def _look_at(self, name: str, acknowledged: dict[Entry, None]) -> Program:
        path = f"{self.directory}/{name}"
        must = list(acknowledged)
        try:
            yield from self.call(d.RecoverFile(path, "me"))
        except NoSuchFile:
            self._check(not must, f"{path} is gone")
            return
        except FileBusy as busy:
            self._check(False, f"whoever wrote before is fenced off, and {busy}")
            raise
        content = yield from self.read(path)
        found = entries(content)
        for entry in must:
            self._check(entry in found, f"{entry} was acknowledged and is not in {path}")
        generations = [generation for generation, _ in found]
        self._check(generations == sorted(generations), f"{path} has {generations}")
        before = self.seen.get(path, b"")
        # Where a record append failed, what is there may differ from replica to replica (GFS §3.3).
        is_same = content[: len(before)] == before or name == "records"
        self._check(is_same, f"{path} is not what it was")
        late = entries(content[len(before) :]) if path in self.seen else []
        wrong = [entry for entry in late if entry[0] != self.held[1]]
        self._check(not wrong, f"{wrong} came to {path} under a fence that is over")
        self.seen[path] = content

    def _check(self, is_so: bool, why: str) -> None:
        if not is_so:
            self.book.wrong.append(f"CH-20: {self.name} under {self.held}: {why}")

    def _value(self) -> Program:
        content = yield from self.read(f"{self.directory}/value")
        return int(content or b"0")

    def _token(self) -> Program:
        try:
            page = yield from self.call(d.ListDirectory(self.directory))
        except NoSuchFile:
            return -1
        names = [entry.path.rpartition("/")[2] for entry in page.entries]
        tokens = [int(name[6:]) for name in names if name.startswith("token.")]
        self._check(len(tokens) < 2, f"there are tokens {tokens}")
        return max(tokens, default=-1)

    def _replace(self) -> Program:
        """Read, add one, put a whole file in the place of the old one."""
        value = 1 + (yield from self._value())
        path = f"{self.directory}/value"
        opened = yield from self.call(
            d.CreateFile(path, self.name, "me", overwrite=True, first_chunk=True, hidden=True)
        )
        truth = self.book.files[opened.status.file_id] = Truth()
        ending = {"rename_to": path, "parents": True, "overwrite": True}
        yield from self._put(opened, str(value).encode(), truth, ending)
        truth.closed = True
        self._check(value not in self.ledger.values, f"{value} is written twice")
        self.ledger.values[value] = None

    def _append(self) -> Program:
        """Open at the end, write, close."""
        path, entry, data = self._entry("lines")
        try:
            opened = yield from self.call(d.OpenAppend(path, self.name, "me"))
        except NoSuchFile:
            opened = yield from self.call(
                d.CreateFile(path, self.name, "me", parents=True, first_chunk=True)
            )
        truth = self._shared(opened.status.file_id)
        at = opened.status.length_bytes
        yield from self._put(opened, data)
        self.ledger.lines[entry] = None
        truth.records.append((at, data))
        yield from self._look_at("lines", self.ledger.lines)

    def _record(self) -> Program:
        """Append a record, beside others if there were any."""
        path, entry, data = self._entry("records")
        try:
            status = yield from self.call(d.Stat(path))
        except NoSuchFile:
            opened = yield from self.call(d.CreateFile(path, self.name, "me", parents=True))
            yield from self.call(d.CloseFile(opened.status.file_id, opened.epoch, 0))
            status = opened.status
        # Where an append failed, replicas may differ (GFS §3.3): `unsure` says so.
        self._shared(status.file_id).unsure = [(0, 0)]
        yield from self.append_to(path, status.file_id, data)
        self.ledger.records[entry] = None
        yield from self._look_at("records", self.ledger.records)

    def _shared(self, file_id: int) -> Truth:
        """What is known of a file that many append to, one after the other: records."""
        return self.book.files.setdefault(file_id, Truth(records=[(0, b"")]))

    def _rename(self) -> Program:
        """Give what there is once the next name."""
        token = yield from self._token()
        name = f"{self.directory}/token."
        if token < 0:
            yield from self.call(d.MakeDirectory(f"{name}0", "me", parents=True))
        else:
            yield from self.call(d.Rename(f"{name}{token}", f"{name}{token + 1}", "me"))
        self._check(token + 1 not in self.ledger.tokens, f"the token was {token + 1} before")
        self.ledger.tokens[token + 1] = None

    def _entry(self, name: str) -> tuple[str, Entry, bytes]:
        entry = (self.held[1], self.number * 1000 + next(self.numbers))
        return f"{self.directory}/{name}", entry, b"<%d.%d>" % entry

    def _put(
        self,
        opened: d.OpenFile,
        data: bytes,
        truth: Truth | None = None,
        ending: dict[str, Any] | None = None,
    ) -> Program:
        """Write at the end of what was opened, and close it."""
        file_id, epoch = opened.status.file_id, opened.epoch
        index, offset = divmod(opened.status.length_bytes, opened.status.chunk_bytes)
        grant = opened.grant
        if grant is None and offset:
            grant = yield from self.call(d.FindLease("", index, file_id, epoch))
        elif grant is None:
            grant = yield from self.call(d.AllocateChunk(file_id, epoch, index))
        if truth is not None:
            truth.data += data
        yield from self.write_at(opened, "", grant, [(offset, data)])
        length = opened.status.length_bytes + len(data)
        if truth is not None:
            truth.acked = length
        yield self._pause(self.chance.choice([0.0, 0.0, 0.5]))
        yield from self.call(d.CloseFile(file_id, epoch, length, **(ending or {})))


class Holder(GroupClient):
    """Takes one lock after the other, and works in the dfs under each."""

    def __init__(self, together: Together, name: str, rate: float) -> None:
        self.together = together
        self.rounds = 0
        """How often it has worked under a lock."""
        self.refused = 0
        self.programs: dict[int, Program] = {}
        super().__init__(together.world, name, together.cell, rate)

    def begin(self) -> None:
        self._is_busy = False
        super().begin()

    def crash(self) -> None:
        super().crash()
        for program in self.programs.values():
            program.close()
        self.programs.clear()

    def fence_of(self, held: Fence) -> Fence:
        """What it tells the dfs."""
        return held

    def _opened(self, session: Any) -> None:
        self._is_busy = False
        super()._opened(session)

    def _act(self) -> None:
        """One lock at a time."""
        if self._is_busy or self.together.is_over:
            return
        self._is_busy = True
        assert self.session is not None
        self.number += 1
        request = p.OpenNode(
            self.session.id, 0, self.number, self.chance.choice(LOCKS), 7, 0,
            lock_delay_s=self.chance.choice([0.0, 0.0, 1.0, 3.0]), create=p.MAY_CREATE,
            is_ephemeral=self.chance.random() < 0.3,
        )  # fmt: skip
        self._call(request, self._take)

    def _again(self, _: Any = None) -> None:
        self._is_busy = False
        self._act_later()

    def _take(self, opened: Any) -> None:
        if not isinstance(opened, p.Opened):
            self._again()
            return
        handle, session = opened.handle, self.session
        key = (handle.epoch, handle.number)
        self.handles[key] = handle

        def taken(value: Any) -> None:
            if not isinstance(value, p.Taken):
                self._let_go(handle)
                return
            self.book.was_given(value.sequencer, self.session_id, key)
            if session is not self.session:
                return
            self.holding[key] = (handle.path, False)
            self._work(parse(value.sequencer).fence, key, handle)

        wait_s = self.chance.choice([0.0, 5.0, 20.0])
        self._on(p.AcquireLock, handle, taken, wait_s=wait_s)

    def _work(self, held: Fence, key: tuple[int, int], handle: p.Handle) -> None:
        session = self.session
        client = FencedClient(self.together, self.name, held, self.fence_of(held))

        def believes() -> bool:
            is_held = session is self.session and key in self.holding
            return is_held and self.believed_lease_left_s() > 0

        def program() -> Program:
            yield from client.work(believes)
            self.programs.pop(client.number, None)
            self.rounds += 1
            self.refused += client.refused
            if session is self.session and session is not None:
                self._let_go(handle)

        self.programs[client.number] = program()
        client.run(self.programs[client.number])

    def _let_go(self, handle: p.Handle) -> None:
        key = (handle.epoch, handle.number)
        self.holding.pop(key, None)
        self.handles.pop(key, None)
        if self.session is not None:
            self._on(p.CloseNode, handle, self._again)
