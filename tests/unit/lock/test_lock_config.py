"""The lock cell in cluster.yaml: only where the key stands, on the master's host."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrstream.cluster.config.config import LOCK_MASTER, LockConfig
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import BadConfig, JournalCorrupt
from mrstream.cluster.leader.epoch_file import EpochFile

FILE = "name: demo\nmaster: h2\nhosts: {h1: {}, h2: {}}\n"


def test_without_the_key_there_is_no_cell() -> None:
    config = read_config(FILE)

    assert config.lock is None
    assert all(LOCK_MASTER not in config.roles_of(host) for host in ("h1", "h2"))


def test_with_the_key_it_runs_where_masters_are_last() -> None:
    """Of two hosts one leads; the other listens and keeps the log, that of the cell too."""
    config = read_config(FILE + "lock: {}\n")

    assert config.roles_of("h1")[-1] == config.roles_of("h2")[-1] == LOCK_MASTER


def test_with_one_master_it_runs_on_that_host_alone() -> None:
    config = read_config(FILE + "masters: [h2]\nlock: {}\n")

    assert config.lock == LockConfig(12.0, 45.0)
    assert LOCK_MASTER not in config.roles_of("h1")
    assert config.roles_of("h2")[-1] == LOCK_MASTER
    assert config.address("h2", LOCK_MASTER) == "h2:7726"


def test_what_is_written_reads_back() -> None:
    config = read_config(FILE + "lock: {session: 5s, grace: 1m}\n")

    assert config.lock == LockConfig(5.0, 60.0)
    assert read_config(write_config(config)).lock == config.lock


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lock: {session: 1s}", "lock.session is '1s': it must be from 2s to 60s"),
        ("lock: {grace: 2h}", "lock.grace is '2h': it must be from 1s to 600s"),
        ("lock: {sesion: 5s}", "did you mean 'session'?"),
        ("lock: yes", "lock must be a mapping"),
        ("lock: {}\nports: {base: 65500}", "a cluster with a lock cell needs 40 ports"),
    ],
)
def test_what_is_wrong_is_said(line: str, said: str) -> None:
    with pytest.raises(BadConfig, match="lock") as refused:
        read_config(FILE + line + "\n")

    assert said in str(refused.value)


def test_every_start_has_a_higher_epoch(tmp_path: Path) -> None:
    """CH-37: also where the host's clock was set back."""
    path = tmp_path / "epoch"

    assert [EpochFile(str(path)).next() for _ in range(3)] == [1, 2, 3]
    path.write_text("what?")
    with pytest.raises(JournalCorrupt, match="no number"):
        EpochFile(str(path)).next()
