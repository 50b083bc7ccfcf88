"""For all length-delimited messages: every one is a line, as protobuf itself writes it in JSON."""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.streaming.formats.proto_rows import message_class
from tests.support import row_files


def descriptors() -> bytes:
    """A message with a number, a text, bytes and a list, as protoc would describe it."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="Row")
    for number, (name, kind, label) in enumerate(
        [
            ("user_id", Field.TYPE_INT64, Field.LABEL_OPTIONAL),
            ("name", Field.TYPE_STRING, Field.LABEL_OPTIONAL),
            ("raw", Field.TYPE_BYTES, Field.LABEL_OPTIONAL),
            ("tags", Field.TYPE_STRING, Field.LABEL_REPEATED),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


ROW: Any = message_class(descriptors(), "t.Row")
CONF = {
    "mapred.input.format.class": "proto:t.desc:t.Row",
    "mrstream.proto.descriptors": base64.b64encode(descriptors()).decode(),
}
_text = st.text(st.characters(codec="utf-8"), max_size=5)
_rows = st.fixed_dictionaries(
    {
        "user_id": st.integers(-(2**63), 2**63 - 1),
        "name": _text,
        "raw": st.binary(max_size=200),
        "tags": st.lists(_text, max_size=3),
    }
)


def delimited(rows: list[dict[str, Any]]) -> bytes:
    """Each message behind its length."""
    parts = []
    for row in rows:
        body = ROW(**row).SerializeToString()
        length, head = len(body), bytearray()
        while length > 0x7F:
            head.append(length & 0x7F | 0x80)
            length >>= 7
        parts += [bytes([*head, length]), body]
    return b"".join(parts)


@settings(max_examples=80, deadline=None)
@given(st.lists(_rows, max_size=8), st.booleans())
def test_every_message_is_a_line(rows: list[dict[str, Any]], is_packed: bool) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / ("f.pb.gz" if is_packed else "f.pb")
        data = delimited(rows)
        path.write_bytes(gzip.compress(data) if is_packed else data)
        found = row_files.read_json(path, "PROTO", [], CONF)
        some = row_files.read_json(path, "PROTO", [], {**CONF, "mrstream.input.columns": "name"})

    straight = [json_format.MessageToDict(ROW(**r), preserving_proto_field_name=True) for r in rows]
    assert found == straight
    assert some == [{"name": row.get("name")} for row in straight]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80))
def test_bytes_that_are_no_messages_are_one_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "damaged"
        path.write_bytes(data)
        try:
            for line in b"".join(row_files.read_pieces(path, "PROTO", [], CONF)).splitlines():
                json.loads(line)
        except Corrupt as error:
            assert "\n" not in str(error) and "damaged" in str(error)


@pytest.mark.parametrize(("data", "name"), [(b"\xff", "t.Row"), (descriptors(), "t.Other")])
def test_descriptors_that_do_not_have_the_message(data: bytes, name: str) -> None:
    with pytest.raises(UserError, match="the descriptors"):
        message_class(data, name)
