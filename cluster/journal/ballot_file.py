"""What an elector must not forget: its vote (`ballot`) and its promise (`promise`).

The grammar is docs/formats/consensus.md. A vote is synced before it leaves; of two slots the older
is written over, so that a torn write leaves the vote before it. A promise is written at every beat
and never synced: after a crash of the process alone it is exact, and after a restart of the host,
which the boot id tells, the longest that it can have been is taken for it.
"""

from __future__ import annotations

import os
import struct

from crc32c import crc32c

from mrstream.cluster.disk import Disk, DiskFile
from mrstream.cluster.journal.format import corrupt

BALLOT_NAME = "ballot"
"""Where it is, a member of a group has been at work."""
_MAGIC = b"MRSB"
_FORMAT = 1
_SLOT = struct.Struct("<4sIQQ16s")
"""Magic, format, counter, epoch, journal that was voted for; then CRC32C of them, then zeros."""
SLOT_BYTES = 64
NOBODY = bytes(16)

_PROMISE = struct.Struct("<4s16sd")
"""Magic, boot id, until when on that boot's clock; then CRC32C of them."""
PROMISE_BYTES = 32
_PROMISE_MAGIC = b"MRSP"


def encode_slot(counter: int, epoch: int, voted_for: bytes) -> bytes:
    checked = _SLOT.pack(_MAGIC, _FORMAT, counter, epoch, voted_for)
    return (checked + struct.pack("<I", crc32c(checked))).ljust(SLOT_BYTES, b"\0")


def decode_slot(slot: bytes) -> tuple[int, int, bytes] | None:
    """Return (counter, epoch, voted for) of a slot, None where it is not whole."""
    if len(slot) < SLOT_BYTES:
        return None
    checked = slot[: _SLOT.size]
    magic, version, counter, epoch, voted_for = _SLOT.unpack(checked)
    crc = struct.unpack_from("<I", slot, _SLOT.size)[0]
    if magic != _MAGIC or version != _FORMAT or crc32c(checked) != crc:
        return None
    return counter, epoch, voted_for


class BallotFile:
    """The ballot of one member on its disk."""

    def __init__(self, disk: Disk, directory: str) -> None:
        path = os.path.join(directory, BALLOT_NAME)
        self._file = _open(disk, path, 2 * SLOT_BYTES)
        data = self._file.read(2 * SLOT_BYTES, 0)
        slots = [data[:SLOT_BYTES], data[SLOT_BYTES:]]
        whole = [slot for slot in map(decode_slot, slots) if slot is not None]
        # The very first write may be torn; nobody heard of that vote.
        if not whole and all(any(slot) for slot in slots):
            raise corrupt(path, 0, "both slots of the ballot are damaged")
        self._counter, self.epoch, self.voted_for = max(whole, default=(0, 0, NOBODY))

    def save(self, epoch: int, voted_for: bytes) -> None:
        """Write the vote; when this returns it survives a power cut."""
        assert epoch >= self.epoch
        self._counter += 1
        at = self._counter % 2 * SLOT_BYTES
        self._file.write(encode_slot(self._counter, epoch, voted_for), at)
        self._file.sync()
        self.epoch, self.voted_for = epoch, voted_for

    def close(self) -> None:
        self._file.close()


def encode_promise(boot_id: bytes, until_s: float) -> bytes:
    """Return a promise: no vote before `until_s` on the clock of that boot."""
    checked = _PROMISE.pack(_PROMISE_MAGIC, boot_id, until_s)
    return checked + struct.pack("<I", crc32c(checked))


class PromiseFile:
    """The promise of one member on its disk."""

    def __init__(self, disk: Disk, directory: str, boot_id: bytes) -> None:
        assert len(boot_id) == 16
        self._boot_id = boot_id
        path = os.path.join(directory, "promise")
        self._file = _open(disk, path, PROMISE_BYTES)
        self._found = self._file.read(PROMISE_BYTES, 0)
        if not any(self._found):
            # Synced once, so that after any power cut an older boot is found here, not nothing.
            self._file.write(encode_promise(boot_id, 0.0), 0)
            self._file.sync()

    def until_s(self, now_s: float, longest_s: float) -> float:
        """Return until when, on our clock, no vote may be given."""
        found = self._found
        if not any(found):
            return now_s  # nobody was ever promised anything
        checked = found[: _PROMISE.size]
        magic, boot_id, until_s = _PROMISE.unpack(checked)
        crc = struct.unpack_from("<I", found, _PROMISE.size)[0]
        is_whole = magic == _PROMISE_MAGIC and crc32c(checked) == crc
        if not is_whole or boot_id != self._boot_id:
            return now_s + longest_s
        return min(max(float(until_s), now_s), now_s + longest_s)

    def save(self, until_s: float) -> None:
        """Write it down, for after a crash of this process."""
        self._file.write(encode_promise(self._boot_id, until_s), 0)

    def close(self) -> None:
        self._file.close()


def _open(disk: Disk, path: str, length: int) -> DiskFile:
    """Open a file of that many bytes to write over; made, durably, full of zeros, where it is
    missing or shorter."""
    file = disk.open(path, create=not disk.exists(path), write=True)
    there = file.size()
    if there < length:
        file.write(bytes(length - there), there)
        file.sync()
        disk.sync_directory(os.path.dirname(path))
    return file
