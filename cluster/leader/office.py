"""A master's place in its group: a shadow that folds the log, or the leader that serves.

The part that all masters share. A member starts as a shadow and applies what is committed. When it
is chosen, and everything that was ever acknowledged has been applied, it is told to `lead`: from
then on requests come in, and answers go out while the lease holds. A leader that is deposed never
lives on, since records that it has applied may be cut: the process starts anew (`os.execv`), which
drops every connection, and comes back as a shadow. Where cluster.yaml names one master, the same
face stands before a journal of one process: it leads from its start on, as it always did.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import CoroutineType
from typing import Any, NoReturn, Protocol

import msgspec

from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import ALONE, MemberId, host_of, member_id
from mrstream.cluster.consensus.standing import AskGroup, NotLeader, Standing, WhoLeads
from mrstream.cluster.daemon import Daemon
from mrstream.cluster.disk import OsDisk
from mrstream.cluster.errors import ClusterError, DiskFailed, JournalCorrupt, UserError
from mrstream.cluster.journal.ballot_file import BALLOT_NAME
from mrstream.cluster.journal.group_recovery import is_of_group
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import Recovery
from mrstream.cluster.journal.replicated import ReplicatedJournal
from mrstream.cluster.leader.epoch_file import EpochFile
from mrstream.cluster.leader.gate import Gate
from mrstream.cluster.leader.log_check import compare_with_listeners
from mrstream.cluster.leader.record_log import RecordLog
from mrstream.cluster.wire.network import Handler, Peer

log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 16 * 1024 * 1024
LOOK_S = 0.02
"""How often a leader without a lease looks whether it has come back."""
BEATS_A_LEASE = 6


class Machine(Protocol):
    """A master's state as the fold of its log; all of this is called on the daemon's loop."""

    def load(self, pieces: Iterator[bytes]) -> None:
        """Take the state of a checkpoint; before anything else, where there is one."""

    def apply(self, payload: bytes) -> None:
        """Fold a committed record of somebody else's lead, or of an earlier life."""

    def lead(self, epoch: int) -> None:
        """Everything ever acknowledged has been applied: decide from now on."""


class Office:
    """One member. Its journal's face is `append`, `when_durable`, `seen`, `durable`."""

    def __init__(
        self,
        daemon: Daemon,
        machine: Machine,
        name: str = "log",
        *,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        alone: Journal | None = None,
        restart: Callable[[str], None] | None = None,
    ) -> None:
        """`name` is that of the journal's directory; `alone` the journal where there is one master,
        if it has to be a particular one; `restart` what is done in place of `Daemon.restart`."""
        self._daemon, self._machine = daemon, machine
        self._restart = restart or daemon.restart
        directory = os.path.join(daemon.state_directory, name)
        self._epochs = EpochFile(os.path.join(daemon.state_directory, "epoch"))
        self._group: ReplicatedJournal | None = None
        self._alone = alone
        if self._is_of_group(directory):
            self._group = self._make_group(directory)
        elif alone is None:
            self._alone = Journal(directory, daemon.identity.cluster_id, on_failure=self._failed)
        self.log = RecordLog(self.journal, checkpoint_bytes)
        self.epoch = 0
        """Of our own lead; 0: we do not lead."""
        daemon.epoch = lambda: self.epoch
        self._is_parked = False
        """The lead is being handed over: nobody is answered, and nothing appended."""
        self._has_begun = False
        """The journal runs, so it has to be closed."""
        self._is_over = False
        """Nothing is said any more; never taken back."""
        self._watching: dict[Gate[Any], None] = {}
        """Gates that hold something back and are to be looked at again: each is in one turn."""
        self.handlers: dict[type[Any], Handler] = {
            WhoLeads: lambda request, peer: self.standing(),
            AskGroup: self._ask,
        }

    def _is_of_group(self, directory: str) -> bool:
        """A log that once belonged to a group stays one: a journal of one cannot read it."""
        daemon = self._daemon
        if len(daemon.config.masters_of(daemon.role)) > 1:
            return True
        return is_of_group(OsDisk(), directory, daemon.identity.cluster_id)

    def _make_group(self, directory: str) -> ReplicatedJournal:
        daemon, lease_s = self._daemon, self._daemon.config.failover_after_s
        return ReplicatedJournal(
            directory,
            daemon.identity,
            daemon.config.group_addresses(daemon.role),
            timing=Timing(lease_s=lease_s, beat_s=lease_s / BEATS_A_LEASE),
            on_failure=self._failed,
            epoch_above=self._epochs.read(),
        )

    def _failed(self, error: DiskFailed) -> None:
        self._daemon.fail(error, f"log of {self._daemon.role}")

    @property
    def journal(self) -> Journal | ReplicatedJournal:
        journal = self._group or self._alone
        assert journal is not None
        return journal

    # --- life

    async def start(self, found: Recovery | None = None) -> None:
        """Take up the state that is there; then lead, where we are alone, or begin to follow."""
        loop = self._daemon.loop
        if self._group is not None:
            try:
                await self._compare(self._group)
                sequence, pieces = self._group.recover()
            except JournalCorrupt as error:
                self._set_aside(error)
            if sequence:
                self._machine.load(pieces)
            try:
                self._group.start(loop, self)
            except JournalCorrupt as error:  # of the vote
                self._set_aside(error)
            self._has_begun = True
            return
        assert self._alone is not None
        found = self._alone.recover(found)
        for problem in [*found.problems, *([found.torn] if found.torn else [])]:
            log.warning("recovery: %s", problem)
        if found.checkpoint_sequence:
            self._machine.load(found.checkpoint)
        for sequence, payload in found.records:
            self._apply(sequence, payload)
        self._alone.start(loop)
        self._has_begun = True
        self._lead(self._epochs.next())

    async def _compare(self, group: ReplicatedJournal) -> None:
        """Who can lead without asking anybody must not, with less than one that listens has."""
        me, members, last = group.look()
        if members.voters == (me,) and members.learners:
            await compare_with_listeners(self._daemon, group.directory, last, members.learners)

    def _set_aside(self, error: JournalCorrupt) -> NoReturn:
        """Begin as a new member, where this one's log, or its vote, is damaged and others have the
        log: their majority lets it in again. A log that never was a group's may be the only one,
        and is left alone."""
        daemon, directory = self._daemon, self.journal.directory
        has_others = len(daemon.config.voters_of(daemon.role)) > 1
        is_ours = os.path.exists(os.path.join(directory, BALLOT_NAME)) or is_of_group(
            OsDisk(), directory, daemon.identity.cluster_id
        )
        if not has_others or not is_ours:
            raise error
        kept = f"{directory}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
        log.error("the log is damaged, and kept as %s: %s", kept, error)
        os.rename(directory, kept)
        self._restart("its log is damaged: it comes back as a new member of its group")
        raise error  # only where somebody else's restart returns

    async def stop(self) -> None:
        """Make durable what was decided, and let go."""
        self._is_over = True
        if self._has_begun:
            await self._daemon.loop.run_in_executor(None, self.journal.close)

    # --- the journal's face

    @property
    def seen(self) -> int:
        return self.log.seen

    @property
    def durable(self) -> int:
        return self.log.durable

    def append(self, payload: bytes) -> int:
        """Put a record behind all others; it has to be applied at once, and is not durable yet."""
        return self.log.append(payload)

    async def settled(self, sequence: int) -> None:
        """Return once the record is durable and an answer may leave; for masters without a gate."""
        await self.journal.when_durable(sequence)
        await self._allowed()

    def checkpoint_if_due(self, produce: Callable[[], Iterable[bytes]]) -> None:
        """Leaders and shadows alike: the log is kept short everywhere."""
        has_state = self._group is None or self._group.applied > 0
        if self.log.wants_checkpoint and has_state and not self._is_over:
            self.log.checkpoint(produce)

    # --- who we are

    @property
    def is_leading(self) -> bool:
        """May requests come in, and time pass in the brain?"""
        return self.epoch > 0 and not self._is_parked and self.may_speak()

    def may_speak(self) -> bool:
        """C4: may anything leave at this moment? Asked when it leaves, not when it is decided."""
        return self.lease_left_s() > 0.0 and not self._is_parked and not self._is_over

    def lease_left_s(self) -> float:
        """How long answers may leave; for ever where there is one master."""
        if self._group is not None:
            return self._group.lease_left_s()
        return math.inf if self.epoch else 0.0

    def standing(self) -> Standing:
        """How this member sees its group, for clients."""
        if self._group is None:
            me = member_id(self._daemon.host.name, ALONE)
            journal, epoch, is_serving = self.journal, self.epoch, self.may_speak()
            return Standing(
                me, me if epoch else MemberId(""), epoch, journal.durable, journal.sequence, (me,),
                (), journal.durable, 0.0, is_serving, self._daemon.address,
            )  # fmt: skip
        seen = self._group.standing()
        return msgspec.structs.replace(seen, address=self._address_of(seen.leader))

    def not_leader(self) -> NotLeader:
        """What whoever asks a member that does not lead is told: who does."""
        error = self._group.not_leader() if self._group is not None else NotLeader("it is starting")
        leader = MemberId(str(error.details.get("leader", "")))
        host = host_of(leader) if leader else ""
        error.details = {
            "leader": host,
            "address": self._address_of(leader),
            "epoch": error.details.get("epoch", 0),
        }
        return error

    def _address_of(self, leader: MemberId) -> str:
        config, role = self._daemon.config, self._daemon.role
        return config.master_addresses(role).get(host_of(leader), "") if leader else ""

    def ready(self) -> tuple[bool, str]:
        """Is this member as it should be; in words that an operator acts on."""
        if self.journal.blocked:
            return False, f"cannot log: {self.journal.blocked}"
        if self._group is None:
            return True, f"epoch {self.epoch}"
        return words_of(self._group.standing())

    @property
    def is_log_in_doubt(self) -> bool:
        """Do we lead alone, and may one that listens have more of the log, since it has not been
        there since we began?"""
        if self._group is None:
            return False
        voters, learners = self._group.copies()
        return not voters and bool(learners) and not all(learners.values())

    @property
    def copies_wanted(self) -> int:
        """On so many other hosts our log is to be."""
        return sum(map(len, self._group.copies())) if self._group is not None else 0

    @property
    def copies_in_step(self) -> int:
        """On so many of them it is, as of the last beat."""
        if self._group is None:
            return 0
        return sum(sum(others.values()) for others in self._group.copies())

    # --- requests

    def guard(self, handlers: Mapping[type[Any], Handler]) -> dict[type[Any], Handler]:
        """Let these be called while we lead, and their answers leave while the lease holds; others
        hear `NotLeader`. A handler may return a future only if its answer passes a `Gate`."""
        return {kind: self._guarded(handler) for kind, handler in handlers.items()}

    def _guarded(self, handler: Handler) -> Handler:
        def answer(request: Any, peer: Peer) -> Any:
            if not self.is_leading:
                raise self.not_leader()
            try:
                result = handler(request, peer)
            except ClusterError as error:
                if self.may_speak():
                    raise
                return self._refuse_later(error)
            if isinstance(result, asyncio.Future):
                return result
            if isinstance(result, CoroutineType):
                return self._answer_after(result)
            return result if self.may_speak() else self._answer_later(result)

        return answer

    async def _answer_after(self, result: Awaitable[Any]) -> Any:
        try:
            value = await result
        except ClusterError as error:
            return await self._refuse_later(error)
        return await self._answer_later(value)

    async def _answer_later(self, result: Any) -> Any:
        await self._allowed()
        return result

    async def _refuse_later(self, error: ClusterError) -> Any:
        await self._allowed()
        raise error

    async def _allowed(self) -> None:
        """Wait for the lease; in a leader that is deposed, for the end of the process."""
        while not self.may_speak():
            await asyncio.sleep(LOOK_S)

    def gate(self, carry_out: Callable[[Any], None]) -> Gate[Any]:
        """A gate before our log and lease; `watch` it after each event."""
        return Gate(self.log, carry_out, self.may_speak)

    def watch(self, gate: Gate[Any]) -> None:
        """Release what the gate holds as soon as it may leave: once for all that one commit makes
        durable."""
        if gate.waits_for and gate not in self._watching:
            self._watching[gate] = None
            if gate.waits_for <= self.durable and not self.may_speak():
                self._daemon.loop.call_later(LOOK_S, self._look_again, gate)
            else:
                durable = self.journal.when_durable(gate.waits_for)
                durable.add_done_callback(lambda future: self._released(gate, future))

    def _released(self, gate: Gate[Any], durable: asyncio.Future[None]) -> None:
        if durable.exception() is None:  # else the journal has told the daemon, which is ending
            self._look_again(gate)

    def _look_again(self, gate: Gate[Any]) -> None:
        self._watching.pop(gate, None)
        if not self._is_over:
            gate.release()
            self.watch(gate)

    async def _ask(self, request: AskGroup, peer: Peer) -> int:
        if self._group is None:
            raise UserError(
                f"{self._daemon.role} of this cluster has one host: `masters:` names more"
            )
        return await self._group.ask(request.verb, request.member)

    # --- what the group tells us

    def on_committed(self, sequence: int, payload: bytes) -> None:
        """Fold a record; one that cannot be read ends the process: no shadow may skip one."""
        try:
            self._apply(sequence, payload)
        except ClusterError as error:
            self._daemon.refuse(error)

    def _apply(self, sequence: int, payload: bytes) -> None:
        try:
            self._machine.apply(payload)
        except JournalCorrupt as error:
            raise JournalCorrupt(f"record {sequence}: {error}") from None
        self.log.applied(payload)

    def on_leadership(self, epoch: int) -> None:
        self._lead(epoch)

    def _lead(self, epoch: int) -> None:
        self.epoch = epoch
        log.info("leads epoch=%d sequence=%d", epoch, self.seen)
        self._machine.lead(epoch)

    def on_parked(self, parked: bool) -> None:
        self._is_parked = parked

    def on_restart(self, reason: str) -> None:
        """What is held is never said; who waits for it sees its connection end, and asks again."""
        self._is_over = True
        if self._group is not None:
            self._group.abandon()
        self._restart(reason)


def share_learned(synced: int, committed: int) -> int:
    """Of what is committed, in percent; only who has all of it has 100."""
    if synced >= committed:
        return 100
    return min(99, 100 * synced // max(1, committed))


def words_of(standing: Standing) -> tuple[bool, str]:
    """Say how a member is, and whether that is as it should be."""
    if standing.is_serving:
        return True, f"leader, epoch {standing.epoch}"
    if not standing.voters and not standing.learners:
        return False, "belongs to no group yet: `mrstream cluster up` founds or extends it"
    if standing.leader in ("", standing.member):
        need = len(standing.voters) // 2 + 1
        return False, f"no leader: {need} of {len(standing.voters)} members must run and be reached"
    if standing.member in standing.learners:
        share = share_learned(standing.synced, standing.leader_committed)
        leader = host_of(standing.leader)
        if len(standing.voters) == 1 and share == 100:
            return True, f"listens to {leader}, epoch {standing.epoch}, has all of its log"
        return True, f"learner of {leader}, epoch {standing.epoch}, {share} %"
    behind = f", {standing.behind_s:.1f} s behind" if standing.behind_s >= 0.0 else ""
    return True, f"shadow of {host_of(standing.leader)}, epoch {standing.epoch}{behind}"
