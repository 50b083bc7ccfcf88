"""Used by `twin`: one record at a time, as frames, on the wire, and as Hadoop counts it.

Pure functions of bytes; each has its namesake in the C kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mrstream.mapreduce.dataflow.record_form import Cut, Serial, Side, WireForm
from mrstream.streaming.java.java_text import clean_text

FRAME_HEADER_BYTES_MAX = 10  # two lengths below 2**32
TYPED_DEPTH_MAX = 1024
LENGTH_MAX = (1 << 31) - 1

Found = tuple[bytes, bytes, int]
"""Key, value, and where the next record starts."""


def varint(number: int) -> bytes:
    """Return seven bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def frame(key: bytes, value: bytes) -> bytes:
    """Return a record as it lies in a segment's block."""
    return varint(len(key)) + varint(len(value)) + key + value


def encode_records(records: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the frames of records, one behind the other."""
    return b"".join([frame(key, value) for key, value in records])


def decode_records(block: bytes | memoryview) -> list[tuple[bytes, bytes]]:
    """Return the records of a block of frames; ValueError if it does not end at a record."""
    block = bytes(block)
    records = []
    at = 0
    while at < len(block):
        found = cut_frame(block, at)
        if found is None:
            raise ValueError(f"a block of {len(block)} bytes ends inside the record at {at}")
        key, value, at = found
        records.append((key, value))
    return records


def vint_bytes(number: int) -> int:
    """Return how many bytes Hadoop writes for a length."""
    return 1 if number <= 127 else 1 + (number.bit_length() + 7) // 8


def serial_bytes(length: int, serial: Serial) -> int:
    """Return how many bytes Hadoop writes for one side of a record (spec 8.1)."""
    match serial:
        case Serial.TEXT:
            return vint_bytes(length) + length
        case Serial.BYTES:
            return 4 + length
        case Serial.NULL:
            return 0
        case Serial.LONG:
            return 8


def stored_bytes(key_bytes: int, value_bytes: int) -> int:
    """Return what Hadoop stores for a record of these serial sizes: two lengths more."""
    return key_bytes + value_bytes + vint_bytes(key_bytes) + vint_bytes(value_bytes)


# --- records towards a command


def write_side(data: bytes, side: Side) -> bytes:
    """Return one side of a record as a command reads it."""
    match side:
        case Side.PLAIN:
            return data
        case Side.NOTHING:
            return b""
        case Side.SIZED:
            return _int32(len(data)) + data
        case Side.SIZED_TEXT:
            text = hadoop_vint(len(data)) + data
            return _int32(len(text)) + text
        case Side.TYPED_STRING:
            text = clean_text(data)
            return b"\7" + _int32(len(text)) + text
        case Side.TYPED_BYTES:
            return b"\0" + _int32(len(data)) + data
        case Side.TYPED_LONG:
            return b"\4" + data
        case Side.DECIMAL:
            return b"%d" % int.from_bytes(data, "big", signed=True)


def write_record(key: bytes, value: bytes, form: WireForm) -> bytes:
    """Return a record as its reader wants it."""
    if form.framed:
        return frame(key, value)
    return write_side(key, form.key) + form.separator + write_side(value, form.value) + form.end


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def hadoop_vint(number: int) -> bytes:
    """Return a length as Hadoop writes it: small ones as they are, others behind their size."""
    if number <= 127:
        return bytes((number,))
    size = (number.bit_length() + 7) // 8
    return bytes((256 - 112 - size,)) + number.to_bytes(size, "big")


# --- records from a command: None where more bytes are needed


def cut_frame(data: bytes, at: int) -> Found | None:
    lengths = []
    for _ in range(2):
        number = shift = 0
        while True:
            if at >= len(data):
                return None
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise ValueError("a frame has a length of more than 35 bits")
        if number > LENGTH_MAX:
            raise ValueError(f"a frame has a length of {number}; at most {LENGTH_MAX} is allowed")
        lengths.append(number)
    middle, end = at + lengths[0], at + lengths[0] + lengths[1]
    return None if end > len(data) else (data[at:middle], data[middle:end], end)


def cut_raw(data: bytes, at: int) -> Found | None:
    """Return the rawbytes record at `at`."""
    sides = []
    for _ in range(2):
        if at + 4 > len(data):
            return None
        length = _length(data, at, "raw bytes")
        at += 4
        sides.append(data[at : at + length])
        at += length
        if at > len(data):
            return None
    return sides[0], sides[1], at


def cut_typed(data: bytes, at: int) -> Found | None:
    """Return the pair of typed objects at `at`."""
    middle = typed_end(data, at)
    if middle is None:
        return None
    end = typed_end(data, middle)
    return None if end is None else (data[at:middle], data[middle:end], end)


_FIXED_BYTES = {1: 1, 2: 1, 3: 4, 4: 8, 5: 4, 6: 8}
_LIST = -1
_LIST_END = 255


def typed_end(data: bytes, at: int) -> int | None:
    """Return where the typed object at `at` ends (spec 9)."""
    open_counts = [1]  # objects still to come, innermost last; _LIST where a mark ends them
    while open_counts:
        if open_counts[-1] == 0:
            open_counts.pop()
            continue
        if at >= len(data):
            return None
        kind = data[at]
        at += 1
        if kind == _LIST_END and open_counts[-1] == _LIST:
            open_counts.pop()
            continue
        if open_counts[-1] != _LIST:
            open_counts[-1] -= 1
        if kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
            if at > len(data):
                return None
        elif kind == 9:
            open_counts.append(_LIST)
        elif kind in (0, 7, 8, 10) or 50 <= kind <= 200:
            if at + 4 > len(data):
                return None
            length = _length(data, at, "typed bytes")
            at += 4
            if kind == 8:
                open_counts.append(length)
            elif kind == 10:
                open_counts.append(2 * length)
            else:
                at += length
                if at > len(data):
                    return None
        else:
            raise ValueError(f"typed bytes: unknown type {kind}")
        if len(open_counts) > TYPED_DEPTH_MAX:
            raise ValueError(f"typed bytes: nested deeper than {TYPED_DEPTH_MAX}")
    return at


def _length(data: bytes, at: int, what: str) -> int:
    length = int.from_bytes(data[at : at + 4], "big", signed=True)
    if length < 0:
        raise ValueError(f"{what}: a length of {length}")
    return length


BINARY_CUTS: dict[Cut, Callable[[bytes, int], Found | None]] = {
    Cut.RAW_BYTES: cut_raw,
    Cut.TYPED_BYTES: cut_typed,
    Cut.FRAMED: cut_frame,
}
