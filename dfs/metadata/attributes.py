"""Attributes of files and directories: a few names with bytes each, packed, of those that have any.

What they mean is known to whoever sets them. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mrstream.dfs.errors import BadRequest

NAMES_MAX = 16
NAME_BYTES_MAX = 255
PACKED_BYTES_MAX = 4096

_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode
_encode = msgspec.msgpack.Encoder(order="sorted").encode


def pack_attributes(values: Mapping[str, bytes]) -> bytes:
    """Return them as they are kept: nothing for none."""
    return _encode(dict(values)) if values else b""


def unpack_attributes(packed: bytes | None) -> dict[str, bytes]:
    return _decode(packed) if packed else {}


def changed_attributes(packed: bytes | None, changed: Mapping[str, bytes | None]) -> bytes:
    """Return what they are after a change; None takes a name away."""
    values = unpack_attributes(packed)
    for name, value in changed.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return pack_attributes(values)


def check_attributes(path: str, packed: bytes) -> None:
    """Refuse what would be too many, too long or without a name."""
    values = unpack_attributes(packed)
    for name in values:
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX or "\0" in name:
            raise BadRequest(
                f"{path}: attribute {name[:40]!r} cannot be; a name has 1 to {NAME_BYTES_MAX} "
                "bytes, none of them NUL"
            )
    if len(values) > NAMES_MAX:
        raise BadRequest(f"{path}: {len(values)} attributes; at most {NAMES_MAX}")
    if len(packed) > PACKED_BYTES_MAX:
        raise BadRequest(
            f"{path}: attributes of {len(packed)} bytes in all; at most {PACKED_BYTES_MAX}"
        )
