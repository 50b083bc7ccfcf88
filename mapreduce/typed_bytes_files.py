"""`dumptb` and `loadtb`: files to typed bytes and back, without a job (spec 9).

Given the file system and the streams to use; never touches stdin or stdout itself.
"""

from __future__ import annotations

from typing import BinaryIO, ClassVar

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.dataflow.input_paths import InvalidInput, glob, is_hidden
from mrstream.mapreduce.dataflow.split_plan import Piece, Split
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.sequence_file import sequence_file_writer
from mrstream.streaming.formats.typed_bytes import read_pairs
from mrstream.streaming.formats.writable import TYPED_BYTES

WRITE_BYTES = 1024 * 1024


class PathExists(UserError, FileExistsError):
    """`loadtb` never writes over anything; Java's exit(-1) is 255."""

    exit_status: ClassVar[int] = 255


def dumptb(pattern: str, files: Files, output: BinaryIO) -> None:
    """Write the records of the first path that matches, a file or the files of a directory."""
    matched = glob(files.qualify(pattern), files)
    if not matched:
        raise InvalidInput(f"No matching paths: {files.qualify(pattern)}")
    first = matched[0]
    listed = files.list(first.url) if first.is_directory else [first]
    conf = JobConf({setting_name("map_input_identifier"): "typedbytes"})
    for status in listed:
        if status.is_directory or (first.is_directory and is_hidden(status.name)):
            continue
        piece = Piece(status.url, 0, status.length)
        reader = SplitReader(Split(0, InputFormat.AUTO.name, (piece,)), conf, files)
        for blob in reader:
            output.write(blob)
    output.flush()


def loadtb(path: str, files: Files, source: BinaryIO) -> int:
    """Write the pairs of `source` to a new sequence file of TypedBytesWritable; return their
    number.

    The file gets its name only when it is complete.
    """
    url = files.qualify(path)
    if files.exists(url):
        raise PathExists("given path exists already!")
    unfinished = f"{url}._COPYING_"
    count = 0
    try:
        with files.create(unfinished) as file:
            held = bytearray()
            writer = sequence_file_writer(held.extend, TYPED_BYTES, TYPED_BYTES)
            for key, value in read_pairs(source):
                writer.append(key, value)
                count += 1
                if len(held) >= WRITE_BYTES:
                    file.write(bytes(held))
                    held.clear()
            writer.close()
            file.write(bytes(held))
        files.rename(unfinished, url)
    except BaseException:
        files.delete(unfinished)
        raise
    return count
