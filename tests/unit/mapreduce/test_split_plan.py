"""mapreduce/dataflow/{files,input_paths,split_plan,split_reader}.py: `-input` words to bytes."""

from __future__ import annotations

import getpass
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mrstream.mapreduce.dataflow import split_plan
from mrstream.mapreduce.dataflow.files import (
    InputReplaced,
    RoutedFiles,
    join,
    scheme_of,
)
from mrstream.mapreduce.dataflow.input_paths import (
    InvalidInput,
    glob,
    list_input_files,
    split_at_commas,
)
from mrstream.mapreduce.dataflow.split_plan import Split, TooManyMaps, plan_splits
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.text_lines import RecordBytes
from mrstream.streaming.formats.writable import LONG, TEXT


@pytest.fixture
def files(tmp_path: Path) -> RoutedFiles:
    """The local disk, with relative paths starting in a fresh directory."""
    return RoutedFiles("file:///", str(tmp_path))


def put(root: Path, **contents: bytes | str) -> None:
    """Make files; `__` in a name is a slash."""
    for name, content in contents.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def names(inputs: list[str], files: RoutedFiles, **options: bool) -> list[str]:
    """The last two components of every input file."""
    found = list_input_files(inputs, files, **options)
    return [status.url.rsplit("/", 1)[-1] for status in found]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("a,b", ["a", "b"]),
        ("a{b,c},d", ["a{b,c}", "d"]),
        ("{a,{b,c}},d", ["{a,{b,c}}", "d"]),
        (",a,,", ["a"]),
    ],
)
def test_a_value_is_cut_at_commas_outside_braces(word: str, parts: list[str]) -> None:
    """Spec 3.1."""
    assert split_at_commas(word) == parts


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", ["a1", "a2", "b1", "d"]),
        ("a?", ["a1", "a2"]),
        ("[ab]1", ["a1", "b1"]),
        ("[^a]1", ["b1"]),
        ("[!a]1", ["b1"]),
        ("[a-b]2", ["a2"]),
        ("{a,b}1", ["a1", "b1"]),
        ("{b1,a1}", ["a1", "b1"]),
        ("d/*", ["x*y", "xzy"]),
        (r"d/x\*y", ["x*y"]),
        ("{d/xzy,a1}", ["a1", "xzy"]),
        ("*/x?y", ["x*y", "xzy"]),
        ("no*", []),
    ],
)
def test_globs_match_as_hadoops(
    tmp_path: Path, files: RoutedFiles, pattern: str, matched: list[str]
) -> None:
    """Spec 3.1: matches of one pattern are sorted by path."""
    put(tmp_path, a1="", a2="", b1="", d__xzy="", **{"d__x*y": ""})

    assert [status.name for status in glob(files.qualify(pattern), files)] == matched


def test_hidden_names_are_dropped_but_hidden_parents_are_not(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Spec 3.1: the last component decides, even if it is named outright."""
    put(tmp_path, d___x="", d__ok="", **{"d__.crc": "", "_h__f": ""})

    assert names(["d", "_h/f"], files) == ["ok", "f"]
    with pytest.raises(InvalidInput, match=r"Input path does not exist: file:.*/d/_x$"):
        names(["d/_x"], files)


def test_every_problem_is_reported_at_once(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 1.4: one line each, exit 5."""
    put(tmp_path, a="")

    with pytest.raises(InvalidInput) as caught:
        names(["a", "nope,z*"], files)

    assert str(caught.value).split("\n") == [
        f"Input path does not exist: file:{tmp_path}/nope",
        f"Input Pattern file:{tmp_path}/z* matches 0 files",
    ]
    assert caught.value.exit_status == 5


def test_a_subdirectory_is_an_error_unless_the_job_says_otherwise(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Spec 3.1: one level; descend or skip on request."""
    put(tmp_path, d__a="", d__s__b="", d__s___hidden="")

    with pytest.raises(InvalidInput, match=f"^Not a file: file:{tmp_path}/d/s$"):
        names(["d"], files)
    assert names(["d"], files, ignore_subdirs=True) == ["a"]
    assert names(["d"], files, recursive=True) == ["a", "b"]


def test_the_same_path_twice_is_read_twice(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 3.1, the golden case in_dup."""
    put(tmp_path, a="x")

    assert names(["a", "a"], files) == ["a", "a"]


def ranges(
    files: RoutedFiles, inputs: list[str], **settings: str | int
) -> list[tuple[str, int, int]]:
    """(file name, start, length) of every split's first piece, in map order."""
    conf = JobConf({name: str(value) for name, value in settings.items()})
    pieces = [split.pieces[0] for split in plan_splits(conf, inputs, files).splits]
    return [(piece.url.rsplit("/", 1)[-1], piece.start, piece.length) for piece in pieces]


@pytest.mark.parametrize(
    ("length", "block", "expected"),
    [
        (210, 100, [(100, 110), (0, 100)]),
        (211, 100, [(0, 100), (100, 100), (200, 11)]),
        (110, 100, [(0, 110)]),
        (0, 100, [(0, 0)]),
    ],
)
def test_the_last_piece_may_be_a_tenth_larger(
    tmp_path: Path, files: RoutedFiles, length: int, block: int, expected: list[tuple[int, int]]
) -> None:
    """Spec 3.2: 1.1 slop, longest first, an empty file is a split."""
    put(tmp_path, f=b"x" * length)

    found = ranges(files, ["f"], **{"fs.local.block.size": block})

    assert [(start, size) for _, start, size in found] == expected


def test_the_goal_is_the_total_over_the_maps_asked_for(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 3.2: size = max(min, min(goal, block)); a hint of 1 keeps a tiny file whole."""
    put(tmp_path, a=b"x" * 100, b=b"x" * 20)

    assert ranges(files, ["a", "b"]) == [("a", 0, 100), ("b", 0, 20)]
    assert ranges(files, ["a", "b"], **{"mapreduce.job.maps": 3})[0] == ("a", 0, 40)
    assert ranges(
        files,
        ["a"],
        **{"mapreduce.job.maps": 10, "mapreduce.input.fileinputformat.split.minsize": 60},
    ) == [("a", 0, 60), ("a", 60, 40)]


def test_a_file_that_cannot_be_split_is_one_piece(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 3.3: gzip starts only at its start; bzip2 and plain text anywhere."""
    put(tmp_path, **{"a.gz": b"x" * 50, "b.bz2": b"x" * 50})

    assert ranges(files, ["a.gz"], **{"fs.local.block.size": 10}) == [("a.gz", 0, 50)]
    assert len(ranges(files, ["b.bz2"], **{"fs.local.block.size": 10})) == 5


def test_nline_pieces_are_recorded_as_hadoop_records_them(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Spec 3.5: (0, n-1) first, (begin-1, n) after; never across files."""
    put(tmp_path, f="l1\nl22\nl333\nl4444\nl55555\n", g="a\r\nb", empty="")

    found = ranges(
        files,
        ["f", "g", "empty"],
        **{
            "mapred.input.format.class": "NLineInputFormat",
            "mapreduce.input.lineinputformat.linespermap": 2,
        },
    )

    assert found == [("f", 6, 11), ("f", 17, 7), ("f", 0, 6), ("g", 0, 3)]


def test_ten_thousand_small_files_are_few_splits(tmp_path: Path, files: RoutedFiles) -> None:
    """CombineTextInputFormat packs files up to the split size."""
    put(tmp_path, **{f"d__f{number:03}": b"x" * 10 for number in range(300)})
    settings = {"mapred.input.format.class": "CombineTextInputFormat"}

    whole = plan_splits(JobConf(settings), ["d"], files)
    limit = {"mapreduce.input.fileinputformat.split.maxsize": "1000"}
    packed = plan_splits(JobConf(settings | limit), ["d"], files)

    assert [len(split.pieces) for split in whole.splits] == [300]
    assert [len(split.pieces) for split in packed.splits] == [100, 100, 100]
    assert whole.file_count == 300


class FilesOfHosts(RoutedFiles):
    """Files that lie on the host that their name begins with."""

    def hosts_of(self, url: str, start: int, length: int) -> tuple[str, ...]:
        return (url.rpartition("/")[2].partition("_")[0],)


@pytest.mark.parametrize(
    ("least", "combined"),
    [
        # What no host fills a split with is packed together, whoever holds it.
        ("0", ["h1_a h1_b h2_a", "h2_b h3_a"]),
        # h1 and h2 hold 80 bytes each, h3 40.
        ("50", ["h1_a h1_b", "h2_a h2_b", "h3_a"]),
        ("80", ["h1_a h1_b", "h2_a h2_b", "h3_a"]),
        ("81", ["h1_a h1_b h2_a", "h2_b h3_a"]),
        ("40", ["h1_a h1_b", "h2_a h2_b", "h3_a"]),
    ],
)
def test_what_is_left_of_a_host_is_a_split_if_it_is_large_enough(
    least: str, combined: list[str], tmp_path: Path
) -> None:
    """`split.minsize.per.node`, with splits of 100 bytes at most."""
    put(tmp_path, **{f"d__{name}": b"x" * 40 for name in ("h1_a", "h1_b", "h2_a", "h2_b", "h3_a")})
    size = "mapreduce.input.fileinputformat.split"
    conf = JobConf({
        "mapred.input.format.class": "CombineTextInputFormat",
        f"{size}.maxsize": "100", f"{size}.minsize.per.node": least,
    })  # fmt: skip

    plan = plan_splits(conf, ["d"], FilesOfHosts("file:///", str(tmp_path)))

    found = [[p.url.rpartition("/")[2] for p in split.pieces] for split in plan.splits]
    assert sorted(" ".join(names) for names in found) == combined


def test_a_host_that_filled_a_split_leaves_its_rest_to_others(tmp_path: Path) -> None:
    """As Hadoop has it: the least size of a host is for one that has no split yet."""
    put(tmp_path, **{f"d__h1_{name}": b"x" * 60 for name in "abc"}, d__h2_a=b"x" * 10)
    size = "mapreduce.input.fileinputformat.split"
    conf = JobConf({
        "mapred.input.format.class": "CombineTextInputFormat",
        f"{size}.maxsize": "100", f"{size}.minsize.per.node": "50",
    })  # fmt: skip

    plan = plan_splits(conf, ["d"], FilesOfHosts("file:///", str(tmp_path)))

    found = [[p.url.rpartition("/")[2] for p in split.pieces] for split in plan.splits]
    assert sorted(found) == [["h1_a", "h1_b"], ["h1_c", "h2_a"]]


def test_more_maps_than_any_job_may_have_are_refused(
    tmp_path: Path, files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint of 99,999,999 maps cuts a file into single bytes."""
    monkeypatch.setattr(split_plan, "MAPS_MAX", 50)
    put(tmp_path, f=b"x" * 51)
    hint = JobConf({"mapreduce.job.maps": "99999999"})

    with pytest.raises(TooManyMaps, match="more than 50 maps; larger splits help"):
        plan_splits(hint, ["f"], files)
    put(tmp_path, f=b"x" * 50)
    assert len(plan_splits(hint, ["f"], files).splits) == 50


def test_a_job_may_limit_its_maps(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 1.4."""
    put(tmp_path, f=b"x" * 400)
    conf = JobConf({"fs.local.block.size": "100", "mapreduce.job.max.map": "2"})

    with pytest.raises(TooManyMaps, match=r"^The number of map tasks 4 exceeded limit 2$"):
        plan_splits(conf, ["f"], files)


def read(files: RoutedFiles, path: str, **settings: str) -> bytes:
    """What the maps of one file read, in map order."""
    conf = JobConf(settings)
    return b"".join(
        b"".join(SplitReader(split, conf, files))
        for split in plan_splits(conf, [path], files).splits
    )


@pytest.mark.parametrize(
    ("content", "settings", "expected"),
    [
        (b"a\r\nb\rc\n\n", {}, b"a\nb\nc\n\n"),
        (b"\xef\xbb\xbfa\nb", {}, b"a\nb\n"),
        (b"\xef\xbb\xbf", {}, b""),
        (b"a\nbb\n", {"stream.map.input.ignoreKey": "false"}, b"0\ta\n2\tbb\n"),
        (b"a\nbb\n", {"stream.map.input": "keyonlytext"}, b"0\n2\n"),
        (b"a;;b\n;;", {"textinputformat.record.delimiter": ";;"}, b"a\nb\n\n"),
        (
            b"a;;bb;;",
            {"textinputformat.record.delimiter": ";;", "stream.map.input.ignoreKey": "false"},
            b"0\ta\n3\tbb\n",
        ),
        (
            b"12345678\n123456789\n",
            {"mapreduce.input.linerecordreader.line.maxlength": "10"},
            b"12345678\n",
        ),
        (b"k\tv\nn\n", {"mapred.input.format.class": "KeyValueTextInputFormat"}, b"k\tv\nn\t\n"),
        (
            b"k\xe9v\nk\xc3\xa9v\n",
            {
                "mapred.input.format.class": "KeyValueTextInputFormat",
                "mapreduce.input.keyvaluelinerecordreader.key.value.separator": "é",
            },
            b"k\tv\nk\xc3\xa9v\t\n",
        ),
        (b"x\n", {"mapred.input.format.class": "AutoInputFormat"}, b"0\tx\n"),
    ],
)
def test_a_mapper_reads_what_hadoop_would_give_it(
    tmp_path: Path, files: RoutedFiles, content: bytes, settings: dict[str, str], expected: bytes
) -> None:
    """Spec 3.4, 3.5 and 4.1."""
    put(tmp_path, f=content)

    assert read(files, "f", **settings) == expected


def test_a_built_in_mapper_gets_records_with_offsets(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 3.4: key = byte offset (LongWritable), value = the line."""
    put(tmp_path, f="a\nbb\n")
    conf = JobConf({})
    [split] = plan_splits(conf, ["f"], files).splits

    reader = SplitReader(split, conf, files)
    found = list(reader.records_iter())

    assert found == [(struct.pack(">q", 0), b"a"), (struct.pack(">q", 2), b"bb")]
    assert (reader.key_type, reader.value_type) == (LONG, TEXT)
    assert (reader.records, reader.bytes_read) == (2, 5)
    assert reader.position() == (files.qualify("f"), 5)
    assert reader.progress() == 1.0


def test_a_long_line_is_never_held_as_a_whole(tmp_path: Path, files: RoutedFiles) -> None:
    """100 MB lines: the text path passes blobs on as they come."""
    put(tmp_path, f=b"x" * 5_000_000 + b"\ny\n")
    conf = JobConf({})
    [split] = plan_splits(conf, ["f"], files).splits

    blobs = list(SplitReader(split, conf, files))

    assert max(map(len, blobs)) <= 1024 * 1024
    assert b"".join(blobs) == b"x" * 5_000_000 + b"\ny\n"


def test_a_line_that_is_longer_than_its_pieces_is_read_twice_at_most() -> None:
    """Each piece looked for the line's end from its own beginning on: a line ten times as long cost
    seventy times as much."""
    data, piece_bytes, blob_bytes = b"x" * 1_000_000 + b"\n", 50_000, 1_000
    given: list[bytes] = []
    read_bytes = 0

    def blobs(start: int) -> Iterator[bytes]:
        nonlocal read_bytes
        for at in range(start, len(data), blob_bytes):
            read_bytes += blob_bytes
            yield data[at : at + blob_bytes]

    for start in range(0, len(data), piece_bytes):
        given += RecordBytes(blobs(start), start, start + piece_bytes)

    assert b"".join(given) == data
    assert read_bytes <= 2 * (len(data) + blob_bytes)


def test_any_fsspec_url_is_input(tmp_path: Path) -> None:
    """Files of another file system are listed, planned and read by their scheme."""
    files = RoutedFiles("file:///", str(tmp_path))
    with files.create("memory://in/d/a") as out:
        out.write(b"one\ntwo\n")
    with files.create("memory://in/d/_hidden") as out:
        out.write(b"no\n")

    assert read(files, "memory://in/d", **{"fs.local.block.size": "4"}) == b"one\ntwo\n"
    with pytest.raises(InvalidInput, match="Input path does not exist: memory://"):
        read(files, "memory://in/nope")


@pytest.mark.parametrize(
    ("path", "scheme"),
    [("/a/b", None), ("a:b", None), ("file:/x", "file"), ("dfs://c/x", "dfs"), ("s3://b/k", "s3")],
)
def test_the_scheme_of_a_path(path: str, scheme: str | None) -> None:
    """A colon in a name is not a scheme."""
    assert scheme_of(path) == scheme


def test_urls_are_written_as_hadoop_prints_them(tmp_path: Path) -> None:
    """Spec 1.4: `file:/x`, one slash, no end slash."""
    files = RoutedFiles("file:///", "/work")

    assert files.qualify("a/") == "file:/work/a"
    assert files.qualify("file:///x//y") == "file:/x/y"
    assert files.qualify("/") == "file:/"
    assert join(files.qualify("/"), "a") == "file:/a"


def test_a_name_that_is_no_utf8_travels_and_is_found_again(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Names are bytes to the disk; on the wire they must be text."""
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9"), "wb") as out:
        out.write(b"x\n")

    [split] = plan_splits(JobConf({}), ["caf*"], files).splits
    carried = msgspec.msgpack.decode(msgspec.msgpack.encode(split), type=Split)

    assert b"".join(SplitReader(carried, JobConf({}), files)) == b"x\n"


def test_a_relative_path_on_another_file_system_starts_at_home() -> None:
    """As HDFS has it: /user/NAME."""
    files = RoutedFiles("memory://", "/tmp")

    assert files.qualify("in/a").endswith(f"/user/{getpass.getuser()}/in/a")
    assert files.qualify("/in/a") == "memory:///in/a"


def test_more_maps_than_anything_can_hold_are_refused_before_they_are_counted(
    tmp_path: Path, files: RoutedFiles
) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(10**12)
    conf = JobConf()
    conf.set("mapreduce.job.maps", "999999999999")

    with pytest.raises(TooManyMaps, match="more than 1,000,000 maps; larger splits help"):
        plan_splits(conf, ["big"], files)


def test_a_file_that_is_replaced_after_the_plan_is_not_read_by_half(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Success with a mixture of both was what came of it."""
    put(tmp_path, big=b"old\n" * 1000)
    conf = JobConf()
    conf.set("mapreduce.job.maps", "4")
    splits = plan_splits(conf, ["big"], files).splits
    assert b"".join(SplitReader(splits[0], conf, files)).startswith(b"old\n")

    put(tmp_path, other=b"new\n" * 1000)
    os.replace(tmp_path / "other", tmp_path / "big")

    with pytest.raises(InputReplaced, match="big was replaced by another file after the job was"):
        list(SplitReader(splits[1], conf, files))


def test_a_file_that_only_grows_is_read_as_it_was_planned(
    tmp_path: Path, files: RoutedFiles
) -> None:
    put(tmp_path, log=b"line\n" * 10)
    splits = plan_splits(JobConf(), ["log"], files).splits
    with (tmp_path / "log").open("ab") as file:
        file.write(b"more\n")

    assert b"".join(SplitReader(splits[0], JobConf(), files)).startswith(b"line\n" * 10)


@pytest.mark.parametrize(
    ("name", "kind", "is_cut"),
    [
        ("f.pb", "proto:t.desc:t.Row", False),
        ("f.csv", "csv", True),
        ("f.csv.gz", "csv", False),
        ("f.csv.bz2", "csv", False),
        ("f.warc", "warc", True),
        ("f.warc.gz", "warc", True),
        ("f.warc.zst", "warc", False),
        ("f.gz", "parquet", True),
        ("f.gz", "avro", True),
        ("f.gz", "arrow", True),
    ],
)
def test_records_are_cut_only_where_a_border_can_be_found(
    name: str, kind: str, is_cut: bool, tmp_path: Path, files: RoutedFiles
) -> None:
    """Nothing in messages behind their lengths, or in a compressed stream, says where one begins;
    tables know their own borders, whatever a file is called."""
    put(tmp_path, **{name: b"x" * 50})
    of = {"mapred.input.format.class": kind, "fs.local.block.size": 10}

    assert len(ranges(files, [name], **of)) == (5 if is_cut else 1)
