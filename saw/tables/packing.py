"""What begins every packed state, and the numbers inside: `version u8 | kind u8 | body`.

The format is described in docs/formats/saw-shards.md.
"""

from __future__ import annotations

from mrstream.cluster.errors import Corrupt, NewerFormat

VERSION = 1
KIND_NUMBERS = {
    "sum": 1,
    "collection": 2,
    "set": 3,
    "maximum": 4,
    "minimum": 5,
    "sample": 6,
    "weightedsample": 7,
    "quantile": 8,
    "top": 9,
    "unique": 10,
    "text": 11,
    "mrcounter": 12,
}
"""The second byte of a packed state; a number is never used again for another kind."""
NUMBER_BYTES_MAX = 10


class StateCorrupt(Corrupt):
    """Packed bytes that no table of this version wrote."""


def header(kind: str) -> bytes:
    """Return the first two bytes of a packed state of this kind."""
    return bytes((VERSION, KIND_NUMBERS[kind]))


def body(kind: str, packed: bytes) -> bytes:
    """Return what stands behind the header; refuse other versions and other kinds."""
    if len(packed) < 2:
        raise StateCorrupt(f"a packed {kind} has {len(packed)} bytes; it begins with two")
    if packed[0] != VERSION:
        raise NewerFormat(
            f"a packed {kind} is of version {packed[0]}, and this mrstream reads version {VERSION}"
        )
    if packed[1] != KIND_NUMBERS[kind]:
        raise StateCorrupt(f"a packed state is of kind {packed[1]}, not a {kind}")
    return packed[2:]


def put_number(value: int) -> bytes:
    """Return a number of 0 or more: seven bits a byte, low ones first, the top bit says "more"."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def take_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    value = 0
    for index in range(NUMBER_BYTES_MAX):
        if at + index >= len(data):
            raise StateCorrupt(f"a number at byte {at} is cut off")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise StateCorrupt(f"a number at byte {at} has more than {NUMBER_BYTES_MAX} bytes")


def at_end(kind: str, data: bytes, at: int) -> None:
    """Refuse bytes behind the last value."""
    if at != len(data):
        raise StateCorrupt(f"a packed {kind} has {len(data) - at} bytes too many")
