"""The course's protocol: whatever bytes come, whatever lines lie in files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mrstream.mapreduce.p4.brain.messages import (
    AnyStatus,
    BadMessage,
    NewMasterJob,
    decode_heartbeat,
    decode_to_master,
    decode_to_worker,
    encode,
)
from mrstream.mapreduce.p4.grouping import cut_files, deal_files, sort_files
from mrstream.mapreduce.p4.output_file import copy_whole, whole_file
from tests.support.examples import examples

DECODERS: list[Callable[[bytes], Any]] = [decode_to_master, decode_to_worker, decode_heartbeat]
NAMES = [
    "message_type", "worker_host", "worker_port", "worker_pid", "input_files", "output_files",
    "output_file", "status", "executable", "output_directory", "num_mappers",
]  # fmt: skip
KINDS = [
    "register", "register_ack", "new_master_job", "new_worker_job", "new_sort_job", "status",
    "shutdown", "heartbeat",
]  # fmt: skip
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(KINDS),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("decode", DECODERS)
@settings(max_examples=examples(25))
@given(data=st.binary() | values.map(lambda value: json.dumps(value).encode()))
@example(data=b"[" * 200_000)
@example(
    data=b'{"message_type":"status","worker_pid":1,"status":"finished","output_file":"\\ud800"}'
)
def test_bytes_are_a_message_or_refused(decode: Callable[[bytes], Any], data: bytes) -> None:
    """P4-28: no other exception, whatever comes."""
    try:
        message = decode(data)
    except BadMessage as error:
        assert str(error)
    else:
        assert isinstance(message, object)


@settings(max_examples=examples(25))
@given(fields=st.dictionaries(st.sampled_from(NAMES), values))
def test_a_status_that_is_read_names_paths_and_nothing_else(fields: dict[str, Any]) -> None:
    """M5, M7, M8 and R1."""
    data = json.dumps({"status": "finished", "worker_pid": 1, **fields, "message_type": "status"})
    try:
        found = decode_to_master(data.encode())
    except BadMessage:
        return
    assert isinstance(found, AnyStatus)
    assert all(isinstance(path, str) and path for path in found.outputs)


def test_numbers_and_names_have_limits() -> None:
    """M3: what would fail late, or fill a disk, is refused early; a NUL is no file's name."""
    fine = NewMasterJob("in", "out", "map", "reduce", 2, 10_000)
    assert decode_to_master(encode(fine)) == fine

    for change in (
        {"num_reducers": 10_001},
        {"num_reducers": 0},
        {"num_mappers": -1},
        {"num_mappers": True},
        {"input_directory": ""},
        {"input_directory": "a\0b"},
        {"input_directory": "x" * 5000},
    ):
        with pytest.raises(BadMessage):
            decode_to_master(json.dumps({**json.loads(encode(fine)), **change}).encode())


lines = st.lists(
    st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=30
).map(b"\n".join)
files = st.lists(lines | lines.map(lambda text: text + b"\n"), max_size=4)


def all_lines(texts: list[bytes]) -> list[bytes]:
    """Every line of every file, ended; a last one without an end is one too."""
    return [
        line + b"\n"
        for text in texts
        for line in (text[:-1] if text.endswith(b"\n") else text).split(b"\n")
        if text
    ]


def in_order(texts: list[bytes]) -> list[bytes]:
    """As `LC_ALL=C sort` has them: the end of a line is no part of it."""
    return sorted(all_lines(texts), key=lambda line: line[:-1])


def in_files(place: str, texts: list[bytes]) -> list[str]:
    paths = [os.path.join(place, f"in{number}") for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        Path(path).write_bytes(text)
    return paths


@settings(max_examples=examples(25))
@given(texts=files)
@example(texts=[b"a\nb", b"c"])
@example(texts=[b"b\r\na\0\n\xff\n\n"])
def test_a_sort_is_the_c_locales(texts: list[bytes]) -> None:
    """P4-17, R7, R8: every line once, whole lines compared bytewise."""
    with tempfile.TemporaryDirectory() as place:
        target = os.path.join(place, "out")
        sort_files(in_files(place, texts), target)

        assert Path(target).read_bytes() == b"".join(in_order(texts))
        assert len(os.listdir(place)) == len(texts) + 1


@settings(max_examples=examples(25))
@given(texts=files, reduces=st.integers(1, 10), deals=st.booleans())
@example(texts=[b"a\na\x01\na\t1\n"], reduces=3, deals=False)
@example(texts=[b"a\na\x01\na\t1\n"], reduces=3, deals=True)
def test_a_cut_keeps_keys_together_and_lines_in_order(
    texts: list[bytes], reduces: int, deals: bool
) -> None:
    """P4-17, P4-18, R8, R9."""
    with tempfile.TemporaryDirectory() as place:
        targets = [os.path.join(place, f"input_{number}") for number in range(reduces)]
        sources = in_files(place, texts)
        if deals:
            deal_files(sources, targets)
        else:
            cut_files(sources, targets, buffer_bytes=4096)

        found = [all_lines([Path(target).read_bytes()]) for target in targets]
        assert sorted(line for part in found for line in part) == sorted(all_lines(texts))
        owners: dict[bytes, int] = {}
        for number, part in enumerate(found):
            assert part == in_order([b"".join(part)])
            for line in part:
                assert owners.setdefault(line[:-1].split(b"\t")[0], number) == number
        if deals:
            counts = [list(owners.values()).count(number) for number in range(reduces)]
            assert max(counts) - min(counts) <= 1


def test_a_line_longer_than_any_buffer_is_one_line(tmp_path: Path) -> None:
    """R9: also where lines are looked at one by one."""
    long = b"k" * 3_000_000
    sources = in_files(str(tmp_path), [b"a\n" + long + b"\tv\nz\n", b"b\n" + long])
    targets = [str(tmp_path / f"out{number}") for number in range(2)]

    deal_files(sources, targets)
    assert [Path(path).read_bytes() for path in targets] == [
        b"a\n" + long + b"\n" + long + b"\tv\n",
        b"b\nz\n",
    ]


def test_more_lines_than_memory_holds_are_cut_the_same(tmp_path: Path) -> None:
    """P4-17: spilled and merged, as those of any job are."""
    sources = in_files(
        str(tmp_path), [b"".join(b"%d\tx\n" % (n * 7919 % 5003) for n in range(5000))]
    )
    some, many = ([str(tmp_path / f"{name}{n}") for n in range(3)] for name in ("some", "many"))

    cut_files(sources, some, buffer_bytes=4096)
    cut_files(sources, many)

    assert [Path(p).read_bytes() for p in some] == [Path(p).read_bytes() for p in many]
    assert sum(Path(p).read_bytes().count(b"\n") for p in some) == 5000


@pytest.mark.parametrize("is_nameless", [True, False])
def test_a_file_has_its_name_when_it_is_whole(
    tmp_path: Path, is_nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old one stays until then, an error leaves nothing; with and without nameless files."""
    if not is_nameless:
        monkeypatch.setattr("mrstream.mapreduce.p4.output_file._nameless", lambda directory: None)
    path = tmp_path / "file"
    path.write_text("old")

    with whole_file(str(path)) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(ZeroDivisionError), whole_file(str(path)) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "new"
    copy_whole(str(path), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["copy", "file"]
    with pytest.raises(FileNotFoundError), whole_file(str(tmp_path / "no/such/file")):
        pass
