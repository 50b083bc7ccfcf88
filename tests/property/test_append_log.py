"""For all logs of serialised appends: what is stored reads back, or is known to be damaged; and a
power cut at any step leaves a record with its entry, or neither (EV-08)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.dfs.chunks import append_log
from mrstream.dfs.chunks.append_log import (
    PADDING,
    Appended,
    AppendLog,
    Step,
    decode_entries,
    encode_entries,
    inherited,
    pack_table,
    unpack_table,
)
from mrstream.dfs.chunks.replica import Replica
from mrstream.dfs.errors import ChunkCorrupt, NoSuchChunk
from tests.support.forgetful_disk import ForgetfulDisk

HANDLE = 0x0100000000000A2A
U64, U32 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
ENTRIES = st.lists(st.builds(Appended, U64, U64, U64, U32, U32), max_size=12)


@settings(deadline=None)
@given(entries=ENTRIES, round=st.integers(0, 2**16 - 1), first=st.integers(0, 100))
def test_entries_read_back(entries: list[Appended], round: int, first: int) -> None:
    stored = encode_entries(HANDLE, Step(round, 0, entries))

    assert decode_entries(HANDLE, round, len(entries), stored) == entries
    assert unpack_table(pack_table(entries)) == entries


@settings(deadline=None)
@given(
    entries=ENTRIES.filter(bool), bit=st.integers(0), cut=st.integers(0), other=st.integers(1, 9)
)
def test_no_damaged_or_misplaced_entry_is_taken(
    entries: list[Appended], bit: int, cut: int, other: int
) -> None:
    stored = encode_entries(HANDLE, Step(3, 0, entries))
    flipped = bytearray(stored)
    flipped[bit // 8 % len(stored)] ^= 1 << bit % 8

    for handle, round, found in (
        (HANDLE, 3, bytes(flipped)),
        (HANDLE, 3, stored[: cut % len(stored)]),
        (HANDLE + other, 3, stored),
        (HANDLE, 3 + other, stored),
    ):
        with pytest.raises(ChunkCorrupt, match="log of appends is damaged"):
            decode_entries(handle, round, len(entries), found)


@pytest.mark.parametrize("packed", [b"x", bytes(33), bytes(32 * (append_log.APPENDERS_MAX + 1))])
def test_what_cannot_be_a_table_is_refused(packed: bytes) -> None:
    with pytest.raises(ChunkCorrupt, match="table of appends"):
        unpack_table(packed)


def test_a_new_chunk_inherits_who_appended_and_no_padding() -> None:
    table = [Appended(7, 3, 90, 10, 100), Appended(PADDING, 0, 100, 28, 128)]

    assert inherited(table) == [Appended(7, 3, 90, 10, 0)]


class PowerCut(Exception):
    """The machine goes dark at this step."""


APPENDS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([1, 300, 70_000]), st.booleans()),
    min_size=1,
    max_size=14,
)


@settings(max_examples=120, deadline=None)
@given(
    before=st.integers(0, 5),
    appends=APPENDS,
    cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2**32)), min_size=1, max_size=3),
)
def test_a_power_cut_leaves_a_record_with_its_entry_or_neither(
    before: int, appends: list[tuple[int, int, bool]], cuts: list[tuple[int, int]]
) -> None:
    """With a log so small that it is begun anew all the time, and cuts of the chunk in between."""
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_log, "APPENDERS_MAX", 3)
        patch.setattr(append_log, "LOG_ENTRIES_MAX", 6)
        first = [Appended(n, 1, n * 5, 5, 0) for n in range(1, before + 1)][-3:]
        replica = Replica.create(disk, HANDLE, 1, appended=first)
        replica.set_version(1)
        model = AppendLog(HANDLE, 0, first)
        content = bytearray()
        number = 1
        for steps, seed in cuts:
            disk.before_step = fuse(steps)
            tried = None
            try:
                for appender, size, is_cut in appends:
                    number += 1
                    data = random.Random(number).randbytes(size)
                    start = len(content)
                    tried = (Appended(appender, number, start, size, start + size), data)
                    replica.append([data], tried[0])
                    model.take(model.next(tried[0]))
                    content += data
                    tried = None
                    if is_cut:
                        tried = (None, b"")
                        replica.truncate(start)
                        del content[start:]
                        model.cut(model.kept(start))
                        tried = None
            except PowerCut:
                pass
            disk.before_step = None
            disk.crash(random.Random(seed))

            replica = Replica.recover(disk, HANDLE)

            found = replica.appended(replica.length)
            if tried is not None and tried[0] is None and replica.length < len(content):
                start = replica.length
                del content[start:]
                model.cut(model.kept(start))
            elif tried is not None and tried[0] is not None and replica.length > len(content):
                model.take(model.next(tried[0]))
                content += tried[1]
            assert bytes(replica.read(0, 1 << 30)) == content
            assert found == model.table(len(content))


def fuse(steps: int) -> Callable[[str, str], None]:
    left = [steps]

    def step(action: str, path: str) -> None:
        if left[0] == 0:
            raise PowerCut(f"{action} {path}")
        left[0] -= 1

    return step


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_chunk_that_was_only_made_is_forgotten_or_knows_what_it_began_with(seed: int) -> None:
    """Nothing of a creation is synced: its header alone must not stand for a table that is gone."""
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    first = [Appended(n, 1, n, 1, 0) for n in range(1, 40)]
    Replica.create(disk, HANDLE, 1, appended=first)
    disk.crash(random.Random(seed))

    try:
        replica = Replica.recover(disk, HANDLE)
    except (NoSuchChunk, ChunkCorrupt):
        return

    assert replica.appended(0) == first


@pytest.mark.parametrize("seed", range(12))
def test_an_entry_that_was_cut_does_not_stand_for_one_with_the_same_bytes(seed: int) -> None:
    """A power cut kept the new entry from the disk, and the old one lay in its place."""
    disk = ForgetfulDisk()
    disk.make_directories("chunks")
    replica = Replica.create(disk, HANDLE, 1)
    replica.append([b"tick"], Appended(1, 1, 0, 4, 4))
    replica.truncate(0)
    disk.before_step = fuse(3)
    with pytest.raises(PowerCut):
        replica.append([b"tick"], Appended(2, 1, 0, 4, 4))
    disk.before_step = None
    disk.crash(random.Random(seed))

    found = Replica.recover(disk, HANDLE)

    assert found.appended(found.length) in ([], [Appended(2, 1, 0, 4, 4)])
