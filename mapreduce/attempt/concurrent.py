"""Several copies of a map command over one split, for programs that wait more than they work.

The lines of the split are dealt to the copies in small blocks, in turn, and to a copy that is slow
less often; what they write is taken as it comes, whole lines at a time. So the order of lines
within a map is not kept. The first copy that fails fails the map.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from mrstream.mapreduce.attempt.final_output import WholeLines
from mrstream.mapreduce.program.command import Command
from mrstream.mapreduce.program.ending import ExitRule
from mrstream.mapreduce.program.pump import Blob

# Small, since a list of addresses is short: each copy shall have its share of it.
BLOCK_BYTES = 2048
BLOCKS_HELD_MAX = 64


def run_copies(
    commands: list[Command],
    source: Iterable[Blob],
    collect: Callable[[memoryview], None],
    rule: ExitRule,
    records_written: Callable[[], int],
) -> None:
    """Feed the copies and collect what they write; raises what the first of them raises."""
    dealer = Dealer(blocks_of(source), len(commands))
    gate = threading.Lock()
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(index: int) -> None:
        lines = WholeLines()

        def take(data: bytes) -> None:
            with gate:
                if dealer.is_stopped:
                    raise Stopped("another copy has failed")
                if data:
                    collect(memoryview(data))

        try:
            commands[index].run(
                dealer.blocks(index), lambda data: take(lines.feed(data)), rule, records_written
            )
            take(lines.finish())
        except BaseException as error:
            ends.put(error)
        else:
            ends.put(None)

    for index in range(len(commands)):
        threading.Thread(target=run, args=(index,), name=f"copy-{index}", daemon=True).start()
    for _ in commands:
        error = ends.get()
        if error is not None:
            # The others get no more input, and end with the attempt at the latest.
            with gate:
                dealer.stop()
            raise error


class Stopped(Exception):
    """What a copy wrote is no longer wanted."""


class Dealer:
    """Deals blocks to copies in turn; a copy whose hands are full is passed over."""

    def __init__(self, blocks: Iterator[bytes], copies: int) -> None:
        self._blocks = blocks
        self._hands: list[deque[bytes]] = [deque() for _ in range(copies)]
        self._turn = 0
        self._lock = threading.Lock()
        self.is_stopped = False

    def blocks(self, index: int) -> Iterator[bytes]:
        """Yield the blocks of one copy, until there are no more."""
        while True:
            with self._lock:
                if not self.is_stopped and not self._hands[index]:
                    self._deal(index)
                if self.is_stopped or not self._hands[index]:
                    return
                block = self._hands[index].popleft()
            yield block

    def stop(self) -> None:
        """Give no more to anyone."""
        self.is_stopped = True

    def _deal(self, index: int) -> None:
        """Deal until this copy has a block, or nothing is left."""
        while not self._hands[index]:
            block = next(self._blocks, None)
            if block is None:
                return
            while len(self._hands[self._turn]) >= BLOCKS_HELD_MAX:
                self._turn = (self._turn + 1) % len(self._hands)
            self._hands[self._turn].append(block)
            self._turn = (self._turn + 1) % len(self._hands)


def blocks_of(source: Iterable[Blob]) -> Iterator[bytes]:
    """Cut a stream into blocks of whole lines, small ones where lines are."""
    lines = WholeLines()
    for blob in source:
        yield from _cut(lines.feed(memoryview(blob)))
    yield from _cut(lines.finish())


def _cut(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        end = text.find(b"\n", min(start + BLOCK_BYTES, len(text)) - 1) + 1
        # A block is full at the last line end before its size, if there is one.
        before = text.rfind(b"\n", start, start + BLOCK_BYTES) + 1
        end = before if before > start else end
        yield text[start:end]
        start = end
