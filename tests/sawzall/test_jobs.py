"""Sawzall as jobs: shards that merge, readers, counters, failures that are told and repeated."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.support.local_jobs import Desk, processes_with

COUNT = "n: table sum[word: string] of int;\nemit n[string(input)] <- 1;\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def saw(desk: Desk, program: str, where: str, *words: str, inputs: str = "in") -> None:
    """Run a program; it must succeed."""
    desk.write("p.szl", program)
    ran = desk.run(
        *("saw", "--program", "p.szl", "--input_files", inputs, "--destination", where, *words)
    )
    assert ran.status == 0, ran.stderr


def dumped(desk: Desk, *words: str) -> str:
    """Give what `dump` prints."""
    ran = desk.run("dump", *words)
    assert ran.status == 0, ran.stderr
    return ran.stdout.decode()


def test_results_of_two_jobs_and_other_numbers_of_shards_are_one(desk: Desk) -> None:
    """SZ-14, SZ-16, SZ-17 (§8): shards hold mergeable state, dealt by table and index."""
    desk.write("a", "x\ny\nx\n" * 50)
    desk.write("b", "y\nz\n" * 30)
    saw(desk, COUNT, "one@3", inputs="a")
    saw(desk, COUNT, "two@2", inputs="b")
    saw(desk, COUNT, "whole@5", inputs="{a,b}")

    halves = dumped(desk, "--source", "one@3", "--source", "two@2")

    assert halves == dumped(desk, "--source", "whole@5") == "n,x,100\nn,y,80\nn,z,30\n"
    assert len(list((desk.cwd / "whole").glob("part-*"))) == 5


def test_results_of_other_tables_are_not_merged(desk: Desk) -> None:
    """SZ-17."""
    desk.write("in", "x\n")
    saw(desk, COUNT, "one@1")
    saw(desk, COUNT.replace("int", "float").replace("1;", "1.0;"), "two@1")

    ran = desk.run("dump", "--source", "one@1", "--source", "two@1")

    assert ran.status == 1 and "two and one hold different tables" in ran.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("none@1", "there is no directory"),
        ("one@7", "has 2 shards: @2"),
        ("one@0", "the number of shards must be 1"),
        ("empty", "has no _saw.json; is the job finished?"),
    ],
)
def test_a_source_that_is_none_is_refused(desk: Desk, source: str, said: str) -> None:
    desk.write("in", "x\n")
    (desk.cwd / "empty").mkdir()
    saw(desk, COUNT, "one@2")

    ran = desk.run("dump", "--source", source)

    assert ran.status == 1 and said in ran.stderr and "Traceback" not in ran.stderr


def test_damaged_shards_are_told(desk: Desk) -> None:
    desk.write("in", "x\n")
    saw(desk, COUNT, "one@1")
    manifest = desk.cwd / "one" / "_saw.json"
    good = manifest.read_bytes()
    for bad in (b"{", b"[]", good.replace(b'"int"', b'"itn"'), good.replace(b'"sum"', b'"top"')):
        manifest.write_bytes(bad)

        ran = desk.run("dump", "--source", "one@1")

        assert ran.status == 1 and "_saw.json" in ran.stderr and "Traceback" not in ran.stderr
    manifest.write_bytes(good)
    part = desk.cwd / "one" / "part-00000"
    part.write_bytes(part.read_bytes()[:-3])
    ran = desk.run("dump", "--source", "one@1")
    assert ran.status == 1 and "Traceback" not in ran.stderr


def test_many_splits_spill_and_combine_to_the_same_tables(desk: Desk) -> None:
    """SZ-03, SZ-12: several maps, each with its own tables, and one result."""
    desk.write("in", "".join(f"k{n % 1000},{n}\n" for n in range(20_000)))
    program = """
    s: table sum[string] of int; m: table maximum(2) of string weight int;
    f: array of string = splitcsvline(input);
    emit s[f[0]] <- int(f[1]); emit m <- f[0] weight int(f[1]);
    """
    small = ("-D", "mapreduce.input.fileinputformat.split.maxsize=40000")
    saw(desk, program, "many@4", *small)
    saw(desk, program, "few@1")

    many = dumped(desk, "--source", "many@4")

    assert many == dumped(desk, "--source", "few@1")
    assert many.count("\n") == 1002 and many.endswith("m,k999,19999\nm,k998,19998\n")


def test_keys_of_records_and_lines_with_keys(desk: Desk) -> None:
    """SZ-26: `input_key` is the key of a record, `input` its value."""
    program = """
    t: table sum[string] of int;
    emit t[string(input_key)] <- int(string(input));
    """
    desk.write("in", "a\t5\nb\t6\na\t7\n")

    saw(desk, program, "out@1", "--input_format", "keyvalue")

    assert dumped(desk, "--source", "out@1") == "t,a,12\nt,b,6\n"


def test_sequence_files_are_read_and_shards_are_sequence_files(desk: Desk) -> None:
    """The shards of one job are records for another: its packed states, as bytes."""
    desk.write("in", "x\ny\n")
    saw(desk, COUNT, "one@2")
    program = "t: table sum of int; emit t <- 1; b: table collection of int; emit b <- len(input);"

    saw(desk, program, "out@1", "--input_format", "auto", inputs="one")

    assert dumped(desk, "--source", "out@1") == "t,2\nb,10\nb,10\n"


def test_counters_are_the_jobs(desk: Desk) -> None:
    desk.write("in", "a\nb\n")
    desk.write("p.szl", "seen: table mrcounter of int;\nemit seen <- 21;\n")

    ran = desk.run("saw", "--program", "p.szl", "--input_files", "in", "--destination", "out")

    assert ran.status == 0, ran.stderr
    assert "seen=42" in ran.stderr and "Map input records=2" in ran.stderr
    assert dumped(desk, "--source", "out") == ""


def test_a_stop_names_the_record_and_can_be_repeated(desk: Desk) -> None:
    """SZ-23: what failed, where, and how to see it again."""
    desk.write("in", "1\n2\nthree\n4\n")
    desk.write("p.szl", "t: table sum of int;\nemit t <- int(string(input));\n")

    ran = desk.run("saw", "--program", "p.szl", "--input_files", "in", "--destination", "out@2")

    assert ran.status == 1
    assert "p.szl:2:6: 'three' is no int" in ran.stderr
    assert "which is record 3 of the map's input, in file:" in ran.stderr
    assert not (desk.cwd / "out" / "_SUCCESS").exists()
    attempt = re.search(r"mrstream -repeat (attempt_\w+)", ran.stderr)
    assert attempt is not None, ran.stderr
    again = desk.run("-repeat", attempt.group(1))
    assert again.status == 1 and "'three' is no int" in again.stderr


def test_ctrl_c_ends_a_program_that_does_not_end(desk: Desk) -> None:
    """And nothing of it stays: no process, no output, no temporary file."""
    desk.write("in", "x\n")
    desk.write("p.szl", "n: table sum of int;\nwhile (true) { emit n <- 1; }\n")
    words = ("saw", "--program", "p.szl", "--input_files", "in", "--destination", str(desk.out))
    running = desk.start(*words)
    assert running.stderr is not None
    try:
        while b"map 0% reduce 0%" not in (line := running.stderr.readline()):
            assert line, "it ended by itself"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()

    assert running.returncode == 130 and b"Interrupted" in said
    assert desk.left_behind() == [] and not (desk.out / "_SUCCESS").exists()
    assert processes_with(str(desk.home)) == []


def test_skipped_statements_are_in_a_table_of_their_own(desk: Desk) -> None:
    """SZ-24."""
    desk.write("in", "1\nx\n3\nx\n")
    program = "t: table sum of int;\nemit t <- int(string(input));\n"

    saw(desk, program, "out@2", "--ignore_undefs")

    assert dumped(desk, "--source", "out@2") == "t,4\n_undef_cnt,2\n"
    details = dumped(desk, "--source", "out@2", "--table", "_undef_details", "--format", "text")
    assert details == "_undef_details = 2:6: 'x' is no int\n" * 2


def test_an_attempt_that_is_run_again_draws_the_same(desk: Desk) -> None:
    """Decision 08: what attempts of one task write does not depend on which of them won."""
    from mrstream.mapreduce.attempt.saw_stage import task_chance

    first = task_chance("attempt_202611_0001_m_000003_0").random()

    assert first == task_chance("attempt_202611_0001_m_000003_1").random()
    assert first != task_chance("attempt_202611_0001_m_000004_0").random()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--program", "none.szl", "--check"], "--program none.szl: No such file"),
        (["--program", "p.szl"], "--input_files is missing"),
        (["--program", "p.szl", "--input_files", "in"], "--destination is missing"),
        (["--program", "p.szl", "--chek"], "unrecognized arguments: --chek"),
        (["--program", "p.szl", "--check", "--timezone", "Mars"], "there is no time zone 'Mars'"),
        (["--program", "p.szl", "--check", "--machines", "0"], "'0' is not a number of hosts"),
        (
            ["--program", "p.szl", "--input_files", "none", "--destination", "out"],
            "Input path does not exist",
        ),
    ],
)
def test_wrong_words_are_refused_in_a_line(desk: Desk, words: list[str], said: str) -> None:
    """SZ-15."""
    desk.write("p.szl", COUNT)

    ran = desk.run("saw", *words)

    assert ran.status in (1, 5) and said in ran.stderr and "Traceback" not in ran.stderr


def test_a_program_is_checked_and_shown_without_a_job(desk: Desk) -> None:
    desk.write("p.szl", COUNT)

    checked = desk.run("saw", "--program", "p.szl", "--check")
    printed = desk.run("saw", "--program", "p.szl", "--print_python")

    assert checked.stdout == b"p.szl: no faults; 1 table\n"
    compile(printed.stdout.decode(), "p", "exec")
    assert b"for input_ in records:" in printed.stdout
    assert not desk.home.exists() or not list(desk.home.rglob("job_*"))
