"""For all bytes and all files: frames, handshakes and cluster files fail in words or not at all."""

from __future__ import annotations

import contextlib
import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.cluster.config.reader import read_config
from mrstream.cluster.errors import BadConfig, ClusterError
from mrstream.cluster.journal.format import decode_record, encode_record, good_records_after
from mrstream.cluster.units import expand_range
from mrstream.cluster.wire.frames import FrameDecoder, Kind, encode_frame
from mrstream.cluster.wire.handshake import ServerHandshake
from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.messages import ErrorReply, pack, unpack
from tests.support.examples import examples

MARKER = b"mark"


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2**64 - 1), st.binary())), st.data())
def test_frames_survive_any_cutting(
    frames: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(bytes(encode_frame(*frame)) for frame in frames)
    decoder, got, at = FrameDecoder(1 << 20), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, 40))
        got += decoder.feed(stream[at : at + step])
        at += step

    assert [(k, n, msgspec.msgpack.decode(b)) for k, n, b in got] == frames
    assert decoder.held_bytes == 0


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_noise_is_refused_or_waited_for_but_never_stored_beyond_the_limit(
    pieces: list[bytes],
) -> None:
    decoder = FrameDecoder(64)
    with contextlib.suppress(ClusterError):
        for piece in pieces:
            decoder.feed(piece)
            assert decoder.held_bytes <= 64 + 13 + 200


@given(st.binary(max_size=300), st.integers(1, 5))
def test_a_handshake_takes_any_body_without_anything_but_a_refusal(body: bytes, kind: int) -> None:
    server = ServerHandshake(Identity("c", b"k" * 32, "dfs.master", "h"))
    with contextlib.suppress(ClusterError):
        server.feed((Kind(kind), 0, body))
    assert not server.done


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1), st.binary(max_size=50), st.data())
def test_records_are_found_again_after_any_damage(
    payloads: list[bytes], noise: bytes, data: st.DataObject
) -> None:
    """A damaged record does not hide those after it, and is never taken for a good one."""
    records = [encode_record(MARKER, n, 0, p) for n, p in enumerate(payloads, 1)]
    hurt = data.draw(st.integers(0, len(records) - 1))
    at = data.draw(st.integers(0, len(records[hurt]) - 1))
    damaged = bytearray(records[hurt])
    damaged[at] ^= data.draw(st.integers(1, 255))
    stream = b"".join([*records[:hurt], bytes(damaged), *records[hurt + 1 :], noise])
    start = sum(map(len, records[:hurt]))

    assert decode_record(stream, start, MARKER) is None
    found = [record.sequence for record in good_records_after(stream, start, MARKER)]
    assert found == list(range(hurt + 2, len(records) + 1))


@given(
    st.text(),
    st.dictionaries(st.text(), st.integers(-(2**63), 2**64 - 1) | st.text() | st.lists(st.text())),
)
def test_errors_cross_the_wire_whatever_they_say(text: str, details: dict[str, object]) -> None:
    sent = ClusterError(text)
    sent.details = details

    got = unpack(pack(ErrorReply.of(sent)), ErrorReply).error()

    assert (str(got), got.details) == (text, details)


_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
_words = """name master install python tls ports defaults hosts dfs mapreduce base address via
    disks slots chunk_size replication reserve h1 n[1-3] n[3-1] n[1-99999999]
    cells path number /a /a/b lock session gateway port masters failover_after backup to guard"""
_keys = st.sampled_from(_words.split()) | st.text(max_size=8)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=examples(100))
@given(st.dictionaries(_keys, _values, max_size=6))
def test_any_cluster_file_is_understood_or_refused_line_by_line(
    document: dict[str, object],
) -> None:

    try:
        config = read_config(json.dumps(document), "c.yaml")
    except BadConfig as error:
        assert all(line.startswith("c.yaml") for line in str(error).splitlines())
    else:
        assert config.hosts and config.host(config.master)


_cells = st.dictionaries(
    st.sampled_from(["a", "b", "A-1", "", "a.b", "@"]) | st.text(max_size=3),
    st.dictionaries(
        st.sampled_from(["path", "number", "paht"]),
        _scalars | st.sampled_from(["/a", "/b", "/a/", "/", "/a/b", "/..", "/\x1b", "a", "1", "8"]),
        max_size=2,
    )
    | _values,
    max_size=10,
)


@settings(max_examples=examples(100))
@given(_cells)
def test_any_cells_are_mounted_each_for_itself_or_refused_line_by_line(
    document: dict[str, object],
) -> None:
    whole = {"name": "x", "hosts": {"h1": {}}, "dfs": {"cells": document}}
    try:
        cells = read_config(json.dumps(whole), "c.yaml").dfs.cells
    except BadConfig as error:
        assert all(line.startswith("c.yaml") for line in str(error).splitlines())
        return
    assert len({cell.path for cell in cells}) == len({cell.number for cell in cells}) == len(cells)
    assert all(cell.path.count("/") == 1 and cell.path.isprintable() for cell in cells)


@given(st.text(max_size=60))
def test_any_text_as_a_cluster_file_is_refused_in_words(text: str) -> None:
    try:
        config = read_config(text, "c.yaml")
    except BadConfig as error:
        assert str(error).startswith("c.yaml")
    else:
        assert config.name and config.hosts


@given(st.text(alphabet="ab[]-0123456789", max_size=12))
def test_a_range_expands_to_distinct_names_or_says_why_not(text: str) -> None:
    with contextlib.suppress(ValueError):
        names = expand_range(text)
        assert len(set(names)) == len(names) >= 1
