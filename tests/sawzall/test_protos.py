"""Jobs over protocol buffers: messages behind their lengths, the file compiled when submitted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mrstream.mapreduce.job import saw_protos
from mrstream.streaming.formats.proto_rows import message_class
from tests.support.local_jobs import Desk

PROTO = 'syntax = "proto3"; message Document { string url = 1; int64 pagerank = 2; }'
PROGRAM = """proto "document.proto"
max_pagerank_url:
  table maximum(1)[domain: string] of url: string
  weight pagerank: int;
doc: Document = input;
emit max_pagerank_url[domain(doc.url)] <- doc.url
  weight doc.pagerank;
"""
PAGES = [("http://a.com/x", 5), ("http://A.com/y", 9), ("http://b.org/" + "z" * 300, 1)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.write("document.proto", PROTO)
    made.write("p.szl", PROGRAM)
    return made


def records(desk: Desk) -> bytes:
    """Give the pages, each behind its length, as `writeDelimitedTo` writes them."""
    descriptors = saw_protos.compiled(["document.proto"], str(desk.cwd / "p.szl"))
    message = message_class(descriptors["document.proto"], "Document")
    found = b""
    for url, rank in PAGES:
        body = message(url=url, pagerank=rank).SerializeToString()
        length = (
            bytes([len(body)])
            if len(body) < 128
            else bytes([len(body) % 128 + 128, len(body) // 128])
        )
        found += length + body
    return found


def saw(desk: Desk, *words: str) -> tuple[int, str]:
    """Run the program; give its exit status and its tables, or what was said."""
    ran = desk.run(
        *("saw", "--program", "p.szl", "--input_files", "in*", "--input_format", "delimited"),
        *("--destination", "out@2", *words),
    )
    if ran.status:
        return ran.status, ran.stderr
    return 0, desk.run("dump", "--source", "out@2").stdout.decode()


def test_the_page_of_highest_rank_of_each_domain(desk: Desk) -> None:
    """SZ-26, SZ-29 (§9): the paper's program, on its own kind of records; plain and packed."""
    desk.write("in", records(desk))
    desk.write("in2.gz", gzip.compress(records(desk)))

    status, found = saw(desk)

    assert (status, found) == (0, (
        f"max_pagerank_url,a.com,{PAGES[1][0]},9\nmax_pagerank_url,b.org,{PAGES[2][0]},1\n"
    ))  # fmt: skip


def test_a_record_that_is_no_message_stops_the_job_with_its_place(desk: Desk) -> None:
    desk.write("in", records(desk) + b"\x03\xff\xff\xff")

    status, said = saw(desk)

    assert status == 1 and "p.szl:6:6: doc is undefined" in said and "record 4" in said


@pytest.mark.parametrize(
    ("damage", "said"),
    [(b"\x05ab", "is cut off after 3 bytes"), (b"\xff" * 12, "stands no length of a message")],
)
def test_a_damaged_file_is_told(desk: Desk, damage: bytes, said: str) -> None:
    desk.write("in", records(desk) + damage)

    status, words = saw(desk)

    assert status == 1 and said in words and "Traceback" not in words


def test_a_fault_in_the_proto_file_is_told_before_anything_starts(desk: Desk) -> None:
    desk.write("in", b"")
    desk.write("document.proto", PROTO.replace("int64", "int65"))

    status, said = saw(desk)

    assert status == 1 and '"int65" is not defined.' in said and "Running job" not in said
