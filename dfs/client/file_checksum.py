"""The checksum of a whole file: CRC32C of its bytes, put together from those of its blocks.

It does not depend on how the file is cut into chunks and blocks, so it can be compared with that
of a copy anywhere (Hadoop calls it COMPOSITE-CRC32C). Chunkservers verify blocks as they answer.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from mrstream.cluster.errors import Corrupt, Unavailable
from mrstream.dfs.chunk import BLOCK_BYTES
from mrstream.dfs.client.topology import nearest_first
from mrstream.dfs.errors import NoReplica
from mrstream.dfs.protocol import ChecksumChunk, LocatedChunk

if TYPE_CHECKING:
    from mrstream.dfs.client.client import DfsClient

_POLYNOMIAL = 0x82F63B78
_BITS = 32


def composite_crc(client: DfsClient, path: str) -> int:
    """Return the CRC32C of a file's bytes."""
    total = 0
    for chunk in client.chunks(path):
        left = chunk.length_bytes
        for (crc,) in struct.iter_unpack("<I", block_crcs(client, path, chunk)):
            size = min(left, BLOCK_BYTES)
            total = combine(total, crc, size)
            left -= size
    return total


def block_crcs(client: DfsClient, path: str, chunk: LocatedChunk) -> bytes:
    """The checksums of a chunk's blocks, from the nearest replica that can tell."""
    last_error: Unavailable | Corrupt | None = None
    for server in nearest_first(client.place, chunk.replicas, client.chance):
        request = ChecksumChunk(chunk.handle, chunk.version, chunk.length_bytes)
        try:
            reply = client.pool.call(client.pool.address_of(server), request)
        except (Unavailable, Corrupt) as error:
            last_error = error
        else:
            packed: bytes = reply.packed
            return packed
    raise NoReplica(f"{path}: chunk {chunk.index} cannot be summed up: {last_error}")


def combine(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two runs of bytes, one after the other, from those of each."""
    return _times(_zeros_operator(second_bytes), first) ^ second


@cache
def _zeros_operator(size: int) -> tuple[int, ...]:
    """The matrix over GF(2) that takes a CRC over `size` zero bytes."""
    power = (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))  # one zero bit
    for _ in range(3):
        power = _square(power)  # one zero byte
    operator = tuple(1 << bit for bit in range(_BITS))
    while size:
        if size & 1:
            operator = tuple(_times(power, column) for column in operator)
        power = _square(power)
        size >>= 1
    return operator


def _times(matrix: tuple[int, ...], vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
        if not vector:
            break
    return total


def _square(matrix: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_times(matrix, column) for column in matrix)
