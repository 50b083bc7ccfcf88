"""What the lock service can refuse, by what the caller does next (the tree grows out of cluster's).

UserError     NoSuchNode · NodeExists · NodeNotDirectory · NodeIsDirectory · NodeHasChildren
              BadNodePath · BadLockRequest · AclRefuses · GenerationChanged · LockHeld
              LimitReached · HandleInvalid · SequencerInvalid · SessionExpired
Unavailable   WrongEpoch · CellFailingOver · CallReplaced
"""

from __future__ import annotations

from mrstream.cluster.errors import Unavailable, UserError


class NoSuchNode(UserError, FileNotFoundError):
    """Nothing has that path."""


class NodeExists(UserError, FileExistsError):
    """Something has that path already, and the caller wanted to make it."""


class NodeNotDirectory(UserError, NotADirectoryError):
    """The path, or what it stands in, is a file."""


class NodeIsDirectory(UserError, IsADirectoryError):
    """The path is a directory, and directories have no contents."""


class NodeHasChildren(UserError, OSError):
    """A directory is deleted only when nothing is in it."""


class BadNodePath(UserError, ValueError):
    """The path cannot be one of a cell: it is `/ls/CELL/name/…`."""


class BadLockRequest(UserError, ValueError):
    """An argument is outside its limits; the message names it, its value and the limit."""


class AclRefuses(UserError, PermissionError):
    """The node's access control list does not have this user."""


class GenerationChanged(UserError):
    """The contents are no longer of the generation that the caller has seen."""


class LockHeld(UserError):
    """Somebody else has the lock, or its delay is not over, and the caller did not wait longer."""


class LimitReached(UserError):
    """The cell, or this session, has as many of them as it may; the message names the limit."""


class HandleInvalid(UserError):
    """The handle is closed, poisoned, forged, or of a node that was deleted since."""


class SequencerInvalid(UserError):
    """The sequencer is not that of a lock held now: its holder is not the holder any more."""


class SessionExpired(UserError):
    """The session is over: its locks, handles and ephemeral nodes are gone."""


class WrongEpoch(Unavailable):
    """The call was made for another leader; `details["epoch"]` is the epoch now."""


class CellFailingOver(Unavailable):
    """The leader is new and does not yet know that every client knows; try again soon."""


class CallReplaced(Unavailable):
    """The same call came again, and that one will be answered."""
