"""Outputs that a task's programs write beside the one on standard output, each under its own name.

A program writes to `$MRSTREAM_OUTPUTS/NAME`, a file or a directory on the local disk; when it has
ended well, that becomes `NAME/part-NNNNN` in the attempt's output directory, in the format that the
job gives to the name. The committer makes all files of a task visible together, or none of them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.job.counters import FRAMEWORK, REJECTED_RECORDS
from mrstream.streaming.conf.jobconf import setting_name
from mrstream.streaming.formats.codec import Codec, codec_by_class
from mrstream.streaming.formats.output_format import open_output
from mrstream.streaming.formats.writable import NULL, TEXT

COUNTERS = "Named outputs"
_COPY_BYTES = 1 << 20


class BadNamedOutput(UserError):
    """A program wrote an output that the job does not name, or that cannot be one."""


class Written(NamedTuple):
    """What became of one output."""

    bytes: int
    rejected: int = 0


def publish(attempt: Attempt) -> Mapping[str, Written]:
    """Put what the programs wrote into the attempt's output directory; return what, by name."""
    written: dict[str, Written] = {}
    with os.scandir(attempt.outputs_directory) as entries:
        for entry in sorted(entries, key=lambda entry: os.fsencode(entry.name)):
            name = entry.name
            known = attempt.conf.outputs
            if name not in known and "*" not in known:
                raise BadNamedOutput(
                    f"a program wrote the output {name!r}, and -D {setting_name('outputs')} names "
                    f"{', '.join(known)} alone"
                )
            _check(name)
            kind = known.get(name, known.get("*", ""))
            target = f"{name}/{_part(attempt)}"
            if entry.is_dir(follow_symlinks=False):
                written[name] = Written(_put_tree(attempt, entry.path, target))
            else:
                written[name] = _put_file(attempt, entry.path, target, kind)
    return written


def _part(attempt: Attempt) -> str:
    """A map of a job with reduces has files of its own kind: reduces count from 0 too."""
    number = f"{attempt.order.task_index:05d}"
    is_inner = attempt.order.is_map and attempt.spec.reduces
    return f"part-m-{number}" if is_inner else f"part-{number}"


def _check(name: str) -> None:
    if name.startswith(("_", ".", "part-")) or "\n" in name:
        raise BadNamedOutput(
            f"a program wrote the output {name!r}; a name cannot begin with _, . or part-"
        )


def _put_tree(attempt: Attempt, path: str, target: str) -> int:
    """Copy a directory, an index that was built here, as it is."""
    total = 0
    for root, directories, names in os.walk(path):
        directories.sort()
        inner = os.path.relpath(root, path)
        for name in sorted(names):
            place = name if inner == "." else f"{inner}/{name}"
            with attempt.create_output(f"{target}/{place}") as out:
                total += _copy(os.path.join(root, name), out)
    return total


def _put_file(attempt: Attempt, path: str, target: str, kind: str) -> Written:
    conf = attempt.conf.of_named_output(target.partition("/")[0], kind)
    if not kind:
        codec = codec_by_class(conf.output_codec_class) if conf.output_compress else None
        with attempt.create_output(target + (codec.suffix if codec else "")) as out:
            return Written(_copy(path, out, codec))
    writer = open_output(
        conf,
        lambda part: attempt.create_output(_place(target, part)),
        attempt.order.task_index,
        key_type=TEXT,
        value_type=NULL,
    )
    try:
        for lines in _line_blobs(path):
            writer.write(lines, kernel.count_lines(lines))
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return Written(writer.bytes_written, writer.rejected)


def _place(target: str, part: str) -> str:
    """Where a file goes that the format would call `part`: with its suffix, or among rejects."""
    directory, _, name = part.rpartition("/")
    place = target + "".join(name.partition(".")[1:])
    return f"{directory}/{place}" if directory else place


def _line_blobs(path: str) -> Iterator[bytes]:
    held = b""
    with _opened(path) as source:
        while blob := source.read(_COPY_BYTES):
            end = blob.rfind(b"\n") + 1
            if end:
                yield held + blob[:end]
                held = blob[end:]
            else:
                held += blob
    if held:
        yield held + b"\n"


def _copy(path: str, out: BinaryIO, codec: Codec | None = None) -> int:
    total = 0
    compressor = codec.compressor() if codec else None
    with _opened(path) as source:
        while blob := source.read(_COPY_BYTES):
            data = compressor.feed(blob) if compressor else blob
            out.write(data)
            total += len(data)
    if compressor:
        data = compressor.finish()
        out.write(data)
        total += len(data)
    return total


def _opened(path: str) -> BinaryIO:
    """Open a plain file; a link could lead anywhere, and a pipe would never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadNamedOutput(f"the output {path} is neither a file nor a directory")
    return open(descriptor, "rb")


def counted(
    counters: dict[str, dict[str, int]], written: Mapping[str, Written]
) -> dict[str, dict[str, int]]:
    """Return the counters of an attempt with the bytes and rejects of its named outputs."""
    if not written:
        return counters
    own = dict(counters.get(FRAMEWORK, {}))
    if rejected := sum(of.rejected for of in written.values()):
        own[REJECTED_RECORDS] = own.get(REJECTED_RECORDS, 0) + rejected
    return {**counters, FRAMEWORK: own, COUNTERS: {n: of.bytes for n, of in written.items()}}
