"""What the version before wrote: its image and its log, kept in `format1/`, still load."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mrstream.dfs import protocol as p
from mrstream.dfs.metadata.image import load_image, pack_image
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from mrstream.dfs.oplog import decode_record
from tests.support.dfs_model import CHUNK, Model

HERE = Path(__file__).with_name("format1")
FACTS: dict[str, Any] = json.loads((HERE / "facts.json").read_text())


def packed(name: str) -> bytes:
    return zlib.decompress((HERE / f"{name}.z").read_bytes())


def log() -> list[bytes]:
    return msgspec.msgpack.decode(packed("log"), type=list[bytes])


def from_log() -> Metadata:
    brain = Metadata(Settings(chunk_bytes=CHUNK), random.Random(1))
    for payload in log():
        brain.apply(decode_record(payload))
    return brain


def from_image() -> Metadata:
    brain = Metadata(Settings(chunk_bytes=CHUNK), random.Random(1))
    load_image(brain, [packed("image")])
    return brain


@pytest.mark.parametrize("load", [from_log, from_image])
def test_everything_is_as_it_was_when_the_older_version_wrote_it(load: Any) -> None:
    brain: Metadata = load()
    brain.check_invariants(everything=True)

    found = [
        [s.path, s.is_directory, s.length_bytes, s.replication, s.chunk_bytes, s.modified_at_s,
         s.accessed_at_s, s.owner, s.group, s.mode, s.file_id, s.chunk_count, s.is_open]
        for s in brain.query(p.FindTree("/", limit=1000), 1.0).entries
    ]  # fmt: skip
    trash = [[t.hidden_path, t.original_path] for t in brain.query(p.ListTrash(), 1.0)]
    chunks = {
        path: list(brain.space.nodes.chunks(brain.space.row(path))) for path in FACTS["chunks"]
    }

    assert found == FACTS["files"]
    assert trash == FACTS["trash"]
    assert chunks == FACTS["chunks"]


def test_an_old_image_that_is_written_anew_has_the_new_format_and_the_same_contents() -> None:
    brain = from_image()

    image = b"".join(pack_image(brain))
    again = Metadata(Settings(), random.Random(1))
    load_image(again, [image])

    assert msgspec.msgpack.decode(image[16:17]) == 2
    assert b"".join(pack_image(again)) == image


@pytest.mark.parametrize("load", [from_log, from_image])
def test_a_request_that_the_older_version_carried_out_is_not_carried_out_again(load: Any) -> None:
    """Number 2 of client 77 was `Delete("/gone")`; the update came before its repeat."""
    model = Model(servers=0)
    model.lead(load())

    hidden = model.call(p.Delete("/gone", "me", recursive=True), (77, 2))

    assert hidden == FACTS["trash"][0][0]
