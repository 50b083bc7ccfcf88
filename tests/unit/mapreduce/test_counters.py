"""mapreduce.job.counters: totals, limits and the block that ends a job (spec 8.1)."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.counters import Counters
from mrstream.mapreduce.job.errors import TooManyCounters


def test_groups_are_printed_in_hadoops_order() -> None:
    """Spec 8.1: framework groups first, the rest by internal name, so a user's `zzz` comes last."""
    counters = Counters()
    counters.add_user("zzz", "n", 1)
    counters.add_user("aaa", "n", 2)
    counters.add(c.FILE_OUTPUT, c.BYTES_WRITTEN, 3)
    counters.add(c.FILE_INPUT, c.BYTES_READ, 4)
    counters.add(c.SHUFFLE_ERRORS, "BAD_ID", 0)
    counters.framework(c.MAP_INPUT_RECORDS, 5)
    counters.add(c.FILE_SYSTEM, "FILE: Number of bytes read", 6)

    assert [group for group, _ in counters] == [
        "File System Counters",
        "Map-Reduce Framework",
        "Shuffle Errors",
        "aaa",
        "File Input Format Counters ",
        "File Output Format Counters ",
        "zzz",
    ]


def test_the_dump_counts_counters_and_indents_with_tabs() -> None:
    counters = Counters()
    counters.framework(c.SPILLED_RECORDS, 9)
    counters.framework(c.MAP_INPUT_RECORDS, 3)
    counters.add_user("My Group", "b", 1)
    counters.add_user("My Group", "a", -1)

    assert counters.dump() == (
        "Counters: 4\n\tMap-Reduce Framework\n\t\tMap input records=3\n\t\tSpilled Records=9"
        "\n\tMy Group\n\t\ta=-1\n\t\tb=1"
    )


def test_long_names_are_cut_one_short_of_the_limit() -> None:
    """Spec 7.5: names longer than 64 or 128 characters are cut to 63 or 127."""
    counters = Counters()

    counters.add_user("G" * 129, "c" * 65, 1)
    counters.add_user("G" * 128, "c" * 64, 1)

    assert counters.as_dict() == {"G" * 127: {"c" * 63: 1}, "G" * 128: {"c" * 64: 1}}


def test_the_121st_counter_of_a_program_is_refused_but_our_own_do_not_count() -> None:
    counters = Counters()
    counters.framework(c.MAP_INPUT_RECORDS, 1)
    for number in range(120):
        counters.add_user("g", str(number), 1)
    counters.add_user("g", "7", 1)

    with pytest.raises(TooManyCounters, match="Too many counters: 121 max=120"):
        counters.add_user("g", "one more", 1)


def test_the_51st_group_is_refused() -> None:
    counters = Counters()
    for number in range(50):
        counters.add_user(str(number), "n", 1)

    with pytest.raises(TooManyCounters, match="Too many counter groups: 51 max=50"):
        counters.add_user("one more", "n", 1)


def test_adding_counters_sums_all_but_peaks() -> None:
    total = Counters({c.FRAMEWORK: {c.PEAK_MAP_MEMORY_BYTES: 10, c.MAP_INPUT_RECORDS: 10}})

    total.add_all(Counters({c.FRAMEWORK: {c.PEAK_MAP_MEMORY_BYTES: 7, c.MAP_INPUT_RECORDS: 7}}))

    assert total.value(c.PEAK_MAP_MEMORY_BYTES) == 10
    assert total.value(c.MAP_INPUT_RECORDS) == 17


def test_a_sum_beyond_64_bits_wraps_as_javas_does() -> None:
    """Two maps of `reporter:counter:g,c,9223372036854775807`: no message can hold their sum."""
    most = 2**63 - 1
    counters = Counters({"g": {"c": most, "d": -most - 1}})

    counters.add_all({"g": {"c": most, "d": -1}})
    counters.add_all({"g": {"c": most}})

    assert counters.as_dict() == {"g": {"c": most - 2, "d": most}}


def test_a_program_may_add_to_hadoops_own_counters_by_their_java_names() -> None:
    counters = Counters({"Map-Reduce Framework": {"Map input records": 5}})
    group = "org.apache.hadoop.mapreduce.TaskCounter"

    counters.add_user(group, "MAP_INPUT_RECORDS", 2)
    counters.add_user(group, "NO_SUCH_COUNTER", 2)

    assert counters.as_dict() == {"Map-Reduce Framework": {"Map input records": 7}}
