"""What Hadoop's command lines mean here, and how our lines read in Hadoop's words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrstream.cluster.errors import UserError
from mrstream.mapreduce import hadoop_commands
from mrstream.mapreduce.hadoop_words import JAR, NeedsJava, Places, meaning_of, retold

CLUSTER = Places("", "dfs://demo")
ALONE = Places("/home/u/hdfs", "/home/u/hdfs")


@pytest.mark.parametrize(
    ("said", "kind", "meant"),
    [
        ("hadoop fs -ls hdfs:///a", "run", "dfs -ls /a"),
        ("hdfs dfs -cat hdfs://nn:8020/a/b", "run", "dfs -cat /a/b"),
        ("hadoop fs -rmr /a", "run", "dfs -rm -r /a"),
        ("hadoop fs -lsr /a", "run", "dfs -ls -R /a"),
        ("hdfs fsck /", "run", "dfs -fsck /"),
        ("hdfs dfsadmin -setQuota 5 hdfs:///a /b", "run", "dfs -setQuota 5 /a /b"),
        ("hdfs dfsadmin -clrSpaceQuota /a", "run", "dfs -clrSpaceQuota /a"),
        ("hadoop --config /etc/h fs -ls /", "run", "dfs -ls /"),
        ("mapred job -kill job_1_0001", "run", "job -kill job_1_0001"),
        ("hadoop job -list", "run", "job -list"),
        ("yarn application -kill application_1_0001", "run", "job -kill job_1_0001"),
        ("yarn logs -applicationId application_1_0001", "run", "job -logs job_1_0001"),
        ("yarn application -list", "applications", ""),
        ("yarn app -status application_1_0001", "application", "job_1_0001"),
        ("hadoop version", "version", ""),
        ("mapred streaming -input a", "job", "-input a"),
        (
            "hadoop jar /x/hadoop-streaming-2.7.jar -files hdfs:///f#f,hdfs://n/g -mapper cat "
            "-input hdfs:///i hdfs:///j -output hdfs:///o",
            "job",
            "-files dfs://demo/f#f,dfs://demo/g -mapper cat -input dfs://demo/i dfs://demo/j "
            "-output dfs://demo/o",
        ),
        # What a program is given is its own affair: it may itself call hadoop.
        ("hadoop jar s-streaming.jar -mapper hdfs:///m", "job", "-mapper hdfs:///m"),
    ],
)
def test_a_command_line_means(said: str, kind: str, meant: str) -> None:
    command, *words = said.split()

    found = meaning_of(command, words, CLUSTER)

    assert (found.kind, " ".join(found.words)) == (kind, meant)


def test_without_a_cluster_hdfs_is_a_directory_and_stays_one() -> None:
    """What `-ls` prints, a program may give back with another hdfs:// before it."""
    first = meaning_of("hadoop", ["fs", "-ls", "hdfs:///a"], ALONE)
    again = meaning_of("hadoop", ["fs", "-ls", f"hdfs://{first.words[-1]}"], ALONE)

    assert first.words[-1] == again.words[-1] == "/home/u/hdfs/a"


@pytest.mark.parametrize(
    "said", ["hadoop", "hadoop distcp a b", "hadoop jar a.jar", "yarn", "yarn node -list", "hdfs x"]
)
def test_what_is_not_here_is_refused_by_name(said: str) -> None:
    command, *words = said.split()
    with pytest.raises(NeedsJava, match=words[0] if words else "usage"):
        meaning_of(command, words, CLUSTER)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("INFO  map 5% reduce 0%", ["INFO mapreduce.Job:  map 5% reduce 0%"]),
        (
            "INFO Running job: job_17_0001",
            [
                "INFO impl.YarnClientImpl: Submitted application application_17_0001",
                "INFO mapreduce.Job: Running job: job_17_0001",
            ],
        ),
        ("INFO Output directory: /o", ["INFO streaming.StreamJob: Output directory: hdfs:///o"]),
        ("INFO Counters: 3", ["INFO mapreduce.Job: Counters: 3"]),
    ],
)
def test_a_line_is_retold_with_its_logger(ours: str, theirs: list[str]) -> None:
    at = "2026-11-16 23:28:45,874 "

    assert list(retold(at + ours, lambda path: f"hdfs://{path}")) == [at + line for line in theirs]
    assert list(retold("\tmy words", str)) == ["\tmy words"]


def test_commands_are_written_whole_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        hadoop_commands.write_commands(str(tmp_path / "a b"))

    names = {path.name for path in (tmp_path / "a b").iterdir()}
    assert names == {"hadoop", "hdfs", "mapred", "yarn", "bin", "share"}
    assert (tmp_path / "a b" / "bin" / "hadoop").stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["hadoop", f"share/hadoop/tools/lib/{JAR}"])
def test_commands_are_not_written_over_somebody_elses(tmp_path: Path, name: str) -> None:
    """Who names the directory of a real Hadoop would lose its streaming jar."""
    theirs = tmp_path / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_bytes(b"PK\x03\x04 of theirs")

    with pytest.raises(UserError, match=f"{name} is there, and not one that mrstream wrote"):
        hadoop_commands.write_commands(str(tmp_path))

    assert theirs.read_bytes() == b"PK\x03\x04 of theirs"
    assert not (tmp_path / "yarn").exists()


def test_yarn_jar_means_what_hadoop_jar_means() -> None:
    """Without a cluster hdfs:// paths lie in the state directory, for it too."""
    here = Places("/home/hdfs", "/home/hdfs", is_local=True)
    words = ["jar", "x/hadoop-streaming.jar", "-input", "hdfs:///in", "-output", "hdfs:///out"]

    assert meaning_of("yarn", words, here) == meaning_of("hadoop", words, here)


@pytest.mark.parametrize("buffered", ["", "1"])
def test_who_reads_only_the_first_line_is_not_told_of_it(tmp_path: Path, buffered: str) -> None:
    """`hadoop version | head -1` begins many a script, and some have `set -o pipefail`."""
    ours, theirs = os.pipe()
    os.close(ours)
    words = [sys.executable, "-P", "-m", "mrstream.mapreduce.hadoop_commands", "hadoop", "version"]

    ended = subprocess.run(
        words, stdout=theirs, stderr=subprocess.PIPE, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": buffered, "MRSTREAM_HOME": str(tmp_path)},
    )  # fmt: skip

    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (0, b"")
