"""The worked examples of docs/formats are what is written: each is read off its page."""

from __future__ import annotations

import re

import msgspec

from mrstream.cluster.consensus.members import member_id
from mrstream.cluster.consensus.records import EpochBegan, encode_own
from mrstream.cluster.journal import format as journal
from mrstream.cluster.wire.frames import Kind, encode_frame
from mrstream.cluster.wire.messages import Health
from mrstream.dfs.chunk import ChunkHandle, FileId
from mrstream.dfs.chunks.replica import Replica
from mrstream.dfs.metadata.operations import ChunkAdded
from mrstream.dfs.oplog import encode_record as encode_operation
from mrstream.lock.cell.records import DelayOver
from mrstream.lock.cell.records import encode_record as encode_lock_record
from mrstream.mapreduce.flow.brain.messages import Started
from mrstream.mapreduce.job.environment import Environment
from mrstream.mapreduce.master.job_journal import JobClosed
from mrstream.mapreduce.master.job_journal import encode as encode_job_record
from mrstream.saw.program import compiled
from mrstream.streaming.formats.codec import codec_by_class
from mrstream.web.webhdfs.delegation import Token, write_vlong
from tests.house.tree import ROOT
from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.saw_runs import packed

_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_OFFSET = re.compile(r"[0-9a-f]{4}  ")


def page(name: str) -> str:
    return (ROOT / "docs" / "formats" / f"{name}.md").read_text(encoding="utf-8")


def bytes_below(name: str, words: str) -> bytes:
    """The hexadecimal digits with which the lines of the next example begin, behind an offset where
    there is one."""
    example = page(name).partition(words)[2].split("```\n")[1]
    found = b""
    for line in example.splitlines():
        for word in _OFFSET.sub("", line, count=1).split():
            if not _HEX.fullmatch(word):
                break
            found += bytes.fromhex(word)
    return found


def bytes_between(name: str, before: str, after: str) -> bytes:
    """What stands as code between two places of the running text."""
    text = page(name).partition(before)[2].partition(after)[0]
    return b"".join(map(bytes.fromhex, re.findall(r"`([0-9a-f ]+)`", text)))


def test_a_frame_is_that_of_its_page() -> None:
    assert encode_frame(Kind.CALL, 7, Health()) == bytes_below("frames", "`Health()`")


def test_a_record_of_a_journal_is_that_of_its_page() -> None:
    marker = bytes_below("journal", "Record 3")[:4]

    assert journal.encode_record(marker, 3, 2, b"ab") == bytes_below("journal", "Record 3")
    header = journal.encode_file_header(journal.LOG_MAGIC, "c1", 3, marker)
    assert len(header) == 92


def test_a_record_of_a_group_is_that_of_its_page() -> None:
    record = EpochBegan(3, member_id("h1", "0123456789abcdef"))

    assert encode_own(record) == bytes_below("consensus", "of epoch 3")


def test_a_record_of_the_dfs_is_that_of_its_page() -> None:
    record = ChunkAdded(FileId(7), ChunkHandle(4097))

    assert encode_operation(record) == bytes_below("oplog", "`ChunkAdded(file_id")


def test_a_record_of_the_lock_cell_is_that_of_its_page() -> None:
    assert encode_lock_record(DelayOver("/ls/local/a")) == bytes_below("lock", "`DelayOver(path")


def test_a_record_of_the_job_master_is_that_of_its_page() -> None:
    example = bytes_below("job-journal", "For example")

    assert encode_job_record(JobClosed("job_1_0001")) == example and len(example) == 32


def test_a_replica_is_that_of_its_page() -> None:
    disk = ForgetfulDisk()
    Replica.create(disk, 0x2A, 3).write(0, [b"hello"])

    file = disk.open("chunks/2a/000000000000002a.sums")
    first = bytes_below("chunk", "## Example")
    assert file.read(1 << 20, 0).startswith(first) and len(first) == 68
    assert file.read(512, 512)[:40] == first[:32] + (3).to_bytes(8, "little")
    assert disk.open("chunks/2a/000000000000002a.data").read(100, 0) == b"hello"


def test_the_journal_of_a_flow_begins_as_on_its_page() -> None:
    text = page("flow-journal").partition("has begun:")[2].partition("…")[0]
    words = re.findall(r'"(\w+)"|([0-9a-f]{2})', text)
    example = b"".join(word.encode() or bytes.fromhex(digits) for word, digits in words)

    record = Started("words", "9f3c", "/out/.words")
    assert msgspec.msgpack.encode((1, [record])).startswith(example)


def test_a_block_of_snappy_is_that_of_its_page() -> None:
    file = codec_by_class("SnappyCodec").compress(b"ab\ncd\n")

    assert file == bytes_between("block-codecs", "as snappy:", "##")


def test_the_record_of_a_sequence_file_is_that_of_its_page() -> None:
    """The file itself is compared by tests/unit/streaming/test_sequence_file.py."""
    record = bytes_between("sequence-file", "16 bytes of mark, then", ": 90 bytes")

    assert record == b"\0\0\0\x04\0\0\0\x02\x01a\x011"
    assert 4 + 2 * (1 + 0x19) + 2 + 4 + 16 + len(record) == 90


def test_a_key_and_a_state_of_a_sawzall_shard_are_those_of_their_page() -> None:
    text = "n: table sum[word: string] of int; s: string = input; emit n[s] <- 1;"
    lines = re.findall(
        r"^    (?:key|value) +((?:[0-9a-f]{2} +)*[0-9a-f]{2})$", page("saw-shards"), re.M
    )

    assert packed(compiled(text), [b"ab"] * 3) == [tuple(map(bytes.fromhex, lines))]


def test_numbers_and_tokens_of_the_doors_are_those_of_their_page() -> None:
    example = page("doors").partition("## Example")[2]
    number, seven, begin = map(
        bytes.fromhex, re.findall(r"`([0-9a-f]{2}(?: [0-9a-f]{2})*)`", example)
    )

    assert (write_vlong(1_700_000_000_000), write_vlong(7)) == (number, seven)
    assert Token("ann", "MRETL", 1, 2, 3).identifier().startswith(begin)


def test_the_facts_of_an_environment_are_those_of_their_page() -> None:
    text = page("environment").partition("```json\n")[2].partition("```")[0]

    facts = msgspec.json.decode(text, type=Environment, strict=True)
    assert list(msgspec.json.decode(text)) == list(msgspec.structs.asdict(facts))
    assert facts.key[:8] in facts.path and len(bytes.fromhex(facts.key)) == 20
