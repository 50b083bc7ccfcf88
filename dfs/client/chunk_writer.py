"""Getting one run of bytes onto all replicas of a chunk: push, then write (GFS §3.1).

Takes a grant from the master and data; returns when every replica of the grant in force has it on
disk. When a replica fails or the lease moves on, asks the master for a new grant and repeats what
was not acknowledged: the pipeline repairs itself in the middle of a write.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from mrstream.cluster.errors import ClusterError, HostUnreachable, Unavailable
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import BulkStream
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.client.topology import Place, chain
from mrstream.dfs.errors import ChunkCorrupt, DataNotPushed, ReplicaFailed
from mrstream.dfs.protocol import ChunkGrant, Done, PushData, ServerAddress, WriteChunk
from mrstream.dfs.transfer.forward import FORWARD_BYTES, Forward

if TYPE_CHECKING:
    from mrstream.dfs.client.client import DfsClient

log = logging.getLogger(__name__)

DATA_ID_BYTES = 16
SMALL_BYTES = 256 << 10


@dataclass(slots=True)
class Run:
    """Bytes on their way to a place in a chunk."""

    index: int
    """Which chunk of its file; the run lies within it."""
    offset: int
    """Where in that chunk; a record append leaves that to the primary."""
    data: memoryview
    """Nobody changes these bytes before they are acknowledged: they may be sent several times."""
    durable: bool = True
    """Are they, and all before them in the chunk, to be on disk when they are acknowledged?"""
    data_id: bytes = field(default_factory=lambda: secrets.token_bytes(DATA_ID_BYTES))
    """Names them in the buffers of chunkservers; a push that is repeated has the same."""
    pushed_to: tuple[ServerId, ...] = ()
    """The servers, sorted, all of which are known to hold them: a grant for any other set has them
    pushed again."""
    underway: Push | None = None
    """Sent ahead, and its outcome not heard: `push` takes it away and asks, or it is closed."""


FindGrant = Callable[[ChunkGrant, tuple[ServerId, ...]], ChunkGrant]
"""(the grant that failed, the servers that failed) → the grant to go on with."""


class Push:
    """A run's bytes on their way down the chain of a grant's replicas: all sent, not yet known to
    have arrived. The next run can be sent meanwhile, so that no link has to wait."""

    def __init__(self, client: DfsClient, run: Run, grant: ChunkGrant) -> None:
        self.names = _names(grant)
        """What `Run.pushed_to` is once it has arrived."""
        order = chain(client.place, grant.replicas)
        request = PushData(run.data_id, len(run.data), order, crc32c(run.data))
        self._forward = Forward(client.pool, request, run.data)
        for end in range(FORWARD_BYTES, len(run.data) + FORWARD_BYTES, FORWARD_BYTES):
            self._forward.pass_on(min(end, len(run.data)))

    def finish(self) -> None:
        """Return when all replicas have the bytes; ReplicaFailed names those that have not."""
        self._forward.finish()

    def close(self) -> None:
        """Nobody waits for the answer."""
        self._forward.close()


def push(client: DfsClient, run: Run, grant: ChunkGrant) -> None:
    """Send the bytes down the chain of the grant's replicas; ReplicaFailed names who failed."""
    if not len(run.data):
        return
    underway, run.underway = run.underway, None
    if underway is not None:
        # If that failed, it is tried once more before anybody is blamed.
        with contextlib.suppress(ClusterError):
            underway.finish()
            run.pushed_to = underway.names
    names = _names(grant)
    if run.pushed_to != names:
        Push(client, run, grant).finish()
        run.pushed_to = names


def _names(grant: ChunkGrant) -> tuple[ServerId, ...]:
    return tuple(sorted(server.server for server in grant.replicas))


def primary_of(grant: ChunkGrant) -> ServerAddress:
    for server in grant.replicas:
        if server.server == grant.primary:
            return server
    raise AssertionError(f"the primary {grant.primary} is not among the replicas of its own grant")


def write_run(client: DfsClient, run: Run, grant: ChunkGrant, find_grant: FindGrant) -> ChunkGrant:
    """Put the run onto all replicas; return the grant under which it was acknowledged."""
    for attempt in client.retry.attempts():
        try:
            _write_once(client, run, grant)
            return grant
        except DataNotPushed as error:
            # It aged out of a buffer, or a server was restarted: push again (GFS-42).
            run.pushed_to = ()
            if attempt.number > 1:
                attempt.failed(error)
        except (Unavailable, ChunkCorrupt) as error:
            failed = failed_servers(error, grant)
            log.info(
                "write to %016x at %d failed at %s: %s",
                grant.handle, run.offset, ",".join(failed) or "the primary's lease", error,
            )  # fmt: skip
            run.pushed_to = ()
            if attempt.number > 1:
                attempt.failed(as_unavailable(error))
            grant = find_grant(grant, failed)
    raise AssertionError("attempts do not end")


def failed_servers(error: Exception, grant: ChunkGrant) -> tuple[ServerId, ...]:
    """Which servers to leave out of the next grant, by what went wrong."""
    if isinstance(error, ReplicaFailed):
        return tuple(ServerId(name) for name in error.details.get("servers", ()))
    if isinstance(error, PrimaryUnreachable):
        return (grant.primary,)
    return ()


class PrimaryUnreachable(Unavailable):
    """The primary did not answer a mutation."""


def ask_primary(client: DfsClient, grant: ChunkGrant, request: Request) -> Any:
    """Send a mutation to the primary; PrimaryUnreachable if it does not answer."""
    primary = primary_of(grant)
    try:
        return client.pool.call(client.pool.address_of(primary), request)
    except HostUnreachable as error:
        raise PrimaryUnreachable(f"primary {primary.server}: {error}") from error


def _write_once(client: DfsClient, run: Run, grant: ChunkGrant) -> None:
    request = WriteChunk(
        grant.handle,
        grant.version,
        run.offset,
        len(run.data),
        run.data_id,
        grant.replicas,
        run.durable,
    )
    if 0 < len(run.data) <= SMALL_BYTES and not run.pushed_to and run.underway is None:
        _write_small(client, run, grant, request)
        return
    push(client, run, grant)
    ask_primary(client, grant, request)


def _write_small(client: DfsClient, run: Run, grant: ChunkGrant, request: WriteChunk) -> None:
    """Push and write in one go: the chain begins at the primary, which finds the write request
    right behind the bytes. Saves a small write a round trip."""
    primary = primary_of(grant)
    others = [server for server in grant.replicas if server is not primary]
    order = chain(Place(primary.server, primary.rack), others)
    address = client.pool.address_of(primary)
    message = PushData(run.data_id, len(run.data), order, crc32c(run.data))
    stream = client.pool.idle(address)
    if stream is not None:
        try:
            _send_both(client, address, stream, message, run, request)
        except (EOFError, HostUnreachable):
            stream.close()  # it was closed while it lay idle: try a new one
        else:
            return
    try:
        stream = client.pool.connect(address)
        _send_both(client, address, stream, message, run, request)
    except (EOFError, HostUnreachable) as error:
        raise PrimaryUnreachable(f"primary {primary.server}: {error}") from error


def _send_both(
    client: DfsClient,
    address: str,
    stream: BulkStream,
    message: PushData,
    run: Run,
    request: WriteChunk,
) -> None:
    stream.send(message, run.data)
    stream.send(request)
    refusal: ClusterError | None = None
    for _ in range(2):
        # Both requests are answered, whatever became of the first.
        try:
            stream.receive(Done)
        except HostUnreachable:
            raise
        except ClusterError as error:
            refusal = refusal or error
    client.pool.give_back(address, stream)
    if refusal is not None:
        raise refusal


def as_unavailable(error: Exception) -> Unavailable:
    """The error as one after which it is tried again."""
    return error if isinstance(error, Unavailable) else Unavailable(str(error))
