"""The master: one process, all metadata, no file bytes (GFS §2.4).

The shell around `dfs.metadata`. Its duties, in order: take one request, let the brain decide, put
what must last into the operation log, and only when that is durable answer and send. A question
that only reads waits the same way if the state it saw is not yet durable (M1). Who leads, and
whether anything may be said, is the office's to know (`cluster/leader`): a master that does not
lead is a shadow, which folds the log, watches the chunkservers and answers questions that may be a
little old. All of it runs on the one loop; there is no other thread that touches the brain.

Never sees a byte of a file, never decides anything itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import grp
import logging
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec

from mrstream.cluster.config.config import DFS_MASTER, CellConfig, DfsConfig
from mrstream.cluster.config.state import LOSS_ACCEPTED_MARK
from mrstream.cluster.consensus.standing import AskGroup
from mrstream.cluster.daemon import Daemon, run
from mrstream.cluster.errors import ClusterError, Unavailable, UserError, WrongCluster
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.leader.epoch_file import EpochFile
from mrstream.cluster.leader.log_check import WayBack, check_founding, look_and_compare
from mrstream.cluster.leader.office import Office
from mrstream.cluster.user import login_name
from mrstream.cluster.wire.network import Handler, Peer
from mrstream.dfs.chunk import ROOT_CELL, ServerId, cell_of
from mrstream.dfs.duties import Duties
from mrstream.dfs.metadata.events import (
    Called,
    Command,
    Event,
    Founded,
    Halt,
    LeadershipBegan,
    Log,
    LogInDoubt,
    LossAccepted,
    Outrun,
    Refuse,
    Reply,
    Send,
    ServerGone,
    Tick,
)
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.metadata import WATCHED, Metadata
from mrstream.dfs.metadata.operations import DirectoryMade, FileCreated, parts_of
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.mounts import ROOT_NAME, Mounts, names_paths
from mrstream.dfs.oplog import decode_record, fold
from mrstream.dfs.protocol import (
    PROTOCOL_VERSION,
    AbandonFile,
    AskShadow,
    Checkpoint,
    CloseFile,
    ClusterReport,
    Delete,
    Expunge,
    Register,
    Report,
    Summarise,
)
from mrstream.dfs.shadow import Shadow

log = logging.getLogger(__name__)

ROLE = DFS_MASTER
LOG = "oplog"
MAKES_ROOM = frozenset({AbandonFile, CloseFile, Delete, Expunge})
"""What is taken on when the log's disk is full: there is room for some of it."""
TICK_S = 0.25
BEHIND_TICK_S = 0.02
"""While chunks wait to be looked at: a million of them take seconds, a slice at a time."""


def settings_from(config: DfsConfig, cell: CellConfig | None = None) -> Settings:
    """Return the brain's numbers as cluster.yaml gives them, for the root cell or another."""
    return Settings(
        cell=cell.number if cell is not None else ROOT_CELL,
        chunk_bytes=config.chunk_bytes,
        replication=config.replication,
        trash_after_s=config.trash_after_s,
        heartbeat_s=config.heartbeat_s,
        dead_after_s=config.dead_after_s,
        lease_s=config.lease_s,
        safe_mode_s_max=config.safe_mode_s,
        # A server that is dead is given up sooner; one that beats has a slow disk, no more.
        command_s_max=max(5.0, 1.5 * config.dead_after_s),
    )


class Master:
    """The service of the `dfs.master` daemon: the leader, or one of its shadows."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._cell = daemon.config.cell(daemon.role)
        self._clock = daemon.clock
        self._loop = daemon.loop
        self._settings = settings_from(daemon.config.dfs, self._cell)
        self._cluster_id = daemon.identity.cluster_id
        seed = random.SystemRandom().getrandbits(64)
        self._brain = Metadata(self._settings, random.Random(seed))
        self._alone: Journal | None = None
        if len(daemon.config.masters_of(daemon.role)) == 1:
            self._alone = Journal(
                os.path.join(daemon.state_directory, LOG),
                self._cluster_id,
                on_failure=lambda error: daemon.fail(error, "operation log"),
            )
        checkpoint_bytes = daemon.config.dfs.checkpoint_bytes
        self._office = office = Office(
            daemon, self, LOG, checkpoint_bytes=checkpoint_bytes, alone=self._alone
        )
        self._gate = office.gate(self._carry_out)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Requests that the brain has not answered, by the number that it knows them by."""
        self._duties = Duties(self._brain, office.log, self._gate, self._carry_out)
        self._peers: dict[ServerId, Peer] = {}
        """The connection of each chunkserver that has registered: commands go there, or nowhere."""
        self._next_call = 1
        """Never used twice in a life."""
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_due_s = 0.0
        """When the next tick should come: how much later it does is time in which this master was
        stopped, and for which nobody is blamed."""
        self._checkpointing: list[asyncio.Future[None]] = []
        """Those under way; the next by itself begins only when there is none."""
        self._counts: dict[str, int] = {}
        self._is_in_doubt = False
        """A log that went further may turn up: what only chunks show is kept meanwhile."""
        self._replayed = 0
        self._is_new = True
        """Nothing was ever logged."""
        self._is_cell_seen = self._cell is None
        """Is the log known to be this cell's? The root's place is its own."""
        self._stored = _metric_of_chunks(daemon.config.dfs, self._cell)
        shadow = Shadow(self._brain, office, self._clock, daemon.config.failover_after_s)
        guarded = office.guard(
            {
                **dict.fromkeys(self._brain.queries, self._query),
                **dict.fromkeys(self._brain.calls, self._call),
                Register: self._register,
                Summarise: self._summarise,
                Checkpoint: self._checkpoint_now,
            }
        )
        if daemon.config.dfs.cells:
            guarded = self._with_mounts(guarded)
        self.handlers: Mapping[type[Any], Handler] = {
            **office.handlers,
            **guarded,
            **{kind: shadow.or_watch(guarded[kind]) for kind in WATCHED},
            AskShadow: shadow.answer,
            AskGroup: self._ask_group,
        }

    # --- life

    async def start(self) -> None:
        """Take up the exact acknowledged state; then lead (chunkservers report meanwhile), or
        follow."""
        began_s = time.perf_counter()
        if self._alone is not None and self._is_alone:
            # Nothing is changed or served before it is known that nobody needs a log that is gone.
            found = await look_and_compare(self._daemon, self._alone, self._stored)
            await self._office.start(found)
            await self._give_up_what_is_lost(found.last_sequence)
        else:
            await self._office.start()
        # What was just read stays for good: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        _give_memory_back()
        log.info(
            "recovered files=%d directories=%d chunks=%d sequence=%d replayed=%d seconds=%.2f",
            self._brain.file_count, self._brain.directory_count, self._brain.chunk_count,
            self._office.seen, self._replayed, time.perf_counter() - began_s,
        )  # fmt: skip
        self._tick_due_s = self._clock.now_s() + TICK_S
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    @property
    def _is_alone(self) -> bool:
        """One master, over a journal that never was a group's."""
        return self._office.journal is self._alone

    def load(self, pieces: Iterator[bytes]) -> None:
        load_image(self._brain, pieces)
        self._see_own_cell(self._brain.cell)
        self._is_new = False

    def apply(self, payload: bytes) -> None:
        if not self._is_cell_seen:
            self._see_cell_of(payload)
        fold(payload, self._brain)
        self._replayed += 1
        self._is_new = False

    def lead(self, epoch: int) -> None:
        """The brain has all that was ever acknowledged: it decides from now on."""
        self._tick_due_s = self._clock.now_s() + TICK_S
        self._happened(LeadershipBegan(epoch))
        if self._office.is_log_in_doubt:
            self._doubt(True)
        if self._is_new:
            mount = self._cell.path if self._cell is not None else ""
            self._happened(Founded(login_name(), _group_name(), mount))

    def _see_cell_of(self, payload: bytes) -> None:
        """The first record that makes something tells the log's cell."""
        for record in parts_of(decode_record(payload)):
            if isinstance(record, DirectoryMade | FileCreated):
                self._see_own_cell(cell_of(record.file_id))
                self._is_cell_seen = True

    def _see_own_cell(self, found: int) -> None:
        """End where the log is of another number: its chunks would be taken for nobody's."""
        own = self._settings.cell
        if found != own:
            self._daemon.refuse(
                UserError(
                    f"the log here is of cell number {found}, and cluster.yaml gives this cell "
                    f"number {own}: cells keep their numbers; say `number: {found}` there"
                )
            )

    def _with_mounts(self, handlers: Mapping[type[Any], Handler]) -> dict[type[Any], Handler]:
        """Refuse what other cells have, whatever a client believes."""
        mounts = Mounts(self._daemon.config.dfs.cells)
        own = self._cell.name if self._cell is not None else ROOT_NAME

        def checked(handler: Handler) -> Handler:
            def answer(request: Any, peer: Peer) -> Any:
                mounts.check(request, own)
                return handler(request, peer)

            return answer

        return {
            kind: checked(handler) if names_paths(kind) else handler
            for kind, handler in handlers.items()
        }

    async def _give_up_what_is_lost(self, last_sequence: int) -> None:
        """Where `restore --from` left its mark, for the log that it put here: once, for good."""
        mark = os.path.join(self._daemon.state_directory, LOSS_ACCEPTED_MARK)
        if not os.path.exists(mark):
            return
        with open(mark, encoding="ascii") as file:
            is_of_this_log = file.read() == str(last_sequence)
        if is_of_this_log:
            self._happened(LossAccepted())
            await self._office.journal.when_durable(self._office.seen)
        os.unlink(mark)

    def _doubt(self, is_in_doubt: bool) -> None:
        self._is_in_doubt = is_in_doubt
        self._happened(LogInDoubt(is_in_doubt))

    async def stop(self) -> None:
        """Make durable what was decided; there is nothing else to do (GFS §5.1.1)."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self._office.stop()

    def ready(self) -> tuple[bool, str]:
        """Serving, and what is still missing; or whose shadow."""
        is_well, words = self._office.ready()
        if not is_well or not self._office.is_leading:
            return is_well, words
        waiting = self._brain.safe_mode
        serving = "serving" if self._is_alone else f"serving, {words}"
        # Reads are served as soon as nothing is missing, though some servers may be.
        return not waiting or self._brain.is_whole, waiting or serving

    def metrics(self) -> dict[str, float]:
        report: ClusterReport = self._brain.query(Report(), self._clock.now_s())
        figures = {
            "files": report.file_count,
            "directories": report.directory_count,
            "chunks": report.chunk_count,
            "chunks_under_replicated": report.under_replicated,
            "chunks_missing": report.missing,
            "chunks_corrupt": report.corrupt,
            "servers_up": sum(1 for server in report.servers if server.state != "dead"),
            "servers_known": len(report.servers),
            "clones_active": report.clones_active,
            "leases": report.leases,
            "files_open": report.files_open,
            "epoch": self._office.epoch,
            "log_sequence": self._office.seen,
            "log_durable": self._office.durable,
            "log_copies_in_step": self._office.copies_in_step,
            "log_copies_wanted": self._office.copies_wanted,
            "answers_waiting": len(self._answers),
        }
        figures |= {f"calls_{name}": count for name, count in self._counts.items()}
        return {name: float(value) for name, value in figures.items()}

    def connected(self, peer: Peer) -> None:
        """Nothing is known of a client until it asks."""

    def disconnected(self, peer: Peer) -> None:
        """A chunkserver's connection ended: what was asked of it will not be answered."""
        if peer.context is None:
            return
        server, incarnation = peer.context
        if self._peers.get(server) is peer:
            del self._peers[server]
            log.info("chunkserver=%s disconnected", server)
            self._happened(ServerGone(server, incarnation))

    # --- requests

    async def _ask_group(self, ask: AskGroup, peer: Peer) -> Any:
        """A wish for the group; a new one is founded only over a log that nobody has more of."""
        if ask.verb == "found":
            directory = self._office.journal.directory
            await check_founding(self._daemon, directory, self._office.seen, self._stored)
        wished: Any = self._office.handlers[AskGroup](ask, peer)
        return await wished

    def _query(self, request: Any, peer: Peer) -> Any:
        """A question; answered at once if all that it may rest on is durable."""
        if self._gate.is_clear and type(request) is not Report:
            return self._brain.query(request, self._clock.now_s())
        call, answer = self._new_call()
        self._duties.ask(call, request, self._clock.now_s())
        return self._outcome(answer)

    async def _summarise(self, request: Summarise, peer: Peer) -> Any:
        """The one question whose answer may take long: others are answered in between."""
        slices = self._brain.summarise(request)
        while True:
            try:
                next(slices)
            except StopIteration as done:
                sums = done.value
                break
            await asyncio.sleep(0)
        call, answer = self._new_call()
        self._duties.answer(call, sums)
        self._office.watch(self._gate)
        return await answer

    def _call(self, request: Any, peer: Peer) -> Any:
        name = type(request).__name__
        if request.mutates and self._is_alone and type(request) not in MAKES_ROOM:
            self._check_room()
        self._counts[name] = self._counts.get(name, 0) + 1
        call, answer = self._new_call()
        request_id = peer.request_id if request.mutates else (0, 0)
        self._event(Called(call, request, request_id))
        return self._outcome(answer)

    def _check_room(self) -> None:
        """While the log's disk is full nothing new is taken on: what waited for the disk would
        make all that is asked wait with it (M1)."""
        blocked = self._office.journal.blocked
        if blocked:
            raise Unavailable(
                f"the master cannot log a change: {blocked}; files can be read and deleted, and "
                "changed again when there is room"
            )

    def _outcome(self, answer: asyncio.Future[Any]) -> Any:
        """The answer if there is one (or its refusal, raised), else what to wait for."""
        if answer.done():
            return answer.result()
        self._office.watch(self._gate)
        return answer

    def _new_call(self) -> tuple[int, asyncio.Future[Any]]:
        call, self._next_call = self._next_call, self._next_call + 1
        answer = self._answers[call] = self._loop.create_future()
        return call, answer

    def _register(self, request: Register, peer: Peer) -> Any:
        """As any request; and from now on commands for that server go down this connection."""
        if request.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"chunkserver {request.address.server} holds data of cluster {request.cluster_id}; "
                f"this is {self._cluster_id}"
            )
        if request.protocol_version != PROTOCOL_VERSION:
            raise Unavailable(
                f"chunkserver {request.address.server} speaks protocol {request.protocol_version}; "
                f"this master speaks {PROTOCOL_VERSION}"
            )
        answer = self._call(request, peer)
        name = request.address.server
        if self._brain.is_registered(name, request.incarnation):
            peer.context = (name, request.incarnation)
            self._peers[name] = peer
            log.info("chunkserver=%s registered address=%s", name, request.address.host)
        return answer

    def _outrun(self, epoch: int) -> None:
        """Alone, we are the master because cluster.yaml says so: begin anew above whoever was it
        before. In a group, whoever has that epoch leads."""
        words = f"a chunkserver has obeyed a master of epoch {epoch}; ours is {self._office.epoch}"
        log.warning(words)
        if self._is_alone:
            EpochFile(os.path.join(self._daemon.state_directory, "epoch")).raise_to(epoch)
            self._daemon.restart(words)

    # --- the order of duties

    def _event(self, event: Event) -> None:
        self._duties.event(event, self._clock.now_s(), self._clock.wall_s())

    def _happened(self, event: Event) -> None:
        """Something that nobody waits for an answer to."""
        self._event(event)
        self._office.watch(self._gate)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Reply(call, value):
                if type(value) is ClusterReport:
                    value = self._completed(value)
                self._answer(call, value, None)
            case Refuse(call, error):
                self._answer(call, None, error)
            case Send(server, incarnation, message):
                peer = self._peers.get(server)
                if peer is not None and peer.context == (server, incarnation):
                    peer.push(message)
            case Outrun(epoch):
                self._outrun(epoch)
            case Halt(why):
                way_back = WayBack(
                    self._daemon.config, self._daemon.host.name, self._office.journal.directory
                )
                self._daemon.refuse(way_back.older(why))
            case Log():
                raise AssertionError("a record is logged before anything is carried out")
            case _:
                assert_never(command)

    def _completed(self, report: ClusterReport) -> ClusterReport:
        """Add what the brain does not know."""
        return msgspec.structs.replace(
            report, log_sequence=self._office.seen, started_at_s=self._daemon.since_s
        )

    def _answer(self, call: int, value: Any, error: ClusterError | None) -> None:
        answer = self._answers.pop(call, None)
        if answer is None or answer.done():
            return  # whoever asked is gone
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    # --- time and checkpoints

    def _tick(self) -> None:
        wait_s = BEHIND_TICK_S if self._brain.is_behind and self._office.epoch else TICK_S
        # A leader without its lease can say nothing to anybody: that time is ours.
        if self._office.is_leading or not self._office.epoch:
            self._happened(Tick(late_s=max(0.0, self._clock.now_s() - self._tick_due_s)))
            self._tick_due_s = self._clock.now_s() + wait_s
        if self._is_in_doubt and not self._office.is_log_in_doubt:
            self._doubt(False)
        if self._office.log.wants_checkpoint and not self._checkpointing:
            self._begin_checkpoint()
        self._ticker = self._loop.call_later(wait_s, self._tick)

    def _image(self) -> Iterable[bytes]:
        return pack_image(self._brain)

    def _begin_checkpoint(self) -> int:
        done: asyncio.Future[None] = self._loop.create_future()
        self._checkpointing.append(done)

        def ended() -> None:
            self._checkpointing.remove(done)
            done.set_result(None)

        def ended_elsewhere() -> None:
            self._loop.call_soon_threadsafe(ended)

        return self._office.log.checkpoint(self._image, ended_elsewhere)

    async def _checkpoint_now(self, request: Checkpoint, peer: Peer) -> int:
        while self._checkpointing:
            await asyncio.shield(self._checkpointing[0])
        sequence = self._begin_checkpoint()
        while self._checkpointing:
            await asyncio.shield(self._checkpointing[0])
        return sequence


def _metric_of_chunks(config: DfsConfig, cell: CellConfig | None) -> str:
    """By which chunkservers count the chunks of this master's cell."""
    if not config.cells:
        return "chunks"
    return f"chunks_of_cell_{cell.number if cell is not None else ROOT_CELL}"


def _give_memory_back() -> None:
    """Return to the system what reading the log took and freed: a fifth of a large master's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # the GNU C library has it; others keep less to themselves
        trim(0)


def _group_name() -> str:
    try:
        return grp.getgrgid(os.getgid()).gr_name
    except KeyError:
        return str(os.getgid())


def main(argv: Sequence[str] | None = None) -> int:
    return run(ROLE, Master, argv)


if __name__ == "__main__":
    sys.exit(main())
