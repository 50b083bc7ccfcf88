"""All replicas that a chunkserver holds, over several disks.

Takes handles; gives `Replica`s. A disk that fails is taken out: its replicas are gone from here,
the rest serve on. A replica that cannot be trusted is listed as corrupt, and stays on its disk
until it is told to go or a good copy settles in its place. Knows nothing of the network.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mrstream.cluster.disk import Disk
from mrstream.cluster.errors import DiskFailed, Overloaded, Unavailable
from mrstream.dfs.chunk import ChunkHandle, ChunkReport, ChunkVersion
from mrstream.dfs.chunks.append_log import Appended
from mrstream.dfs.chunks.identity import IDENTITY, check_identity, write_identity
from mrstream.dfs.chunks.replica import Replica
from mrstream.dfs.chunks.replica_files import CHUNKS, INCOMING, remove_files
from mrstream.dfs.errors import ChunkCorrupt, DiskFull, NoSuchChunk, StaleReplica

log = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NOT_THE_DISKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What the process or the machine has too little of; the disk is as good as before."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """What of each disk is not for chunks: a fraction of it or a number of bytes, the larger."""

    fraction: float = 0.05
    size_bytes: int = 0

    def of(self, total_bytes: int) -> int:
        """The bytes to keep free of a disk of that size."""
        return max(int(total_bytes * self.fraction), self.size_bytes)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """One disk's share: bytes of the file system, bytes still free for chunks, why it is out."""

    name: str
    total_bytes: int
    free_bytes: int
    chunk_bytes: int
    """Bytes of all replicas on it."""
    failure: str = ""


class ChunkStore:
    """The replicas of one server, by handle."""

    def __init__(
        self, disks: Sequence[Disk], *, cluster: str, server: str, reserve: Reserve | None = None
    ) -> None:
        """Take the disks in, make new ones ours, and recover every replica on them.

        Raises WrongCluster or NewerFormat, before anything is written, if any disk is not ours.
        """
        self._reserve = reserve or Reserve()
        self._lock = threading.Lock()
        self._replicas: dict[int, Replica] = {}
        """What is served, by handle: one replica of a chunk, on one of `_disks`."""
        self._corrupt: dict[int, tuple[Disk, str, int]] = {}
        """What is not any more: where it lies, why, and its version (0: not known). No handle is in
        both."""
        self._lost: list[int] = []
        """Handles that went with a disk, and that nobody has been told of yet."""
        self._failed: dict[str, str] = {}
        """Disks that were taken out, and why; none comes back before a restart."""
        self._disks: list[Disk] = []
        """Those that are used; each bears this cluster's identity."""
        usable = []
        for disk in disks:
            try:
                is_new = check_identity(disk, cluster)
            except OSError as error:
                self._failed[disk.name] = str(error)
                log.error("disk_out disk=%s reason=%s", disk.name, error)
                continue
            usable.append((disk, is_new))
        for disk, is_new in usable:
            try:
                if is_new:
                    write_identity(disk, cluster, server)
                self._load(disk)
            except OSError as error:
                self.take_out(disk, str(error))
        self._forget_doubles()

    # --- finding

    def get(self, handle: int, version: int | None = None) -> Replica:
        """Return the replica; raise if it is not here, corrupt, or of another version."""
        replica = self._replicas.get(handle)
        if replica is None:
            corrupt = self._corrupt.get(handle)
            if corrupt is not None:
                raise ChunkCorrupt(corrupt[1], handle=handle)
            raise NoSuchChunk(f"chunk {handle:016x} is not on this server", handle=handle)
        if version is not None and replica.version != version:
            raise StaleReplica(
                f"chunk {handle:016x}: the replica here has version {replica.version}, "
                f"the request {version}",
                handle=handle,
                version=replica.version,
            )
        return replica

    def reports(self) -> list[ChunkReport]:
        """Every good replica, by handle."""
        with self._lock:
            replicas = sorted(self._replicas.items())
        return [
            ChunkReport(ChunkHandle(handle), ChunkVersion(replica.version), replica.length)
            for handle, replica in replicas
        ]

    def handles(self) -> list[int]:
        """The handles of all good replicas, sorted."""
        with self._lock:
            return sorted(self._replicas)

    def corrupt(self) -> dict[int, str]:
        """The replicas that cannot be trusted, and why."""
        with self._lock:
            return {handle: reason for handle, (_, reason, _) in sorted(self._corrupt.items())}

    def corrupt_versions(self) -> list[tuple[int, int]]:
        """The replicas that cannot be trusted, and their versions (0: unknown)."""
        with self._lock:
            return [(handle, version) for handle, (_, _, version) in sorted(self._corrupt.items())]

    def take_lost(self) -> list[int]:
        """The replicas that went with a disk since the last call."""
        with self._lock:
            lost, self._lost = self._lost, []
        return lost

    def uses(self) -> list[DiskUse]:
        """How full each disk is, and which are out."""
        with self._lock:
            lengths: dict[str, int] = {}
            for replica in self._replicas.values():
                name = replica.disk.name
                lengths[name] = lengths.get(name, 0) + replica.length
            disks = list(self._disks)
            uses = [DiskUse(name, 0, 0, 0, reason) for name, reason in self._failed.items()]
        for disk in disks:
            try:
                if self._is_gone(disk):
                    uses.append(DiskUse(disk.name, 0, 0, 0, self._failed[disk.name]))
                    continue
                total_bytes, free_bytes = self._space(disk)
            except OSError as error:
                self.take_out(disk, str(error))
                uses.append(DiskUse(disk.name, 0, 0, 0, str(error)))
            else:
                length = lengths.get(disk.name, 0)
                uses.append(DiskUse(disk.name, total_bytes, free_bytes, length))
        return uses

    # --- changing

    def create(self, handle: int, version: int, appended: Sequence[Appended] = ()) -> Replica:
        """Make an empty replica, which knows of those appends; one that is here already at that
        version is as good."""
        with self._lock:
            present = self._replicas.get(handle)
        if present is not None and present.version == version:
            return present
        disk = self.roomiest(0)
        with self.guarded(disk):
            replica = Replica.create(disk, handle, version, appended=appended)
        with self._lock:
            self._replicas[handle] = replica
        return replica

    def write(
        self,
        replica: Replica,
        offset: int,
        pieces: Sequence[bytes | memoryview],
        *,
        durable: bool = True,
    ) -> int:
        """`Replica.write`, within the space that may be used; returns the new length."""
        self.need_room(replica.disk, sum(len(piece) for piece in pieces))
        with self.guarded(replica.disk, replica):
            return replica.write(offset, pieces, durable=durable)

    def read(
        self, replica: Replica, offset: int, size: int, buffer: bytearray | None = None
    ) -> memoryview:
        """`Replica.read`; a replica found corrupt is one from here on."""
        try:
            return replica.read(offset, size, buffer)
        except ChunkCorrupt as error:
            if not self._is_gone(replica.disk):
                self.distrust(replica, str(error))
            raise
        except OSError as error:
            if error.errno in NOT_THE_DISKS:
                raise Overloaded(f"chunk {replica.handle:016x}: {error}") from error
            self.distrust(replica, f"chunk {replica.handle:016x}: {error}")
            self.probe(replica.disk)
            raise ChunkCorrupt(
                f"chunk {replica.handle:016x}: reading failed: {error}", handle=replica.handle
            ) from error

    def append(
        self, replica: Replica, pieces: Sequence[bytes | memoryview], entry: Appended
    ) -> int:
        """`Replica.append`, within the space that may be used; returns the new length."""
        self.need_room(replica.disk, entry.length_bytes)
        with self.guarded(replica.disk, replica):
            return replica.append(pieces, entry)

    def receive(
        self, handle: int, version: int, length: int, appended: Sequence[Appended] = ()
    ) -> Replica:
        """Begin a copy from elsewhere; it counts from `settle` on, or goes with `remove`."""
        disk = self.roomiest(length)
        with self.guarded(disk):
            return Replica.create(disk, handle, version, incoming=True, appended=appended)

    def settle(self, replica: Replica) -> None:
        """Make a complete incoming copy the replica of its chunk."""
        with self.guarded(replica.disk):
            replica.settle()
        with self._lock:
            old = self._replicas.get(replica.handle)
            corrupt = self._corrupt.pop(replica.handle, None)
            self._replicas[replica.handle] = replica
        for disk in (old.disk if old else None, corrupt[0] if corrupt else None):
            if disk is not None and disk is not replica.disk:
                with self.guarded(disk):
                    remove_files(disk, replica.handle)

    def copy(self, source: int, target: int, version: int, length: int | None = None) -> Replica:
        """Make `target` a copy of the first `length` bytes of `source` on this server, without
        the network (GFS §3.4)."""
        original = self.get(source)
        size = original.length if length is None else min(length, original.length)
        with self._lock:
            present = self._replicas.get(target)
        if present is not None and present.version == version:
            return present
        with self.guarded(original.disk, original):
            appended = original.appended(size)
        replica = self.receive(target, version, size, appended)
        try:
            for offset in range(0, size, _COPY_BYTES):
                piece = self.read(original, offset, min(_COPY_BYTES, size - offset))
                self.write(replica, offset, [piece])
            self.settle(replica)
        except (Unavailable, ChunkCorrupt):
            replica.remove()
            raise
        return replica

    def remove(self, handle: int) -> None:
        """Delete a replica, good or corrupt; one that is not here is fine."""
        with self._lock:
            replica = self._replicas.pop(handle, None)
            corrupt = self._corrupt.pop(handle, None)
        if replica is not None:
            with self.guarded(replica.disk):
                replica.remove()
        if corrupt is not None:
            with self.guarded(corrupt[0]):
                remove_files(corrupt[0], handle)

    def distrust(self, replica: Replica, reason: str) -> None:
        """List a replica as corrupt; its files stay."""
        with self._lock:
            if self._replicas.get(replica.handle) is not replica:
                return
            del self._replicas[replica.handle]
            self._corrupt[replica.handle] = (replica.disk, reason, replica.version)
        log.error("replica_corrupt handle=%016x reason=%s", replica.handle, reason)

    # --- disks

    def disks(self) -> list[Disk]:
        """The disks in use."""
        with self._lock:
            return list(self._disks)

    def roomiest(self, need_bytes: int) -> Disk:
        """The disk with the most free space, which must be more than `need_bytes`."""
        best: Disk | None = None
        best_bytes = 0
        with self._lock:
            disks = list(self._disks)
        for disk in disks:
            try:
                if self._is_gone(disk):
                    continue
                free_bytes = self._space(disk)[1]
            except OSError as error:
                self.take_out(disk, str(error))
                continue
            if best is None or free_bytes > best_bytes:
                best, best_bytes = disk, free_bytes
        if best is None or best_bytes <= need_bytes:
            raise DiskFull(
                f"{need_bytes} bytes do not fit: {best_bytes} are free beyond the reserve on the "
                f"emptiest of {len(disks)} disks"
            )
        return best

    def need_room(self, disk: Disk, size_bytes: int) -> None:
        """Raise DiskFull unless that many bytes fit on the disk beside its reserve."""
        with self.guarded(disk):
            free_bytes = self._space(disk)[1]
        if free_bytes < size_bytes:
            raise DiskFull(
                f"{size_bytes} bytes do not fit: {free_bytes} are free beyond the reserve "
                f"on {disk.name}"
            )

    @contextlib.contextmanager
    def guarded(self, disk: Disk, replica: Replica | None = None) -> Iterator[None]:
        """Turn what the operating system says about a disk, or about a replica on it, into what a
        caller can act on; what it says of them counts from then on."""
        try:
            yield
        except DiskFailed:
            raise
        except ChunkCorrupt as error:
            if replica is not None:
                self.distrust(replica, str(error))
            raise
        except FileNotFoundError as error:
            if self._is_gone(disk) or replica is None:
                raise NoSuchChunk(f"disk {disk.name}: {error}") from error
            reason = f"chunk {replica.handle:016x}: {error.filename} is gone"
            self.distrust(replica, reason)
            raise ChunkCorrupt(reason, handle=replica.handle) from error
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise DiskFull(f"{disk.name} is full: {error}") from error
            if error.errno in NOT_THE_DISKS:
                raise Overloaded(f"disk {disk.name}: {error}") from error
            self.take_out(disk, str(error))
            raise NoSuchChunk(f"disk {disk.name} failed and is out: {error}") from error

    def _is_gone(self, disk: Disk) -> bool:
        """Take a disk out that is no longer mounted: its identity is not there any more."""
        if disk.exists(IDENTITY):
            return False
        self.take_out(disk, f"{IDENTITY} is gone: is the disk mounted?")
        return True

    def probe(self, disk: Disk) -> None:
        """Take a disk out unless it still takes and gives back a few bytes."""
        try:
            file = disk.open("probe", create=True)
            try:
                file.write(b"probe", 0)
                file.sync()
                alive = file.read(5, 0) == b"probe" and disk.exists(IDENTITY)
            finally:
                file.close()
            disk.remove("probe")
        except OSError as error:
            self.take_out(disk, str(error))
            return
        if not alive:
            self.take_out(disk, "it does not give back what was written")

    def take_out(self, disk: Disk, reason: str) -> None:
        """Stop using a disk; its replicas are no longer here."""
        with self._lock:
            self._failed[disk.name] = reason
            self._disks = [other for other in self._disks if other is not disk]
            lost = [handle for handle, one in self._replicas.items() if one.disk is disk]
            for handle in lost:
                del self._replicas[handle]
            for handle in [h for h, entry in self._corrupt.items() if entry[0] is disk]:
                del self._corrupt[handle]
            self._lost += lost
        log.error("disk_out disk=%s lost=%d reason=%s", disk.name, len(lost), reason)

    def _space(self, disk: Disk) -> tuple[int, int]:
        total_bytes, free_bytes = disk.space()
        return total_bytes, max(0, free_bytes - self._reserve.of(total_bytes))

    def _load(self, disk: Disk) -> None:
        for name in disk.list(INCOMING):
            disk.remove(f"{INCOMING}/{name}")
        self._disks.append(disk)
        for directory in disk.list(CHUNKS):
            names = disk.list(f"{CHUNKS}/{directory}")
            for handle in sorted({h for name in names if (h := _handle_in(name)) is not None}):
                self._load_one(disk, handle)

    def _load_one(self, disk: Disk, handle: int) -> None:
        try:
            replica = Replica.recover(disk, handle)
        except NoSuchChunk:
            remove_files(disk, handle)
            return
        except ChunkCorrupt as error:
            self._corrupt[handle] = (disk, str(error), 0)
            log.error("replica_corrupt handle=%016x reason=%s", handle, error)
            return
        except OSError as error:
            if error.errno in _NO_SPACE:
                # An overwrite waits for room to be finished; until then nobody may see it.
                self._corrupt[handle] = (disk, f"chunk {handle:016x}: {error}", 0)
                return
            raise
        other = self._replicas.get(handle)
        if other is None:
            self._replicas[handle] = replica
            return
        # A copy that was being replaced on another disk when the power went.
        worse, better = sorted((other, replica), key=lambda one: (one.version, one.length))
        self._replicas[handle] = better
        remove_files(worse.disk, handle)

    def _forget_doubles(self) -> None:
        """Where a good replica is on one disk, a bad one on another has been replaced by it."""
        for handle in [handle for handle in self._corrupt if handle in self._replicas]:
            disk = self._corrupt.pop(handle)[0]
            with self.guarded(disk):
                remove_files(disk, handle)


def _handle_in(name: str) -> int | None:
    """The handle in a chunk file's name; None for files that are not ours."""
    stem, _, suffix = name.partition(".")
    if suffix not in ("data", "sums", "redo") or len(stem) != 16:
        return None
    try:
        return int(stem, 16)
    except ValueError:
        return None
