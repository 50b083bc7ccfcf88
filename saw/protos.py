"""Protocol buffers as values of the language: what `proto "file"` declares (§4, §7).

Takes the descriptors that protoc makes of a file; gives a tuple type a message, with a function
that parses records as it, and the numbers of enums. Parsing is the library's; what a program does
not read of a message is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from mrstream.saw.readers import MISSING, MessageType
from mrstream.saw.tables.kinds import (
    BOOL,
    BYTES,
    FLOAT,
    INT,
    STRING,
    TIME,
    Type,
    Value,
    array_of,
    map_of,
)

FIELDS_MAX = 10_000
"""Of a message with all that lies in it: its type is written out in full."""
TIMESTAMP = "google.protobuf.Timestamp"
_SCALARS: dict[str, Type] = {
    **dict.fromkeys(("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64"), INT),
    **dict.fromkeys(("FIXED32", "FIXED64", "SFIXED32", "SFIXED64", "ENUM"), INT),
    **dict.fromkeys(("FLOAT", "DOUBLE"), FLOAT),
    "BOOL": BOOL,
    "STRING": STRING,
    "BYTES": BYTES,
}
_KINDS = {
    number: name.removeprefix("TYPE_")
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
_WRAPPING = frozenset({"UINT64", "FIXED64"})
_SIGN, _MASK = 1 << 63, (1 << 64) - 1

Descriptor = Any
"""A descriptor of the library, which has no types of its own for them."""
Read = Callable[[Any], Value]


class BadDescriptors(ValueError):
    """Descriptors that cannot be read, or describe what the language does not take."""


@dataclass(slots=True)
class Described:
    """What a file declares; nested names are joined by `_`."""

    messages: dict[str, MessageType] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


class Message:
    def __init__(self, descriptor: Descriptor, kind: Type) -> None:
        self.type = kind
        self._descriptor = descriptor

    def reader(self, fields: frozenset[str] | None) -> Callable[[bytes], Value]:
        """Return the function that parses a record; fields other than these stay missing."""
        parse = message_factory.GetMessageClass(self._descriptor).FromString
        name = self._descriptor.full_name
        convert = _tuple_of(self._descriptor, (), fields)
        has_required = _has_required(self._descriptor, set())

        def read(data: bytes) -> Value:
            try:
                message = parse(data)
            except DecodeError as error:
                raise ValueError(f"the record is no {name}: {error}") from None
            if has_required and not message.IsInitialized():
                raise ValueError(f"the record is no whole {name}: a required field is not there")
            return convert(message)

        return read


def described(descriptors: bytes) -> Described:
    """Return what a set of descriptors declares; of equal names the one of the last file, which is
    the file that was asked for, behind those that it imports."""
    pool = descriptor_pool.DescriptorPool()
    found = Described()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        for one in files:
            pool.Add(one)
        descriptions = [pool.FindFileByName(one.name) for one in files]
    except (DecodeError, TypeError, KeyError) as error:
        raise BadDescriptors(f"the descriptors cannot be read: {error}") from None
    if not descriptions:
        raise BadDescriptors("there are no descriptors in it")
    for one in descriptions:
        _declare(one.message_types_by_name, one.enum_types_by_name, "", found)
    return found


def _declare(messages: Descriptor, enums: Descriptor, prefix: str, found: Described) -> None:
    for name, descriptor in messages.items():
        if descriptor.GetOptions().map_entry:
            continue
        found.messages[prefix + name] = Message(descriptor, _type_of(descriptor, ()))
        inner = f"{prefix}{name}_"
        _declare(descriptor.nested_types_by_name, descriptor.enum_types_by_name, inner, found)
    for name, enum in enums.items():
        for value in enum.values:
            found.numbers[f"{prefix}{name}_{value.name}"] = value.number


# --- types


def _type_of(descriptor: Descriptor, around: tuple[str, ...]) -> Type:
    if descriptor.full_name == TIMESTAMP:
        return TIME
    fields = list(_fields(descriptor, around))
    inside = (*around, descriptor.full_name)
    kinds = tuple(_field_type(one, inside) for one in fields)
    found = Type("tuple", kinds, tuple(one.name for one in fields))
    if _size(found) > FIELDS_MAX:
        raise BadDescriptors(f"{descriptor.full_name} has more than {FIELDS_MAX:,} fields in all")
    return found


def _size(kind: Type) -> int:
    return 1 + sum(map(_size, kind.parts))


def _fields(descriptor: Descriptor, around: tuple[str, ...]) -> Iterator[Descriptor]:
    """Yield the fields that a tuple has: all but those in which the message lies again."""
    inside = {*around, descriptor.full_name}
    for one in descriptor.fields:
        target = one.message_type
        if target is not None and target.GetOptions().map_entry:
            target = target.fields_by_name["value"].message_type
        if target is None or target.full_name not in inside:
            yield one


def _field_type(one: Descriptor, inside: tuple[str, ...]) -> Type:
    entry = one.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (entry.fields_by_name[name] for name in ("key", "value"))
        return map_of(_single_type(key, inside), _single_type(value, inside))
    kind = _single_type(one, inside)
    return array_of(kind) if one.is_repeated else kind


def _single_type(one: Descriptor, inside: tuple[str, ...]) -> Type:
    if one.message_type is not None:
        return _type_of(one.message_type, inside)
    return _SCALARS[_KINDS[one.type]]


def _has_required(descriptor: Descriptor, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        one.is_required or (one.message_type is not None and _has_required(one.message_type, seen))
        for one in descriptor.fields
    )


# --- values


def _tuple_of(
    descriptor: Descriptor, around: tuple[str, ...], wanted: frozenset[str] | None
) -> Read:
    if descriptor.full_name == TIMESTAMP:
        return lambda message: message.seconds * 1_000_000 + message.nanos // 1000
    inside = (*around, descriptor.full_name)
    reads = [
        _field_of(one, inside) if wanted is None or one.name in wanted else _missing
        for one in _fields(descriptor, around)
    ]
    return lambda message: tuple([read(message) for read in reads])


def _missing(message: Any) -> Value:
    return MISSING


def _field_of(one: Descriptor, inside: tuple[str, ...]) -> Read:
    """Return the function that takes a field from its message. A field that has a presence, was not
    set, and has no default of its own is missing."""
    get = attrgetter(one.name)
    entry = one.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (_single_of(entry.fields_by_name[name], inside) for name in ("key", "value"))
        return lambda message: {key(k): value(v) for k, v in get(message).items()}
    convert = _single_of(one, inside)
    if one.is_repeated:
        return lambda message: [convert(item) for item in get(message)]
    if one.has_presence and not one.has_default_value:
        name = one.name
        return lambda message: convert(get(message)) if message.HasField(name) else MISSING
    if entry is None and _KINDS[one.type] not in _WRAPPING:
        return get
    return lambda message: convert(get(message))


def _single_of(one: Descriptor, inside: tuple[str, ...]) -> Read:
    if one.message_type is not None:
        return _tuple_of(one.message_type, inside, None)
    if _KINDS[one.type] in _WRAPPING:
        return lambda number: (number + _SIGN & _MASK) - _SIGN  # as C's int64
    return lambda value: value
