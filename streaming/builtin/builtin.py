"""The mappers and reducers that Hadoop scripts name by Java class, and that run here without a
process.

A built-in takes records as payloads of known types (`formats.writable`) and gives records;
`key_type` and `value_type` say of which types those are. Pure: reading, sorting and writing are
done around it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.streaming import classes
from mrstream.streaming.builtin.aggregate import aggregate
from mrstream.streaming.builtin.field_selection import FieldSelection
from mrstream.streaming.classes import canonical
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.writable import LONG, NULL, TEXT, WritableType
from mrstream.streaming.java.java_number import wrap_long
from mrstream.streaming.java.java_regex import compile_java, find_all

Record = tuple[bytes, bytes]
_TOKEN = re.compile(rb"[^ \t\n\r\f]+")
_ONE = struct.pack(">q", 1)


class UnknownBuiltin(UserError):
    """A Java class that is not built in."""


class TypeMismatch(UserError):
    """A built-in got, or gave, records of a type that the job did not declare."""


class BuiltinMapper(msgspec.Struct, frozen=True):
    """Maps one record to any number of records."""

    map: Callable[[bytes, bytes], Iterable[Record]]
    key_type: WritableType
    value_type: WritableType


class BuiltinReducer(msgspec.Struct, frozen=True):
    """Reduces one key and its values to any number of records; a combiner is one, too."""

    reduce: Callable[[bytes, Iterable[bytes]], Iterable[Record]]
    key_type: WritableType
    value_type: WritableType


def builtin_mapper(
    class_name: str,
    conf: JobConf,
    key_type: WritableType,
    value_type: WritableType,
    input_file: str | None = None,
) -> BuiltinMapper:
    """Return the mapper of a Java class for records of these types; `input_file` is what the map
    reads, if that is one."""
    match canonical(class_name, "mapper"):
        case classes.IDENTITY_MAPPER:
            return BuiltinMapper(lambda key, value: ((key, value),), key_type, value_type)
        case "org.apache.hadoop.mapred.lib.InverseMapper":
            return BuiltinMapper(lambda key, value: ((value, key),), value_type, key_type)
        case "org.apache.hadoop.mapred.lib.TokenCountMapper":
            return BuiltinMapper(_token_counts(value_type), TEXT, LONG)
        case "org.apache.hadoop.mapred.lib.RegexMapper":
            return BuiltinMapper(_regex_matches(conf, value_type), TEXT, LONG)
        case "org.apache.hadoop.mapred.lib.FieldSelectionMapReduce":
            return BuiltinMapper(_select_in_map(conf, key_type, value_type), TEXT, TEXT)
        case classes.AGGREGATE_MAPPER:
            return BuiltinMapper(_counts(conf, input_file), TEXT, TEXT)
    raise UnknownBuiltin(classes.java_message("-mapper", class_name, "mapper"))


def builtin_reducer(
    class_name: str, conf: JobConf, key_type: WritableType, value_type: WritableType
) -> BuiltinReducer:
    """Return the reducer, or combiner, of a Java class for records of these types."""
    match canonical(class_name, "reducer"):
        case classes.IDENTITY_REDUCER:
            return BuiltinReducer(_each_value, key_type, value_type)
        case "org.apache.hadoop.mapred.lib.LongSumReducer":
            return BuiltinReducer(_long_sum(value_type), key_type, LONG)
        case "org.apache.hadoop.mapred.lib.FieldSelectionMapReduce":
            return _field_selection_reducer(conf, key_type, value_type)
        case classes.AGGREGATE_REDUCER:
            return BuiltinReducer(_aggregate(conf, key_type, value_type, combine=False), TEXT, TEXT)
        case classes.AGGREGATE_COMBINER:
            return BuiltinReducer(_aggregate(conf, key_type, value_type, combine=True), TEXT, TEXT)
    raise UnknownBuiltin(classes.java_message("-reducer", class_name, "reducer"))


def check_map_output(conf: JobConf, key_type: WritableType, value_type: WritableType) -> None:
    """Refuse map output whose types are not the declared ones, in Hadoop's words; for jobs with
    reducers."""
    for word, declared, given in (
        ("key", conf.map_output_key_class, key_type),
        ("value", conf.map_output_value_class, value_type),
    ):
        if given.class_name != declared:
            raise TypeMismatch(
                f"Type mismatch in {word} from map: "
                f"expected {declared}, received {given.class_name}"
            )


def _each_value(key: bytes, values: Iterable[bytes]) -> Iterable[Record]:
    return ((key, value) for value in values)


def _token_counts(value_type: WritableType) -> Callable[[bytes, bytes], Iterable[Record]]:
    def map_record(_: bytes, value: bytes) -> Iterable[Record]:
        return [(token, _ONE) for token in _TOKEN.findall(value_type.to_string(value))]

    return map_record


_BASE_DESCRIPTORS = frozenset(
    f"org.apache.hadoop.{api}.lib.aggregate.ValueAggregatorBaseDescriptor"
    for api in ("mapred", "mapreduce")
)


def _counts(conf: JobConf, input_file: str | None) -> Callable[[bytes, bytes], Iterable[Record]]:
    """ValueAggregatorMapper with Hadoop's own descriptor, the only one that is not Java of the
    user's: it counts records, and those of each file."""
    descriptors = [conf.aggregate_descriptor(at) for at in range(conf.aggregate_descriptors)]
    for text in descriptors:
        kind, _, name = text.partition(",")
        if text and (kind.lower() != "userdefined" or name.strip() not in _BASE_DESCRIPTORS):
            raise UnknownBuiltin(classes.java_message("the aggregate descriptor", text, "mapper"))
    one = [(b"LongValueSum:record_count", b"1")]
    if input_file is not None:
        one.append((b"LongValueSum:" + input_file.encode("utf-8", "surrogateescape"), b"1"))
    pairs = one * max(1, len(descriptors))
    return lambda _key, _value: pairs


def _regex_matches(
    conf: JobConf, value_type: WritableType
) -> Callable[[bytes, bytes], Iterable[Record]]:
    pattern = compile_java(conf.regex)
    group = conf.regex_group
    if not 0 <= group <= pattern.groups:
        raise UserError(f"No group {group} in the regular expression {conf.regex!r}")

    def map_record(_: bytes, value: bytes) -> Iterable[Record]:
        text = value_type.to_string(value).decode()
        for match in find_all(pattern, text):
            found: str | None = match.group(group)
            if found is None:
                raise UserError(
                    f"group {group} of {conf.regex!r} took no part in the match {match.group()!r}"
                )
            yield found.encode(), _ONE

    return map_record


def _long_sum(value_type: WritableType) -> Callable[[bytes, Iterable[bytes]], Iterable[Record]]:
    if value_type.class_name != LONG.class_name:
        raise TypeMismatch(
            f"LongSumReducer: class {value_type.class_name} "
            f"cannot be cast to class {LONG.class_name}"
        )

    def reduce_values(key: bytes, values: Iterable[bytes]) -> Iterable[Record]:
        total = sum(int.from_bytes(value, "big", signed=True) for value in values)
        return [(key, struct.pack(">q", wrap_long(total)))]

    return reduce_values


def _select_in_map(
    conf: JobConf, key_type: WritableType, value_type: WritableType
) -> Callable[[bytes, bytes], Iterable[Record]]:
    selection = FieldSelection(conf.field_separator, conf.map_fields_spec)
    with_key = conf.input_format_class != InputFormat.TEXT.value

    def map_record(key: bytes, value: bytes) -> Iterable[Record]:
        text = value_type.to_string(value).decode()
        if with_key:
            text = key_type.to_string(key).decode() + text
        new_key, new_value = selection.select(text)
        if new_key is None:
            # Hadoop sorts by the value then, and has none left.
            new_key, new_value = new_value, None
        return [((new_key or "").encode(), (new_value or "").encode())]

    return map_record


def _field_selection_reducer(
    conf: JobConf, key_type: WritableType, value_type: WritableType
) -> BuiltinReducer:
    selection = FieldSelection(conf.field_separator, conf.reduce_fields_spec)

    def reduce_values(key: bytes, values: Iterable[bytes]) -> Iterable[Record]:
        start = key_type.to_string(key).decode() + selection.separator
        for value in values:
            new_key, new_value = selection.select(start + value_type.to_string(value).decode())
            yield (new_key or "").encode(), (new_value or "").encode()

    # A side of which no field is named is Java's null: the output leaves it out.
    return BuiltinReducer(
        reduce_values,
        TEXT if selection.spec.has_key else NULL,
        TEXT if selection.spec.has_value else NULL,
    )


def _aggregate(
    conf: JobConf, key_type: WritableType, value_type: WritableType, *, combine: bool
) -> Callable[[bytes, Iterable[bytes]], Iterable[Record]]:
    limit = conf.unique_values_max

    def reduce_values(key: bytes, values: Iterable[bytes]) -> Iterable[Record]:
        texts = (value_type.to_string(value) for value in values)
        made = aggregate(key_type.to_string(key), texts, limit, combine=combine)
        # A combiner passes the key itself on: what two keys have in common may be a sign for bytes
        # that are no text.
        return [(key, value) for _, value in made] if combine else made

    return reduce_values
