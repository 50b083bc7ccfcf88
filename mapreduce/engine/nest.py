"""The process beside an engine's worker that runs attempts of one job, each forked from a zygote.

An engine's worker has threads and belongs to the engine: it can neither be forked nor be the one
that a user's program is killed with. So it starts `python -m mrstream.mapreduce.engine.nest`, and
speaks with it by frames: the job first, then a task at a time, an answer for each. When standard
input ends, for whatever reason, every attempt is killed and the directory is removed.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

import msgspec

from mrstream.cluster.errors import ClusterError
from mrstream.mapreduce.attempt.attempt_report import (
    Decoder,
    Done,
    Failed,
    Message,
    Noted,
    PartitionSize,
    Said,
)
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder, Source
from mrstream.mapreduce.attempt.zygote import Zygote
from mrstream.mapreduce.dataflow import segment
from mrstream.mapreduce.engine.packet import Packet, unpack
from mrstream.mapreduce.job.job import JobSpec

SHUFFLED = "shuffled"
"""The file below an attempt's directory that holds a reduce's input: the maps' bytes in order."""
_LENGTH = struct.Struct("<Q")
_READ_BYTES = 1 << 16


class Assignment(msgspec.Struct, frozen=True):
    """An attempt to run here, its order already placed below the nest's directory."""

    order: AttemptOrder
    inputs: tuple[PartitionSize, ...] = ()


class Opened(msgspec.Struct, frozen=True):
    """The first answer: where the nest's directory is, or why it has none."""

    directory: str = ""
    problem: str = ""


class Answer(msgspec.Struct, frozen=True):
    """All that an attempt told, and how its process ended: status, or minus the signal."""

    messages: tuple[Message, ...]
    status: int


class Brought:
    """A reduce's input that the engine brought: one file, the partitions of all maps in a row."""

    def __init__(self, path: str, inputs: tuple[PartitionSize, ...], partition: int) -> None:
        self._path = path
        self._inputs = inputs
        self._partition = partition

    def gather(self) -> list[Source]:
        """Return the runs in map order."""
        sources, offset = [], 0
        for number, size in enumerate(self._inputs):
            sources.append(
                Source(
                    self._run_of(number, offset, size),
                    1,
                    size.records,
                    size.length,
                    size.raw_bytes,
                    size.hadoop_bytes,
                )
            )
            offset += size.length
        return sources

    def progress(self) -> tuple[float, int, int]:
        """All is here from the start."""
        records = sum(size.records for size in self._inputs)
        return 1.0, records, sum(size.length for size in self._inputs)

    def _run_of(
        self, number: int, offset: int, size: PartitionSize
    ) -> Callable[[], Iterator[bytes | memoryview]]:
        def run() -> Iterator[bytes | memoryview]:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(offset)
                yield from segment.blocks_of(
                    file.read, size.length, self._partition, size.records, f"of map {number}"
                )

        return run


def write_frame(stream: BinaryIO, data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """Read one frame; None at the end of the stream."""
    head = read_exactly(stream, _LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = read_exactly(stream, length)
    return data if len(data) == length else None


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes of a raw stream, fewer only at its end. (Behind a buffer `poll` would not
    see what has come.)"""
    parts = []
    while size > 0 and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def main() -> int:
    """Serve the worker that started us until it is gone."""
    # Engines block signals in their workers; users' programs shall not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    zygote = Zygote(_attempt_process, _load)
    try:
        return _serve(zygote)
    finally:
        zygote.close()


def _serve(zygote: Zygote) -> int:
    orders = cast(BinaryIO, open(0, "rb", buffering=0, closefd=False))  # noqa: SIM115 - for ever
    answers = sys.stdout.buffer
    data = read_frame(orders)
    if data is None:
        return 0
    packet = msgspec.msgpack.decode(data, type=Packet)
    try:
        directory = _directory(packet.spec)
        zygote.remove_at_end(directory)
        spec = unpack(packet, directory)
    except (OSError, tarfile.TarError, ClusterError) as error:
        write_frame(answers, msgspec.msgpack.encode(Opened(problem=f"{error}")))
        return 1
    del data, packet
    write_frame(answers, msgspec.msgpack.encode(Opened(directory)))
    while (data := read_frame(orders)) is not None:
        task = msgspec.msgpack.decode(data, type=Assignment)
        answer = _run(zygote, spec, task)
        if answer is None:
            break
        write_frame(answers, msgspec.msgpack.encode(answer))
    return 0


def _directory(spec: JobSpec) -> str:
    """Make the directory of this nest, where the job wants it or where temporary files go."""
    parent = (spec.conf().local_dir or "").partition(",")[0].strip() or None
    if parent:
        os.makedirs(parent, exist_ok=True)
    return tempfile.mkdtemp(prefix=f"mrstream-{spec.job_id}-", dir=parent)


def _run(zygote: Zygote, spec: JobSpec, task: Assignment) -> Answer | None:
    """Run one attempt; None if the worker is gone meanwhile."""
    paper = msgspec.msgpack.encode((spec, task))
    _, report = zygote.start(paper, task.order.attempt_id)
    decoder = Decoder()
    messages: list[Message] = []
    poll = select.poll()
    for descriptor in (0, report, zygote.fileno()):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    try:
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if 0 in ready:  # nothing is sent before an answer: it is the end
                return None
            if report in ready:
                data = os.read(report, _READ_BYTES)
                messages += _worth_telling(decoder.feed(data))
                if not data:
                    poll.unregister(report)
            elif zygote.fileno() in ready:
                ended = zygote.ended()
                while data := os.read(report, _READ_BYTES):
                    messages += _worth_telling(decoder.feed(data))
                return Answer(tuple(messages), ended.status)
    finally:
        os.close(report)


def _worth_telling(messages: Iterator[Message]) -> list[Message]:
    return [message for message in messages if isinstance(message, Done | Failed | Noted | Said)]


def _load() -> None:
    """Load what every attempt needs, once, in the zygote."""
    import mrstream.mapreduce.attempt.attempt  # noqa: F401 - attempts are forked with it in place


def _attempt_process(paper: bytes, report: int, lifeline: int) -> int:
    """Be an attempt: what it shall do stands on the paper."""
    from mrstream.mapreduce.attempt import attempt

    spec, task = msgspec.msgpack.decode(paper, type=tuple[JobSpec, Assignment])
    return attempt.run(spec, task.order, report, lifeline, lambda made: _prepare(made, task))


def _prepare(attempt: Attempt, task: Assignment) -> None:
    order = task.order
    if order.output_directory:
        attempt.files.mkdirs(order.output_directory)
    if not order.is_map:
        path = os.path.join(order.directory, SHUFFLED)
        attempt.shuffle = Brought(path, task.inputs, order.task_index)


if __name__ == "__main__":
    sys.exit(main())
