"""streaming/command/options.py: words into options and values."""

from __future__ import annotations

import pytest

from mrstream.streaming.command.meant import misspelt_inputs
from mrstream.streaming.command.options import (
    BadCommandLine,
    BadOptionWord,
    NoArguments,
    parse,
    split_paths,
    strip_quotes,
    warnings,
)


def test_no_words_at_all_are_refused() -> None:
    """Spec 1.1; case cli_no_args."""
    with pytest.raises(NoArguments, match="No Arguments Given!"):
        parse([])


@pytest.mark.parametrize("word", ["streamjob", "StreamJob"])
def test_a_first_word_in_any_case_may_choose_the_tool(word: str) -> None:
    said = parse([word, "-mapper", "cat"])

    assert (said.tool, said.first("mapper")) == ("streamjob", "cat")


def test_the_typed_bytes_tools_keep_their_words() -> None:
    assert parse(["dumptb", "a*"]).left_over == ["a*"]


def test_options_have_one_or_two_dashes() -> None:
    """Case cli_double_dash."""
    said = parse(["--mapper", "cat", "-reducer", "wc"])

    assert (said.first("mapper"), said.first("reducer")) == ("cat", "wc")


def test_only_generic_options_may_be_joined_to_their_value() -> None:
    """Spec 1.1: `-input=x` is no option, `-files=x` is."""
    assert parse(["-files=a,b"]).all("files") == ["a,b"]
    with pytest.raises(BadOptionWord, match="Unrecognized option: -input=x"):
        parse(["-input=x"])


@pytest.mark.parametrize("words", [["-D", "a=b"], ["-Da=b"], ["--D", "a=b"], ["-D=a=b"]])
def test_a_property_has_several_forms(words: list[str]) -> None:
    """Case cli_Djoined."""
    assert parse(words).all("D") == ["a=b"]


def test_the_first_use_of_an_option_with_one_value_counts() -> None:
    """Case cli_dup_mapper."""
    assert parse(["-mapper", "cat", "-mapper", "false"]).first("mapper") == "cat"


def test_inputs_take_many_values_and_add_up() -> None:
    """Case in_multi_values."""
    assert parse(["-input", "a", "b", "-output", "o", "-input", "c"]).all("input") == [
        "a",
        "b",
        "c",
    ]


def test_generic_options_may_stand_anywhere() -> None:
    """Where Hadoop would take -D for an input path, or refuse it."""
    said = parse(["-input", "in", "-D", "a=b", "-mapper", "cat", "-files", "x"])

    assert said.all("input") == ["in"]
    assert said.all("D") == ["a=b"]
    assert said.all("files") == ["x"]


def test_an_unknown_word_with_a_dash_is_a_value_where_one_is_wanted() -> None:
    """Spec 1.1: `-mapper -x` runs -x."""
    assert parse(["-mapper", "-x"]).first("mapper") == "-x"


def test_the_name_of_an_option_is_never_a_value() -> None:
    """Case cli_missing_value."""
    with pytest.raises(BadOptionWord, match="Missing argument for option: mapper"):
        parse(["-mapper", "-file", "x"])


@pytest.mark.parametrize("word", ["-x", "-Input", "--mapperr"])
def test_an_unknown_option_is_named(word: str) -> None:
    with pytest.raises(BadOptionWord, match=f"Unrecognized option: {word}"):
        parse([word, "y"])


def test_words_that_belong_to_no_option_are_kept_apart() -> None:
    assert parse(["-mapper", "cat", "a", "-reducer", "wc", "b"]).left_over == ["a", "b"]


def test_a_repeated_list_before_other_options_is_ignored_with_a_warning_as_hadoop_does() -> None:
    """Case files_first_only."""
    said = parse(["-files", "a", "-files", "b", "-mapper", "cat"])

    assert said.all("files") == ["a"]
    assert any("-files b is ignored" in line for line in warnings(said))


def test_a_repeated_list_where_hadoop_fails_adds_up_with_a_warning() -> None:
    said = parse(["-files", "a", "-mapper", "cat", "-files", "b"])

    assert said.all("files") == ["a", "b"]
    assert any("given 2 times" in line for line in warnings(said))


def test_deprecated_options_are_warned_about_in_hadoops_words() -> None:
    """Spec 1.2."""
    said = parse(["-file", "a", "-jobconf", "k=v", "-cacheFile", "u#l"])

    assert list(warnings(said)) == [
        "-file option is deprecated, please use generic option -files instead.",
        "-cacheFile option is deprecated, please use -files instead.",
        "-jobconf option is deprecated, please use -D instead.",
    ]


def test_a_mistyped_option_among_inputs_is_pointed_out() -> None:
    """Hadoop takes it for a path and only says that it does not exist."""
    said = parse(["-input", "in", "-mappper", "cat"])

    assert said.all("input") == ["in", "-mappper", "cat"]
    (line,) = misspelt_inputs(said)
    assert line.startswith("-mappper is taken for an input path: there is no such option")


@pytest.mark.parametrize(
    ("value", "stripped"),
    [('"a b"', "a b"), ('"a" b"', '"a" b"'), ('"', '"'), ("'a'", "'a'"), ('""', "")],
)
def test_one_pair_of_quotes_around_a_whole_value_is_taken_off(value: str, stripped: str) -> None:
    """Spec 1.1; case cmd_outer_quotes."""
    assert strip_quotes(value) == stripped


def test_an_input_is_cut_at_commas_but_not_inside_braces() -> None:
    """Spec 3.1."""
    assert split_paths("a,{b,c}d,,e") == ["a", "{b,c}d", "e"]


def test_every_refusal_is_a_user_error_with_status_1() -> None:
    assert BadCommandLine("x").exit_status == 1
