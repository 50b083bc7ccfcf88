"""For all write sequences, crash points and flipped bits: B1 and B2 of `dfs.chunks` hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.chunks.replica import Replica
from mrstream.dfs.chunks.replica_files import path_of
from mrstream.dfs.errors import ChunkCorrupt
from tests.support.examples import examples
from tests.support.forgetful_disk import ForgetfulDisk

HANDLE = 0xABCD00000000002A


class PowerCut(Exception):
    """The machine goes dark at this step."""


class Fuse:
    """Raises at the n-th step of a disk."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, action: str, path: str) -> None:
        if self.left == 0:
            raise PowerCut(f"{action} {path}")
        self.left -= 1


SIZES = st.one_of(
    st.integers(1, 700),
    st.sampled_from([BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]),
)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "overwrite", "gap", "pad", "version"]),
        st.floats(0, 1),
        SIZES,
        st.integers(0, 2**32),
    ),
    min_size=1,
    max_size=7,
)


def carry_out(replica: Replica, model: bytearray, what: tuple[str, float, int, int]) -> None:
    kind, where, size, seed = what
    data = random.Random(seed).randbytes(size)
    if kind == "version":
        replica.set_version(replica.version + 1)
    elif kind == "pad":
        replica.pad(len(model) + size)
    elif kind == "overwrite":
        replica.write(int(where * len(model)), [data[: size // 2], data[size // 2 :]])
    elif kind == "gap":
        replica.write(len(model) + size, [data])
    else:
        replica.write(len(model), [data])


def expected(model: bytearray, what: tuple[str, float, int, int]) -> bytearray:
    kind, where, size, seed = what
    data = random.Random(seed).randbytes(size)
    after = bytearray(model)
    if kind == "pad":
        after.extend(bytes(size))
    elif kind == "overwrite":
        offset = int(where * len(model))
        after[offset : offset + size] = data
    elif kind == "gap":
        after.extend(bytes(size) + data)
    elif kind == "append":
        after.extend(data)
    return after


@settings(max_examples=examples(100), deadline=None)
@given(changes=CHANGES, steps=st.integers(0, 60), seed=st.integers(0, 2**32), again=CHANGES)
def test_a_power_cut_at_any_step_keeps_every_acknowledged_byte(
    changes: list[tuple[str, float, int, int]],
    steps: int,
    seed: int,
    again: list[tuple[str, float, int, int]],
) -> None:
    """GFS-78 and decision 6: whatever was acknowledged reads back, whenever the power goes."""
    chance = random.Random(seed)
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    replica = Replica.create(disk, HANDLE, 1)
    replica.set_version(1)
    model = bytearray()
    for part in (changes, again):
        disk.before_step = Fuse(steps)
        acknowledged, version, attempted = model, replica.version, model
        try:
            for what in part:
                attempted = expected(acknowledged, what)
                carry_out(replica, acknowledged, what)
                acknowledged, version = attempted, replica.version
        except PowerCut:
            pass
        disk.before_step = None
        disk.crash(chance)

        replica = Replica.recover(disk, HANDLE)

        found = bytearray(replica.read(0, 1 << 30))
        assert replica.version >= version
        assert len(found) == replica.length >= len(acknowledged)
        # An overwrite that was under way is there or not; what it did not touch is as it was.
        for at in range(0, len(acknowledged), 512):
            piece = found[at : at + 512]
            assert piece in (
                acknowledged[at : at + 512] + attempted[len(acknowledged) : at + 512],
                attempted[at : at + 512],
                acknowledged[at : at + 512],
            ) or _mixed(piece, acknowledged, attempted, at)
        model = found


def _mixed(piece: bytearray, old: bytearray, new: bytearray, at: int) -> bool:
    """Is each byte of the piece the old or the new one?"""
    return all(
        (at + i < len(old) and byte == old[at + i]) or byte == new[at + i]
        for i, byte in enumerate(piece)
    )


@settings(max_examples=examples(70), deadline=None)
@given(changes=CHANGES, suffix=st.sampled_from(["data", "sums"]), where=st.floats(0, 1))
def test_a_flipped_bit_is_never_read_as_good(
    changes: list[tuple[str, float, int, int]], suffix: str, where: float
) -> None:
    """GFS §5.2, fault gate 8: a reader gets the bytes that were written, or an error."""
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    replica = Replica.create(disk, HANDLE, 1)
    model = bytearray()
    for what in changes:
        carry_out(replica, model, what)
        model = expected(model, what)
    size = len(disk.contents(path_of(HANDLE, suffix)))
    if size == 0:
        return

    disk.flip_bit(path_of(HANDLE, suffix), min(int(where * size * 8), size * 8 - 1))

    for opened in (lambda: replica, lambda: Replica.recover(disk, HANDLE)):
        try:
            found = bytes(opened().read(0, 1 << 30))
        except ChunkCorrupt:
            continue
        assert found == model
    if suffix == "data":
        with pytest.raises(ChunkCorrupt):
            replica.read(0, 1 << 30)


@settings(max_examples=examples(25), deadline=None)
@given(sizes=st.lists(SIZES, min_size=1, max_size=5), cut=st.floats(0, 1))
def test_a_torn_header_falls_back_to_the_one_before(sizes: list[int], cut: float) -> None:
    """docs/formats/chunk.md: the slot that is not being written is always whole.

    It says the same if the writer got to it after its sync; else it is one write behind.
    """
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    replica = Replica.create(disk, HANDLE, 1)
    replica.set_version(1)
    model = b""
    for size in sizes:
        before = model
        model += random.Random(size).randbytes(size)
        replica.write(len(before), [model[len(before) :]])
    newest = replica.slot
    disk.crash(random.Random(0))
    disk.flip_bit(path_of(HANDLE, "sums"), newest.place_bytes * 8 + int(cut * 67 * 8))

    found = Replica.recover(disk, HANDLE)

    assert bytes(found.read(0, 1 << 30)) in (before, model)


@settings(max_examples=examples(100), deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["soft", "soft", "soft", "append", "sync", "version", "kill", "over"]),
            SIZES,
        ),
        min_size=1,
        max_size=10,
    ),
    fuse=st.integers(0, 80),
    seed=st.integers(0, 2**32),
)
def test_writes_that_are_synced_later_never_endanger_those_that_were(
    steps: list[tuple[str, int]], fuse: int, seed: int
) -> None:
    """A long write syncs once: until then its bytes may go, but nothing that was acknowledged."""
    chance = random.Random(seed)
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    replica = Replica.create(disk, HANDLE, 1)
    replica.set_version(1)
    written, acknowledged, version = b"", b"", 1
    disk.before_step = Fuse(fuse)
    before = written
    try:
        for number, (kind, size) in enumerate(steps):
            before = written
            data = random.Random(number).randbytes(size)
            if kind == "kill":
                replica = Replica.recover(disk, HANDLE)
                assert bytes(replica.read(0, 1 << 30)) == written
            elif kind == "version":
                replica.set_version(version + 1)
                version, acknowledged = version + 1, written
            elif kind == "sync":
                replica.write(len(written), [])
                acknowledged = written
            elif kind == "over":
                at = min(size, max(0, len(written) - 1))
                after = bytearray(written)
                after[at : at + len(data)] = data
                written = bytes(after)
                replica.write(at, [data])
                acknowledged = written
            else:
                written += data
                replica.write(len(before), [data], durable=kind == "append")
                if kind == "append":
                    acknowledged = written
    except PowerCut:
        pass
    disk.before_step = None
    disk.crash(chance)

    found_replica = Replica.recover(disk, HANDLE)

    found = bytes(found_replica.read(0, 1 << 30))
    assert found_replica.version >= version
    assert len(found) >= len(acknowledged)
    length = min(len(found), len(before))
    assert _mixed(bytearray(found[:length]), bytearray(before), bytearray(written), 0)
    assert found[length:] == written[length : len(found)]
