"""Errors of the file system as Hadoop's exceptions, by their Java names; without IO."""

from __future__ import annotations

import logging

from mrstream.cluster.errors import ClusterError, Corrupt, Unavailable, UserError
from mrstream.dfs import errors as dfs
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, json_reply

log = logging.getLogger(__name__)

HDFS = "org.apache.hadoop.hdfs.protocol"
FS = "org.apache.hadoop.fs"
ILLEGAL = "java.lang.IllegalArgumentException"
UNSUPPORTED = "java.lang.UnsupportedOperationException"
NOT_FOUND = "java.io.FileNotFoundException"
IO = "java.io.IOException"
SECURITY = "java.lang.SecurityException"
ACCESS = "org.apache.hadoop.security.AccessControlException"
RETRIABLE = "org.apache.hadoop.ipc.RetriableException"

TABLE: tuple[tuple[type[ClusterError], int, str], ...] = (
    (dfs.NotInTrash, 404, NOT_FOUND),
    (dfs.IsADirectory, 403, f"{FS}.FileAlreadyExistsException"),
    (dfs.FileExists, 403, f"{FS}.FileAlreadyExistsException"),
    (dfs.NotADirectory, 403, f"{FS}.ParentNotDirectoryException"),
    (dfs.DirectoryNotEmpty, 403, f"{FS}.PathIsNotEmptyDirectoryException"),
    (dfs.BadPath, 400, ILLEGAL),
    (dfs.BadRequest, 400, ILLEGAL),
    (dfs.PermissionDenied, 403, ACCESS),
    (dfs.FileBusy, 403, f"{HDFS}.AlreadyBeingCreatedException"),
    (dfs.WriterFenced, 403, "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"),
    (dfs.NameQuotaExceeded, 403, f"{HDFS}.NSQuotaExceededException"),
    (dfs.SpaceQuotaExceeded, 403, f"{HDFS}.DSQuotaExceededException"),
    (dfs.CrossesCells, 403, IO),
    (dfs.MountPoint, 403, ACCESS),
    (dfs.SafeMode, 503, "org.apache.hadoop.hdfs.server.namenode.SafeModeException"),
    (dfs.NoReplica, 403, "org.apache.hadoop.hdfs.BlockMissingException"),
    (dfs.NoServers, 403, IO),
    (dfs.DiskFull, 403, IO),
    (Corrupt, 403, f"{FS}.ChecksumException"),
    (Unavailable, 503, RETRIABLE),
    (UserError, 400, IO),
)
"""The first that fits."""
_REFUSALS = {400: ILLEGAL, 401: SECURITY, 403: ACCESS, 404: NOT_FOUND, 429: RETRIABLE}


class Unsupported(Exception):
    """An operation of HDFS that there is not here; the message says what there is instead."""


class PastEnd(Exception):
    """A read begins behind the end of the file."""


def remote_exception(java_name: str, message: str, status: int) -> Reply:
    """The answer that Hadoop's clients turn into an exception of that name."""
    return json_reply(
        {
            "RemoteException": {
                "exception": java_name.rpartition(".")[2],
                "javaClassName": java_name,
                "message": message,
            }
        },
        status,
    )


def error_reply(error: Exception, operation: str, *, changes: bool) -> Reply:
    """The answer to an error of the file system, a refusal, or an operation that is not here;
    `changes` tells operations that change something from those that look."""
    if isinstance(error, Unsupported):
        return remote_exception(UNSUPPORTED, str(error), 400)
    if isinstance(error, PastEnd):
        return remote_exception("java.io.EOFException", str(error), 403)
    if isinstance(error, Refused):
        java_name = _REFUSALS.get(error.status, RETRIABLE if error.status == 503 else IO)
        reply = remote_exception(java_name, error.words, error.status)
        return Reply(reply.status, reply.body, (*reply.headers, *error.headers), close=error.close)
    if isinstance(error, dfs.IsADirectory) and operation in ("OPEN", "GETFILECHECKSUM"):
        return remote_exception(NOT_FOUND, f"Path is not a file: {error}", 404)
    if isinstance(error, dfs.NotADirectory) and not changes:
        return remote_exception(NOT_FOUND, f"File does not exist: {error}", 404)
    if isinstance(error, dfs.NoSuchFile):
        # Clients look for these words.
        return remote_exception(NOT_FOUND, f"File does not exist: {error}", 404)
    for kind, status, java_name in TABLE:
        if isinstance(error, kind):
            reply = remote_exception(java_name, str(error), status)
            return reply.with_headers(("Retry-After", "5")) if status == 503 else reply
    raise error


def bug_reply(request_id: str) -> Reply:
    """The answer to a bug of ours: where to look, and nothing of what was found."""
    log.exception("request=%s: bug", request_id)
    return remote_exception("java.lang.RuntimeException", f"request {request_id}", 500)
