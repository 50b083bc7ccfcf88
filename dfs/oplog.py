"""The operation log: the brain's records as bytes, and the brain back out of them (GFS §2.6.3).

M1: an answer given, a read's too, rests only on what is durable: on disk, and where masters are a
group, on the disks of a majority (`cluster/leader/gate.py`). Never decides anything.
"""

from __future__ import annotations

import msgspec

from mrstream.cluster.errors import JournalCorrupt, NewerFormat
from mrstream.cluster.journal.recovery import Recovery
from mrstream.dfs.metadata.image import load_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.operations import AnyRecord

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode_record(record: AnyRecord) -> bytes:
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


def fold(payload: bytes, brain: Metadata) -> None:
    """Fold one record of the log into a brain that does not lead."""
    brain.apply(decode_record(payload))


def replay(found: Recovery, brain: Metadata) -> int:
    """Fold checkpoint and log into an empty brain; return how many records came after it."""
    if found.checkpoint_sequence:
        load_image(brain, found.checkpoint)
    count = 0
    for sequence, payload in found.records:
        try:
            fold(payload, brain)
        except JournalCorrupt as error:
            raise JournalCorrupt(f"record {sequence}: {error}") from None
        count += 1
    return count
