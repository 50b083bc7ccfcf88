"""What the file system can refuse, by what the caller does next (the tree grows out of cluster's).

UserError     NoSuchFile · FileExists · NotADirectory · IsADirectory · DirectoryNotEmpty
              BadPath · BadRequest · PermissionDenied · WriterFenced · FileBusy
              RecordTooLarge · NotInTrash · FencedOff · FileReplaced · NotAligned
              NameQuotaExceeded · SpaceQuotaExceeded · NoSuchKey · AlreadySpent
              CrossesCells · WrongCell · MountPoint
Unavailable   SafeMode · LeaseExpired · NotPrimary · StaleReplica · NoReplica · NoServers
              NoSuchChunk · ChunkFull · DataNotPushed · ReplicaFailed · NotRegistered
              StaleMaster
Corrupt       ChunkCorrupt
"""

from __future__ import annotations

from mrstream.cluster.errors import Corrupt, Unavailable, UserError


class NoSuchFile(UserError, FileNotFoundError):
    """Nothing has that path."""


class FileExists(UserError, FileExistsError):
    """Something has that path already."""


class NotADirectory(UserError, NotADirectoryError):
    """The path, or something above it, is a file."""


class IsADirectory(UserError, IsADirectoryError):
    """The path is a directory, and the operation is for files."""


class DirectoryNotEmpty(UserError, OSError):
    """The directory has entries and the caller did not ask for everything below it."""


class BadPath(UserError, ValueError):
    """The path cannot be a path: relative, `..`, NUL, not UTF-8, too long."""


class BadRequest(UserError, ValueError):
    """An argument is outside its limits; the message names it, its value and the limit."""


class PermissionDenied(UserError, PermissionError):
    """Owner, group and mode do not allow it to this user."""


class WriterFenced(UserError):
    """Another client has opened the file for writing since, or the master closed it for us."""


class FileBusy(UserError):
    """Another client is writing the file, and its time is not up."""


class RecordTooLarge(UserError):
    """A record append is limited to a fourth of a chunk (GFS §3.3)."""


class NotInTrash(UserError, FileNotFoundError):
    """There is nothing to undelete under that name."""


class FencedOff(UserError):
    """A newer holder of the lock, or leader, was seen: this one may change nothing any more."""

    @property
    def name(self) -> str:
        """Which fence it is."""
        return str(self.details.get("name", ""))


class FileReplaced(UserError):
    """Another file has the path by now; the one that was meant is gone."""


class NotAligned(UserError):
    """These files cannot be joined without moving bytes: they do not fill their chunks."""


class NameQuotaExceeded(UserError, OSError):
    """A directory above may hold no more files and directories."""


class SpaceQuotaExceeded(UserError, OSError):
    """A directory above may hold no more bytes, replicas counted."""


class NoSuchKey(UserError, LookupError):
    """There is no such key to the doors."""


class AlreadySpent(UserError):
    """The link was used before."""


class CrossesCells(UserError, OSError):
    """The two paths are in different cells, and this can be done within one only."""


class MountPoint(UserError, PermissionError):
    """A cell is mounted just there: it can be neither deleted nor renamed."""


class WrongCell(UserError):
    """The path is not of the cell whose master was asked."""


class SafeMode(Unavailable):
    """The master has just started and waits for its chunkservers to report."""


class LeaseExpired(Unavailable):
    """The primary's lease is over; ask the master who has it now."""


class NotPrimary(Unavailable):
    """The server asked to order a mutation does not hold the lease at that version."""


class StaleReplica(Unavailable):
    """The versions differ; ask the master again."""


class NoReplica(Unavailable):
    """No server that is up holds a good replica of the chunk."""


class NoServers(Unavailable):
    """No chunkserver has room for a new replica."""


class NoSuchChunk(Unavailable):
    """This server does not hold the chunk."""


class ChunkFull(Unavailable):
    """A record does not fit into the rest of the chunk, now padded; take the next chunk."""


class DataNotPushed(Unavailable):
    """The data named by the mutation is not in the server's buffer (any more); push it again."""


class ReplicaFailed(Unavailable):
    """A mutation failed at some replica; `details["servers"]` names those."""


class NotRegistered(Unavailable):
    """The master does not know this incarnation of the chunkserver; register again."""


class StaleMaster(Unavailable):
    """A later master has been seen, or the order is too old: it may be one of a deposed master."""


class DiskFull(Unavailable):
    """The chunkserver's disks have no room beyond their reserve; another server may."""


class ChunkCorrupt(Corrupt):
    """A block of a replica fails its checksum; the master has been told."""
