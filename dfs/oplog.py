"""The operation log: the brain's records in the journal, and the brain back out of it (GFS §2.6.3).

M1: an answer given, a read's too, rests only on what is on disk. `append` takes the records of one
turn; `seen` is the sequence that everything said from now on may rest on, and nothing may be said
before the journal calls that durable. Never decides anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from mrstream.cluster.errors import JournalCorrupt, NewerFormat
from mrstream.cluster.journal.journal import Journal
from mrstream.cluster.journal.recovery import Recovery
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.operations import AnyRecord

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode_record(record: AnyRecord) -> bytes:
    """Return the record as the log holds it."""
    return _encode(record)


def decode_record(payload: bytes) -> AnyRecord:
    """Return the record; raise NewerFormat if its kind is not known here, or JournalCorrupt: its
    checksum was right but it says nothing."""
    try:
        return _decoder.decode(payload)
    except msgspec.ValidationError as error:
        raise NewerFormat(f"the operation log is of a newer version: {error}") from None
    except msgspec.DecodeError as error:
        raise JournalCorrupt(f"a record of the operation log cannot be read: {error}") from None


def replay(found: Recovery, brain: Metadata) -> int:
    """Fold checkpoint and log into an empty brain; return how many records came after it."""
    if found.checkpoint_sequence:
        load_image(brain, found.checkpoint)
    count = 0
    for sequence, payload in found.records:
        try:
            brain.apply(decode_record(payload))
        except JournalCorrupt as error:
            raise JournalCorrupt(f"record {sequence}: {error}") from None
        count += 1
    return count


class OperationLog:
    """The journal as the master uses it."""

    def __init__(self, journal: Journal, checkpoint_bytes: int) -> None:
        self._journal = journal
        self._checkpoint_bytes = checkpoint_bytes
        self._bytes_since = 0
        self.record_count = 0

    @property
    def seen(self) -> int:
        """The sequence that the brain's state rests on."""
        return self._journal.sequence

    @property
    def durable(self) -> int:
        """The sequence that survives a crash."""
        return self._journal.durable

    def append(self, record: AnyRecord) -> None:
        """Put a record behind all others."""
        payload = _encode(record)
        self._bytes_since += len(payload)
        self.record_count += 1
        self._journal.append(payload)

    @property
    def wants_checkpoint(self) -> bool:
        """Has the log grown enough since the last checkpoint?"""
        return self._bytes_since >= self._checkpoint_bytes

    def checkpoint(self, brain: Metadata, done: Callable[[], None]) -> int:
        """Begin to write a checkpoint of the state as it is now, beside the service; return its
        sequence. `done` is called from another thread at the end."""
        self._bytes_since = 0
        sequence = self._journal.sequence
        thread = self._journal.fork_checkpoint(lambda: pack_image(brain))
        _after(thread, done)
        return sequence


def _after(thread: threading.Thread, done: Callable[[], None]) -> None:
    def wait() -> None:
        thread.join()
        done()

    threading.Thread(target=wait, name="after-checkpoint", daemon=True).start()
