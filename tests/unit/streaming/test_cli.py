"""streaming/cli.py: what a command line that makes no job prints, and its exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mrstream.cluster.config import extras
from mrstream.streaming.cli import _SUBCOMMANDS, _lies_here, main


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)


def test_without_words_the_short_usage_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Spec 1.1."""
    status = main([])

    out, err = capsys.readouterr()
    assert (status, err) == (1, "No Arguments Given!\n")
    assert out.startswith("Usage: mapred streaming [options]")


@pytest.mark.parametrize("words", [["-help"], ["-input", "x", "-help"], ["-bogus", "--help"]])
def test_help_wins_over_everything(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Spec 1.3; case cli_help."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "Usage: $HADOOP_HOME/bin/hadoop jar hadoop-streaming.jar [options]" in out
    assert err == ""


@pytest.mark.parametrize("word", ["--help", "-help", "-h"])
@pytest.mark.parametrize("command", [*_SUBCOMMANDS, "cluster up"])
def test_every_command_has_a_help_of_its_own(
    command: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main([*command.split(), word])
    except SystemExit as ended:
        status = int(str(ended.code))

    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert f"mrstream {command}" in out or "-put" in out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mrstream ")


def test_a_misspelt_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluser", "up"]) == 1
    assert "Did you mean `mrstream cluster`?" in capsys.readouterr().err


def test_info_has_tips(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-info"]) == 0
    assert "Usage tips:" in capsys.readouterr().out


def test_an_unknown_option_brings_the_usage_and_hadoops_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spec 1.3."""
    status = main(["-mapper", "cat", "-what"])

    out, err = capsys.readouterr()
    assert status == 1
    assert "Options:" in out
    assert "ERROR Unrecognized option: -what\n" in err
    assert err.endswith("\nTry -help for more information\nStreaming Command Failed!\n")


def test_a_wrong_value_brings_no_usage(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["-mapper", "cat"])

    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err == (
        "Required argument: -input <name>\n"
        "Try -help for more information\n"
        "Streaming Command Failed!\n"
    )


def test_a_missing_shipped_file_is_named_in_our_words_and_in_hadoops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Case files_missing."""
    assert main(["-files", "nope", "-input", "x"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("-files nope: there is no such file here")
    assert "java.io.FileNotFoundException: File nope does not exist" in said
    assert "Exception in thread" not in said


def test_java_is_refused_in_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-input", "x", "-reducer", "com.acme.Join"]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("-reducer com.acme.Join is a Java class, and mrstream runs no Java")
    assert last == "Streaming Command Failed!"


def test_a_bad_property_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["-input", "x", "-D", "mapreduce.job.reduces=two"]) == 1
    assert "mapreduce.job.reduces is 'two'" in capsys.readouterr().err


def test_a_subcommand_gets_the_words_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard:
        words: list[str]

        @classmethod
        def main(cls, words: list[str]) -> int:
            cls.words = words
            return 7

    monkeypatch.setitem(sys.modules, "mrstream.tui.cli", Heard)

    assert main(["top", "--demo"]) == 7
    assert Heard.words == ["--demo"]


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        @staticmethod
        def main(words: list[str]) -> int:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "mrstream.dfs.cli", Interrupted)

    assert main(["dfs", "-ls"]) == 130


def test_input_on_this_machine_that_was_looked_for_in_the_dfs_is_pointed_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The most common mistake of the first day with a cluster."""
    Path("here.txt").write_text("x\n")
    words = ["-input", "here.txt", "-input", "gone.txt", "-mapper", "cat"]

    said = _lies_here(words, "Input path does not exist: dfs://lab/user/me/here.txt")

    assert len(said) == 1 and said[0].startswith("here.txt is on this machine: `mrstream dfs -put")
    assert _lies_here(words, "Input path does not exist: file:/tmp/here.txt") == []


@pytest.mark.parametrize("lacks", ["pyarrow", "java"])
def test_a_file_system_that_is_not_installed_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """What pyarrow says of a machine without Java has a hundred lines."""
    if lacks == "pyarrow":
        monkeypatch.setitem(sys.modules, "pyarrow.fs", None)

    status = main(["-input", "hdfs://nn:9000/in", "-mapper", "cat"])

    err = capsys.readouterr().err
    assert status != 0 and "Traceback" not in err
    assert len(err.splitlines()) == 2
    assert "hdfs://nn:9000/in cannot be used: " in err
    assert "a path of the current cluster is written without hdfs://HOST:PORT" in err


@pytest.mark.parametrize("first", [[], ["-check"]])
def test_a_job_that_needs_an_extra_which_is_not_here_is_refused_with_the_line_to_type(
    first: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is begun: no history, no output."""
    monkeypatch.setitem(extras.MODULES, "saw", ("no_such_library",))
    (tmp_path / "in").write_text("a\n")

    words = ["-D", "mrstream.job.extras=saw", "-input", "in", "-output", "out", "-mapper", "cat"]
    status = main([*first, *words])

    said = capsys.readouterr().err.splitlines()
    assert status == 1
    assert said[0] == (
        "this job needs the extra saw, and this machine has no no_such_library: `pip install "
        "'mrstream[saw]'` (on a cluster: `extras: [saw]` in cluster.yaml, then `mrstream cluster "
        "up`)"
    )
    assert said[1:] == (["Streaming Command Failed!"] if not first else [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["-inptu", "x", "-mapper", "cat"], "Unrecognized option: -inptu; did you mean -input?"),
        (["-numReducetask", "1"], "did you mean -numReduceTasks?"),
    ],
)
def test_a_misspelt_option_is_answered_below_the_usage(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage text, which Hadoop prints here, does not bury the answer."""
    assert main(words) == 1
    *_, answer, hint, last = capsys.readouterr().err.splitlines()
    assert answer.endswith(meant)
    assert (hint, last) == ("Try -help for more information", "Streaming Command Failed!")


def test_an_option_taken_for_an_input_is_named_again_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on Hadoop `-input` takes all words that are no option: `-maper cat` are two inputs."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("a\n")

    assert main(["-input", "in", "-maper", "cat", "-reducer", "cat"]) == 5
    assert "-maper is taken for an input path: there is no such option; did you mean -mapper?" in (
        capsys.readouterr().err.splitlines()
    )
