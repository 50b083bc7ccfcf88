"""What stands in a line between maps and reduces, and what the framework is told about it.

    [partition US] [sort key US] key [US sort value] TAB value

The fields in brackets are there when a job has a `partition`, a `sort_key` or `sort_values`: the
framework sorts and cuts by bytes, so what decides is put in front as bytes. All before the tab is
the framework's key; US (unit separator, 1F) is in no field. Functions see key and value alone.
Never reads or writes a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from mrstream.api.codecs import TAB, BadRecord, Codec, is_pair, shown
from mrstream.api.ordering import ordered

FIELD_END = b"\x1f"
_TRIES_A_PARTITION = 200


class Layout:
    """The fields of one job's lines."""

    def __init__(
        self,
        codec: Codec,
        partition: Callable[[Any, int], int] | None = None,
        sort_key: Callable[[Any], Any] | None = None,
        sort_values: bool | Callable[[Any], Any] = False,
    ) -> None:
        self.codec = codec
        self.partition = partition
        self.sort_key = sort_key
        self.sort_value = _the_same if sort_values is True else sort_values or None

    @property
    def is_plain(self) -> bool:
        """Whether a line is `key TAB value` and nothing else."""
        return self.partition is None and self.sort_key is None and self.sort_value is None

    @property
    def key_index(self) -> int:
        """The place of the key among the fields."""
        return (self.partition is not None) + (self.sort_key is not None)

    @property
    def partition_fields(self) -> int:
        """By how many fields a line finds its reduce."""
        return 1 if self.partition is not None else self.key_index + 1

    def key_of(self) -> Callable[[tuple[bytes, bytes, bytes]], bytes]:
        """Return the function that finds the key in a line that was cut at its first tab."""
        if self.is_plain:
            return itemgetter(0)
        index = self.key_index
        return lambda parts: parts[0].split(FIELD_END)[index]

    def writer(self, reduces: int) -> Callable[[Sequence[Any]], bytes]:
        """Return the function that makes lines of pairs, in a job of so many reduces."""
        if self.is_plain:
            return self.codec.lines
        marks = partition_marks(reduces) if self.partition is not None else []
        return lambda records: b"".join([self._line(record, marks) for record in records])

    def _line(self, record: Any, marks: Sequence[bytes]) -> bytes:
        if not is_pair(record):
            raise BadRecord(
                f"{shown(record)} is no pair of key and value: with partition, sort_key or "
                "sort_values each record must be one"
            )
        key, value = record
        fields = []
        if self.partition is not None:
            fields.append(self._mark(key, marks))
        if self.sort_key is not None:
            fields.append(ordered(self.sort_key(key)))
        fields.append(self._key_bytes(key))
        if self.sort_value is not None:
            fields.append(ordered(self.sort_value(value)))
        # The value may hold tabs where its codec lets it.
        return FIELD_END.join(fields) + TAB + self.codec.lines([value])

    def _key_bytes(self, key: Any) -> bytes:
        data = self.codec.encode(key)
        if FIELD_END in data:
            raise BadRecord(f"the key {shown(key)} holds the byte 1F, which separates fields")
        return data

    def _mark(self, key: Any, marks: Sequence[bytes]) -> bytes:
        assert self.partition is not None
        number = self.partition(key, len(marks))
        if not isinstance(number, int) or not 0 <= number < len(marks):
            raise BadRecord(
                f"partition({shown(key)}, {len(marks)}) is {shown(number)}; it must be a whole "
                f"number from 0 to {len(marks) - 1}"
            )
        return marks[number]


def _the_same(value: Any) -> Any:
    return value


def partition_marks(reduces: int) -> list[bytes]:
    """Return for each reduce a word that the key field partitioner sends there."""
    from mrstream.streaming.records.partitioner import key_field_partition, partition

    spec = key_field_partition("-k1,1", FIELD_END)
    marks: dict[int, bytes] = {}
    number = 0
    while len(marks) < max(1, reduces):
        word = b"%x" % number
        marks.setdefault(partition(spec, word + FIELD_END, max(1, reduces)), word)
        number += 1
        assert number < _TRIES_A_PARTITION * max(1, reduces), "a hash that leaves places out"
    return [mark for _, mark in sorted(marks.items())]
