"""mapreduce/worker/host_cache.py below the process: answers that are lost, a worker that dies in
the middle of a fetch, and what must go and what must stay when the disk is full."""

from __future__ import annotations

import io
import os
import random
import tarfile
import threading
from pathlib import Path

import pytest

from mrstream.cluster.errors import HostUnreachable, Unavailable
from mrstream.dfs.protocol import Locate, ReadChunk, Stat
from mrstream.mapreduce.dfs_layout import staged_path
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.worker import host_cache
from mrstream.mapreduce.worker.host_cache import HostCache
from mrstream.streaming.task.shipping import BadArchive, Shipped
from tests.support.dfs_here import PIECE_BYTES, DfsHere, Died

LONG = random.Random(1).randbytes(3 * PIECE_BYTES + 7)
NAME = "words.txt"


@pytest.fixture
def dfs() -> DfsHere:
    return DfsHere()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def staged(dfs: DfsHere, data: bytes, name: str = NAME, *, runs: bool = False) -> Shipped:
    path = staged_path(f"{len(data):x}{data[:8].hex()}", name, is_executable=runs)
    dfs.put(path, data)
    return Shipped(f"dfs://{path}", name)


def packed(**members: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def content(cache: HostCache, dfs: DfsHere, item: Shipped, job: str = "job_1") -> bytes:
    (here,) = cache.localise(job, [item], dfs.client())
    return Path(here.source).read_bytes()


@pytest.mark.parametrize("kind", [Locate, ReadChunk])
@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_request_or_an_answer_that_is_lost_costs_a_retry_and_no_byte(
    dfs: DfsHere, place: Path, kind: type[Locate | ReadChunk], lost: str
) -> None:
    item = staged(dfs, LONG)
    setattr(dfs, lost, dfs.once(kind, HostUnreachable("cut off")))
    cache = HostCache(str(place), 1 << 20)

    assert content(cache, dfs, item) == LONG
    pieces = dfs.count(ReadChunk)
    assert content(cache, dfs, item, "job_2") == LONG
    assert dfs.count(ReadChunk) == pieces, "another job fetches nothing"


def test_a_dfs_that_stays_away_leaves_no_half_a_file_for_the_next_attempt(
    dfs: DfsHere, place: Path
) -> None:
    item = staged(dfs, LONG)
    cache = HostCache(str(place), 1 << 20)

    def away_after_the_first_piece(request: object) -> None:
        if isinstance(request, ReadChunk) and dfs.count(ReadChunk) > 1:
            raise HostUnreachable("cut off")

    dfs.before = away_after_the_first_piece
    with pytest.raises(Unavailable):
        cache.localise("job_1", [item], dfs.client(patience_s=0.05))

    dfs.before = lambda request: None
    assert content(cache, dfs, item) == LONG


def test_what_a_worker_that_died_in_the_middle_left_is_cleared_and_fetched_anew(
    dfs: DfsHere, place: Path
) -> None:
    item = staged(dfs, LONG)
    dfs.after = dfs.once(ReadChunk, Died())
    with pytest.raises(Died):
        HostCache(str(place), 1 << 20).localise("job_1", [item], dfs.client())
    (left,) = os.listdir(place)
    assert left.endswith(".partial")

    cache = HostCache(str(place), 1 << 20)  # its next life

    assert os.listdir(place) == []
    assert content(cache, dfs, item) == LONG


def test_an_archive_is_there_unpacked_whole_or_not_at_all(
    dfs: DfsHere, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dfs.put("/lib.tar.gz", packed(a=b"1", b=b"2"))
    item = Shipped("dfs:///lib.tar.gz", "lib", archive=True)
    unpack = host_cache.unpack

    def half(archive: str, directory: str) -> None:
        unpack(archive, directory)
        os.unlink(os.path.join(directory, "b"))
        raise Died

    cache = HostCache(str(place), 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(host_cache, "unpack", half)
        with pytest.raises(Died):
            cache.localise("job_1", [item], dfs.client())

    for life in (cache, HostCache(str(place), 1 << 20)):
        (here,) = life.localise("job_1", [item], dfs.client())
        assert sorted(os.listdir(here.source)) == ["a", "b"]


def test_an_archive_that_is_none_is_refused_each_time(dfs: DfsHere, place: Path) -> None:
    dfs.put("/lib.tar.gz", b"no archive")
    cache = HostCache(str(place), 1 << 20)

    for _ in range(2):
        with pytest.raises(BadArchive):
            cache.localise("job_1", [Shipped("dfs:///lib.tar.gz", "l", archive=True)], dfs.client())


def test_an_environment_that_was_not_settled_when_the_worker_died_is_made_anew(
    dfs: DfsHere, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dfs.put("/e/environment.tar.gz", packed(**{"lib/x.py": b"whole"}))
    asked = Environment("req", "key", "dfs:///e/environment.tar.gz", "3.11")
    settled: list[str] = []

    def dies(root: str, environment: Environment) -> None:
        Path(root, "lib", "x.py").write_bytes(b"half")
        raise Died

    monkeypatch.setattr(host_cache, "settle", dies)
    with pytest.raises(Died):
        HostCache(str(place), 1 << 20).environment("job_1", asked, dfs.client())
    monkeypatch.setattr(host_cache, "settle", lambda root, environment: settled.append(root))

    cache = HostCache(str(place), 1 << 20)
    here = cache.environment("job_1", asked, dfs.client())
    again = cache.environment("job_2", asked, dfs.client())

    assert here == again and settled == [here.path], "it settles once"
    assert Path(here.path, "lib", "x.py").read_bytes() == b"whole"


def test_files_of_running_jobs_stay_whatever_the_limit_and_the_oldest_others_go_first(
    dfs: DfsHere, place: Path
) -> None:
    items = [staged(dfs, bytes([number]) * 1000) for number in range(4)]
    cache = HostCache(str(place), 2500)
    for number, item in enumerate(items[:3]):
        (here,) = cache.localise(f"job_{number}", [item], dfs.client())
        os.utime(os.path.dirname(here.source), (number, number))

    assert len(os.listdir(place)) == 3, "over the limit, and all in use"
    cache.release("job_1")
    assert _numbers(place) == [0, 2], "not the oldest, which a job has"
    cache.localise("job_2", [items[0]], dfs.client())
    cache.release("job_0")
    cache.localise("job_3", [items[3]], dfs.client())
    assert _numbers(place) == [0, 2, 3], "job_2 has both of the others"
    cache.release("job_2")
    assert len(_numbers(place)) == 2 and 3 in _numbers(place)


def test_what_a_job_fetches_after_another_was_evicted_comes_again(
    dfs: DfsHere, place: Path
) -> None:
    first, second = staged(dfs, b"a" * 1000), staged(dfs, b"b" * 1000)
    cache = HostCache(str(place), 1500)
    assert content(cache, dfs, first, "job_1") == b"a" * 1000
    cache.release("job_1")
    assert content(cache, dfs, second, "job_2") == b"b" * 1000

    assert len(os.listdir(place)) == 1
    assert content(cache, dfs, first, "job_3") == b"a" * 1000


def test_a_users_file_that_was_replaced_is_another_file(dfs: DfsHere, place: Path) -> None:
    """A staged one is named by its content and never asked about again."""
    cache = HostCache(str(place), 1 << 20)
    dfs.put("/user/words", b"old")
    item = Shipped("dfs:///user/words", "words")
    before = content(cache, dfs, item)
    dfs.put("/user/words", b"new")

    assert (before, content(cache, dfs, item)) == (b"old", b"new")
    named = staged(dfs, LONG)
    content(cache, dfs, named)
    dfs.asked.clear()
    assert content(cache, dfs, named) == LONG and dfs.count(Stat) == 0


def test_attempts_that_want_a_file_at_once_fetch_it_once(dfs: DfsHere, place: Path) -> None:
    item = staged(dfs, LONG)
    cache = HostCache(str(place), 1 << 20)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(content(cache, dfs, item))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert found == [LONG] * 4
    assert dfs.count(ReadChunk) == len(LONG) // PIECE_BYTES + 1


@pytest.mark.parametrize("runs", [False, True])
def test_a_file_runs_here_if_it_ran_at_the_clients(dfs: DfsHere, place: Path, runs: bool) -> None:
    cache = HostCache(str(place), 1 << 20)
    (here,) = cache.localise("job_1", [staged(dfs, b"#!/bin/sh\n", runs=runs)], dfs.client())

    assert os.access(here.source, os.X_OK) == runs
    assert os.stat(place).st_mode & 0o777 == 0o700, "users' files are not for all"


def _numbers(place: Path) -> list[int]:
    """The files that are held, by what they are made of."""
    return sorted(path.read_bytes()[0] for path in place.glob(f"*/{NAME}"))
