"""What a worker keeps of attempts for people: their logs, and the input of those that failed.

    DIR/logs/JOB/ATTEMPT/stderr    what its programs said
    DIR/logs/JOB/ATTEMPT/stdout    the beginning of what its program wrote
    DIR/kept/JOB/ATTEMPT/…         its order, its failure and its input, to repeat it elsewhere

Whatever is older than a week goes when the worker starts or a job ends. Reads at most a piece at a
time; never follows a name out of its directory.
"""

from __future__ import annotations

import os
import shutil

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.attempt.attempt_report import KEPT_FILES
from mrstream.mapreduce.protocol import LogPiece, ReadKept, ReadLog
from mrstream.mapreduce.scheduler.ids import parse_attempt_id

PIECE_BYTES = 1 << 20
KEPT_S_MAX = 7 * 24 * 3600.0
STREAMS = ("stderr", "stdout")


class NoSuchLog(UserError):
    """No log is kept under that name."""


class WorkerLogs:
    def __init__(self, directory: str) -> None:
        self._logs = os.path.join(directory, "logs")
        self._kept = os.path.join(directory, "kept")
        for place in (self._logs, self._kept):
            os.makedirs(place, mode=0o700, exist_ok=True)
            os.chmod(place, 0o700)  # what programs said and read is not for all users of the host

    def log_directory(self, attempt_id: str) -> str:
        return _below(self._logs, attempt_id)

    def kept_directory(self, attempt_id: str) -> str:
        """Where the input of an attempt that fails is kept."""
        return _below(self._kept, attempt_id)

    def read_log(self, request: ReadLog) -> LogPiece:
        """Return a piece of a log; one that was never written is empty."""
        if request.stream not in STREAMS:
            raise NoSuchLog(f"{request.stream!r} is not a log: there are {', '.join(STREAMS)}")
        directory = self.log_directory(request.attempt_id)
        if not os.path.isdir(directory):
            raise NoSuchLog(f"no logs of {request.attempt_id} are kept here")
        return _piece(os.path.join(directory, request.stream), request.offset)

    def read_kept(self, request: ReadKept) -> LogPiece:
        """Return a piece of a file that was kept of a failed attempt."""
        directory = self.kept_directory(request.attempt_id)
        if request.name not in KEPT_FILES or not os.path.isdir(directory):
            raise NoSuchLog(f"nothing is kept of {request.attempt_id} here under {request.name!r}")
        return _piece(os.path.join(directory, request.name), request.offset)

    def prune(self, now_s: float) -> None:
        """Remove the jobs that nobody touched for a week."""
        for root in (self._logs, self._kept):
            for name in os.listdir(root):
                path = os.path.join(root, name)
                if now_s - os.stat(path).st_mtime > KEPT_S_MAX:
                    shutil.rmtree(path, ignore_errors=True)


def _below(root: str, attempt_id: str) -> str:
    try:
        job_id = parse_attempt_id(attempt_id).task_id.job_id
    except ValueError as error:
        raise NoSuchLog(str(error)) from None
    return os.path.join(root, job_id, attempt_id)


def _piece(path: str, offset: int) -> LogPiece:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return LogPiece(file.read(PIECE_BYTES), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return LogPiece(b"", 0)
