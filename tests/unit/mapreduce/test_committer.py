"""Committer and output formats: records become visible files."""

from __future__ import annotations

import gzip
import io
import os
import struct
from pathlib import Path

import pytest

from mrstream.mapreduce.dataflow.committer import BadCommitter, Committer, OutputExists
from mrstream.mapreduce.dataflow.files import RoutedFiles, join
from mrstream.mapreduce.typed_bytes_files import PathExists, dumptb, loadtb
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.output_format import input_file_name, open_output
from mrstream.streaming.formats.sequence_file import SequenceFileReader
from mrstream.streaming.formats.sequence_output import WrongClass
from mrstream.streaming.formats.typed_bytes import encode
from mrstream.streaming.formats.writable import BYTES, LONG, NULL, TEXT, TYPED_BYTES, WritableType

ATTEMPT = "attempt_1_0001_m_000000_0"
VERSION = "mapreduce.fileoutputcommitter.algorithm.version"


@pytest.fixture
def files(tmp_path: Path) -> RoutedFiles:
    """The local disk."""
    return RoutedFiles("file:///", str(tmp_path))


def tree(root: Path) -> list[str]:
    """Every file below a directory."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def committer(files: RoutedFiles, output: str = "out", **settings: str) -> Committer:
    """A committer for a job that is set up."""
    made = Committer(JobConf(settings), output, files)
    made.check_output()
    made.setup_job()
    return made


def attempt(made: Committer, files: RoutedFiles, attempt_id: str, **contents: bytes) -> None:
    """Write files as an attempt would."""
    directory = made.setup_task(attempt_id)
    for name, content in contents.items():
        with files.create(join(directory, name.replace("__", "/").replace("_", "-"))) as out:
            out.write(content)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_committed_task_is_in_the_output_and_the_rest_is_gone(
    tmp_path: Path, files: RoutedFiles, version: str
) -> None:
    """Spec 8.4; side files of the program are committed with the task (7.4)."""
    made = committer(files, **{VERSION: version})
    attempt(made, files, ATTEMPT, part_00000=b"a\n", side__x=b"1")
    attempt(made, files, "attempt_1_0001_m_000000_1", part_00000=b"half")
    made.commit_task(ATTEMPT)
    seen_early = tree(tmp_path / "out")
    made.abort_task("attempt_1_0001_m_000000_1")
    made.commit_job()

    assert ("part-00000" in seen_early) == (version == "2")
    assert tree(tmp_path / "out") == ["_SUCCESS", "part-00000", "side/x"]
    assert (tmp_path / "out/part-00000").read_bytes() == b"a\n"
    assert not (tmp_path / "out/_temporary").exists()


@pytest.mark.parametrize(("version", "left"), [("1", []), ("2", ["part-00000"])])
def test_a_failed_job_keeps_what_its_version_had_published(
    tmp_path: Path, files: RoutedFiles, version: str, left: list[str]
) -> None:
    """Spec 8.4: the directory stays; no _SUCCESS; with version 1 it is empty."""
    made = committer(files, **{VERSION: version})
    attempt(made, files, ATTEMPT, part_00000=b"a\n")
    made.commit_task(ATTEMPT)
    made.abort_job(is_killed=False)

    assert tree(tmp_path / "out") == left
    assert (tmp_path / "out").is_dir()


def test_a_directory_that_was_made_in_vain_goes_if_a_person_stopped_the_job(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Else the same command, said again, finds its own output in the way; parts stay."""
    made = committer(files)
    for _ in range(2):  # a master that lost the answer asks again
        made.abort_job(is_killed=True)
    assert not (tmp_path / "out").exists()

    attempt(made, files, ATTEMPT, part_00000=b"a\n")
    made.commit_task(ATTEMPT)
    made.abort_job(is_killed=True)
    assert tree(tmp_path / "out") == ["part-00000"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_commit_may_be_asked_for_again(tmp_path: Path, files: RoutedFiles, version: str) -> None:
    """A master that lost the answer asks again; the result is the same."""
    made = committer(files, **{VERSION: version})
    attempt(made, files, ATTEMPT, part_00000=b"a\n")
    for _ in range(2):
        made.commit_task(ATTEMPT)
    for _ in range(2):
        made.commit_job()

    assert tree(tmp_path / "out") == ["_SUCCESS", "part-00000"]


def test_a_file_is_never_seen_under_its_name_before_it_is_complete(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """D3."""
    made = committer(files)
    out = files.create(join(made.setup_task(ATTEMPT), "part-00000"))
    out.write(b"half")

    assert [name for name in os.listdir(tmp_path / "out") if name != "_temporary"] == []
    out.close()
    made.commit_task(ATTEMPT)
    assert (tmp_path / "out/part-00000").read_bytes() == b"half"


def test_an_existing_output_is_refused(tmp_path: Path, files: RoutedFiles) -> None:
    """Spec 1.4: exit 5, in these words."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()

    with pytest.raises(OutputExists) as caught:
        committer(files)

    assert str(caught.value) == f"Output directory file:{tmp_path}/out already exists"
    assert caught.value.exit_status == 5


def test_success_may_go_unmarked_and_versions_are_checked(
    tmp_path: Path, files: RoutedFiles
) -> None:
    """Spec 8.4: mapreduce.fileoutputcommitter.marksuccessfuljobs."""
    made = committer(files, **{"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"})
    made.commit_job()

    assert tree(tmp_path / "out") == []
    with pytest.raises(BadCommitter):
        Committer(JobConf({VERSION: "3"}), "other", files)


def test_output_may_go_to_any_fsspec_url(files: RoutedFiles) -> None:
    """The committer works over the seam, not over the disk."""
    made = committer(files, "memory://results/out")
    attempt(made, files, ATTEMPT, part_00000=b"a\n")
    made.commit_task(ATTEMPT)
    made.commit_job()

    assert [status.name for status in files.list("memory://results/out")] == [
        "_SUCCESS",
        "part-00000",
    ]
    assert files.open("memory://results/out/part-00000").read() == b"a\n"


class Made:
    """Files in memory, by name, as `open_output` makes them."""

    def __init__(self) -> None:
        self.files: dict[str, io.BytesIO] = {}
        self.closed: dict[str, bytes] = {}

    def create(self, name: str) -> io.BytesIO:
        made = self

        class File(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    made.closed[name] = self.getvalue()
                super().close()

        self.files[name] = File()
        return self.files[name]


def outputs(
    records: list[tuple[bytes, bytes]],
    key_type: WritableType = TEXT,
    value_type: WritableType = TEXT,
    input_url: str | None = None,
    **settings: str,
) -> dict[str, bytes]:
    """The files that a task with these records leaves."""
    made = Made()
    writer = open_output(
        JobConf(settings),
        made.create,
        3,
        key_type=key_type,
        value_type=value_type,
        input_url=input_url,
    )
    writer.write_records(iter(records))
    writer.close()
    assert writer.records_written == len(records)
    return made.closed


SEQUENCE_FILE = {
    "mapred.output.format.class": "SequenceFileOutputFormat",
    "mapreduce.job.output.key.class": "org.apache.hadoop.io.Text",
    "mapreduce.job.output.value.class": "org.apache.hadoop.io.LongWritable",
}


@pytest.mark.parametrize(
    ("key_type", "value_type", "record", "line"),
    [
        (TEXT, TEXT, (b"k", b"v"), b"k\tv\n"),
        (TEXT, TEXT, (b"k", b""), b"k\t\n"),
        (TEXT, NULL, (b"k", b""), b"k\n"),
        (NULL, TEXT, (b"", b"v"), b"v\n"),
        (LONG, TEXT, (struct.pack(">q", 12), b"v"), b"12\tv\n"),
        (BYTES, BYTES, (b"AB", b"\0\xff"), b"41 42\t00 ff\n"),
        (TYPED_BYTES, TYPED_BYTES, (encode("w"), encode(3)), b"w\t3\n"),
    ],
)
def test_text_output_prints_each_type_as_hadoop_does(
    key_type: WritableType, value_type: WritableType, record: tuple[bytes, bytes], line: bytes
) -> None:
    """Spec 4.4 and 9."""
    assert outputs([record], key_type, value_type) == {"part-00003": line}


def test_text_that_is_in_its_final_form_passes_through() -> None:
    """The fast path: the kernel has written the lines."""
    made = Made()
    writer = open_output(JobConf({}), made.create, 0, key_type=TEXT, value_type=TEXT)
    writer.write(b"a\t1\nb\t2\n", records=2)
    writer.close()

    assert made.closed == {"part-00000": b"a\t1\nb\t2\n"}
    assert (writer.records_written, writer.bytes_written) == (2, 8)


def test_compressed_output_has_the_codecs_suffix() -> None:
    """Spec 8.4."""
    found = outputs(
        [(b"k", b"v")],
        **{
            "mapreduce.output.fileoutputformat.compress": "true",
            "mapreduce.output.fileoutputformat.compress.codec": "GzipCodec",
        },
    )

    assert list(found) == ["part-00003.gz"]
    assert gzip.decompress(found["part-00003.gz"]) == b"k\tv\n"


def test_every_task_makes_its_file_unless_output_is_lazy_or_null() -> None:
    """Spec 8.4."""
    lazy = {"mapred.output.format.class": "org.apache.hadoop.mapred.lib.LazyOutputFormat"}

    assert outputs([]) == {"part-00003": b""}
    assert outputs([], **lazy) == {}
    assert outputs([(b"k", b"v")], **lazy) == {"part-00003": b"k\tv\n"}
    assert outputs([(b"k", b"v")], **{"mapred.output.format.class": "NullOutputFormat"}) == {}


@pytest.mark.parametrize(
    ("legs", "name"), [(0, None), (1, "f.txt"), (2, "b/f.txt"), (9, "a/b/f.txt")]
)
def test_multiple_text_output_is_named_after_the_input(legs: int, name: str | None) -> None:
    """Spec 8.4: mapred.outputformat.numOfTrailingLegs, in a map-only job."""
    assert input_file_name("file:/a/b/f.txt", legs) == name
    found = outputs(
        [(b"k", b"v")],
        input_url="file:/a/b/f.txt",
        **{
            "mapred.output.format.class": "MultipleTextOutputFormat",
            "mapred.outputformat.numOfTrailingLegs": str(legs),
        },
    )
    assert list(found) == [name or "part-00003"]


@pytest.mark.parametrize("compression", ["NONE", "RECORD", "BLOCK"])
def test_sequence_file_output_has_the_declared_classes(compression: str) -> None:
    """Spec 8.4."""
    record = (b"k", struct.pack(">q", 5))
    settings = {
        "mapreduce.output.fileoutputformat.compress": "true",
        "mapreduce.output.fileoutputformat.compress.type": compression,
    }

    found = outputs([record], TEXT, LONG, **SEQUENCE_FILE, **settings)

    reader = SequenceFileReader(io.BytesIO(found["part-00003"]))
    assert list(reader) == [record]
    assert (reader.key_type, reader.value_type) == (TEXT, LONG)


def test_sequence_file_output_of_another_class_is_refused() -> None:
    """Spec 2, the golden case seq_out_identity_fails."""
    with pytest.raises(WrongClass) as caught:
        outputs([(b"k", b"v")], TEXT, TEXT, **SEQUENCE_FILE)

    assert str(caught.value) == (
        "wrong value class: org.apache.hadoop.io.Text "
        "is not class org.apache.hadoop.io.LongWritable"
    )


def test_typed_bytes_are_loaded_and_dumped(tmp_path: Path) -> None:
    """Spec 9: loadtb makes a sequence file of TypedBytesWritable, dumptb gives the bytes back."""
    files = RoutedFiles("file:///", str(tmp_path))
    pairs = encode("k") + encode(1) + encode("l") + encode([1, 2])

    assert loadtb("f.seq", files, io.BytesIO(pairs)) == 2
    out = io.BytesIO()
    dumptb("f.*", files, out)

    assert out.getvalue() == pairs
    with pytest.raises(PathExists, match=r"^given path exists already!$") as caught:
        loadtb("f.seq", files, io.BytesIO(pairs))
    assert caught.value.exit_status == 255
    assert os.listdir(tmp_path) == ["f.seq"]


def test_text_is_dumped_with_its_offsets(tmp_path: Path) -> None:
    """Spec 9: text as offset and line."""
    (tmp_path / "f").write_bytes(b"ab\n")
    out = io.BytesIO()

    dumptb("f", RoutedFiles("file:///", str(tmp_path)), out)

    assert out.getvalue() == b"\x04" + struct.pack(">q", 0) + encode("ab")
