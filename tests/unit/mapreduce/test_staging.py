"""mapreduce/client/staging.py and environment_staging.py below the process: files and environments
on their way into the dfs, with answers that are lost and clients that die in the middle."""

from __future__ import annotations

import io
import os
import random
import sys
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

from mrstream.cluster.errors import CallTimedOut, HostUnreachable, Unavailable
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import NoSuchFile
from mrstream.dfs.protocol import AllocateChunk, CloseFile, CreateFile, ReadChunk, WriteChunk
from mrstream.mapreduce.client import environment_staging
from mrstream.mapreduce.client.staging import CannotShip, stage
from mrstream.mapreduce.dfs_layout import (
    ENVIRONMENT_NOTED_S,
    ENVIRONMENTS,
    STAGED,
    STAGED_KEPT_S,
    environment_facts,
)
from mrstream.mapreduce.environment import store
from mrstream.mapreduce.job.environment import BadEnvironment, Environment
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.task.shipping import Shipped
from tests.support.dfs_here import DfsHere, Died

LONG = random.Random(2).randbytes(2_500_000)
"""More than a run of a writer, and than a chunk of this dfs."""
STEPS: tuple[type[Request], ...] = (CreateFile, AllocateChunk, WriteChunk, CloseFile)


@pytest.fixture
def dfs() -> DfsHere:
    return DfsHere()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_bytes(LONG)
    return path


def shipped(path: Path) -> list[Shipped]:
    return [Shipped(str(path), path.name)]


def files_of(dfs: DfsHere, root: str) -> list[str]:
    try:
        return [each.path for each in dfs.client().find(root) if not each.is_directory]
    except NoSuchFile:
        return []


def target_of(staged: tuple[Shipped, ...]) -> str:
    (item,) = staged
    assert item.source.startswith(f"dfs://{STAGED}/")
    return item.source.removeprefix("dfs://")


# --- files


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("error", [HostUnreachable("cut off"), CallTimedOut("no answer")])
def test_an_answer_that_is_lost_leaves_one_whole_file(
    dfs: DfsHere, file: Path, kind: type[Request], error: Unavailable
) -> None:
    dfs.after = dfs.once(kind, error)

    target = target_of(stage(shipped(file), dfs.client()))

    assert dfs.get(target) == LONG
    assert files_of(dfs, STAGED) == [target]


@pytest.mark.parametrize("kind", STEPS)
def test_a_client_that_dies_in_the_middle_leaves_no_file_that_another_takes_for_whole(
    dfs: DfsHere, file: Path, kind: type[Request]
) -> None:
    dfs.dies_at(kind)
    with pytest.raises(Died):
        stage(shipped(file), dfs.client())
    dfs.lives()

    target = target_of(stage(shipped(file), dfs.client()))

    assert dfs.get(target) == LONG


def test_what_is_there_is_not_sent_again_until_it_is_half_as_old_as_it_may_get(
    dfs: DfsHere, file: Path
) -> None:
    first = stage(shipped(file), dfs.client())
    target = target_of(first)
    dfs.asked.clear()

    assert stage(shipped(file), dfs.client()) == first and dfs.count(WriteChunk) == 0
    now_s = time.time()
    dfs.client().set_times(target, modified_at_s=now_s - STAGED_KEPT_S / 2 - 60)
    assert stage(shipped(file), dfs.client()) == first and dfs.count(WriteChunk) > 0
    assert dfs.client().stat(target).modified_at_s > now_s - 3600, "it is kept for another while"


def test_two_clients_that_send_the_same_at_once_do_not_disturb_each_other(
    dfs: DfsHere, file: Path
) -> None:
    done: list[tuple[Shipped, ...]] = []

    def another_comes(request: Request) -> None:
        if isinstance(request, WriteChunk) and not done:
            done.append(())
            done[0] = stage(shipped(file), dfs.client())

    dfs.before = another_comes

    assert stage(shipped(file), dfs.client()) == done[0]
    assert dfs.get(target_of(done[0])) == LONG
    assert len(files_of(dfs, STAGED)) == 1


def test_equal_directories_are_one_archive_and_runnable_files_others_than_plain_ones(
    dfs: DfsHere, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
        os.utime(tmp_path / name / "x", (len(name), 77.0 if name == "one" else 99.0))
    script = tmp_path / "m.py"
    script.write_text("cat")
    plain = stage(shipped(script), dfs.client())
    script.chmod(0o755)

    one, two = (stage(shipped(tmp_path / name), dfs.client())[0] for name in ("one", "two"))

    assert one.source == two.source and one.archive
    with tarfile.open(fileobj=io.BytesIO(dfs.get(one.source.removeprefix("dfs://")))) as tar:
        assert tar.getnames() == ["x"]
    assert stage(shipped(script), dfs.client()) != plain


def test_what_cannot_be_read_is_named_and_what_is_in_the_dfs_stays_as_it_is(
    dfs: DfsHere, tmp_path: Path
) -> None:
    with pytest.raises(CannotShip, match=r"gone\.txt cannot travel with the job"):
        stage(shipped(tmp_path / "gone.txt"), dfs.client())

    there = [Shipped("dfs:///user/words", "words")]
    assert stage(there, dfs.client()) == tuple(there)


# --- environments


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment as `venv-pack` makes one, small."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store, "_held", {})
    library = "lib/python{}.{}/site-packages".format(*sys.version_info[:2])
    path = tmp_path / "env.tar.gz"
    members = {"bin/python": b"#!/bin/sh\n", f"{library}/hello.py": b"SAID = 'hello'\n"}
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return path


def with_environment(source: Path | str) -> JobSpec:
    return JobSpec(
        JobId(""), JobConf({}).to_dict(), Program("cat"), None, None, 0, ("/in",), "/out",
        environment=Environment(str(source)),
    )  # fmt: skip


def staged_environment(source: Path | str, client: DfsClient) -> tuple[Environment, list[str]]:
    said: list[str] = []
    staged = environment_staging.stage(with_environment(source), client, said.append).environment
    assert staged is not None
    return staged, said


def test_an_environment_is_sent_once_and_found_by_its_key(dfs: DfsHere, archive: Path) -> None:
    first, said = staged_environment(archive, dfs.client())
    assert any("to the dfs" in each for each in said)
    assert dfs.get(first.path.removeprefix("dfs://")) == archive.read_bytes()

    again, said = staged_environment(archive, dfs.client())
    named, _ = staged_environment(first.path, dfs.client())

    assert again == first and said[-1].endswith("is in the dfs: nothing is built or sent")
    assert msgspec.structs.replace(named, source=first.source) == first


@pytest.mark.parametrize("kind", [CreateFile, WriteChunk, CloseFile])
@pytest.mark.parametrize("which", ["the archive", "the facts"])
def test_an_environment_whose_client_died_is_none_and_the_next_client_sends_it(
    dfs: DfsHere, archive: Path, kind: type[Request], which: str
) -> None:
    """The facts come last: with them it is whole."""
    dfs.dies_at(kind, 1 if which == "the archive" else 2)
    with pytest.raises(Died):
        staged_environment(archive, dfs.client())
    dfs.lives()
    assert not any(path.endswith("/facts.json") for path in files_of(dfs, ENVIRONMENTS))

    staged, said = staged_environment(archive, dfs.client())

    assert any("to the dfs" in each for each in said)
    assert dfs.get(staged.path.removeprefix("dfs://")) == archive.read_bytes()


@pytest.mark.parametrize("kind", STEPS[:1] + STEPS[2:])
def test_an_environment_arrives_though_an_answer_is_lost(
    dfs: DfsHere, archive: Path, kind: type[Request]
) -> None:
    dfs.after = dfs.once(kind, HostUnreachable("cut off"))

    staged, _ = staged_environment(archive, dfs.client())

    assert staged_environment(archive, dfs.client())[0] == staged
    assert len(files_of(dfs, ENVIRONMENTS)) == 2


def test_that_an_environment_is_used_is_noted_once_a_day(dfs: DfsHere, archive: Path) -> None:
    staged, _ = staged_environment(archive, dfs.client())
    facts, client = environment_facts(staged.key), dfs.client()
    now_s = time.time()

    client.set_times(facts, modified_at_s=now_s - ENVIRONMENT_NOTED_S / 2)
    staged_environment(archive, client)
    assert client.stat(facts).modified_at_s < now_s - 3600
    client.set_times(facts, modified_at_s=now_s - ENVIRONMENT_NOTED_S - 60)
    staged_environment(archive, client)
    assert client.stat(facts).modified_at_s > now_s - 3600


def test_an_environment_comes_back_whole_or_not_at_all(
    dfs: DfsHere, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `-repeat` needs it, on another machine than the one that sent it."""
    staged, _ = staged_environment(archive, dfs.client())
    spec = msgspec.structs.replace(with_environment(archive), environment=staged)
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(store, "_held", {})
    dfs.dies_at(ReadChunk)
    with pytest.raises(Died):
        environment_staging.fetch(spec, dfs.client(), lambda text: None)
    dfs.lives()
    assert not store.is_here(staged.key)

    here = environment_staging.fetch(spec, dfs.client(), lambda text: None).environment

    assert here is not None and store.is_here(staged.key)
    (module,) = Path(here.path).glob("lib/*/site-packages/hello.py")
    assert module.read_text() == "SAID = 'hello'\n"


def test_an_environment_that_went_from_the_dfs_is_named(dfs: DfsHere, archive: Path) -> None:
    staged, _ = staged_environment(archive, dfs.client())
    spec = msgspec.structs.replace(with_environment(archive), environment=staged)
    dfs.client().delete(ENVIRONMENTS, recursive=True, skip_trash=True)
    lost = msgspec.structs.replace(staged, key="another")

    with pytest.raises(BadEnvironment, match="is in the dfs no more: run it again"):
        environment_staging.fetch(
            msgspec.structs.replace(spec, environment=lost), dfs.client(), lambda text: None
        )
    with pytest.raises(BadEnvironment, match="there is no environment"):
        staged_environment(staged.path, dfs.client())
