"""The brain of the master: events in, commands out (all of `dfs.metadata` behind one door).

There are two ways to change it, one after the other. A shadow folds what is committed: `load_image`
for a checkpoint, then `apply` for each record of the log (M2); what chunkservers tell it meanwhile
comes by `handle` and changes nothing that is logged (F4). From the event `LeadershipBegan` on,
`handle` is the only mutator. `query` and the properties answer questions, before and after. Time
and chance come in as arguments. Never does any IO, never reads a clock, never logs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, assert_never

from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.wire.messages import Request
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import NO_FENCE, Fence, ServerId, cell_of
from mrstream.dfs.errors import BadRequest
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.changes import Changes
from mrstream.dfs.metadata.chunk_table import ChunkTable
from mrstream.dfs.metadata.entries import UNKNOWN, Done
from mrstream.dfs.metadata.events import (
    Called,
    Command,
    Event,
    Founded,
    LeadershipBegan,
    LogInDoubt,
    LossAccepted,
    ServerGone,
    Tick,
)
from mrstream.dfs.metadata.fences import Fences, Fencing
from mrstream.dfs.metadata.grants import Grants
from mrstream.dfs.metadata.inspect import Inspect
from mrstream.dfs.metadata.joining import Joining
from mrstream.dfs.metadata.key_order import KeyOrder
from mrstream.dfs.metadata.keys import DoorChanges, Doors
from mrstream.dfs.metadata.leases import Leases
from mrstream.dfs.metadata.listing import Listing
from mrstream.dfs.metadata.membership import Membership
from mrstream.dfs.metadata.namespace import Namespace
from mrstream.dfs.metadata.nodes import ROOT
from mrstream.dfs.metadata.outbox import Outbox
from mrstream.dfs.metadata.paths import join_path
from mrstream.dfs.metadata.placement import Placement
from mrstream.dfs.metadata.repair import Repair
from mrstream.dfs.metadata.seals import Seals
from mrstream.dfs.metadata.servers import ServerTable
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.metadata.snapshots import Snapshots
from mrstream.dfs.metadata.story import Chronicle
from mrstream.dfs.metadata.taking import Takings
from mrstream.dfs.metadata.trash import Trash
from mrstream.dfs.metadata.underway import Tables, Underways
from mrstream.dfs.metadata.writers import Writers
from mrstream.dfs.metadata.writing import Parts, Writing

AGAIN_MAX = 10_000
"""Turns that parked requests may take in one event; more would be a loop."""

TRASH_HELD_S = 3600.0
"""After a start, older trash is kept for so long: a wrong clock is most often set by then."""
TRASH_EVERY_S = 5.0
LATE_S = 2.0
"""A tick that is later than this shows that the master was stopped, not only busy."""


WATCHED = (p.Register, p.ReportChunks, p.Heartbeat)
"""What a shadow takes from chunkservers."""


def _is_for_shadows(event: Event) -> bool:
    if type(event) is Called:
        return type(event.request) in WATCHED
    return type(event) is LeadershipBegan or type(event) is Tick


class Metadata:
    def __init__(self, settings: Settings, random: Random) -> None:
        story = Chronicle()
        chunks, servers = ChunkTable(story), ServerTable()
        self.space = Namespace(chunks, settings.cell)
        self._outbox = Outbox(self._apply)
        self.tables = t = Tables(
            self.space, chunks, servers, Leases(), Placement(random), settings, self._outbox,
            story,
        )  # fmt: skip
        self.fences, self.doors = Fences(), Doors(self.space.requests)
        self._appliers: dict[type[Any], Callable[[Any], None]] = {
            **self.space.appliers,
            **self.doors.appliers,
            op.FenceRaised: self._fence_raised,
            op.ServerKnown: lambda record: servers.know(record.server),
            op.ServerDraining: self._server_draining,
            op.ServerForgotten: self._server_forgotten,
        }
        emit = self._outbox.emit
        self._changes = Changes(self.space, settings, emit)
        self._trash = Trash(self.space, self._changes, settings, emit)
        self._listing = Listing(self.space, self._changes, self._trash, settings)
        self._key_order = KeyOrder(self.space, self._changes, settings)
        self._door_changes = DoorChanges(self.doors, emit)
        self.underways = Underways(t)
        seals = Seals(t, self.underways)
        grants = self._grants = Grants(t, self.underways)
        self.repair = Repair(t, self.underways, seals)
        self.membership = Membership(t, self.underways, grants, self.repair)
        self._writers = Writers(t, self._changes, self._listing, self.underways, seals)
        self._snapshots = Snapshots(t, self._changes, self.underways, seals)
        self._fencing = Fencing(self.fences, self._writers, emit)
        takings = Takings(self.space, self._changes, emit)
        self._joining = Joining(t, self._listing, self.underways, self._writers, takings)
        self._writing = Writing(
            t,
            Parts(
                self._changes, self._listing, self.underways, grants, seals, self.repair,
                self._writers, self._snapshots, takings,
            ),
        )  # fmt: skip
        self._inspect = Inspect(t, self._changes, self._listing, self.membership, self.repair)
        self._leads = False
        self._trash_at_s = 0.0
        self._queries = self._query_table()
        self._calls = self._call_table()

    # --- before the first event

    def apply(self, record: op.AnyRecord) -> None:
        """Fold one record of the log into the state, as recovery does. Never fails."""
        assert not self._leads, "who leads changes what it has by events; the log follows from them"
        self._apply(record)

    def _apply(self, record: op.AnyRecord) -> None:
        """The one place where what is logged changes, for recovery and for decisions."""
        if type(record) is op.Together:
            for one in record.records:
                self._appliers[type(one)](one)
        else:
            self._appliers[type(record)](record)

    def _fence_raised(self, record: op.FenceRaised) -> None:
        self.fences.apply(record)
        self.space.remember(record.request, ROOT)

    def _server_draining(self, record: op.ServerDraining) -> None:
        self.tables.servers.drain(record.server, record.drain)
        self.space.remember(record.request, ROOT)

    def _server_forgotten(self, record: op.ServerForgotten) -> None:
        server = self.tables.servers.get(record.server)
        if server is not None:
            self.tables.chunks.lose_server(server.index)
        self.tables.servers.forget(record.server)
        self.space.remember(record.request, ROOT)

    # --- the door

    def handle(self, event: Event, now_s: float, wall_s: float) -> list[Command]:
        """Take in one event; return what is to be made durable, said and sent, in this order."""
        assert self._leads or _is_for_shadows(event), f"{event} came before its time"
        outbox = self._outbox
        outbox.begin(now_s, wall_s)
        self.tables.story.wall_s = wall_s
        match event:
            case Called():
                self._called(event)
            case ServerGone():
                self.membership.gone(event)
            case Tick():
                self._tick(event)
            case LeadershipBegan():
                self._lead(event)
            case Founded():
                self._found(event)
            case LogInDoubt():
                self.membership.doubt(event)
            case LossAccepted():
                self._grants.pass_over_lost_handles()
            case _ as never:
                assert_never(never)
        if not self._leads:
            return outbox.take()
        self.membership.end_safe_mode()
        if self.repair.is_eager and not self.membership.safe_mode():
            self.repair.tick()
        turns = 0
        while outbox.again:
            again, outbox.again = outbox.again, []
            for called in again:
                turns += 1
                assert turns <= AGAIN_MAX, "parked requests go round in circles"
                self._called(called)
        return outbox.take()

    def query(self, request: Request, now_s: float) -> Any:
        """Answer a question (one of `QUERIES`), or raise why not."""
        self._outbox.begin(now_s, self._outbox.wall_s)
        return self._queries[type(request)](request)

    def summarise(self, ask: p.Summarise) -> Generator[None, None, tuple[p.ContentSummary, ...]]:
        """As `query`, a slice at a time: the caller decides what happens in between."""
        return self._listing.summing(ask)

    # --- what the shell may know

    @property
    def file_count(self) -> int:
        return self.space.nodes.file_count

    @property
    def directory_count(self) -> int:
        return self.space.nodes.directory_count

    @property
    def chunk_count(self) -> int:
        return self.tables.chunks.count

    @property
    def cell(self) -> int:
        """The cell that the log is of."""
        return cell_of(self.space.handles_reserved)

    @property
    def safe_mode(self) -> str:
        """Why chunkservers are still waited for, as of the last event or question; or nothing."""
        return self.membership.safe_mode()

    @property
    def is_whole(self) -> bool:
        """Has every chunk a good replica somewhere (as far as has been looked)?"""
        return self.repair.is_whole

    @property
    def is_behind(self) -> bool:
        """Is there more to look at than a tick does? Then the next should come soon."""
        return self.repair.is_behind

    def is_registered(self, server: ServerId, incarnation: int) -> bool:
        """Is this the incarnation of the chunkserver that commands are for?"""
        known = self.tables.servers.get(server)
        return known is not None and known.incarnation == incarnation

    # --- beginning

    def _lead(self, event: LeadershipBegan) -> None:
        assert not self._leads, "leadership begins once: who loses it starts anew from the log"
        self._leads = True
        self.tables.started_at_s = self._outbox.now_s
        self.tables.epoch = event.epoch
        self.membership.take_over()
        self._outbox.number_in(event.epoch)
        self._trash.hold(self._outbox.wall_s)

    def _found(self, event: Founded) -> None:
        assert self.file_count == 0 and self.directory_count == 1, "there is a file system already"
        self._outbox.emit(op.OwnerSet("/", event.owner, event.group, False))
        if event.mount:
            file_id, at_s = self.space.nodes.next_id(), self._outbox.wall_s
            made = op.DirectoryMade(event.mount, file_id, event.owner, event.group, 0o755, at_s)
            self._outbox.emit(made)

    # --- requests

    def _called(self, called: Called) -> None:
        waited_s = self._outbox.waited_s(called.call)
        if waited_s > self.tables.settings.call_s_max:
            name = type(called.request).__name__
            error = Unavailable(f"{name} waited {waited_s:.0f} s for chunkservers; try again")
            self._outbox.refuse(called.call, error)
            self._snapshots.given_up(called)
            return
        request = called.request
        self._outbox.begin_together()
        try:
            fence = getattr(request, "fence", NO_FENCE)
            if fence != NO_FENCE:
                self._pass_fence(called, fence)
            self._calls[type(request)](called, request)
        except ClusterError as error:
            self._outbox.refuse(called.call, error)
            self._snapshots.given_up(called)
        finally:
            self._outbox.end_together()

    def _pass_fence(self, called: Called, fence: Fence) -> None:
        """F6; what is done already may be told to anybody."""
        if called.request_id in self.space.requests:
            return
        is_all = type(called.request) is p.RaiseFence
        request = called.request_id if is_all else op.NO_REQUEST
        self._fencing.admit(fence, self._outbox.wall_s, request)

    def _raise_fence(self, ask: p.RaiseFence, at_s: float, request: op.RequestId) -> None:
        """All of it was done at the door, unless no fence was named."""
        if ask.fence == NO_FENCE:
            raise BadRequest("a fence has a name")

    def _change(
        self, decide: Callable[[Any, float, op.RequestId], Any]
    ) -> Callable[[Called, Any], None]:
        """A namespace change whose repeat is known by its request id: done once, answered twice."""

        def changed(called: Called, ask: Any) -> None:
            done = self.space.requests.get(called.request_id)
            if done is not None:
                self._outbox.reply(called.call, self._repeated(ask, done))
                return
            value = decide(ask, self._outbox.wall_s, called.request_id)
            self._outbox.reply(called.call, value)

        return changed

    def _repeated(self, ask: Any, done: Done) -> Any:
        """What the first try answered."""
        if done.answer is not UNKNOWN:
            return done.answer
        if not isinstance(ask, p.Delete | p.Undelete):
            return None
        row = self.space.nodes.row_of(done.file_id)
        return "" if row is None else join_path(self.space.nodes.path_of(row))

    def _call_table(self) -> dict[type[Request], Callable[[Called, Any], None]]:
        c, w, m = self._changes, self._writing, self.membership
        return {
            p.MakeDirectory: self._change(c.make_directory),
            p.Rename: self._change(c.rename),
            p.Delete: self._change(c.delete),
            p.Undelete: self._change(self._trash.undelete),
            p.Expunge: self._change(self._trash.expunge),
            p.SetReplication: self._change(c.set_replication),
            p.SetPolicy: self._change(c.set_policy),
            p.SetOwner: self._change(c.set_owner),
            p.SetMode: self._change(c.set_mode),
            p.SetTimes: self._change(c.set_times),
            p.SetAttributes: self._change(c.set_attributes),
            p.SetQuota: self._change(c.set_quota),
            p.ClearQuota: self._change(c.clear_quota),
            p.RaiseFence: self._change(self._raise_fence),
            p.MakeKey: self._change(self._door_changes.make),
            p.RevokeKey: self._change(self._door_changes.revoke),
            p.SpendLink: self._change(self._door_changes.spend),
            p.Snapshot: self._snapshots.snapshot,
            p.JoinFiles: self._joining.join,
            p.CreateFile: w.create,
            p.OpenAppend: w.open_append,
            p.AllocateChunk: w.allocate,
            p.FindLease: w.find_lease,
            p.AppendTarget: w.append_target,
            p.ConfirmLength: w.confirm_length,
            p.CloseFile: w.close,
            p.AbandonFile: w.abandon,
            p.KeepAlive: self._writers.keep_alive,
            p.RecoverFile: self._writers.recover,
            p.ReportReplica: m.verify,
            p.DrainServer: m.drain,
            p.ForgetServer: m.forget,
            p.Register: m.register,
            p.ReportChunks: m.report_chunks,
            p.Heartbeat: m.heartbeat,
            p.CommandDone: m.command_done,
        }

    def _query_table(self) -> dict[type[Request], Callable[[Any], Any]]:
        q, i = self._listing, self._inspect
        return {
            p.Stat: q.stat,
            p.ListDirectory: q.list_directory,
            p.Glob: q.glob,
            p.FindTree: q.find_tree,
            p.Summarise: q.summarise,
            p.ListTrash: q.list_trash,
            p.GetPolicy: q.policy,
            p.GetAttributes: q.attributes,
            p.GetQuota: self._changes.quota,
            p.FindKeys: self._key_order.find,
            p.KeysSince: self.doors.since,
            p.ListFences: self.fences.listed,
            p.Locate: i.locate,
            p.Fsck: i.fsck,
            p.Story: i.story,
            p.Report: lambda _: i.report(),
        }

    @property
    def calls(self) -> list[type[Request]]:
        """The requests that `handle` takes."""
        return list(self._calls)

    @property
    def queries(self) -> list[type[Request]]:
        """The requests that `query` takes."""
        return list(self._queries)

    # --- time

    def _tick(self, event: Tick) -> None:
        if event.late_s > LATE_S:
            # We were stopped: silence in that time was ours, not that of servers and writers.
            self.membership.forgive(event.late_s)
            self._writers.forgive(event.late_s)
        self._outbox.time_out()
        self.membership.tick()
        if not self._leads:
            return
        if self._outbox.now_s >= self._trash_at_s:
            self._trash_at_s = self._outbox.now_s + TRASH_EVERY_S
            if self._outbox.now_s >= self.tables.started_at_s + TRASH_HELD_S:
                self._trash.release()
            self._trash.expire_trash(self._outbox.wall_s)
            self._trash.drop_unfinished(self._outbox.wall_s)
        if self.membership.safe_mode():
            self.repair.look()
        else:
            self._writers.tick()
            self.repair.tick()

    # --- invariants

    def check_invariants(self, everything: bool = False) -> None:
        """Assert what must hold: the cheap part, or all of it (slow)."""
        t = self.tables
        for handle in t.chunks if everything else t.chunks.unsealed:
            t.chunks.check_invariants(handle)
        for row in t.space.writers:
            assert t.space.nodes.kind[row] == 1, "a writer of something that is not a file"
        for server in t.servers.all():
            assert server.heard_at_s <= t.outbox.now_s, f"{server.id} was heard of in the future"
        t.leases.check_invariants()
        self.underways.check_invariants()
        if everything:
            self.repair.check_invariants()
            self.space.check_invariants()
