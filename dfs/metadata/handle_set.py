"""A set of chunk handles as bit masks: an eighth of a byte each where handles are dense.

Iterates in handle order, so that whoever goes by it is deterministic. Never does any IO.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrstream.dfs.chunk import ChunkHandle

MASK_BITS = 10


class HandleSet:
    __slots__ = ("_masks",)

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}

    def copy(self) -> HandleSet:
        twin = HandleSet()
        twin._masks = self._masks.copy()
        return twin

    def add(self, handle: ChunkHandle) -> None:
        masks, number = self._masks, handle >> MASK_BITS
        masks[number] = masks.get(number, 0) | 1 << (handle & 1023)

    def discard(self, handle: ChunkHandle) -> None:
        number = handle >> MASK_BITS
        mask = self._masks.get(number)
        if mask is not None:
            mask &= ~(1 << (handle & 1023))
            if mask:
                self._masks[number] = mask
            else:
                del self._masks[number]

    def __contains__(self, handle: ChunkHandle) -> bool:
        mask = self._masks.get(handle >> MASK_BITS)
        return mask is not None and bool(mask >> (handle & 1023) & 1)

    def __len__(self) -> int:
        return sum(mask.bit_count() for mask in self._masks.values())

    def __bool__(self) -> bool:
        return bool(self._masks)

    def __iter__(self) -> Iterator[ChunkHandle]:
        for number in sorted(self._masks):
            yield from _bits(number, self._masks[number])

    def take(self, count: int) -> list[ChunkHandle]:
        """Remove and return about `count` handles (a whole mask at a time), lowest first."""
        taken: list[ChunkHandle] = []
        for number in sorted(self._masks):
            if len(taken) >= count:
                break
            taken += _bits(number, self._masks.pop(number))
        return taken


def _bits(number: int, mask: int) -> Iterator[ChunkHandle]:
    base = number << MASK_BITS
    while mask:
        low = mask & -mask
        yield ChunkHandle(base | low.bit_length() - 1)
        mask ^= low
