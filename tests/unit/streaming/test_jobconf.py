"""streaming/conf/properties.py, setting.py and jobconf.py: a job's settings."""

from __future__ import annotations

import msgspec
import pytest

from mrstream.streaming import classes
from mrstream.streaming.conf.jobconf import JobConf, settings
from mrstream.streaming.conf.properties import BadProperty, default_properties, deprecated_names
from mrstream.streaming.records.comparator import ByteOrder, KeyFieldOrder, LongOrder
from mrstream.streaming.records.partitioner import (
    HashPartition,
    KeyFieldPartition,
    LongHashPartition,
    StringHashPartition,
    TotalOrderPartition,
)

TEXT_KEYS = {"mapreduce.map.output.key.class": classes.TEXT}


def test_every_setting_can_be_read_from_a_job_that_was_given_nothing() -> None:
    conf = JobConf()

    for attribute, _ in settings():
        getattr(conf, attribute)


def test_an_old_name_means_the_new_one() -> None:
    conf = JobConf({"mapred.reduce.tasks": "3"})

    assert conf.reduces == 3
    assert conf.old_names_used() == [("mapred.reduce.tasks", "mapreduce.job.reduces")]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_new_name_wins_over_the_old_whatever_the_order(order: tuple[int, int]) -> None:
    """Spec 1.2."""
    given = [("mapred.reduce.tasks", "3"), ("mapreduce.job.reduces", "4")]
    conf = JobConf()

    for index in order:
        conf.set(*given[index])

    assert conf.reduces == 4


def test_an_empty_value_means_the_default() -> None:
    """Spec 1.1; case kv_output_sep_empty."""
    conf = JobConf({"mapreduce.output.textoutputformat.separator": ""})

    assert conf.output_separator == b"\t"
    assert conf.given() == {}


def test_references_are_expanded_when_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case cli_var_expand."""
    monkeypatch.setenv("SOME_VARIABLE", "seen")
    conf = JobConf(
        {
            "a": "${b}-${env.SOME_VARIABLE}-${env.NONE:-other}-${no.such}",
            "b": "${c}${c}",
            "c": "x",
            "loop": "${loop}",
        }
    )

    assert conf.get("a") == "xx-seen-other-${no.such}"
    assert conf.get("loop") == "${loop}"


def test_an_unknown_reference_ends_the_expansion() -> None:
    """As Hadoop's Configuration: it gives what it has so far."""
    conf = JobConf({"a": "${b}${no.such}${b}", "b": "x"})

    assert conf.get("a") == "x${no.such}${b}"


def test_a_default_stands_for_a_variable_that_is_unset_and_with_a_colon_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMPTY_VARIABLE", "")
    conf = JobConf({"a": "[${env.EMPTY_VARIABLE-x}]", "b": "[${env.EMPTY_VARIABLE:-x-y}]"})

    assert (conf.get("a"), conf.get("b")) == ("[]", "[x-y]")


def test_separators_hold_any_byte_and_survive_the_wire() -> None:
    """A word of the command line may have bytes that are no UTF-8."""
    typed = b"\xff\x01".decode("utf-8", "surrogateescape")
    conf = JobConf({"stream.map.output.field.separator": typed})

    packed = msgspec.msgpack.encode(conf.to_dict())
    arrived = JobConf.from_dict(msgspec.msgpack.decode(packed))

    assert arrived.map_output_rule.separator == b"\xff\x01"


@pytest.mark.parametrize(
    ("value", "meaning"), [("true", True), (" FALSE ", False), ("yes", True), ("", True)]
)
def test_a_word_that_is_no_boolean_means_the_default(value: str, meaning: bool) -> None:
    conf = JobConf({"stream.non.zero.exit.is.failure": value})

    assert conf.nonzero_exit_is_failure is meaning


def test_a_number_that_is_none_is_named_with_its_property() -> None:
    with pytest.raises(BadProperty, match=r"mapreduce\.job\.reduces is 'two'"):
        _ = JobConf({"mapreduce.job.reduces": "two"}).reduces


@pytest.mark.parametrize("mebibytes", ["0", "2048", "-1"])
def test_the_sort_buffer_has_limits(mebibytes: str) -> None:
    with pytest.raises(BadProperty, match=r"mapreduce\.task\.io\.sort\.mb"):
        _ = JobConf({"mapreduce.task.io.sort.mb": mebibytes}).io_sort_bytes


def test_the_defaults_are_hadoops_but_for_the_hint_of_maps() -> None:
    conf = JobConf()

    assert (conf.reduces, conf.io_sort_bytes, conf.task_timeout_s) == (1, 100 << 20, 600.0)
    assert conf.maps_hint == 1
    assert JobConf({"mapred.map.tasks": "5"}).maps_hint == 5
    assert conf.map_attempts_max is None


def test_an_unknown_way_to_speak_is_text() -> None:
    """Case io_unknown."""
    assert JobConf({"stream.map.input": "what"}).map_input_identifier == "text"
    assert JobConf({"stream.map.input": "TypedBytes"}).map_input_identifier == "typedbytes"


def test_the_key_class_chooses_order_and_hash() -> None:
    assert JobConf(TEXT_KEYS).comparator_spec == ByteOrder()
    assert JobConf(TEXT_KEYS).partitioner_spec() == HashPartition()
    assert JobConf().comparator_spec == LongOrder()
    assert JobConf().partitioner_spec() == LongHashPartition()


def test_key_field_classes_read_their_own_separator_and_options() -> None:
    """Spec 5.1, 5.3; the new-API names work as well."""
    conf = JobConf(
        TEXT_KEYS
        | {
            "mapreduce.map.output.key.field.separator": ".",
            "mapred.partitioner.class": "KeyFieldBasedPartitioner",
            "mapreduce.partition.keypartitioner.options": "-k1,1",
            "mapreduce.job.output.key.comparator.class": "org.apache.hadoop.mapreduce.lib."
            "partition.KeyFieldBasedComparator",
            "mapreduce.partition.keycomparator.options": "-k2,2nr",
        }
    )

    assert isinstance(order := conf.comparator_spec, KeyFieldOrder)
    assert (order.separator, order.specs[0].numeric) == (b".", True)
    assert isinstance(spec := conf.partitioner_spec(), KeyFieldPartition)
    assert (spec.separator, spec.specs[0].last_field) == (b".", 1)


def test_the_older_count_of_partition_fields_wins_over_options() -> None:
    """Spec 5.1; case kfbp_deprecated."""
    given = TEXT_KEYS | {"mapred.partitioner.class": "KeyFieldBasedPartitioner"}
    options = {"mapreduce.partition.keypartitioner.options": "-k3"}

    two = JobConf(given | options | {"num.key.fields.for.partition": "2"}).partitioner_spec()
    none = JobConf(given | options | {"num.key.fields.for.partition": "0"}).partitioner_spec()

    assert isinstance(two, KeyFieldPartition) and two.specs[0].last_field == 2
    assert none == StringHashPartition()


def test_a_total_order_takes_its_cut_points() -> None:
    conf = JobConf(TEXT_KEYS | {"mapred.partitioner.class": "TotalOrderPartitioner"})

    assert conf.is_total_order
    assert conf.partitioner_spec([b"g", b"p"]) == TotalOrderPartition((b"g", b"p"))


def test_cut_points_are_compared_by_bytes_whatever_the_comparator_of_keys() -> None:
    """Hadoop compares them as keys, not as KeyFieldBasedComparator sees their bytes."""
    given = TEXT_KEYS | {
        "mapred.partitioner.class": "TotalOrderPartitioner",
        "mapreduce.totalorderpartitioner.naturalorder": "false",
        "mapreduce.job.output.key.comparator.class": "KeyFieldBasedComparator",
        "mapreduce.partition.keycomparator.options": "-k1r",
    }

    spec = JobConf(given).partitioner_spec([b"g", b"p"])

    assert spec == TotalOrderPartition((b"g", b"p"), ByteOrder())


def test_the_packaged_tables_are_whole() -> None:
    assert len(default_properties()) == 1072
    assert len(deprecated_names()) == 178


def test_extras_are_a_comma_list_of_known_names() -> None:
    conf = JobConf({"mrstream.job.extras": " saw, records,"})

    assert conf.extras == ("records", "saw")
    assert JobConf().extras == JobConf({"mrstream.job.extras": ""}).extras == ()
    with pytest.raises(
        BadProperty, match=r"^mrstream\.job\.extras is 'swa': .* mean 'saw'\? extras"
    ):
        _ = JobConf({"mrstream.job.extras": "swa"}).extras
