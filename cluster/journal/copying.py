"""Checkpoints between members: sent to one that needs records which nobody keeps any more.

The receiver writes it beside its own log and gives it its name at one stroke; then its process
starts anew, from that state. All of one comes over one connection: a leader that was stopped in the
middle of it and wakes up deposed goes on with its pieces, and they must not get into another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.errors import ClusterError, Unavailable, UserError
from mrstream.cluster.journal import peers
from mrstream.cluster.journal.checkpoint import CheckpointWriter
from mrstream.cluster.journal.group_disk import GroupDisk
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.wire.network import Handler, Peer

log = logging.getLogger(__name__)


class Copying:
    """Both ends of a checkpoint's way; on the group's loop."""

    def __init__(
        self,
        group_log: GroupLog,
        disk: GroupDisk,
        member: MemberId,
        has_already: Callable[[int], bool],
        on_installed: Callable[[str], None],
    ) -> None:
        self._log, self._disk, self._member = group_log, disk, member
        self._has_already = has_already
        self._on_installed = on_installed
        self._coming: Incoming | None = None
        self.handlers: dict[type[Any], Handler] = {
            peers.BeginCheckpoint: self._begin,
            peers.CheckpointPiece: self._piece,
            peers.EndCheckpoint: self._end,
        }

    async def send(self, links: peers.Links, to: MemberId) -> None:
        """Send our newest checkpoint; a failure is only logged: it will be asked for again."""
        try:
            with self._disk.lock:
                held = self._log.read_checkpoint()
            if held is None:
                raise OSError(errno.ENOENT, "no checkpoint is there to be sent")
            sequence, epoch, rows, pieces = held
            channel = await links.connect(host_of(to))
            try:
                await channel.call(peers.BeginCheckpoint(to, sequence, epoch, rows), 10.0)
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    await channel.call(peers.CheckpointPiece(piece), 30.0)
                await channel.call(peers.EndCheckpoint(), 60.0)
            finally:
                channel.close()
            log.info("checkpoint sequence=%d sent to %s", sequence, to)
        except (ClusterError, OSError) as error:
            log.warning("checkpoint to=%s failed: %s", to, error)
            await asyncio.sleep(1.0)

    def _begin(self, request: peers.BeginCheckpoint, peer: Peer) -> None:
        if request.member != self._member:
            raise UserError(f"{self._member} is not {request.member[:80]!r}")
        if request.sequence < 1 or request.epoch < 0:
            raise UserError(f"no checkpoint is of record {request.sequence}")
        if self._has_already(request.sequence):
            raise UserError(f"{self._member} has record {request.sequence} already")
        self._give_up()
        with self._refused_if_full(), self._disk.lock:
            writer = self._log.begin_checkpoint(request.sequence, request.epoch, request.members)
        self._coming = Incoming(peer, request.sequence, writer)

    def _piece(self, request: peers.CheckpointPiece, peer: Peer) -> None:
        coming = self._coming_from(peer)
        with self._refused_if_full():
            coming.writer.add(request.piece)

    def _end(self, request: peers.EndCheckpoint, peer: Peer) -> None:
        coming = self._coming_from(peer)
        if self._has_already(coming.sequence):
            self._give_up()
            raise UserError(f"{self._member} has record {coming.sequence} already")
        with self._refused_if_full():
            coming.writer.finish()
        self._coming = None

        def place() -> None:
            self._log.publish_checkpoint(coming.sequence)

        self._disk.in_turn(place)
        self._on_installed(f"the checkpoint of record {coming.sequence} has come")

    def _coming_from(self, peer: Peer) -> Incoming:
        if self._coming is None or self._coming.peer is not peer:
            raise Unavailable("no checkpoint has been begun over this connection")
        return self._coming

    def _give_up(self) -> None:
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.writer.abandon()

    @contextlib.contextmanager
    def _refused_if_full(self) -> Iterator[None]:
        """A disk that does not take a checkpoint is no reason to end: the sender hears of it, and
        tries again; what the log itself needs, the log finds out."""
        try:
            yield
        except OSError as error:
            self._give_up()
            raise Unavailable(f"{self._member} cannot take a checkpoint: {error}") from error


@dataclass(frozen=True, slots=True)
class Incoming:
    """A checkpoint that comes over one connection."""

    peer: Peer
    sequence: int
    writer: CheckpointWriter
