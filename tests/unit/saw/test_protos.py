"""`proto`: messages as tuples, as protoc describes them and protobuf parses them (§4, §7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.mapreduce.job import saw_protos
from mrstream.mapreduce.job.saw_protos import BadProto
from mrstream.saw.program import ProgramStopped, compiled, proto_files
from mrstream.saw.source import Refused
from mrstream.streaming.formats.proto_rows import message_class
from tests.support import saw_runs

PROTO = """
syntax = "proto2";
package logs;
import "google/protobuf/timestamp.proto";
import "inner/place.proto";
message Entry {
  enum Kind { OTHER = 0; QUERY = 3; }
  message Word { required string text = 1; optional int32 count = 2 [default = 7]; }
  required int64 time = 1;
  optional string user = 2;
  repeated Word words = 3;
  optional Place place = 4;
  optional Kind type = 5 [default = QUERY];
  map<string, int32> counts = 6;
  optional uint64 big = 7;
  optional google.protobuf.Timestamp at = 8;
  optional Entry parent = 9;
  optional bytes raw = 10;
  repeated double numbers = 11 [packed = true];
}
"""
PLACE = """
syntax = "proto3";
package logs;
message Place { double lat = 1; optional double lon = 2; }
"""
T = 'proto "log.proto"\nt: table collection of string;\ne: Entry = input;\n'


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What protoc makes of the file, as the machine that submits does."""
    room = tmp_path_factory.mktemp("protos")
    (room / "log.proto").write_text(PROTO)
    (room / "inner").mkdir()
    (room / "inner" / "place.proto").write_text(PLACE)
    return saw_protos.compiled(["log.proto"], str(room / "p.szl"))


def entry(described: dict[str, bytes], **fields: Any) -> bytes:
    """Give a record."""
    data: bytes = message_class(described["log.proto"], "logs.Entry")(
        **{"time": 1, **fields}
    ).SerializeToString()
    return data


def csv_of(described: dict[str, bytes], text: str, *records: bytes, ignore: bool = False) -> str:
    """Run a program on records."""
    return saw_runs.csv_of(text, records, protos=described, ignore_undefs=ignore)


def value(described: dict[str, bytes], expression: str, **fields: Any) -> str:
    """Give an expression of an entry as text."""
    text = f"{T}s: string = {expression};\nif (def(s)) emit t <- s; else emit t <- `undefined`;"
    return csv_of(described, text, entry(described, **fields)).removeprefix("t,").strip()


def test_the_minute_of_the_week_as_the_paper_has_it(tmp_path: Path) -> None:
    """SZ-26, SZ-29 (§7): the program of the paper, to the letter."""
    (tmp_path / "p4stat.proto").write_text(
        'syntax = "proto2"; message P4ChangelistStats { required int64 time = 1; }'
    )
    text = """proto "p4stat.proto"
submitsthroughweek: table sum[minute: int] of count: int;
log: P4ChangelistStats = input;
t: time = log.time; # microseconds
minute: int = minuteof(t)+60*(hourof(t)+24*(dayofweek(t)-1));
emit submitsthroughweek[minute] <- 1;
"""
    protos = saw_protos.compiled(proto_files(text), str(tmp_path / "p.szl"))
    message = message_class(protos["p4stat.proto"], "P4ChangelistStats")
    at = 1_104_710_400_000_000  # Monday, 3 January 2005, 00:00
    records = [message(time=at + 60_000_000 * m).SerializeToString() for m in (0, 61, 61)]

    found = csv_of(protos, text, *records)

    assert found == "submitsthroughweek,0,1\nsubmitsthroughweek,61,2\n"


@pytest.mark.parametrize(
    ("expression", "fields", "expected"),
    [
        ("e.user", {"user": "ann"}, "ann"),
        ("e.user", {}, "undefined"),
        ("e.type", {}, "3"),
        ("e.type == Entry_Kind_OTHER", {"type": 0}, "true"),
        ("e.words[1].text", {"words": [{"text": "a"}, {"text": "b"}]}, "b"),
        ("e.words[0].count", {"words": [{"text": "a"}]}, "7"),
        ("e.words[5].text", {}, "undefined"),
        ("len(e.words)", {}, "0"),
        ("e.place.lat", {"place": {"lon": 2.0}}, "0"),
        ("e.place.lon", {"place": {}}, "undefined"),
        ("e.place.lat", {}, "undefined"),
        ('e.counts["a"]', {"counts": {"a": -5}}, "-5"),
        ("e.big", {"big": 2**64 - 1}, "-1"),
        ("int(e.at)", {"at": {"seconds": 5, "nanos": 7_000}}, "5000007"),
        ("len(e.raw)", {"raw": b"\xff\0"}, "2"),
        ("e.numbers", {"numbers": [1.5, 2]}, '"{ 1.5, 2 }"'),
        ("convert(Entry, input).user", {"user": "x"}, "x"),
    ],
)
def test_a_field_is_as_the_file_describes_it(
    described: dict[str, bytes], expression: str, fields: dict[str, Any], expected: str
) -> None:
    """SZ-26: what has a presence and was not set is undefined, unless the file has a default."""
    assert value(described, expression, **fields) == expected


def test_bytes_that_are_no_message_are_undefined(described: dict[str, bytes]) -> None:
    """SZ-23, SZ-24: also a message without a field that the file requires."""
    text = T + "if (def(e)) emit t <- `good`; else emit t <- `bad`;"
    records = [entry(described), b"\xff\xff", b"", b"\x12\x01a", entry(described)[:-1]]

    assert csv_of(described, text, *records) == "t,bad\n" * 4 + "t,good\n"
    with pytest.raises(ProgramStopped, match=r"p\.szl:4:6: e is undefined"):
        csv_of(described, T + "emit t <- string(e.time);", b"\xff")
    ignored = csv_of(described, T + "emit t <- string(e.time);", b"\xff", ignore=True)
    assert ignored == "_undef_cnt,1\n"


def test_only_what_is_read_of_a_message_is_looked_at(described: dict[str, bytes]) -> None:
    """And a whole one still is whole where it is needed."""
    text = (
        T
        + """other: Entry = e;
    f: function(x: Entry): string { return x.user; };
    emit t <- f(e) + other.user;"""
    )

    assert csv_of(described, text, entry(described, user="a", raw=b"x")) == "t,aa\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (T + "emit t <- e.usre;", "4:13: the tuple has no field usre; did you mean user?"),
        (T + "emit t <- e.parent;", "the tuple has no field parent"),
        (T + "x: int = e.user + 1;", "cannot add string and int"),
        ("{ proto `log.proto` }", "proto stands outside of functions and blocks"),
        ("proto 5", 'expected the name of a file, such as "log.proto", not 5'),
        ('proto "other.proto"', "what other.proto describes did not come with the program"),
        (T + "type Entry = int;", "Entry is declared already"),
    ],
)
def test_a_fault_is_told_before_anything_runs(
    described: dict[str, bytes], text: str, said: str
) -> None:
    with pytest.raises(Refused) as caught:
        compiled(text, "p.szl", protos=described)
    assert said in str(caught.value)


def test_two_messages_of_one_shape_are_not_mixed_up(tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text(
        'syntax = "proto3"; message A { int64 x = 1; } message B { int64 x = 2; }'
    )
    protos = saw_protos.compiled(["m.proto"], str(tmp_path / "p.szl"))
    record = message_class(protos["m.proto"], "B")(x=5).SerializeToString()
    text = 'proto "m.proto"; t: table collection of int; a: A = input; b: B = input; type C = B;'

    found = csv_of(protos, text + "c: C = input; emit t <- a.x; emit t <- b.x + c.x;", record)

    assert found == "t,0\nt,10\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.proto", None, "No such file or directory"),
        ("bad.proto", "message {", "bad.proto:1:9: Expected message name."),
        ("lost.proto", 'syntax = "proto3"; import "gone.proto";', "gone.proto: File not found."),
        ("none.desc", None, "No such file or directory"),
    ],
)
def test_a_file_with_a_fault_is_told_in_protocs_words(
    tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)

    with pytest.raises(BadProto) as caught:
        saw_protos.compiled([name], str(tmp_path / "p.szl"))

    assert said in str(caught.value) and f'p.szl: proto "{name}"' in str(caught.value)


def test_descriptors_that_protoc_made_before_are_read(
    described: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "log.desc").write_bytes(described["log.proto"])
    protos = saw_protos.compiled(["log.desc"], str(tmp_path / "p.szl"))

    found = csv_of(protos, T.replace("log.proto", "log.desc") + "emit t <- e.user;",
                   entry(described, user="ann"))  # fmt: skip

    assert found == "t,ann\n"
    assert saw_protos.decoded(saw_protos.encoded(protos)) == protos


@given(st.binary(max_size=200))
def test_foreign_descriptors_are_taken_or_refused(data: bytes) -> None:
    """They travel in a job's settings, which anyone may write."""
    try:
        compiled('proto "x.desc"', protos={"x.desc": data})
    except Refused:
        return


@given(st.text(max_size=60))
def test_foreign_settings_are_taken_or_refused(text: str) -> None:
    try:
        saw_protos.decoded(text)
    except BadProto:
        return
