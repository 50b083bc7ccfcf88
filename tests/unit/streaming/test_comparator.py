"""streaming/records/key_value.py, comparator.py and partitioner.py: rules as plain data."""

from __future__ import annotations

import functools

import pytest

from mrstream.streaming.java.java_text import decode_text
from mrstream.streaming.records.comparator import (
    BYTE_ORDER,
    BadKeySpec,
    KeySerial,
    KeySpec,
    SerialFieldOrder,
    compare,
    key_field_order,
    parse_key_specs,
)
from mrstream.streaming.records.key_value import KeyValueRule, rule, split
from mrstream.streaming.records.partitioner import (
    BinaryPartition,
    HashPartition,
    LongHashPartition,
    StringHashPartition,
    TextOfKeyPartition,
    TotalOrderPartition,
    key_field_partition,
    partition,
)


@pytest.mark.parametrize(
    ("line", "by", "key", "value"),
    [
        (b"a\tb\tc", KeyValueRule(), b"a", b"b\tc"),
        (b"a\tb\tc", KeyValueRule(b"\t", 2), b"a\tb", b"c"),
        (b"a\tb", KeyValueRule(b"\t", 2), b"a\tb", b""),
        (b"none", KeyValueRule(), b"none", b""),
        (b"", KeyValueRule(), b"", b""),
        (b"\tv", KeyValueRule(), b"", b"v"),
        (b"a::::b", KeyValueRule(b"::", 2), b"a::", b"b"),
        (b"aaaa", KeyValueRule(b"aa", 1), b"", b"aa"),
    ],
)
def test_a_line_is_cut_after_its_key_fields(
    line: bytes, by: KeyValueRule, key: bytes, value: bytes
) -> None:
    """Spec 4.2."""
    assert split(line, by) == (key, value)


def test_odd_rules_get_hadoops_answer() -> None:
    assert rule(b"", -3) == KeyValueRule(b"\t", 1)


@pytest.mark.parametrize(
    ("options", "specs"),
    [
        ("-k1,1", [KeySpec(last_field=1)]),
        ("-k 2.3nr,4.5", [KeySpec(2, 3, 4, 5, True, True)]),
        ("-r -k1,1 -k2,2n", [KeySpec(last_field=1, reverse=True), KeySpec(2, 1, 2, 0, True)]),
        ("-rn -k2 what", [KeySpec(2)]),
        ("-nr", [KeySpec(numeric=True, reverse=True)]),
        ("", []),
    ],
)
def test_key_specs_are_read_from_options(options: str, specs: list[KeySpec]) -> None:
    """Spec 5.2."""
    assert parse_key_specs(options) == (tuple(specs), options == "-nr")


@pytest.mark.parametrize("text", ["x", "1x", "1.", "1,", "1,2x", "1n2", ".1"])
def test_a_spec_that_names_no_fields_is_refused(text: str) -> None:
    with pytest.raises(BadKeySpec, match="Invalid -k argument"):
        parse_key_specs(f"-k{text}")


def ordered(options: str, keys: list[bytes]) -> list[bytes]:
    by = functools.partial(compare, key_field_order(options))
    return sorted(keys, key=functools.cmp_to_key(by))


def test_numbers_are_compared_without_being_parsed() -> None:
    """Spec 5.3; case kfbc_zeros."""
    assert ordered("-n", [b"10", b"9", b"-1", b"1.5", b"1.25"]) == [
        b"-1",
        b"1.25",
        b"1.5",
        b"9",
        b"10",
    ]
    assert ordered("-n", [b"7", b"007"]) == [b"007", b"7"]


@pytest.mark.parametrize("zero", [b"0", b"00.0", b".", b"x5", b"0\t7", b"0.0a5"])
def test_minus_zero_equals_what_is_zero_up_to_its_first_other_character(zero: bytes) -> None:
    """Spec 5.3; `-k2n` reaches to the end of the key, over the fields behind."""
    order = key_field_order("-k1n")

    assert compare(order, b"-0\t3", zero) == compare(order, zero, b"-0\t3") == 0
    assert compare(order, b"-0.01", zero) < 0


def test_keys_equal_in_all_specs_are_ties() -> None:
    order = key_field_order("-k1,1")

    assert compare(order, b"a\tx", b"a\ty") == 0


def test_a_missing_field_is_less_whichever_key_lacks_it_first() -> None:
    order = key_field_order("-k2,2")

    assert compare(order, b"a", b"b") < 0 and compare(order, b"b", b"a") < 0
    assert compare(order, b"a\tx", b"b") > 0


def test_an_empty_range_is_compared_by_length_and_by_the_separator_byte() -> None:
    assert compare(key_field_order("-k1,1"), b"\tx", b"a\tx") < 0
    assert compare(key_field_order("-k1,1n"), b"\tx", b"\ty") == 0


_HASH_OF_NINE_A = (31**9 + 97 * sum(31**power for power in range(9))) % 2**32


@pytest.mark.parametrize(
    ("key", "hashed"), [(b"", 1), (b"hello", 127791473), (b"\xff", 30), (b"a" * 9, _HASH_OF_NINE_A)]
)
def test_the_hash_of_text_is_javas(key: bytes, hashed: int) -> None:
    """Spec 5.1: h = 31 * h + byte, from 1, signed bytes, 32 bits."""
    assert partition(HashPartition(), key, 2**31) == hashed & 0x7FFFFFFF


def test_without_options_the_key_field_partitioner_hashes_utf16() -> None:
    assert key_field_partition("") == StringHashPartition()
    assert partition(StringHashPartition(), b"hello", 2**31) == 99162322
    assert partition(StringHashPartition(), "😀".encode(), 2**31) == 0xD83D * 31 + 0xDE00


def test_bad_utf8_is_decoded_as_java_decodes_it() -> None:
    assert decode_text(b"a\xffb") == "a\ufffdb"
    assert decode_text(b"\xed\xa0\x80x\xed\xa0") == "\ufffdx\ufffd"


def test_an_empty_key_goes_to_partition_0() -> None:
    """Case kfbp_empty_key."""
    assert partition(key_field_partition("-k1,1"), b"", 3) == 0


def test_offsets_are_hashed_by_their_low_bits() -> None:
    assert partition(LongHashPartition(), (2**32 + 5).to_bytes(8, "big"), 4) == 1


def test_binary_partitions_hash_a_part_of_the_key() -> None:
    whole = partition(HashPartition(), b"bc", 1000)

    assert partition(BinaryPartition(1, 2), b"abcd", 1000) == whole
    assert partition(BinaryPartition(-3, -2), b"abcd", 1000) == whole
    assert partition(BinaryPartition(), b"", 1000) == 1


def test_a_total_order_counts_the_cut_points_at_or_before_the_key() -> None:
    """Spec 5.1; case total_order."""
    spec = TotalOrderPartition((b"g", b"p"))

    assert [partition(spec, key, 3) for key in (b"a", b"g", b"o", b"p", b"z")] == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("options", "serial", "keys"),
    [
        ("-k1.0", KeySerial.TEXT, [b"zz", b"ccc", b"aaaa"]),  # the length byte first
        ("", KeySerial.BYTES, [b"z", b"aa", b"ab"]),  # three bytes of the length first
        ("-k1.4", KeySerial.BYTES, [b"aa", b"ab", b"z"]),  # behind them
        ("-k1,1", KeySerial.BYTES, [b"123456789", b"z", b"aa"]),  # a length of 9 is a TAB
        ("", KeySerial.PLAIN, [b"\x02a", b"\x01b"]),  # the first byte of a number is left out
        ("-r", KeySerial.PLAIN, [b"\x01b", b"\x02a"]),
    ],
)
def test_key_fields_see_the_serialised_form_of_keys(
    options: str, serial: KeySerial, keys: list[bytes]
) -> None:
    """Hadoop's comparator skips one byte for the length, whatever the keys are."""
    order = key_field_order(options, serial=serial)

    assert isinstance(order, SerialFieldOrder)
    assert sorted(keys, key=functools.cmp_to_key(functools.partial(compare, order))) == keys
    assert compare(order, keys[-1], keys[0]) > 0
    assert compare(order, keys[0], keys[0]) == 0


def test_plain_specs_of_text_need_no_serialised_form() -> None:
    assert key_field_order("") == BYTE_ORDER
    assert not isinstance(key_field_order("-k1,1 -k2nr"), SerialFieldOrder)


def test_the_partition_of_a_key_that_is_no_text_is_that_of_its_text() -> None:
    by_fields = key_field_partition("-k1.2")
    of_text = TextOfKeyPartition(by_fields, lambda key: b"%d" % int.from_bytes(key, "big"))

    assert partition(of_text, (1234).to_bytes(8, "big"), 1000) == partition(
        by_fields, b"1234", 1000
    )
