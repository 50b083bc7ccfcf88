"""A master whose log is gone, old or cut: it does not serve, nothing is touched, and the command
that it names brings everything back.

The bug (total loss): `up` returned 0, what other hosts had of the log was overwritten with the
shorter one, and the chunkservers deleted every chunk that it did not know. With three masters one
that has less is never elected (tests/simulation); here are two hosts that keep the log, and one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.cluster.wire.messages import Metrics
from mrstream.cluster.wire.network import Connection
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for
from tests.cluster.test_dfs_master import newest_log, put, read, record_ends

CUT_BYTES = 700
LIMIT_S = 400.0
"""Only a net: `restore` brings a cluster up twice."""
LINE = "nothing was changed; `mrstream cluster restore --master h1` brings back"


class Site:
    """Three hosts that the launcher brought up, and what was acknowledged there."""

    def __init__(self, directory: Path, learner: str = "") -> None:
        more = "guard: false\nmasters: [h1]\n" + (f"learner: {learner}\n" if learner else "")
        self.cluster = LocalCluster(directory, 3, dfs={"replication": "2"}, more=more)
        self.acknowledged: dict[str, bytes] = {}
        self.oplog = self.cluster.host_directory("h1") / MASTER / "oplog"
        self.good("up")

    def good(self, *words: str) -> str:
        ended = self._run(*words)
        assert ended.returncode == 0, f"{words}: {ended.stdout!r}\n{ended.stderr!r}"
        return ended.stdout.decode()

    def refused(self, *words: str) -> str:
        ended = self._run(*words)
        assert ended.returncode == 1, f"{words}: {ended.stdout!r}\n{ended.stderr!r}"
        return ended.stderr.decode()

    def _run(self, verb: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        file = self.cluster.file
        return self.cluster.mrstream("cluster", verb, "-f", file, *words, timeout=LIMIT_S)

    def put_some(self, count: int) -> None:
        """Files of a chunk each; when this returns whoever listens has them in its log."""
        client = self.cluster.client()
        for _ in range(count):
            path = f"/f{len(self.acknowledged)}"
            self.acknowledged[path] = random.Random(path).randbytes(3000)
            put(client, path, self.acknowledged[path])
        wait_for(self._is_in_step, 30.0, "the one that listens to be in step")

    def _is_in_step(self) -> bool:
        address = self.cluster.config.master_address(MASTER)
        with Connection(address, self.cluster.cluster.identity()) as connection:
            figures: dict[str, float] = connection.call(Metrics())
        return figures["log_copies_in_step"] == figures["log_copies_wanted"]

    def kill_master(self) -> None:
        """kill -9; the others run on."""
        place = self.cluster.host_directory("h1") / "run" / f"{MASTER}.json"
        pid = json.loads(place.read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}/exe") or None, 30.0, "its end")

    def kept(self) -> dict[str, bytes]:
        """Every byte of every log and chunk on all hosts."""
        folders = [self.oplog]
        for host in self.cluster.hosts:
            place = self.cluster.host_directory(host)
            folders += [place / CHUNKSERVER]
            folders += [place / MASTER / "oplog"] if host != "h1" else []
        return {
            str(path): path.read_bytes()
            for folder in folders
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def has_everything(self) -> bool:
        client = self.cluster.client()
        return {path: read(client, path) for path in self.acknowledged} == self.acknowledged

    def close(self) -> None:
        self.good("down")
        self.cluster.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("two"), "h2")
    yield made
    made.close()


def lose_the_directory(site: Site) -> None:
    shutil.rmtree(site.oplog)


def put_back_an_old_backup(site: Site) -> None:
    shutil.rmtree(site.oplog)
    shutil.copytree(site.oplog.parent / "backup", site.oplog)


def cut_at_a_record(site: Site) -> None:
    log = newest_log(site.cluster)
    content = log.read_bytes()
    end = max(end for end in record_ends(content) if end <= len(content) - CUT_BYTES)
    log.write_bytes(content[:end])


def cut_in_mid_record(site: Site) -> None:
    log = newest_log(site.cluster)
    content = log.read_bytes()
    end = max(end for end in record_ends(content) if end <= len(content) - CUT_BYTES)
    log.write_bytes(content[: end + 11])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "lose", [put_back_an_old_backup, cut_at_a_record, cut_in_mid_record, lose_the_directory]
)
def test_a_master_whose_log_lacks_what_another_has_refuses_and_is_brought_back(
    site: Site, lose: object
) -> None:
    """Chunkservers run on meanwhile, and are about to ask what they may delete."""
    assert callable(lose)
    site.put_some(3)
    site.kill_master()
    shutil.rmtree(site.oplog.parent / "backup", ignore_errors=True)
    shutil.copytree(site.oplog, site.oplog.parent / "backup")
    site.good("up")
    site.put_some(6)
    site.kill_master()
    lose(site)
    before = site.kept()

    said = site.refused("up")

    assert LINE in said and said.count("\n") == 1, said
    now = site.kept()
    assert {path: now.get(path) for path in before} == before
    told = site.good("restore", "--master", "h1")
    assert "dfs.master has the log on h2 now, up to record" in told
    assert "what was there was kept as" in told
    assert site.has_everything()


def test_it_is_brought_back_also_when_nothing_runs(site: Site) -> None:
    """All daemons start at the same moment, and `up` stops again what it had started."""
    site.put_some(3)
    site.good("down")
    cut_at_a_record(site)
    before = site.kept()

    said = site.refused("up")

    assert LINE in said
    assert site.kept() == before
    site.good("restore", "--master", "h1")
    assert site.has_everything()
    assert "nothing to restore" in site.refused("restore", "--master", "h1")


def test_where_one_has_the_log_the_chunks_show_that_a_log_is_missing(tmp_path: Path) -> None:
    """There is nothing to restore from but a backup: the line says so, and how one would begin
    anew on purpose."""
    site = Site(tmp_path)
    site.put_some(2)
    site.kill_master()
    backup = tmp_path / "backup"
    shutil.move(site.oplog, backup)
    before = site.kept()

    said = site.refused("up")

    assert "the log on h1 is gone, but h" in said
    assert f"put {site.oplog} back from one" in said
    assert site.kept() == before
    shutil.move(backup, site.oplog)
    site.good("up")
    assert site.has_everything()
    site.close()


def test_what_no_log_has_any_more_is_given_up_on_a_persons_word_only(tmp_path: Path) -> None:
    """The best log that is left ends before chunks that are there: it is gone on with, but only by
    a command that says so."""
    site = Site(tmp_path)
    site.kill_master()
    backup = tmp_path / "backup"
    shutil.copytree(site.oplog, backup)
    site.good("up")
    site.put_some(2)
    site.kill_master()
    shutil.rmtree(site.oplog)
    shutil.move(backup, site.oplog)

    assert "the log on h1 is older than the data" in site.refused("up")
    assert "nothing to restore" in site.refused("restore", "--master", "h1")
    site.good("restore", "--master", "h1", "--from", "h1")

    client = site.cluster.client()
    assert [entry.path for entry in client.list("/")] == []
    put(client, "/again", b"x" * 3000)
    assert read(client, "/again") == b"x" * 3000
    site.good("restore", "--master", "h2")
    shown = site.cluster.mrstream("dfs", "-cat", "/again")
    assert shown.stdout == b"x" * 3000, f"a lone master that only moved: {shown.stderr!r}"
    site.close()
