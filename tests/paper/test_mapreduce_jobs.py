"""MapReduce, sections 2–4 and 6: what programs and their users see. A test a requirement.

Jobs run in local mode, which is the same scheduler and the same stages as on a cluster (MR-32); a
cluster's bytes are compared with local mode's in tests/cluster.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.local_jobs import Desk, Ran

MAP_WORDS = (
    "import sys\nfor line in sys.stdin:\n    for word in line.split(): print(word, 1, sep='\\t')\n"
)
SUM = (
    "import sys\n"
    "from itertools import groupby\n"
    "pairs = (line.rstrip('\\n').split('\\t') for line in sys.stdin)\n"
    "for key, group in groupby(pairs, key=lambda pair: pair[0]):\n"
    "    print(key, sum(int(value) for _, value in group), sep='\\t')\n"
)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write("m.py", MAP_WORDS)
    desk.write("r.py", SUM)
    return desk


def counter(ran: Ran, name: str) -> int:
    found = re.search(rf"\t\t{re.escape(name)}=(\d+)", ran.stderr)
    assert found, f"no counter {name!r} in:\n{ran.stderr}"
    return int(found[1])


def counts(data: bytes) -> dict[str, int]:
    return {
        key: int(value) for key, value in (line.split("\t") for line in data.decode().splitlines())
    }


def words(count: int, kinds: int = 50) -> str:
    chance = random.Random(count)
    lines = [" ".join(f"w{chance.randrange(kinds)}" for _ in range(5)) for _ in range(count)]
    return "\n".join(lines) + "\n"


def test_map_then_reduce_over_bytes(desk: Desk) -> None:
    """§2 (MR-01): keys and values are bytes to us, whatever they mean to the programs."""
    desk.write("in", b"b\t\xff\xfe\na\t\x00\nb\t2\n")

    ran = desk.run("-input", "in", "-mapper", "cat", "-reducer", "cat")

    assert ran.status == 0, ran.stderr
    assert ran.stdout == b"a\t\x00\nb\t\xff\xfe\nb\t2\n"


def test_a_key_may_have_more_values_than_memory_holds(desk: Desk) -> None:
    """§2 (MR-02): values come as a stream; 30 MB of one key with 1 MB to sort in."""
    desk.write("in", b"the-key\tvalue-of-some-length\n" * 1_000_000)

    ran = desk.run(
        "-D", "mapreduce.task.io.sort.mb=1", "-input", "in", "-mapper", "cat", "-reducer", "wc -l"
    )

    assert ran.status == 0, ran.stderr
    assert ran.stdout.split() == [b"1000000"]
    assert counter(ran, "Peak Reduce Physical memory (bytes)") < 100_000_000


def test_input_is_cut_into_splits_of_a_size_that_the_user_sets(desk: Desk) -> None:
    """§3.1 (MR-04)."""
    desk.write("in", words(2_000))
    size = (desk.cwd / "in").stat().st_size

    ran = desk.run(
        "-D", f"fs.local.block.size={size // 4 + 1}", "-input", "in", "-mapper", "m.py",
        "-reducer", "r.py",
    )  # fmt: skip

    assert ran.status == 0, ran.stderr
    assert counter(ran, "Launched map tasks") == 4


def test_reduce_input_ten_times_the_memory_is_sorted_on_disk(desk: Desk) -> None:
    """§3.1 (MR-06, MR-07)."""
    chance = random.Random(7)
    lines = [f"{chance.randrange(10**9):09d}\t{'x' * 90}" for _ in range(100_000)]
    desk.write("in", "\n".join(lines) + "\n")

    ran = desk.run(
        "-D", "mapreduce.task.io.sort.mb=1", "-input", "in", "-mapper", "cat", "-reducer", "cat"
    )

    assert ran.status == 0, ran.stderr
    assert ran.stdout.decode().splitlines() == sorted(lines)
    assert counter(ran, "Spilled Records") > 100_000


def test_each_reduce_writes_one_file_and_keys_in_it_increase(desk: Desk) -> None:
    """§3.1, §4.2 (MR-08, MR-26)."""
    desk.write("in", words(500))

    ran = desk.job("-D", "mapreduce.job.reduces=3", "-mapper", "m.py", "-reducer", "r.py")

    assert ran.status == 0, ran.stderr
    parts = desk.parts()
    assert sorted(parts) == ["_SUCCESS", "part-00000", "part-00001", "part-00002"]
    for name, data in parts.items():
        keys = [line.split(b"\t")[0] for line in data.splitlines()]
        assert keys == sorted(keys), name


def test_the_call_returns_when_all_is_done_with_counters_and_time(desk: Desk) -> None:
    """§3.1 step 7, appendix A (MR-09, MR-39)."""
    desk.write("in", words(10))

    ran = desk.job("-mapper", "m.py", "-reducer", "r.py")

    assert ran.status == 0, ran.stderr
    assert "_SUCCESS" in desk.parts()
    assert ran.line("completed successfully")
    assert ran.line("Took ")
    assert counter(ran, "Map input records") == 10


def test_five_passes_run_one_after_another_over_each_others_output(desk: Desk) -> None:
    """§3.1, §6.1 (MR-10, MR-42): R output files are the next job's input as they are."""
    desk.write("in", words(200))
    path = str(desk.cwd / "in")

    for number in range(5):
        mapper = "m.py" if number == 0 else "cat"
        out = str(desk.out) + str(number)
        ran = desk.run(
            "-D", "mapreduce.job.reduces=2", "-input", path, "-output", out, "-mapper", mapper,
            "-reducer", "r.py",
        )  # fmt: skip
        assert ran.status == 0, ran.stderr
        path = out

    found = Counter[str]()
    for part in sorted(Path(path).glob("part-*")):
        found.update(counts(part.read_bytes()))
    assert found == Counter(words(200).split())


def java_hash(key: bytes) -> int:
    """Give the hash of a key of text as Hadoop has it: it is the same on every machine."""
    found = 1
    for byte in key:
        found = (31 * found + byte) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


def test_the_default_partition_is_a_stable_hash_and_users_may_choose_another(desk: Desk) -> None:
    """§4.1 (MR-25): hash(key) mod R, whatever computes it; and "all URLs from the same host to end
    up in the same output file"."""
    urls = [f"host{host}|page{page}\t1" for page in range(20) for host in range(6)]
    desk.write("in", "\n".join(urls) + "\n")

    hashed = desk.run(
        "-D", "mapreduce.job.reduces=3", "-input", "in", "-output", "hashed", "-mapper", "cat",
        "-reducer", "cat",
    )  # fmt: skip
    ran = desk.job(
        "-D", "mapreduce.job.reduces=3", "-D", "map.output.key.field.separator=|",
        "-D", "mapreduce.partition.keypartitioner.options=-k1,1", "-mapper", "cat",
        "-partitioner", "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner", "-reducer", "cat",
    )  # fmt: skip

    assert hashed.status == 0, hashed.stderr
    for number in range(3):
        lines = (desk.cwd / "hashed" / f"part-{number:05}").read_bytes().splitlines()
        assert lines and {java_hash(line.partition(b"\t")[0]) % 3 for line in lines} == {number}
    assert ran.status == 0, ran.stderr
    homes: dict[bytes, set[str]] = {}
    for name, data in desk.parts().items():
        for line in data.splitlines():
            homes.setdefault(line.split(b"|")[0], set()).add(name)
    assert len(homes) == 6
    assert all(len(names) == 1 for names in homes.values())


def test_a_combiner_shrinks_what_is_shuffled_and_changes_no_result(desk: Desk) -> None:
    """§4.3 (MR-27)."""
    desk.write("in", words(2_000))

    plain = desk.run("-input", "in", "-mapper", "m.py", "-reducer", "r.py")
    combined = desk.run("-input", "in", "-mapper", "m.py", "-combiner", "r.py", "-reducer", "r.py")

    assert plain.stdout == combined.stdout
    assert counts(plain.stdout) == Counter(words(2_000).split())
    shuffled = "Reduce shuffle bytes"
    assert counter(combined, shuffled) < counter(plain, shuffled) / 10


@pytest.mark.parametrize("block_bytes", [120, 251, 997, 4096])
def test_every_line_is_in_exactly_one_split(desk: Desk, block_bytes: int) -> None:
    """§4.4 (MR-28): splits end at line ends, wherever the chunks do."""
    lines = [f"{number:04d}:{'y' * (number % 37)}" for number in range(60)]
    desk.write("in", "\n".join(lines))

    ran = desk.run(
        "-D", f"fs.local.block.size={block_bytes}", "-input", "in", "-mapper", "cat",
        "-reducer", "cat",
    )  # fmt: skip

    assert ran.status == 0, ran.stderr
    assert [line.rstrip("\t") for line in ran.stdout.decode().splitlines()] == lines


def test_input_may_be_keys_and_values(desk: Desk) -> None:
    """§4.4 (MR-29): another reader, chosen by name."""
    desk.write("in", "k1\tv1\nk2\tv2\n")

    ran = desk.run(
        "-inputformat", "KeyValueTextInputFormat", "-input", "in", "-mapper", "cut -f2",
        "-reducer", "NONE",
    )  # fmt: skip

    assert ran.status == 0, ran.stderr
    assert ran.stdout.split() == [b"v1", b"v2"]


def test_several_inputs_are_read_by_one_job(desk: Desk) -> None:
    """Appendix A (MR-37)."""
    desk.write("one/a", "x\n")
    desk.write("two/b", "y\n")

    ran = desk.run("-input", "one", "-input", "two/b", "-mapper", "cat", "-reducer", "cat")

    assert ran.status == 0, ran.stderr
    assert ran.stdout.split() == [b"x", b"y"]


def test_a_poisoned_record_fails_the_job_and_is_named(desk: Desk) -> None:
    """§4.6 (MR-31): nothing is skipped unless asked; the report says where the record is."""
    lines = "".join(f"line {number}\n" for number in range(100)).replace("line 42", "bad")
    desk.write("in", lines)
    desk.write(
        "fussy.py",
        "import sys\nfor line in sys.stdin:\n"
        "    if line.startswith('bad'): sys.exit(3)\n    sys.stdout.write(line)\n",
    )

    ran = desk.run("-input", "in", "-mapper", "fussy.py", "-reducer", "NONE")

    assert ran.status == 1
    assert ran.stdout == b""
    assert ran.line("subprocess failed with code 3")
    assert ran.line("-repeat")


def test_chosen_map_tasks_run_alone(desk: Desk) -> None:
    """§4.7 (MR-32): local, and limited to particular map tasks."""
    lines = "".join(f"{number:06d}\n" for number in range(100))
    desk.write("in", lines)

    ran = desk.run(
        "-D", "fs.local.block.size=175", "-tasks", "m0", "-input", "in", "-mapper", "cat",
        "-reducer", "NONE",
    )  # fmt: skip

    assert ran.status == 0, ran.stderr
    assert 0 < len(ran.stdout.splitlines()) < 30


def test_user_counters_count_each_task_once_though_an_attempt_failed(desk: Desk) -> None:
    """§4.9 (MR-34, MR-35): "eliminating the effects of duplicate executions"."""
    desk.write("in", words(30))
    desk.write(
        "shaky.py",
        "import os, sys\n"
        "lines = sys.stdin.readlines()\n"
        "sys.stderr.write(f'reporter:counter:Own,Lines,{len(lines)}\\n')\n"
        "sys.stderr.flush()\n"
        "if os.environ['mapreduce_task_attempt_id'].endswith('_0'): sys.exit(1)\n"
        "sys.stdout.writelines(lines)\n",
    )

    ran = desk.run(
        "-D", "mapreduce.map.maxattempts=3", "-input", "in", "-mapper", "shaky.py",
        "-reducer", "NONE",
    )  # fmt: skip

    assert ran.status == 0, ran.stderr
    assert counter(ran, "Lines") == 30
    assert counter(ran, "Map input records") == 30
    assert counter(ran, "Map output records") == 30
