"""Length-delimited protocol buffers as lines: a varint with the length, then the message, again and
again, as `writeDelimitedTo` writes them.

The messages are described by a file that `protoc --descriptor_set_out --include_imports` made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from mrstream.streaming.formats.codec import codec_by_suffix
from mrstream.streaming.formats.delimited import DelimitedRecords
from mrstream.streaming.formats.row_dicts import line_writer
from mrstream.streaming.formats.row_file import (
    BadRowSetting,
    Source,
    WholeReads,
    decoded,
)
from mrstream.streaming.formats.text_lines import gathered

_READ_BYTES = 1 << 18


def message_class(descriptors: bytes, name: str) -> Any:
    """Return the class of a message, out of a set of descriptors."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise BadRowSetting(
            f"the descriptors have no message {name!r}; give its full name"
        ) from None
    except Exception as error:  # what protobuf raises over a file that is none has many classes
        raise BadRowSetting(f"the descriptors cannot be read: {error}") from None


class ProtoRows:
    """All messages of a file."""

    def __init__(
        self, source: Source, message: Any, *, columns: Sequence[str] = (), form: str = "json"
    ) -> None:
        self.records = 0
        self._url = source.url
        self._file = WholeReads(source)
        self._message = message
        self._bodies = DelimitedRecords(self._blobs(), self._url)
        names = [field.name for field in message.DESCRIPTOR.fields]
        self._write = line_writer(self._url, names, columns, (), form)

    def lines(self) -> Iterator[bytes]:
        return gathered(self._lines())

    @property
    def position(self) -> int:
        """Where the last message begins, in the plain bytes."""
        return self._bodies.position

    def _lines(self) -> Iterator[bytes]:
        for body in self._bodies:
            message = decoded(
                f"{self._url}: the message at byte {self._bodies.position}",
                lambda body=body: self._message.FromString(body),  # type: ignore[misc]
            )
            record = json_format.MessageToDict(message, preserving_proto_field_name=True)
            line = self._write(record)
            if line is not None:
                self.records += 1
                yield line

    def _blobs(self) -> Iterator[bytes]:
        blobs = iter(lambda: self._file.read(_READ_BYTES), b"")
        codec = codec_by_suffix(self._url)
        return blobs if codec is None else codec.decompressed(blobs, self._url)
