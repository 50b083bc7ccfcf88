"""`-mapper saw:p.szl` in ordinary jobs, tables as the input of others, and chains of both."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.local_jobs import Desk

COUNT = "n: table sum[word: string] of int;\nemit n[string(input)] <- 1;\n"
BEST = """best: table maximum(10) of word: string weight n: int;
f: array of string = splitcsvline(input);
emit best <- f[1] weight int(f[2]);
"""
BOTH = ("-mapper", "saw:p.szl", "-reducer", "saw:p.szl")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.write("p.szl", COUNT)
    return made


def dumped(desk: Desk, source: str) -> str:
    """Give what `dump` prints."""
    ran = desk.run("dump", "--source", source)
    assert ran.status == 0, ran.stderr
    return ran.stdout.decode()


def test_a_program_as_mapper_and_reducer_is_a_job_of_saw(desk: Desk) -> None:
    """The same shards, byte for byte but for their sync marks; `-D` says what options of `saw`
    do."""
    desk.write("in", "a\nb\na\n\xff\n".encode("latin-1"))

    ran = desk.job(*BOTH, "-numReduceTasks", "3", "-D", "mrstream.saw.ignore.undefs=true")

    assert ran.status == 0, ran.stderr
    assert dumped(desk, f"{desk.out}@3") == "n,a,2\nn,b,1\n_undef_cnt,1\n"
    assert sorted(desk.parts()) == [
        "_SUCCESS", "_saw.json", "part-00000", "part-00001", "part-00002",
    ]  # fmt: skip


REDUCER = """#!/usr/bin/env python3
import sys
for line in sys.stdin:
    *key, value = line.rstrip("\\n").split("\\t")
    print("|".join(key), value, sep="=")
"""


def test_another_reducer_gets_tables_as_lines(desk: Desk) -> None:
    """Table, index, value, weight, with tabs between; those inside of texts are escaped. Maps add
    up first: a line a map and index."""
    program = """n: table sum[word: string][long: bool] of int;
    m: table maximum(1) of string weight int;
    s: string = input;
    emit n[s][len(s) > 1] <- 1;
    emit m <- s weight len(s);
    """
    desk.write("p.szl", program)
    desk.write("in", "a\nb\\\tc\na\na\n")
    desk.write("r.py", REDUCER).chmod(0o755)

    ran = desk.job("-mapper", "saw:p.szl", "-reducer", "r.py", "-file", "r.py")

    assert ran.status == 0, ran.stderr
    assert desk.parts()["part-00000"].decode().replace("\t\n", "\n").splitlines() == [
        r"m|b\\\tc=4", "n|a|false=3", r"n|b\\\tc|true=1",
    ]  # fmt: skip


def test_maps_alone_write_lines(desk: Desk) -> None:
    desk.write("in", "b\na\nb\n")

    ran = desk.job("-mapper", "saw:p.szl", "-reducer", "NONE")

    assert ran.status == 0, ran.stderr
    assert sorted(desk.parts()["part-00000"].splitlines()) == [b"n\ta\t1", b"n\tb\t2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-mapper", "cat", "-reducer", "saw:p.szl"], "merges what -mapper saw:p.szl emits"),
        (["-mapper", "saw:p.szl", "-reducer", "saw:q.szl"], "merges what -mapper saw:q.szl emits"),
        ([*BOTH, "-combiner", "cat"], "the program combines its tables itself"),
        (["-mapper", "saw:p.szl", "-combiner", "saw:p.szl"], "and only then; leave -combiner out"),
        ([*BOTH, "-outputformat", "TextOutputFormat"], "is shards, which `mrstream dump` prints"),
        (["-mapper", "saw:none.szl"], "-mapper saw:none.szl: No such file or directory"),
        (["-mapper", "saw:faulty.szl"], "faulty.szl:1:6: x is not declared\n  emit x <- 1;\n"),
        (
            ["-mapper", "saw:top.szl"],
            "only the program itself can merge the parts of table t (top)",
        ),
        ([*BOTH, "-D", "mrstream.saw.timezone=Mars"], "there is no time zone 'Mars'"),
        ([*BOTH, "-engine", "hadoop"], "the job runs a Sawzall program"),
        ([*BOTH, "-D", "mrstream.saw.program=!"], "mrstream.saw.program is no base64"),
        ([*BOTH, "-D", "mrstream.saw.program=/w=="], "p.szl is no UTF-8 text"),
    ],
)
def test_words_that_make_no_sense_are_refused(desk: Desk, words: list[str], said: str) -> None:
    """SZ-22: before anything runs, in one place of the program or one line."""
    desk.write("in", "a\n")
    desk.write("faulty.szl", "emit x <- 1;\n")
    desk.write("top.szl", "t: table top(3) of bytes; emit t <- input;")
    desk.write("hadoop/bin/mapred", "#!/bin/false\n").chmod(0o755)

    ran = desk.job(*[word.replace("hadoop", f"hadoop:{desk.cwd}/hadoop") for word in words])

    assert ran.status != 0 and said in ran.stderr, ran.stderr
    assert "Running job" not in ran.stderr and "Traceback" not in ran.stderr


def test_a_stop_in_an_ordinary_job_can_be_repeated(desk: Desk) -> None:
    desk.write("p.szl", "t: table sum of int;\nemit t <- int(string(input));\n")
    desk.write("in", "1\nx\n")

    ran = desk.job("-mapper", "saw:p.szl", "-reducer", "cat")

    assert ran.status == 1 and "p.szl:2:6: 'x' is no int" in ran.stderr, ran.stderr
    attempt = re.search(r"mrstream -repeat (attempt_\w+)", ran.stderr)
    assert attempt is not None, ran.stderr
    again = desk.run("-repeat", attempt.group(1))
    assert again.status == 1 and "'x' is no int" in again.stderr


def test_check_does_not_judge_shards(desk: Desk) -> None:
    """Their sync marks differ from run to run: it would call every program unsound."""
    desk.write("in", "a\n")

    ran = desk.run("-check", *BOTH, "-input", "in")

    assert ran.status == 1 and "this job writes shards" in ran.stderr


LIBRARY = """
import mrstream as mr
done = mr.Job("in", mapper="saw:p.szl", reducer="saw:p.szl", output="made").run()
assert done.state == "succeeded"
"""


def test_the_library_runs_programs(desk: Desk) -> None:
    desk.write("in", "a\na\n")

    ran = subprocess.run(
        [sys.executable, "-c", LIBRARY], cwd=desk.cwd, env=desk.environment(), capture_output=True
    )

    assert ran.returncode == 0, ran.stderr.decode()
    assert dumped(desk, "made") == "n,a,2\n"


# ---- tables as input ---------------------------------------------------------------------------


def test_rows_of_tables_are_the_lines_of_any_program(desk: Desk) -> None:
    """`-inputformat saw`: what `dump` prints, each row once, made by the maps."""
    words = [f"word{n % 700:03}" for n in range(3000)] + ['a,"b"']
    desk.write("in", "\n".join(words) + "\n")
    assert desk.job(*BOTH, "-numReduceTasks", "3").status == 0

    ran = desk.run(
        *("-mapper", "cat", "-inputformat", "saw", "-input", str(desk.out)),
        *("-output", "lines", "-numReduceTasks", "1"),
    )

    assert ran.status == 0, ran.stderr
    assert "Map input records=701\n" in ran.stderr
    lines = (desk.cwd / "lines" / "part-00000").read_text().replace("\t", "").splitlines()
    assert sorted(lines) == sorted(dumped(desk, str(desk.out)).splitlines())


def test_an_input_without_tables_is_told(desk: Desk) -> None:
    desk.write("in", "a\n")
    assert desk.job(*BOTH).status == 0
    (desk.out / "_saw.json").unlink()

    ran = desk.run("-mapper", "cat", "-inputformat", "saw", "-input", str(desk.out), "-output", "o")

    assert ran.status == 1 and "it is no result of a Sawzall job" in ran.stderr, ran.stderr


# ---- chains ------------------------------------------------------------------------------------

FLOW = """name: exact top ten
steps:
  counts:
    input: in
    mapper: saw:p.szl
    reducer: saw:p.szl
    numReduceTasks: 3
  best:
    input: ${counts}
    inputformat: saw
    mapper: saw:best.szl
    reducer: saw:best.szl
    output: best
"""


def test_a_flow_finds_the_exact_top_ten(desk: Desk) -> None:
    """SZ-19 (§8.2): an indexed sum, then a maximum. Resumed, nothing runs again, unless a program
    changed; a faulty one is refused before anything runs."""
    words = [f"w{n % 97 * n % 89:02}" for n in range(4000)]
    desk.write("in", "\n".join(words) + "\n")
    desk.write("best.szl", BEST)
    desk.write("flow.yaml", FLOW)

    ran = desk.run("flow", "run", "flow.yaml")

    assert ran.status == 0, ran.stderr
    truth = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))[:10]
    assert dumped(desk, "best") == "".join(f"best,{word},{n}\n" for word, n in truth)

    flow = re.search(r"flow_\w+", ran.stderr)
    assert flow is not None
    assert "started" not in desk.run("flow", "resume", flow.group()).stderr
    desk.write("best.szl", BEST.replace("emit best", "emit bset"))
    refused = desk.run("flow", "resume", flow.group())
    assert refused.status == 1 and "did you mean best?" in refused.stderr, refused.stderr

    desk.write("best.szl", BEST.replace("maximum(10)", "maximum(2)"))
    again = desk.run("flow", "resume", flow.group())
    assert again.status == 0, again.stderr
    assert "best: started" in again.stderr
    assert dumped(desk, "best") == "".join(f"best,{word},{n}\n" for word, n in truth[:2])
