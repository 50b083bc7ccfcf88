"""Commits on an object store: output appears when its uploads are completed, by the job's commit.

A store cannot rename, so nothing is written under another name: an attempt's files are uploads to
their final keys that wait (`s3_files.py`). A task's commit is one small object, its **claim**, made
only if there is none: `OUT/_temporary/0/claims/ATTEMPT` holds the attempt's uploads. Whoever takes
an attempt's right away writes that there, and no claim can follow (S1). The job's commit completes
the uploads of all claims. Files that a program put into the attempt's room itself are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.committer import SUCCESS, TEMPORARY, Committer
from mrstream.mapreduce.dataflow.files import Files, join
from mrstream.mapreduce.dataflow.s3_files import UPLOAD, key_of
from mrstream.mapreduce.dataflow.s3_store import (
    AT_ONCE_MAX,
    ObjectStoreError,
    OtherObject,
    Store,
    Upload,
)
from mrstream.streaming.conf.jobconf import JobConf

CLAIMS = "claims"
_Item = TypeVar("_Item")


class ClaimLost(ObjectStoreError):
    """An attempt may not commit any more."""


class WholeBucket(UserError):
    """The output of a job is below a key of its own: all uploads to there are the job's."""


class Copy(msgspec.Struct, frozen=True):
    """An object in an attempt's room, and the key that it shall have."""

    source: str
    key: str


class Claim(msgspec.Struct, frozen=True):
    """What a committed attempt leaves; of a fenced one nothing, ever."""

    uploads: tuple[Upload, ...] = ()
    copies: tuple[Copy, ...] = ()
    is_fenced: bool = False


_FENCED = msgspec.json.encode(Claim(is_fenced=True))


class MultipartCommitter(Committer):
    """The output of one job below a key of a bucket. D3 and S1 hold as for directories; what a
    failed job wrote is never seen."""

    def __init__(self, conf: JobConf, output_url: str, files: Files) -> None:
        super().__init__(conf, output_url, files)
        bucket, key = key_of(self.output_url)
        if not key:
            raise WholeBucket(
                f"{self.output_url} is a whole bucket, in which others may have uploads: write "
                f"-output s3://{bucket}/DIRECTORY"
            )
        self._store = Store(bucket)
        self._top = f"{key}/"
        self._room = f"{self._top}{TEMPORARY}/0/"

    def setup_job(self) -> None:
        """Mark the output as taken, once uploads that a killed job left are gone."""
        if not self._is_open():
            self._store.abort_below(self._top)
            self._store.put(self._room, b"")

    def commit_task(self, attempt_id: str) -> bool:
        """Claim the task's output for this attempt; says whether the job's room is still there."""
        if not self._is_open():
            return False  # the job is over
        claim = msgspec.json.encode(self._claim(attempt_id))
        key = self._claim_key(attempt_id)
        try:
            self._store.put(key, claim, only_new=True)
        except OtherObject:
            if self._store.get(key) != claim:
                raise ClaimLost(f"{attempt_id} may not commit: its output was taken away") from None
        return True

    def abort_task(self, attempt_id: str) -> None:
        """Take the attempt's right to commit away, and throw away what it wrote."""
        if self._is_open():
            self._store.put(self._claim_key(attempt_id), _FENCED)
        claim = self._claim(attempt_id)
        for upload in claim.uploads:
            self._store.abort(upload.key, upload.upload_id)
        self._files.delete(self.attempt_dir(attempt_id))
        if not self._is_open():
            # The job ended meanwhile, and has cleared up already.
            self._store.delete([self._claim_key(attempt_id)])

    def commit_job(self) -> None:
        """Complete what was claimed, say that all is there, and clear up."""
        found = [self._store.get(o.key) for o in self._store.below(f"{self._room}{CLAIMS}/")]
        claims = [msgspec.json.decode(data, type=Claim) for data in found]
        _each(self._store.complete, [upload for claim in claims for upload in claim.uploads])
        copies = [copy for claim in claims for copy in claim.copies]
        _each(lambda copy: self._store.copy(copy.source, copy.key), copies)
        if self._mark_success:
            self._files.create(join(self.output_url, SUCCESS)).close()
        self._clear()

    def _clear(self) -> None:
        """Throw away what was not completed: none of it was ever seen. Whoever writes a claim looks
        for the room's mark behind it: so that goes first."""
        self._store.delete([self._room])
        self._store.abort_below(self._top)
        self._files.delete(join(self.output_url, TEMPORARY))

    def _is_open(self) -> bool:
        return self._store.head(self._room) is not None

    def _claim(self, attempt_id: str) -> Claim:
        room = f"{key_of(self.attempt_dir(attempt_id))[1]}/"
        keys = [o.key for o in self._store.below(room) if o.key != room]
        told = [msgspec.json.decode(self._store.get(k), type=Upload) for k in keys if _waits(k)]
        copies = [Copy(k, self._top + k[len(room) :]) for k in keys if not _waits(k)]
        return Claim(tuple(told), tuple(copies))

    def _claim_key(self, attempt_id: str) -> str:
        return f"{self._room}{CLAIMS}/{attempt_id}"


def _waits(key: str) -> bool:
    return key.endswith(UPLOAD)


def _each(do: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Do something to all, several at a time; the first error is raised when all are done."""
    with ThreadPoolExecutor(AT_ONCE_MAX) as pool:
        results: Iterable[None] = pool.map(do, items)
        for _ in results:
            pass
