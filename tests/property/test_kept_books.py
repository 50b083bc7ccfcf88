"""What lies where flows and environments keep their facts is read or refused: never a crash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.environment import store, tree
from mrstream.mapreduce.flow.book import BadFlowBook
from mrstream.mapreduce.flow.brain.messages import Cleared, Completed, Record, Started
from mrstream.mapreduce.flow.dfs_book import JOURNAL_VERSION, DfsFlowBook
from mrstream.mapreduce.job.environment import BadEnvironment, Environment

texts = st.text(max_size=8)
counters = st.dictionaries(texts, st.dictionaries(texts, st.integers(-(2**63), 2**63 - 1)))
records = st.one_of(
    st.builds(Started, texts, texts, texts),
    st.builds(Completed, texts, texts, texts, counters),
    st.builds(Cleared, st.lists(texts).map(tuple)),
)


class Book(DfsFlowBook):
    """A book whose files hold what a test says."""

    def __init__(self, data: bytes) -> None:
        super().__init__("flow_1", cast(Any, None))
        self.data = data

    def _read(self, name: str) -> bytes:
        return self.data

    def _replace(self, name: str, data: bytes) -> None:
        self.data = data


@given(st.lists(records, max_size=6))
def test_a_journal_is_read_as_it_was_written(written: list[Record]) -> None:
    book = Book(msgspec.msgpack.encode((JOURNAL_VERSION, [])))
    book.open()
    for record in written:
        book.write(record)

    assert book.records() == written


@given(st.binary(max_size=60))
def test_any_bytes_are_a_book_or_are_refused(data: bytes) -> None:
    for read in (Book(data).records, Book(data).read_state):
        with contextlib.suppress(BadFlowBook):
            read()


@given(st.one_of(st.binary(max_size=60), st.just(msgspec.json.encode(Environment("x", "k")))))
def test_any_mark_is_one_or_none(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as home:
        os.makedirs(os.path.join(home, "environments", "k"))
        with open(os.path.join(home, "environments", "k", store.MARK), "wb") as file:
            file.write(data)
        before = os.environ.get("MRSTREAM_HOME")
        os.environ["MRSTREAM_HOME"] = home
        try:
            found = store._read_mark("k")
        finally:
            os.environ.pop("MRSTREAM_HOME")
            if before is not None:
                os.environ["MRSTREAM_HOME"] = before
    assert found is None or isinstance(found, Environment)


@given(st.binary(max_size=80))
def test_any_compiled_part_needs_something_or_nothing(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "lib", "python3.11"))
        with open(os.path.join(root, "lib", "part.so"), "wb") as file:
            file.write(b"\x7fELF" + data)
        with contextlib.suppress(BadEnvironment):
            assert tree.needs_of(root).python == "3.11"


@given(st.binary(max_size=80))
def test_any_script_stays_a_script(data: bytes) -> None:
    script = b"#!/a/bin/python3\n" + data
    assert tree.relocated(script).endswith(data)
    assert tree.relocated(data) == data or data.startswith(b"#!")
