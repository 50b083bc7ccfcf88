"""Sealing a chunk: no more changes at this version, and its length is certain.

Every replica that can be reached takes a higher version, after which no earlier mutation can
succeed. Whatever was acknowledged is on all of them, so the shortest length (of those that have all
confirmed bytes) is right; it is logged, and the longer ones are cut. Done when a writer is lost,
before a snapshot, before a clone, when a shared file is idle. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mrstream.dfs.chunk import ChunkHandle, ChunkVersion, ServerId, handle_name
from mrstream.dfs.errors import NoReplica
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.events import Called
from mrstream.dfs.metadata.outbox import Gather
from mrstream.dfs.metadata.underway import Tables, Underway, Underways
from mrstream.dfs.protocol import SetVersion, TruncateChunk


class Seals:
    """Ends the changing of chunks."""

    def __init__(self, tables: Tables, underways: Underways) -> None:
        self._t = tables
        self._underways = underways

    def seal(
        self,
        handle: ChunkHandle,
        then: Callable[[bool], None] | None = None,
        failed: Sequence[ServerId] = (),
    ) -> None:
        """Begin to fix the length of a chunk, without the servers that a client says failed; `then`
        hears whether it worked."""
        t = self._t
        reachable = self._underways.reachable(handle)
        targets = [server for server in reachable if server.id not in failed] or reachable
        if not targets or self._underways.is_too_soon(handle, targets):
            if then is not None:
                then(False)
            return
        before = t.chunks.version(handle)
        version = self._underways.fresh_version(handle)
        work = Underway("seal", handle, then=[] if then is None else [then])
        self._underways.begin(work)
        Gather(
            t.outbox,
            targets,
            lambda command_id, _: SetVersion(command_id, handle, before, version),
            t.settings.command_s_max,
            partial(self._sealed, work, before, version),
        )

    def _sealed(
        self, work: Underway, before: ChunkVersion, version: ChunkVersion, gather: Gather
    ) -> None:
        t = self._t
        handle = work.handle
        if not self._underways.still_wanted(work, gather, version):
            return
        confirmed = self._underways.confirmed_bytes(handle)
        lengths = {index: done.length_bytes for index, done in gather.acks.items()}
        whole = {index: length for index, length in lengths.items() if length >= confirmed}
        if not whole:
            error = NoReplica(
                f"chunk {handle_name(handle)}: replicas end at {sorted(lengths.values())}, "
                f"before the {confirmed} bytes that were acknowledged"
            )
            self._underways.forget(work)
            for index, length in lengths.items():
                t.chunks.report(handle, index, version, length)
            self._underways.finish(work, False, error)
            return
        assert version > t.chunks.granted(handle), f"{handle_name(handle)}: sealed at {version}"
        self._underways.settled(handle)
        length_bytes = min(whole.values())
        row, index = t.chunks.owner(handle)
        lease = t.leases.in_force(handle, t.outbox.now_s)
        if lease is not None and lease.primary in gather.acks:
            t.leases.end(handle)
        is_last = index == t.space.nodes.chunk_count[row] - 1
        if length_bytes == 0 and is_last:
            t.outbox.emit(op.ChunkDropped(t.space.nodes.id_of(row), handle))
        else:
            t.outbox.emit(op.ChunkSealed(handle, version, length_bytes))
            t.chunks.prepared(handle, before, whole)
            for server, length in lengths.items():
                if length < length_bytes:
                    t.chunks.report(handle, server, version, length)
                elif length > length_bytes:
                    t.outbox.tell(
                        t.servers.at(server),
                        lambda command_id: TruncateChunk(command_id, handle, version, length_bytes),
                    )
        t.story.tell(f"sealed at version {version}, {length_bytes} bytes", handle=handle)
        self._underways.finish(work, True)

    def seal_and_park(
        self, handle: ChunkHandle, called: Called, failed: Sequence[ServerId] = ()
    ) -> None:
        """Have a request wait until the chunk is sealed; NoReplica if that cannot be begun."""
        if self._underways.of(handle) is None:
            self.seal(handle, failed=failed)
        work = self._underways.of(handle)
        if work is None:
            raise self._underways.no_replica(handle)
        work.parked.append(called)
