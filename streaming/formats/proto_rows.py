"""Length-delimited protocol buffers as lines: a varint with the length, then the message, again and
again, as `writeDelimitedTo` writes them.

The messages are described by a file that `protoc --descriptor_set_out --include_imports` made.
There is nothing in the data to begin at, so it is never cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from mrstream.streaming.formats.codec import codec_by_suffix
from mrstream.streaming.formats.row_dicts import line_writer
from mrstream.streaming.formats.row_file import (
    BadRowSetting,
    RecordFileCorrupt,
    Source,
    WholeReads,
    decoded,
    gathered_lines,
)

MESSAGE_BYTES_MAX = 1 << 30
_READ_BYTES = 1 << 18


def message_class(descriptors: bytes, name: str) -> Any:
    """Give the class of a message, out of a set of descriptors."""
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
        self._at = 0
        names = [field.name for field in message.DESCRIPTOR.fields]
        self._write = line_writer(self._url, names, columns, (), form)

    def lines(self) -> Iterator[bytes]:
        """Give blobs of whole lines."""
        return gathered_lines(self._lines())

    def position(self) -> int:
        """Behind the last message, in the plain bytes."""
        return self._at

    def _lines(self) -> Iterator[bytes]:
        for body in self._bodies():
            message = decoded(
                f"{self._url}: the message at byte {self._at}",
                lambda body=body: self._message.FromString(body),  # type: ignore[misc]
            )
            record = json_format.MessageToDict(message, preserving_proto_field_name=True)
            line = self._write(record)
            if line is not None:
                self.records += 1
                yield line

    def _bodies(self) -> Iterator[bytes]:
        held = bytearray()
        for blob in self._blobs():
            held += blob
            start = 0
            while (found := self._length(held, start)) is not None:
                body, length = found
                if len(held) < body + length:
                    break
                yield bytes(held[body : body + length])
                self._at += body + length - start
                start = body + length
            del held[:start]
        if held:
            raise RecordFileCorrupt(
                f"{self._url}: the message at byte {self._at} is cut off after {len(held)} bytes"
            )

    def _length(self, held: bytearray, start: int) -> tuple[int, int] | None:
        """Give where the body begins and its length; None: not all of that is there."""
        value = 0
        for place in range(10):
            if start + place >= len(held):
                return None
            byte = held[start + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80 and value <= MESSAGE_BYTES_MAX:
                return start + place + 1, value
            if byte < 0x80:
                break
        raise RecordFileCorrupt(f"{self._url}: at byte {self._at} stands no length of a message")

    def _blobs(self) -> Iterator[bytes]:
        blobs = iter(lambda: self._file.read(_READ_BYTES), b"")
        codec = codec_by_suffix(self._url)
        return blobs if codec is None else codec.decompressed(blobs, self._url)
