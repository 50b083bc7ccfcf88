"""In which order keys reach a reducer.

A `ComparatorSpec` is plain data: the kernel, its twin and `compare` here give the
same answer for it. Takes option strings such as `-k1,1 -k2,2nr`; never reads
properties or files, and never looks at a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from mrstream.cluster.errors import UserError

TAB = b"\t"

_ZERO, _NINE, _MINUS, _POINT = b"09-."


class BadKeySpec(UserError):
    """A `-k` option that does not name fields; the job cannot start with it."""


class KeySpec(msgspec.Struct, frozen=True):
    """A byte range of a key, as in `-kF1.C1,F2.C2nr`; fields and bytes count from 1.

    `last_field` 0 means the end of the key, `last_byte` 0 the end of `last_field`.
    """

    first_field: int = 1
    first_byte: int = 1
    last_field: int = 0
    last_byte: int = 0
    numeric: bool = False
    reverse: bool = False


class ByteOrder(msgspec.Struct, frozen=True):
    """Unsigned bytes, shorter first: text, raw bytes and typed bytes alike."""


class LongOrder(msgspec.Struct, frozen=True):
    """Big-endian two's complement integers, all of one width (offset keys have 8 bytes)."""

    reverse: bool = False


class KeyFieldOrder(msgspec.Struct, frozen=True):
    """Compare the ranges of `specs` in turn until one differs; equal in all is a tie.

    With `whole_key` the key is one field, whatever separators it has (options
    that are flags only); there is then exactly one spec.
    """

    specs: tuple[KeySpec, ...]
    separator: bytes = TAB
    whole_key: bool = False


class KeySerial(Enum):
    """How Java serialises a key: what stands before its bytes."""

    TEXT = "text"  # a length of one to five bytes
    BYTES = "bytes"  # a length of four bytes: raw bytes and typed bytes
    PLAIN = "plain"  # nothing: the serialised form is the key (numbers)


class SerialFieldOrder(msgspec.Struct, frozen=True):
    """`KeyFieldOrder` where a key's serialised form shows through.

    Hadoop's comparator takes every key for text and skips the length in front of it: of raw and
    typed bytes it then compares three bytes of their length first, of a number it leaves out the
    first byte; and `-k1.0` of text begins at the last byte of the length. Without specs all bytes
    behind the skipped ones count.
    """

    fields: KeyFieldOrder
    serial: KeySerial


BYTE_ORDER = ByteOrder()

ComparatorSpec = ByteOrder | LongOrder | KeyFieldOrder | SerialFieldOrder


def key_field_order(
    options: str, separator: bytes = TAB, serial: KeySerial = KeySerial.TEXT
) -> ByteOrder | KeyFieldOrder | SerialFieldOrder:
    """Return the order that a key field option string asks for; no options is byte order."""
    specs, whole_key = parse_key_specs(options)
    order = KeyFieldOrder(specs, separator or TAB, whole_key)
    if serial is not KeySerial.TEXT or any(spec.first_byte < 1 for spec in specs):
        return SerialFieldOrder(order, serial)
    return order if specs else BYTE_ORDER


def parse_key_specs(options: str) -> tuple[tuple[KeySpec, ...], bool]:
    """Return the specs of an option string, and whether they see the key as one field.

    Words other than `-n`, `-r`, `-nr` and `-k…` are ignored. A spec without flags
    of its own takes the global ones.
    """
    words = options.split()
    if not words:
        return (), False
    numeric = "-n" in words or "-nr" in words
    reverse = "-r" in words or "-nr" in words
    specs = [_parse_key_spec(text) for text in _spec_texts(words)]
    if not specs:
        return (KeySpec(numeric=numeric, reverse=reverse),), True
    return tuple(_with_global_flags(spec, numeric, reverse) for spec in specs), False


def _spec_texts(words: Sequence[str]) -> list[str]:
    """Return SPEC of every `-kSPEC` and `-k SPEC`."""
    texts = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-k"):
            text = word[2:] or next(rest, "")
            if text:
                texts.append(text)
    return texts


def _with_global_flags(spec: KeySpec, numeric: bool, reverse: bool) -> KeySpec:
    if spec.numeric or spec.reverse:
        return spec
    return KeySpec(
        spec.first_field, spec.first_byte, spec.last_field, spec.last_byte, numeric, reverse
    )


def _parse_key_spec(text: str) -> KeySpec:
    """Return the spec of `F1[.C1][nr][,F2[.C2][nr]]`."""
    first, comma, last = text.partition(",")
    first_field, first_byte, flags = _parse_position(first, text, default_byte=1)
    last_field = last_byte = 0
    if comma:
        last_field, last_byte, last_flags = _parse_position(last, text, default_byte=0)
        flags += last_flags
    return KeySpec(first_field, first_byte, last_field, last_byte, "n" in flags, "r" in flags)


def _parse_position(position: str, text: str, *, default_byte: int) -> tuple[int, int, str]:
    """Return field, byte and flags of `F[.C][nr]`."""
    digits = position.rstrip("nr")
    flags = position[len(digits) :]
    field, point, byte = digits.partition(".")
    try:
        return int(field), int(byte) if point else default_byte, flags
    except ValueError:
        raise BadKeySpec(
            f"Invalid -k argument {text!r}. Must be of the form -k pos1,[pos2], "
            "where pos is of the form f[.c]nr"
        ) from None


# --- the pure twin of the kernel's compare


def compare(spec: ComparatorSpec, a: bytes, b: bytes) -> int:
    """Return a number below, equal to or above 0, as key `a` sorts before, with or behind `b`."""
    match spec:
        case ByteOrder():
            return (a > b) - (a < b)
        case LongOrder(reverse=reverse):
            left = int.from_bytes(a, "big", signed=True)
            right = int.from_bytes(b, "big", signed=True)
            order = (left > right) - (left < right)
            return -order if reverse else order
        case KeyFieldOrder():
            return _compare_fields(spec, a, b)
        case SerialFieldOrder(fields=fields, serial=serial):
            return _compare_serialised(fields, *_serialised(a, serial), *_serialised(b, serial))


def field_lengths(key: bytes, separator: bytes) -> list[int]:
    """Return the length of each field, as Hadoop measures it.

    For a separator of one byte that is what one expects. For a longer one the next
    field is measured from one byte behind the start of the separator, although
    `range_of` adds the whole separator: scripts that run on Hadoop see just that.
    """
    lengths = []
    start = 0
    while (at := key.find(separator, start)) >= 0:
        lengths.append(at - start)
        start = at + 1
    lengths.append(len(key) - start)
    return lengths


def range_of(
    spec: KeySpec,
    key_length: int,
    lengths: Sequence[int],
    separator_length: int,
    before: int = 0,
) -> tuple[int, int] | None:
    """Return [start, end) of a spec in a key, or None where its start does not exist.

    `end` may be less than `start` (an empty field, or `-k3,2`), and `start` below 0 where bytes
    lie before the key.
    """
    if len(lengths) < spec.first_field:
        return None
    start = sum(lengths[: max(0, spec.first_field - 1)])
    start += max(0, spec.first_field - 1) * separator_length
    if start + spec.first_byte > key_length:
        return None
    start += spec.first_byte - 1
    if start < -before:
        return None
    return start, _end_of(spec, key_length, lengths, separator_length)


def _end_of(spec: KeySpec, key_length: int, lengths: Sequence[int], separator_length: int) -> int:
    if spec.last_field == 0 or len(lengths) < spec.last_field:
        return key_length
    before = max(0, spec.last_field - 1)
    end = sum(lengths[:before]) + before * separator_length
    end += spec.last_byte if spec.last_byte else lengths[before]
    return min(max(0, end), key_length)


def _serialised(key: bytes, serial: KeySerial) -> tuple[bytes, int]:
    """Return what of a serialised key can be compared, and how much of it is skipped."""
    match serial:
        case KeySerial.TEXT:
            return bytes((len(key) & 0xFF,)) + key, 1
        case KeySerial.BYTES:
            return len(key).to_bytes(4, "big") + key, 1
        case KeySerial.PLAIN:
            return key, min(1, len(key))


def _compare_serialised(order: KeyFieldOrder, a: bytes, at_a: int, b: bytes, at_b: int) -> int:
    if order.specs:
        return _compare_fields(order, a, b, at_a, at_b)
    return (a[at_a:] > b[at_b:]) - (a[at_a:] < b[at_b:])


def _compare_fields(order: KeyFieldOrder, a: bytes, b: bytes, at_a: int = 0, at_b: int = 0) -> int:
    """Compare the keys that begin at `at_a` and `at_b`."""
    separator_length = len(order.separator)
    whole_a, whole_b = len(a) - at_a, len(b) - at_b
    lengths_a = [whole_a] if order.whole_key else field_lengths(a[at_a:], order.separator)
    lengths_b = [whole_b] if order.whole_key else field_lengths(b[at_b:], order.separator)
    for spec in order.specs:
        range_a = range_of(spec, whole_a, lengths_a, separator_length, at_a)
        range_b = range_of(spec, whole_b, lengths_b, separator_length, at_b)
        result = _compare_ranges(spec, a, _moved(range_a, at_a), b, _moved(range_b, at_b))
        if result:
            return -result if spec.reverse else result
    return 0


def _moved(found: tuple[int, int] | None, by: int) -> tuple[int, int] | None:
    return (found[0] + by, found[1] + by) if found else None


def _compare_ranges(
    spec: KeySpec,
    a: bytes,
    range_a: tuple[int, int] | None,
    b: bytes,
    range_b: tuple[int, int] | None,
) -> int:
    # The first key's missing start decides before the second key is looked at, so two
    # keys that both lack the field are never equal. Hadoop's order; not a total one.
    if range_a is None:
        return -1
    if range_b is None:
        return 1
    if spec.numeric:
        return numeric_compare(a, *range_a, b, *range_b)
    (start_a, end_a), (start_b, end_b) = range_a, range_b
    shorter = min(end_a - start_a, end_b - start_b)
    if shorter > 0:
        left, right = a[start_a : start_a + shorter], b[start_b : start_b + shorter]
        if left != right:
            return -1 if left < right else 1
    return (end_a - start_a) - (end_b - start_b)


def numeric_compare(a: bytes, i: int, end_a: int, b: bytes, j: int, end_b: int) -> int:
    """Compare a[i:end_a] and b[j:end_b] as decimal numbers without exponent, Hadoop's way."""
    first_a, first_b = a[i], b[j]
    if first_a == _MINUS and first_b != _MINUS:
        return _negative_against(a, i + 1, end_a, b, j, end_b)
    if first_b == _MINUS and first_a != _MINUS:
        return -_negative_against(b, j + 1, end_b, a, i, end_a)
    if first_a == _MINUS:
        return -_magnitudes(a, i, i + 1, end_a, b, j, j + 1, end_b)
    return _magnitudes(a, i, i, end_a, b, j, j, end_b)


def _negative_against(a: bytes, i: int, end_a: int, b: bytes, j: int, end_b: int) -> int:
    """Compare -a with b: they are equal only if both are zero."""
    return 0 if _is_zero(a, i, end_a) and _is_zero(b, j, end_b) else -1


def _is_zero(a: bytes, i: int, end: int) -> bool:
    """Whether a number is 0 up to its first character that is neither digit nor point."""
    i = _skip_zeros(a, i, end)
    if i < end and a[i] == _POINT:
        return not _has_digit_after_zeros(a, i + 1, end)
    return i >= end or not _is_digit(a[i])


def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


def _skip_zeros(a: bytes, i: int, end: int) -> int:
    while i < end and a[i] == _ZERO:
        i += 1
    return i


def _count_digits(a: bytes, i: int, end: int) -> int:
    count = 0
    while i < end and _is_digit(a[i]):
        i, count = i + 1, count + 1
    return count


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _magnitudes(
    a: bytes, start_a: int, i: int, end_a: int, b: bytes, start_b: int, j: int, end_b: int
) -> int:
    i, j = _skip_zeros(a, i, end_a), _skip_zeros(b, j, end_b)
    while i < end_a and j < end_b and _is_digit(a[i]) and a[i] == b[j]:
        i, j = i + 1, j + 1
    # A number that is used up is represented by its very first byte: this makes 007
    # less than 7. A quirk that sorted outputs of existing jobs show.
    stand_a = a[i] if i < end_a else a[start_a]
    stand_b = b[j] if j < end_b else b[start_b]
    if (stand_a == _POINT and (not _is_digit(stand_b) or j >= end_b)) or (
        stand_b == _POINT and (not _is_digit(stand_a) or i >= end_a)
    ):
        return _fractions(a, i, end_a, b, j, end_b)
    digits = _count_digits(a, i, end_a) - _count_digits(b, j, end_b)
    return digits if digits else _signed(stand_a) - _signed(stand_b)


def _fractions(a: bytes, i: int, end_a: int, b: bytes, j: int, end_b: int) -> int:
    """Compare from where at least one side is at its decimal point or used up."""
    if i >= end_a:
        return -_has_digit_after_zeros(b, j + 1, end_b)
    if j >= end_b:
        return _has_digit_after_zeros(a, i + 1, end_a)
    if a[i] == _POINT and b[j] == _POINT:
        return _both_fractions(a, i, end_a, b, j, end_b)
    if a[i] == _POINT:
        return _has_digit_after_zeros(a, i + 1, end_a)
    if b[j] == _POINT:
        return -_has_digit_after_zeros(b, j + 1, end_b)
    return 0


def _both_fractions(a: bytes, i: int, end_a: int, b: bytes, j: int, end_b: int) -> int:
    while i < end_a and j < end_b:
        if a[i] != b[j]:
            if _is_digit(a[i]) and _is_digit(b[j]):
                return a[i] - b[j]
            return _is_digit(a[i]) - _is_digit(b[j])
        i, j = i + 1, j + 1
    return _has_digit_after_zeros(a, i, end_a) - _has_digit_after_zeros(b, j, end_b)


def _has_digit_after_zeros(a: bytes, i: int, end: int) -> int:
    i = _skip_zeros(a, i, end)
    return int(i < end and _is_digit(a[i]))
