"""The real client reads while everything breaks and bits rot: late or refused, never wrong.

`MRSTREAM_SEEDS=FROM:TO` runs other seeds (`make soak`).
"""

from __future__ import annotations

import os
import sys

import pytest

from mrstream.dfs.client import chunk_source
from mrstream.dfs.transfer import chunk_format
from tests.simulation.dfs.reading import ReadingRun
from tests.simulation.dfs.run import SECONDS

SEEDS = range(*map(int, os.environ.get("MRSTREAM_SEEDS", "0:8").split(":")))
BATCH = 4


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, BATCH))
def test_no_reader_gets_a_wrong_byte_whatever_breaks_or_rots(first: int) -> None:
    """Fault gates 1, 2, 8, 9 and 14 in simulated time, with the client that users have."""
    reads = rotten = 0
    for seed in range(first, min(first + BATCH, SEEDS.stop)):
        run = ReadingRun(seed)
        try:
            live(run)
        except BaseException as error:
            command = f"{sys.executable} -m tests.simulation.dfs.reading {seed} -v"
            raise AssertionError(f"seed {seed} fails; replay it with\n  {command}") from error
        reads += sum(client.reads for client in run.clients)
        rotten += len(run.rotten)

    assert reads > 40 and rotten > 0


def live(run: ReadingRun) -> None:
    run.live(SECONDS)
    run.settle()
    run.check()


class Agreeable:
    """A checksum that is never another."""

    def __ne__(self, other: object) -> bool:
        return False


def test_a_reader_that_believes_what_arrives_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_source, "crc32c", lambda view: Agreeable())

    with pytest.raises(AssertionError, match="are not the"):
        live(ReadingRun(0))


def test_a_server_that_believes_its_disk_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_format, "check_blocks", lambda *words: None)

    with pytest.raises(AssertionError):
        for seed in range(SEEDS.start, SEEDS.start + BATCH):
            live(ReadingRun(seed))
