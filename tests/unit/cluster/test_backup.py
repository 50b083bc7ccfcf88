"""Backups of logs: whole and proven or not there, pruned by age, and fit for a lone master."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mrstream.cluster.config.config import Cluster, ClusterConfig, HostConfig
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret, write_private
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.consensus.members import member_id
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, encode_own
from mrstream.cluster.errors import BadConfig, JournalCorrupt, UserError
from mrstream.cluster.hosts import backup_here
from mrstream.cluster.hosts.backup import prune, read_backup, write_backup
from mrstream.cluster.hosts.kept_log import LogEnd, LogMoved, as_lone_log, copy_log, look_at_log
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.journal import Journal

SECRET = Secret("c1", b"s" * 32)
CLUSTER = Cluster(ClusterConfig("lab", "h1", (HostConfig("h1", "127.0.0.1"),)), SECRET)
ME = member_id("h1", "0" * 16)


def group_log(folder: Path, *records: bytes, checkpoint: bytes = b"") -> str:
    """The log of a member: the state after two records in a checkpoint, if any, then records."""
    log = GroupLog(str(folder), "c1")
    log.open(b"0" * 16)
    log.write(1, [encode_own(EpochBegan(7, ME)), encode_own(MembersSet((ME,)))])
    if checkpoint:
        log.sync()
        log.rotate()
        log.write_checkpoint_part(2, [checkpoint])
        log.publish_checkpoint(2)
    log.write(3, records)
    log.sync()
    log.close()
    return str(folder)


def one_backup(tmp_path: Path, *records: bytes) -> str:
    source = group_log(tmp_path / f"log-{len(os.listdir(tmp_path))}", *records)

    def fetch(role: str, folder: str) -> str:
        copy_log(source, folder)
        return "h1"

    return write_backup(CLUSTER, str(tmp_path / "backups"), ["dfs.master"], fetch).path


@pytest.mark.parametrize("state", [b"", b"state"])
def test_a_members_log_becomes_that_of_a_lone_master_without_what_the_consensus_wrote(
    tmp_path: Path, state: bytes
) -> None:
    source = group_log(
        tmp_path / "log", b"a", encode_own(EpochBegan(9, ME)), b"b", checkpoint=state
    )
    assert look_at_log(source, "c1") == LogEnd(9, 5)

    last = as_lone_log(source, str(tmp_path / "lone"), "c1")

    found = Journal(str(tmp_path / "lone"), "c1").look()
    assert b"".join(found.checkpoint) == state
    first = found.checkpoint_sequence + 1
    assert list(found.records) == [(first, b"a"), (first + 1, b"b")] and last == first + 1
    assert look_at_log(str(tmp_path / "lone"), "c1") == LogEnd(0, last)


def test_a_backup_is_whole_and_proven_or_not_there(tmp_path: Path) -> None:
    path = one_backup(tmp_path, b"a", b"b")
    assert read_backup(path).ends == {"dfs.master": LogEnd(7, 4)}
    assert os.stat(path).st_mode & 0o077 == 0
    assert os.stat(f"{path}/identity.json").st_mode & 0o077 == 0

    def broken(role: str, folder: str) -> str:
        copy_log(str(tmp_path / "log-0"), folder)
        log = next(Path(folder).glob("log-*"))
        whole = bytearray(log.read_bytes())
        whole[20] ^= 1
        log.write_bytes(whole)
        return "h1"

    with pytest.raises(JournalCorrupt):
        write_backup(CLUSTER, str(tmp_path / "backups"), ["dfs.master"], broken)
    assert os.listdir(tmp_path / "backups") == [os.path.basename(path)]


def test_a_log_that_moves_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    source = group_log(tmp_path / "log", b"a")
    tries: list[str] = []

    def fetch(role: str, folder: str) -> str:
        tries.append(folder)
        copy_log(source, folder)
        if len(tries) < 3:
            raise LogMoved("gone")
        return "h1"

    path = write_backup(CLUSTER, str(tmp_path / "to"), ["lock.master"], fetch).path
    assert len(tries) == 3 and read_backup(path).ends == {"lock.master": LogEnd(7, 3)}


@pytest.mark.parametrize("damage", ["flip", "cut", "added", "gone", "manifest"])
def test_a_damaged_backup_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    path = Path(one_backup(tmp_path, b"a", b"b"))
    log = next(path.glob("dfs.master/log-*"))
    whole = log.read_bytes()
    if damage == "flip":
        log.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "cut":
        log.write_bytes(whole[:-1])
    elif damage == "added":
        (path / "dfs.master" / "more").write_text("")
    elif damage == "gone":
        log.unlink()
    else:
        (path / "backup.json").write_text("{}")
    with pytest.raises(UserError) as refused:
        read_backup(str(path))
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_the_last_ones_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    made = [os.path.basename(one_backup(tmp_path, b"a")) for _ in range(4)]
    folder = tmp_path / "backups"
    (folder / "lab-mine").mkdir()
    (folder / "lab-20200101-000000").mkdir()  # no manifest: a person's to judge
    other = folder / "lab-20200102-000000"
    other.mkdir()
    (other / "backup.json").write_text(json.dumps({"id": "another", "at": 1.0}))

    assert sorted(prune(str(folder), "lab", "c1", 2)) == sorted(made[:2])

    left = {"lab-mine", "lab-20200101-000000", "lab-20200102-000000", *made[2:]}
    assert set(os.listdir(folder)) == left


def test_a_host_backs_its_own_logs_up_and_writes_down_what_came_of_it(tmp_path: Path) -> None:
    config = read_config(
        f"name: lab\nhosts: {{h1: {{}}}}\nbackup: {{to: {tmp_path}/to, every: 1h, keep: 2}}\n"
    )
    assert read_config(write_config(config)).backup == config.backup
    place = tmp_path / "place"
    write_private(str(place / "cluster.yaml"), write_config(config))
    write_private(str(place / "identity.json"), SECRET.to_text())
    (place / "run").mkdir()
    note = place / "run" / "backup.note"

    assert backup_here.main(["--host", "h1", "--dir", str(place)]) == 1
    assert json.loads(note.read_text()) == {
        "at_s": 0.0, "error": "h1 has no log of dfs.master yet",
    }  # fmt: skip
    for role, name in [("dfs.master", "oplog"), ("mapreduce.master", "journal")]:
        group_log(place / role / name, b"a")
    for _ in range(3):
        assert backup_here.main(["--host", "h1", "--dir", str(place)]) == 0
    said = json.loads(note.read_text())
    assert said["at_s"] > 0 and set(read_backup(said["path"]).ends) == {
        "dfs.master", "mapreduce.master",
    }  # fmt: skip
    assert len(os.listdir(tmp_path / "to" / "h1")) == 2


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("backup: {every: 1h}", "backup.to is missing"),
        ("backup: {to: /b, every: 1s}", "from 60s"),
        ("backup: {to: /b}\nguard: false", "backup needs the guards"),
        ("backup: {to: /b, keep: 0}", "from 1 to"),
    ],
)
def test_a_backup_that_cannot_be_is_refused_where_it_is_written(part: str, word: str) -> None:
    with pytest.raises(BadConfig, match=word):
        read_config(f"name: lab\nhosts: {{h1: {{}}}}\n{part}\n")
