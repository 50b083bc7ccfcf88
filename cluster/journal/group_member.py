"""One member of a group at work: the brain's thread, its loop, its port, its disk.

A shell without policy: one event, the commands that it leads to, in their order, and when to look
again. Runs beside the program, so that a busy state machine delays nobody's acknowledgement; but a
program that shows no sign of life for `SILENCE_S_MAX` loses its lead.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import threading
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from mrstream.cluster.clock import Clock
from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.following import LogsDiffer
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, host_of, member_id
from mrstream.cluster.consensus.messages import AppendLog, Word
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.standing import AskGroup, NotLeader, Standing, WhoLeads
from mrstream.cluster.consensus.state import NOBODY, Remembered
from mrstream.cluster.disk import Disk
from mrstream.cluster.errors import DiskFailed, Unavailable, UserError
from mrstream.cluster.journal import peers
from mrstream.cluster.journal.ballot_file import BallotFile, PromiseFile
from mrstream.cluster.journal.clock_rate import ClockRate
from mrstream.cluster.journal.copying import Copying
from mrstream.cluster.journal.group_disk import GroupDisk
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.tail import Tail
from mrstream.cluster.tasks import Tasks
from mrstream.cluster.wire.network import Handler, Identity, Peer, Server, new_event_loop

log = logging.getLogger(__name__)

SILENCE_S_MAX = 2.0
TICK_S_MAX = 0.25
JOIN_S = 1.0
ASK_S_MAX = 10.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Program(Protocol):
    """What the member asks and tells, always in its own thread."""

    def decide(self, handle: Callable[[tuple[bytes, ...]], list[c.Command]]) -> list[c.Command]:
        """Give the records that are pending to the brain, with nothing between them and it."""

    def is_alive(self) -> bool: ...

    def committed(self, sequence: int) -> None: ...

    def led(self, epoch: int) -> None: ...

    def park(self, parked: bool) -> None: ...

    def over(self, reason: str, failure: DiskFailed | None) -> None: ...


class GroupMember:
    """One member's thread; made from what lies on its disk."""

    def __init__(
        self,
        group_log: GroupLog,
        disk: Disk,
        identity: Identity,
        addresses: dict[str, str],
        timing: Timing,
        clock: Clock,
        program: Program,
        epoch_above: int = 0,
    ) -> None:
        self.log = group_log
        self._epoch_above = epoch_above
        self._identity, self._address = identity, addresses[identity.host]
        self._timing, self._clock, self._program = timing, clock, program
        self.me = member_id(identity.host, group_log.journal.decode())
        self._ballot = BallotFile(disk, group_log.directory)
        """Epoch and vote; on disk before anybody hears of them."""
        self._promise = PromiseFile(disk, group_log.directory, _boot_id())
        """Until when no other leader is elected; on disk before it is given."""
        self._tail = Tail(group_log.last)
        """The last records, for followers: what is younger than the disk's is here."""
        self._links = peers.Links(identity, addresses, self._heard)
        self._loop = new_event_loop()
        self._asks: dict[int, asyncio.Future[int]] = {}
        """Wishes that the brain has not answered, by their number."""
        self._numbers = itertools.count(1)
        self._tick: asyncio.TimerHandle | None = None
        """When the brain wants to be asked next: one at a time."""
        # A bug must be heard of: a member that no longer listens to another looks well, until the
        # third is lost.
        self._tasks = Tasks(self._loop, lambda bug: self._bug(bug, "a task"))
        self._heard_at_s = -math.inf
        """When our leader last said anything."""
        self._fresh_at_s = math.inf
        """When we had all that our leader called committed."""
        self._leader_committed = 0
        """What it then called committed."""
        self._clock_rate = ClockRate()
        self.is_over = False
        """No event is handled any more; never taken back."""
        now_s = clock.now_s()
        held = group_log.read_checkpoint()
        committed = max(group_log.base, 0 if held is None else held[0])
        self.replica = Replica(
            self.me, self._remembered(now_s, committed), timing, Random(os.urandom(8)), now_s
        )
        self.disk = GroupDisk(group_log, self._synced, self._failed)
        self._copying = Copying(group_log, self.disk, self.me, self._has_already, self._end)
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)

    def _remembered(self, now_s: float, committed: int) -> Remembered:
        shape, members = self.log.look_at_shape(), self.log.look_at_members()
        name = self._ballot.voted_for.decode(errors="replace")
        everyone = [m for _, row in members.rows for m in row.everyone]
        known = next((m for m in everyone if m.endswith(f"/{name}")), MemberId(f"?/{name}"))
        return Remembered(
            epoch=self._ballot.epoch,
            voted_for=known if any(self._ballot.voted_for) else NOBODY,
            base=shape.base,
            base_epoch=shape.base_epoch,
            epochs=tuple(shape.rows),
            members=tuple(members.rows),
            last=shape.last,
            committed=committed,
            promised_until_s=self._promise.until_s(now_s, self._timing.promise_s),
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is not committed may still be, by the others."""
        self.is_over = True
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self.disk.close()
        self.log.close()
        self._ballot.close()
        self._promise.close()

    async def _shut(self) -> None:
        self._tasks.cancel()
        if self._tick is not None:
            self._tick.cancel()
        await self._server.close()

    # --- for other threads

    def post(self, event: e.Event | None) -> None:
        """Let an event be handled; None: only what is pending."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._handle, event)

    def settle(self) -> None:
        """Return once all that was pending has been given to the disk's thread."""
        done = threading.Event()

        def do() -> None:
            self._handle(None)
            done.set()

        self._loop.call_soon_threadsafe(do)
        done.wait()

    async def ask(self, verb: str, member: MemberId = NOBODY) -> int:
        """Carry a person's wish to the brain, from another loop; see `ReplicatedJournal.ask`."""
        future = asyncio.run_coroutine_threadsafe(self._ask(verb, member), self._loop)
        return await asyncio.wrap_future(future)

    def records(self, first: int, last: int) -> tuple[bytes, ...]:
        """Return records from memory, or else from the disk; as many, from the first on, as one
        message holds; none where the disk has failed."""
        if first > self._tail.before:
            return self._tail.get(first, last)
        with self.disk.lock:
            found = self.log.read(first, last)
        if found:
            return found
        # Others may be quicker: what a majority has is committed, and our disk has not even begun.
        self.disk.in_turn(lambda: None)
        with self.disk.lock:
            return self.log.read(first, last)

    def standing(self) -> Standing:
        """How this member sees the group."""
        replica, members, now_s = self.replica, self.replica.members, self._clock.now_s()
        is_serving = replica.lease_until_s() > now_s
        return Standing(
            self.me,
            self._known_leader(),
            replica.epoch,
            replica.committed,
            replica.last,
            members.voters,
            members.learners,
            replica.synced,
            0.0 if is_serving else max(-1.0, now_s - self._fresh_at_s),
            is_serving,
            leader_committed=max(self._leader_committed, replica.committed),
            clock_rate=self._clock_rate.faster,
        )

    def _known_leader(self) -> MemberId:
        """Who leads; nobody, where nothing was heard of that one for two leases."""
        silent_s = self._clock.now_s() - self._heard_at_s
        is_known = self.replica.is_leading or silent_s < 2 * self._timing.lease_s
        return self.replica.leader if is_known else NOBODY

    def not_leader(self) -> NotLeader:
        """One that is about to lead, or waits for its lease to come back, names itself: whoever
        turned away would only have to come back."""
        leader, host = self._known_leader(), self._identity.host
        if leader == self.me:
            words = f"{host} is about to lead"
        else:
            words = f"{host} does not lead; " + (
                f"{host_of(leader)} does" if leader else "it does not know who does"
            )
        return NotLeader(words, leader=leader, epoch=self.replica.epoch)

    # --- the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begin())
        except OSError as error:
            self._failed(DiskFailed(f"the group cannot listen on {self._address}: {error}"))
        self._loop.run_forever()
        self._loop.close()

    async def _begin(self) -> None:
        handlers: dict[type[Any], Handler] = {
            WhoLeads: lambda request, peer: self.standing(),
            peers.Subscribe: self._links.subscribed,
            peers.JoinGroup: self._join_asked,
            AskGroup: lambda request, peer: self._ask(request.verb, request.member),
            **self._copying.handlers,
        }
        self._server = Server(handlers, self._identity, on_bug=self._bug)
        await self._server.start(self._address)
        self._links.start(self.me, self._tasks.start)
        self._tasks.start(self._join())
        self._handle(e.Tick())

    def _heard(self, sender: MemberId, word: Word) -> None:
        self._handle(e.Received(sender, word))
        if isinstance(word, AppendLog):
            self._note_freshness(sender, word)

    def _note_freshness(self, sender: MemberId, word: AppendLog) -> None:
        if sender == self.replica.leader:
            self._heard_at_s = self._clock.now_s()
            self._leader_committed = word.committed
            self._clock_rate.heard(sender, word.sent_at_s, self._heard_at_s)
        if sender == self.replica.leader and word.committed <= self.replica.committed:
            self._fresh_at_s = self._clock.now_s()

    def _synced(self, sequence: int, era: int) -> None:
        self.post(e.Synced(sequence, era))

    def _handle(self, event: e.Event | None) -> None:
        """One event, the commands that it leads to, and when to look again."""
        if self.is_over:
            return
        now_s, replica = self._clock.now_s(), self.replica

        def decide(pending: tuple[bytes, ...]) -> list[c.Command]:
            commands = replica.handle(e.Proposed(pending), now_s) if pending else []
            return commands + (replica.handle(event, now_s) if event is not None else [])

        try:
            for command in self._program.decide(decide):
                self._do(command)
                if self.is_over:
                    return
        except OSError as error:
            self._failed(DiskFailed(f"{self.log.directory}: {error}"))
        except LogsDiffer as error:
            leader = host_of(replica.leader) or "its leader"
            self._failed(
                DiskFailed(
                    f"{self.log.directory}: the log of {leader} lacks records that its disk had, "
                    f"and we have up to {replica.last:,}; nothing was changed: "
                    f"`mrstream cluster restore --master {leader} --from {self._identity.host}` "
                    f"brings them back, and gives up what came instead ({error})"
                )
            )
        except Exception as bug:
            self._bug(bug, type(event).__name__)
        else:
            self._plan_tick()

    def _plan_tick(self) -> None:
        wait_s = self.replica.wake_at_s() - self._clock.now_s()
        if self._tick is not None:
            self._tick.cancel()
        self._tick = self._loop.call_later(min(max(wait_s, 0.001), TICK_S_MAX), self._on_tick)

    def _on_tick(self) -> None:
        self._handle(e.Tick(self._program.is_alive()))

    def _do(self, command: c.Command) -> None:
        match command:
            case c.SaveBallot():
                name = command.voted_for.rpartition("/")[2].encode()[:16]
                self._ballot.save(command.epoch, name.ljust(16, b"\0"))
            case c.SavePromise():
                self._promise.save(command.until_s)
            case c.Write():
                self._tail.add(command.first, command.records)
                self.disk.write(command)
            case c.Cut():
                after = command.after
                self._tail.cut(after)
                self.disk.in_turn(lambda: self.log.cut(after))
            case c.Send():
                self._links.send(command.to, command.word)
            case c.SendLog():
                self._send_log(command)
            case c.SendCheckpoint():
                self._tasks.start(self._send_checkpoint(command.to))
            case c.Committed():
                self._program.committed(command.sequence)
            case c.Led():
                self._program.led(command.epoch)
            case c.Deposed():
                self._end(command.reason)
            case c.Park():
                self._program.park(command.parked)
            case c.Accepted():
                self._resolve(command.ask, command.sequence, None)
            case c.Refused():
                self._resolve(command.ask, 0, UserError(command.reason))
            case _:
                raise AssertionError(command)

    def _send_log(self, command: c.SendLog) -> None:
        if not self._links.is_linked(command.to):
            return
        previous, epoch = command.previous, command.previous_epoch
        while True:
            records = self.records(previous + 1, command.last)
            word = AppendLog(
                command.epoch, previous, epoch, command.committed, command.sent_at_s, records
            )
            self._links.send(command.to, word)
            previous += len(records)
            epoch = self.replica.state.epochs.at(previous)
            if previous >= command.last or not records:
                return

    # --- wishes, newcomers, checkpoints

    async def _ask(self, verb: str, member: MemberId) -> int:
        number = next(self._numbers)
        wishes: dict[str, e.Event] = {
            "found": e.Found(number, self._epoch_above),
            "add": e.AddLearner(number, member),
            "promote": e.Promote(number, member),
            "remove": e.Remove(number, member),
            "transfer": e.Transfer(number, member),
        }
        if verb not in wishes:
            raise UserError(f"{verb[:40]!r} is not a wish; {', '.join(wishes)} are")
        if not self.replica.is_leading and verb != "found":
            raise self.not_leader()
        future: asyncio.Future[int] = self._loop.create_future()
        self._asks[number] = future
        self._handle(wishes[verb])
        if verb == "found" and not future.done():
            future.set_result(self.replica.last)
        try:
            sequence = await asyncio.wait_for(future, ASK_S_MAX)
        except TimeoutError:
            self._asks.pop(number, None)
            raise Unavailable(f"nobody knows what became of {verb}: look, and ask again") from None
        while self.replica.committed < sequence and not self.is_over:
            await asyncio.sleep(0.01)
        return sequence

    def _resolve(self, ask: int, sequence: int, error: UserError | None) -> None:
        future = self._asks.pop(ask, None)
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(sequence)

    async def _join(self) -> None:
        """A member of no group asks to listen, where its host belongs to one. What is in its log
        already, from before there was a group, must be founded or set aside by a person."""
        while not self.is_over:
            if not self.replica.members.everyone and self.replica.last == 0:
                await self._links.ask_all(peers.JoinGroup(self.me))
            await asyncio.sleep(JOIN_S)

    def _join_asked(self, request: peers.JoinGroup, peer: Peer) -> None:
        if host_of(request.member) == peer.host:
            self._handle(e.JoinAsked(request.member))

    async def _send_checkpoint(self, to: MemberId) -> None:
        await self._copying.send(self._links, to)
        self._handle(e.CopyEnded(to))

    def _has_already(self, sequence: int) -> bool:
        return self.replica.is_leading or sequence <= self.replica.committed

    # --- the end

    def _end(self, reason: str) -> None:
        self.is_over = True
        log.warning("group member=%s starts anew: %s", self.me, reason)
        self._program.over(reason, None)

    def _failed(self, failure: DiskFailed) -> None:
        self.is_over = True
        self._program.over(str(failure), failure)

    def _bug(self, bug: BaseException, where: str) -> None:
        log.critical("bug in the group at %s", where, exc_info=bug)
        self._failed(DiskFailed(f"{self.log.directory}: a bug in the group: {bug!r}"))


def _boot_id() -> bytes:
    try:
        with open(_BOOT_ID, "rb") as file:
            return bytes.fromhex(file.read().decode().strip().replace("-", ""))
    except (OSError, ValueError):
        return os.urandom(16)  # as if the host had just been started: a whole lease of silence
