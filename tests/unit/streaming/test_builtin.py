"""streaming/builtin/ and java/java_regex.py: Java classes, no Java."""

from __future__ import annotations

import struct

import pytest

from mrstream.streaming import classes
from mrstream.streaming.builtin.aggregate import BadAggregate, aggregate
from mrstream.streaming.builtin.builtin import (
    TypeMismatch,
    UnknownBuiltin,
    builtin_mapper,
    builtin_reducer,
    check_map_output,
)
from mrstream.streaming.builtin.field_selection import FieldSelection
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.writable import LONG, TEXT
from mrstream.streaming.java.java_regex import BadRegex, compile_java, find_all

LIB = "org.apache.hadoop.mapred.lib."
ONE = struct.pack(">q", 1)
NO_LIMIT = 2**63 - 1


def reported(key: str, *values: str, unique_max: int = NO_LIMIT) -> str:
    """What the aggregate reducer writes for one key."""
    [(_, report)] = aggregate(
        key.encode(), (value.encode() for value in values), unique_max, combine=False
    )
    return report.decode()


@pytest.mark.parametrize(
    ("key", "values", "report"),
    [
        ("LongValueSum:a", ["1", "-3", "+10"], "8"),
        ("longvaluesum:a", [str(2**63 - 1), "1"], str(-(2**63))),
        ("LongValueMax:a", ["-5", "-7"], "-5"),
        ("LongValueMin:a", ["-5", "-7"], "-7"),
        ("DoubleValueSum:a", [" 1.5", "4"], "5.5"),
        ("DoubleValueSum:a", ["0.00001"], "1.0E-5"),
        ("StringValueMax:a", ["9", "10"], "9"),
        ("StringValueMin:a", ["9", "10"], "10"),
        # U+10000 is a surrogate pair in UTF-16, so it sorts before U+FFFF.
        ("StringValueMax:a", ["\U00010000", "\uffff"], "\uffff"),
        ("UniqValueCount:a", ["x", "y", "x"], "2"),
        ("ValueHistogram:a", ["x", "x", "y", "z\t4"], "3\t1\t2\t4\t2.3333333333333335\t"),
    ],
)
def test_each_aggregator_reports_as_in_hadoop(key: str, values: list[str], report: str) -> None:
    """Spec 6.3."""
    assert reported(key, *values).startswith(report)


def test_unique_values_stop_one_above_the_limit() -> None:
    """Spec 6.3: at most M+1 is reported."""
    assert reported("UniqValueCount:a", *map(str, range(10)), unique_max=3) == "4"


@pytest.mark.parametrize(
    ("key", "values", "passed_on"),
    [
        ("UniqValueCount:a", ["b", "a", "b"], ["a", "b"]),
        ("ValueHistogram:a", ["b", "a", "b"], ["a\t1", "b\t2"]),
        ("LongValueSum:a", ["1", "2"], ["3"]),
        ("DoubleValueSum:a", ["1", "2"], ["3.0"]),
    ],
)
def test_what_the_combiner_passes_on_can_be_aggregated_again(
    key: str, values: list[str], passed_on: list[str]
) -> None:
    """Spec 6.1 and 6.3: the combiner runs zero, one or many times."""
    once = aggregate(key.encode(), (v.encode() for v in values), NO_LIMIT, combine=True)

    assert [(k.decode(), v.decode()) for k, v in once] == [(key, item) for item in passed_on]
    assert reported(key, *passed_on) == reported(key, *values)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("word", "3", "no colon"),
        ("Nonsense:a", "3", "unknown type 'Nonsense'"),
        ("LongValueSum:a", "1.5", 'For input string: "1.5"'),
        ("DoubleValueSum:a", "x", 'For input string: "x"'),
    ],
)
def test_what_aggregate_cannot_read_fails_with_its_reason(
    key: str, value: str, message: str
) -> None:
    """Spec 6.3: the task fails."""
    with pytest.raises(BadAggregate, match=message):
        reported(key, value)


def test_identity_and_inverse_keep_the_types() -> None:
    """Spec 2: keys and values keep their Java types."""
    identity = builtin_mapper(LIB + "IdentityMapper", JobConf({}), LONG, TEXT)
    inverse = builtin_mapper("InverseMapper", JobConf({}), LONG, TEXT)

    assert list(identity.map(ONE, b"v")) == [(ONE, b"v")]
    assert (identity.key_type, identity.value_type) == (LONG, TEXT)
    assert list(inverse.map(ONE, b"v")) == [(b"v", ONE)]
    assert (inverse.key_type, inverse.value_type) == (TEXT, LONG)


def test_tokens_are_cut_at_javas_five_blanks() -> None:
    """Spec 2: TokenCountMapper splits on blank, TAB, LF, CR and FF; a vertical tab is a letter."""
    mapper = builtin_mapper(LIB + "TokenCountMapper", JobConf({}), LONG, TEXT)

    tokens = [key for key, value in mapper.map(ONE, b" a\tb\x0bc\fd ") if value == ONE]

    assert tokens == [b"a", b"b\x0bc", b"d"]


def test_regex_gives_every_match_of_its_group() -> None:
    """Spec 2, the golden case builtin_regex."""
    conf = JobConf(
        {"mapreduce.mapper.regex": "[a-z]+([0-9]+)", "mapreduce.mapper.regexmapper..group": "1"}
    )
    mapper = builtin_mapper(LIB + "RegexMapper", conf, LONG, TEXT)

    assert [key for key, _ in mapper.map(ONE, b"ab12 c3")] == [b"12", b"3"]


def test_long_sum_adds_and_refuses_other_types() -> None:
    """Spec 2: it needs LongWritable values, as Java's cast does."""
    reducer = builtin_reducer(LIB + "LongSumReducer", JobConf({}), TEXT, LONG)

    assert list(reducer.reduce(b"k", [ONE, ONE])) == [(b"k", struct.pack(">q", 2))]
    with pytest.raises(TypeMismatch, match="cannot be cast"):
        builtin_reducer(LIB + "LongSumReducer", JobConf({}), TEXT, TEXT)


def test_a_class_that_is_not_built_in_is_refused_in_one_line() -> None:
    """Any other class name: one clear line saying that it is Java and what to use instead."""
    with pytest.raises(UnknownBuiltin, match=r"com\.acme\.M is a Java class"):
        builtin_mapper("com.acme.M", JobConf({}), LONG, TEXT)


def test_a_map_output_of_the_wrong_type_is_named_as_hadoop_names_it() -> None:
    """Spec 2: what an identity mapper in front of a Text job says."""
    conf = JobConf({"mapreduce.map.output.key.class": "org.apache.hadoop.io.Text"})

    with pytest.raises(TypeMismatch) as caught:
        check_map_output(conf, LONG, TEXT)

    assert str(caught.value) == (
        "Type mismatch in key from map: expected org.apache.hadoop.io.Text, "
        "received org.apache.hadoop.io.LongWritable"
    )


@pytest.mark.parametrize(
    ("separator", "spec", "text", "key", "value"),
    [
        ("\t", "2,0:1,3-", "a\tb\tc\td\te", "c\ta", "b\td\te"),
        ("\t", "2,0:1,3-", "i\tj", "\ti", "j"),
        ("\t", "0-:", "a\tb", None, None),
        ("\t", "0-1:2-", "a\tb\tc", "a\tb", "c"),
        (".", "0:1", "a.b", "", ""),
        # Hadoop takes one character off the end, of a separator that has two.
        ("\\.", "0:1", "a.b", "a\\", "b\\"),
        (",", "1:0", "a,b,,", "b", "a"),
    ],
)
def test_fields_are_cut_by_a_regular_expression_and_joined_by_its_text(
    separator: str, spec: str, text: str, key: str | None, value: str | None
) -> None:
    """Spec 6.4: with `.` every field list is empty; trailing empty fields are dropped."""
    assert FieldSelection(separator, spec).select(text) == (key, value)


def test_field_selection_reduces_key_and_value_as_one_text() -> None:
    """Spec 6.4: the reducer cuts KEY+sep+VALUE."""
    conf = JobConf({"mapreduce.fieldsel.reduce.output.key.value.fields.spec": "0:1-"})
    reducer = builtin_reducer(LIB + "FieldSelectionMapReduce", conf, TEXT, TEXT)

    assert list(reducer.reduce(b"\ti", [b"j"])) == [(b"", b"i\tj")]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\Qa.b\E+", "a.bb", "a.bb"),
        (r"\p{Alpha}+", "12ab", "ab"),
        (r"[\p{Digit}x]+", "ab1x2", "1x2"),
        (r"\P{Upper}+", "ABcd", "cd"),
        (r"(?<year>\d{4})-\k<year>", "2024-2024", "2024-2024"),
        (r"\w+", "é1", "1"),
        (r"a++b", "aab", "aab"),
        (r"[^\]]+\z", "a]bc", "bc"),
    ],
)
def test_java_patterns_find_what_java_finds(pattern: str, text: str, found: str) -> None:
    """Java's classes are ASCII; quoting, POSIX classes and named groups are written differently."""
    match = compile_java(pattern).search(text)

    assert match is not None
    assert match.group() == found


@pytest.mark.parametrize(
    "pattern",
    ["(", r"\p{Greek}", r"\p{InGreek}", r"\p{javaLowerCase}", r"\p{IsKlingon}", r"\G", "(?U)a",
     "[a-", "[" * 99, r"\x{110000}"],
)  # fmt: skip
def test_a_pattern_that_cannot_be_translated_is_refused(pattern: str) -> None:
    """Rather than find something else than Java would."""
    with pytest.raises(BadRegex):
        compile_java(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [  # each as OpenJDK 17 finds it
        (r"\p{L}+", "aé Жж 1", ["aé", "Жж"]),
        (r"\p{Lu}", "aÉЖж", ["É", "Ж"]),
        (r"\p{N}+", "1٠ a²", ["1٠", "²"]),
        (r"\P{L}", "aé1", ["1"]),
        (r"\p{Alpha}+", "aéb", ["a", "b"]),
        (r"\p{IsLatin}+", "aéαb", ["aé", "b"]),
        ("[a-z&&[^aeiou]]+", "hadoop", ["h", "d", "p"]),
        ("[a-c[x-z]]+", "abxyq", ["abxy"]),
        ("[a-d&&[^b]&&[^c]]", "abcd", ["a", "d"]),
        (r"[\p{L}\d]+", "é1-a", ["é1", "a"]),
        (r"[^\p{L}]", "aé-", ["-"]),
        ("(?i)\\p{Lu}", "dαZ1", ["d", "α", "Z"]),
        ("(?u)\\w+", "11\xa0zÉ", ["11", "z"]),
        ("(?iu)é", "É", ["É"]),
        ("(?i)é", "É", []),
        ("a.b", "a\u2028b", []),
        ("(?s)a.b", "a\u2028b", ["a\u2028b"]),
        (r"\b[^a]", "0xß", ["0"]),
        ("x*", "\U0001f600", ["", "", ""]),
        ("$*", "ab", ["", "", ""]),
        (r"[\Qa-]\E]+", "a-]b", ["a-]"]),
        (r"\x{1F600}", "\U0001f600", ["\U0001f600"]),
    ],
)
def test_a_pattern_finds_what_java_finds(pattern: str, text: str, found: list[str]) -> None:
    assert [match.group() for match in find_all(compile_java(pattern), text)] == found


def test_aggregates_combiner_passes_keys_on_as_they_are() -> None:
    """Two that differ in bytes that are no text are two keys, as to Hadoop's."""
    combiner = builtin_reducer(classes.AGGREGATE_COMBINER, JobConf(), TEXT, TEXT)

    made = [
        record
        for byte in (b"\xfe", b"\xff")
        for record in combiner.reduce(b"LongValueSum:" + byte, [b"1", b"2"])
    ]

    assert made == [(b"LongValueSum:\xfe", b"3"), (b"LongValueSum:\xff", b"3")]
