"""Files and commits on an object store, against moto: an S3 that is not ours (D3, S1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mrstream.cluster.errors import Unavailable, UserError
from mrstream.mapreduce.dataflow import s3_files, s3_store
from mrstream.mapreduce.dataflow.committer import Committer, OutputExists, committer_for
from mrstream.mapreduce.dataflow.files import InputReplaced, RoutedFiles, join
from mrstream.mapreduce.dataflow.input_paths import list_input_files
from mrstream.mapreduce.dataflow.s3_committer import ClaimLost
from mrstream.mapreduce.dataflow.s3_store import (
    NoSuchObject,
    NoSuchUpload,
    ObjectStoreError,
    Store,
)
from mrstream.mapreduce.local.output import DirectoryOutput
from mrstream.streaming.conf.jobconf import JobConf
from tests.support.object_store import client_of, keys_in, made_bucket, running_store, uploads_in

ONE, TWO = "attempt_1_0001_r_000000_0", "attempt_1_0001_r_000000_1"
OTHER = "attempt_1_0001_r_000001_0"
MIB = 1 << 20


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    with running_store() as found:
        yield found


@pytest.fixture
def s3(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    s3_store._clients.clear()
    return client_of(variables)


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    return made_bucket(s3, f"b-{abs(hash(request.node.name)):x}")


@pytest.fixture
def files(bucket: str) -> RoutedFiles:
    return RoutedFiles()


def committer(files: RoutedFiles, bucket: str, **settings: str) -> Committer:
    """A committer for a job that is set up."""
    made = committer_for(JobConf(settings), f"s3://{bucket}/a/out", files)
    made.check_output()
    made.setup_job()
    return made


def attempt(made: Committer, files: RoutedFiles, attempt_id: str, **contents: bytes) -> None:
    """Write files as an attempt would."""
    directory = made.setup_task(attempt_id)
    for name, content in contents.items():
        with files.create(join(directory, name.replace("__", "/").replace("_", "-"))) as out:
            out.write(content)


def body(s3: Any, bucket: str, key: str) -> bytes:
    data: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return data


def is_clean(s3: Any, bucket: str) -> bool:
    """Nothing of a job's own is left."""
    left = [key for key in keys_in(s3, bucket) if "_temporary" in key]
    return not left and not uploads_in(s3, bucket)


# ---- commits -----------------------------------------------------------------------------------


def test_nothing_is_seen_before_the_job_commits_and_then_all_is(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    """D3: a task's commit makes nothing visible; a file is one object, never copied or renamed."""
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"a\n", side__x=b"1", empty=b"")
    attempt(made, files, TWO, part_00000=b"of another attempt")
    attempt(made, files, OTHER, part_00001=b"b\n")
    made.commit_task(ONE)
    made.abort_task(TWO)
    made.commit_task(OTHER)
    seen = [key for key in keys_in(s3, bucket) if "/_temporary/" not in key]

    made.commit_job()

    assert seen == []
    names = ["_SUCCESS", "empty", "part-00000", "part-00001", "side/x"]
    assert keys_in(s3, bucket) == [f"a/out/{name}" for name in names]
    assert body(s3, bucket, "a/out/part-00000") == b"a\n"
    assert body(s3, bucket, "a/out/empty") == b""
    assert is_clean(s3, bucket)


def test_a_file_of_several_parts(
    s3: Any, bucket: str, files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_files, "PART_BYTES", 5 * MIB)  # no store takes smaller ones
    data = bytes(range(256)) * (12 * MIB // 256) + b"end"
    made = committer(files, bucket)
    out = files.create(join(made.setup_task(ONE), "part-00000"))
    for start in range(0, len(data), 3 * MIB):
        out.write(data[start : start + 3 * MIB])
    assert out.tell() == len(data)
    out.close()
    made.commit_task(ONE)
    made.commit_job()

    assert body(s3, bucket, "a/out/part-00000") == data
    assert s3.head_object(Bucket=bucket, Key="a/out/part-00000")["ETag"].endswith('-3"')


def test_a_file_of_too_many_parts_is_refused_with_what_to_do(
    bucket: str, files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_files, "PART_BYTES", 4)
    monkeypatch.setattr(s3_files, "PARTS_MAX", 2)
    out = files.create(f"s3://{bucket}/x")
    out.write(b"12345678")
    with pytest.raises(ObjectStoreError, match="more reduces make smaller files"):
        out.write(b"9abc")


def test_every_step_of_a_commit_may_be_asked_for_again(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    """A master that lost the answer asks again, of a new committer."""
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"a\n")
    for _ in range(2):
        committer_for(JobConf(), made.output_url, files).commit_task(ONE)
    for _ in range(2):
        again = committer_for(JobConf(), made.output_url, files)
        again.setup_job()
        again.commit_job()

    assert keys_in(s3, bucket) == ["a/out/_SUCCESS", "a/out/part-00000"]
    assert is_clean(s3, bucket)


@pytest.mark.parametrize("completed", [0, 1, 2, 3])
def test_a_job_commit_that_died_is_finished_by_the_next(
    s3: Any, bucket: str, files: RoutedFiles, completed: int
) -> None:
    """Some uploads are objects already: theirs are told by their owner, and are not an error."""
    made = committer(files, bucket)
    for number in range(3):
        name = f"attempt_1_0001_r_00000{number}_0"
        attempt(made, files, name, **{f"part_{number}": b"%d\n" % number})
        made.commit_task(name)
    claims = [made._claim(f"attempt_1_0001_r_00000{n}_0") for n in range(completed)]  # type: ignore[attr-defined]
    for claim in claims:
        made._store.complete(claim.uploads[0])  # type: ignore[attr-defined]

    again = committer_for(JobConf(), made.output_url, files)
    again.setup_job()
    again.commit_job()

    parts = [f"a/out/part-{number}" for number in range(3)]
    assert keys_in(s3, bucket) == ["a/out/_SUCCESS", *parts]
    assert is_clean(s3, bucket)


def test_an_upload_that_somebody_threw_away_fails_the_commit(
    s3: Any, bucket: str, files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older object of the same name is not taken for it. (moto itself answers 500 to this.)"""
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"new\n")
    made.commit_task(ONE)
    s3.put_object(Bucket=bucket, Key="a/out/part-00000", Body=b"old\n")
    call = Store.call

    def gone(store: Store, operation: str, **words: Any) -> dict[str, Any]:
        if operation == "complete_multipart_upload":
            raise NoSuchUpload("gone")
        return call(store, operation, **words)

    monkeypatch.setattr(Store, "call", gone)
    with pytest.raises(NoSuchUpload):
        made.commit_job()

    assert "a/out/_SUCCESS" not in keys_in(s3, bucket)


def test_an_attempt_whose_right_was_taken_away_cannot_commit(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    """S1: it may still run, behind a broken network, when another has taken its place."""
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"late")
    made.abort_task(ONE)
    attempt(made, files, ONE, part_00000=b"later")
    with pytest.raises(ClaimLost, match=ONE):
        made.commit_task(ONE)
    attempt(made, files, TWO, part_00000=b"right")
    made.commit_task(TWO)
    made.commit_job()

    assert body(s3, bucket, "a/out/part-00000") == b"right"
    assert is_clean(s3, bucket)


def test_a_right_taken_away_after_the_commit_takes_the_output_along(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"first", first=b"1")
    made.commit_task(ONE)
    made.abort_task(ONE)
    attempt(made, files, TWO, part_00000=b"second")
    made.commit_task(TWO)
    made.commit_job()

    assert keys_in(s3, bucket) == ["a/out/_SUCCESS", "a/out/part-00000"]
    assert body(s3, bucket, "a/out/part-00000") == b"second"


def test_a_failed_job_leaves_nothing(s3: Any, bucket: str, files: RoutedFiles) -> None:
    """Nor does an attempt that comes too late."""
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"a\n")
    made.commit_task(ONE)
    half = files.create(join(made.setup_task(OTHER), "part-00001"))
    half.write(b"x" * 100)
    half.close()
    made.abort_job(is_killed=True)
    made.abort_task(OTHER)
    made.commit_task(ONE)

    assert keys_in(s3, bucket) == []
    assert uploads_in(s3, bucket) == []


def test_a_job_that_a_person_stopped_leaves_nothing(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    """There is no empty directory to take away: to look for one ended Ctrl-C with an error."""
    output = DirectoryOutput(JobConf({}), files, f"s3://{bucket}/out")
    output.begin()

    output.abort_job(is_interrupted=True)

    assert keys_in(s3, bucket) == []


def test_uploads_of_a_killed_job_go_when_the_next_begins(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    attempt(committer(files, bucket), files, ONE, part_00000=b"killed")
    s3.create_multipart_upload(Bucket=bucket, Key="a/outside")  # somebody else's
    with pytest.raises(OutputExists):
        committer(files, bucket)

    made = committer_for(
        JobConf({"mrstream.output.overwrite": "true"}), f"s3://{bucket}/a/out", files
    )
    made.check_output()
    made.clear_output()
    made.setup_job()

    assert uploads_in(s3, bucket) == ["a/outside"]


def test_of_two_jobs_that_both_found_nothing_one_gets_the_output(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    """A local job has no master that knows of others; the second touches nothing of the first."""
    one, two = (committer_for(JobConf({}), f"s3://{bucket}/a/out", files) for _ in range(2))
    one.check_output()
    two.check_output()
    one.take_output()
    attempt(one, files, ONE, part_00000=b"a\n")

    with pytest.raises(OutputExists, match="another job has begun to write it"):
        two.take_output()
    one.commit_task(ONE)
    one.commit_job()

    assert body(s3, bucket, "a/out/part-00000") == b"a\n"
    assert is_clean(s3, bucket)


def test_a_directory_that_shall_be_new_is_made_once(bucket: str, files: RoutedFiles) -> None:
    files.make_new(f"s3://{bucket}/d")

    with pytest.raises(FileExistsError):
        files.make_new(f"s3://{bucket}/d")


def test_what_a_program_stored_itself_is_committed_too(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    """It finds the room in mapreduce_task_output_dir, and any client writes there."""
    made = committer(files, bucket)
    attempt(made, files, ONE, part_00000=b"a\n")
    room = made.attempt_dir(ONE).partition(f"{bucket}/")[2]
    s3.put_object(Bucket=bucket, Key=f"{room}/picture/1", Body=b"png")
    made.commit_task(ONE)
    made.commit_job()

    assert keys_in(s3, bucket) == [f"a/out/{n}" for n in ("_SUCCESS", "part-00000", "picture/1")]
    assert is_clean(s3, bucket)


def test_an_output_with_objects_below_it_is_refused(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    s3.put_object(Bucket=bucket, Key="a/out/old", Body=b"")
    with pytest.raises(OutputExists, match=f"Output directory s3://{bucket}/a/out already exists"):
        committer(files, bucket)


# ---- files -------------------------------------------------------------------------------------


def test_keys_are_files_and_what_they_begin_with_directories(
    s3: Any, bucket: str, files: RoutedFiles
) -> None:
    top = f"s3://{bucket}"
    for key in ("in/b", "in/a", "in/sub/c", "in2"):
        with files.create(f"{top}/{key}") as out:
            out.write(key.encode())
    files.mkdirs(f"{top}/made/below")

    assert [entry.url for entry in files.list(f"{top}/in")] == [
        f"{top}/in/{n}" for n in ("a", "b", "sub")
    ]
    assert [entry.name for entry in files.list(top)] == ["in", "in2", "made"]
    found = files.status(f"{top}/in")
    assert found is not None and found.is_directory
    assert files.status(f"{top}/i") is None
    assert files.exists(f"{top}/made/below") and files.list(f"{top}/made/below") == []
    assert files.status(f"{top}/in/b").length == 4  # type: ignore[union-attr]
    listed = list_input_files([f"{top}/in*", f"{top}/in/[ab]"], files, ignore_subdirs=True)
    assert [entry.name for entry in listed] == ["a", "b", "in2", "a", "b"]
    files.rename(f"{top}/in", f"{top}/moved")
    assert keys_in(s3, bucket) == ["in2", "made/below/", "moved/a", "moved/b", "moved/sub/c"]
    files.delete(f"{top}/moved")
    files.delete(f"{top}/moved")
    assert keys_in(s3, bucket) == ["in2", "made/below/"]
    with pytest.raises(NoSuchObject):
        files.open(f"{top}/moved/a")
    assert files.status("s3://no-such-bucket-at-all/x") is None


def test_a_file_is_read_from_anywhere(bucket: str, files: RoutedFiles) -> None:
    url = f"s3a://{bucket}/f"
    with files.create(url) as out:
        out.write(b"0123456789")
    with files.open(url, 3) as file:
        assert file.read(2) == b"34"
        assert file.seek(-2, 2) == 8
        assert file.read() == b"89"
        assert file.read(1) == b""
        file.seek(0)
        assert file.read(100) == b"0123456789"


def test_a_store_that_hangs_up_is_asked_for_the_rest(
    bucket: str, files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{bucket}/f"
    with files.create(url) as out:
        out.write(b"0123456789")
    file = files.open(url)
    rest = s3_files._Reader._rest
    asked: list[int] = []

    class Short:
        """A body that ends too early."""

        def __init__(self, body: Any) -> None:
            self._left = body.read(4)

        def read(self, count: int) -> bytes:
            data, self._left = self._left[:count], self._left[count:]
            return data

        def close(self) -> None:
            pass

    def short(reader: Any) -> Any:
        asked.append(reader.tell())
        return Short(rest(reader))

    monkeypatch.setattr(s3_files._Reader, "_rest", short)

    assert b"".join(iter(lambda: file.read(3), b"")) == b"0123456789"
    assert asked == [0, 4, 8]


def test_an_input_that_was_replaced_is_noticed(s3: Any, bucket: str, files: RoutedFiles) -> None:
    url = f"s3://{bucket}/f"
    s3.put_object(Bucket=bucket, Key="f", Body=b"one")
    (status,) = files.list(f"s3://{bucket}/")
    file = files.open(url, version=status.version)
    s3.put_object(Bucket=bucket, Key="f", Body=b"two")

    with pytest.raises(InputReplaced):
        file.read(1)
    with pytest.raises(InputReplaced):
        files.open(url, version=status.version)


def test_a_file_whose_writer_failed_is_not_stored(s3: Any, bucket: str, files: RoutedFiles) -> None:
    with pytest.raises(ZeroDivisionError), files.create(f"s3://{bucket}/f") as out:
        out.write(b"half")
        raise ZeroDivisionError

    assert keys_in(s3, bucket) == []


def test_a_store_without_keys_or_bucket_is_one_clear_line(
    files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ObjectStoreError, match="names no bucket"):
        files.qualify("s3:///x")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    s3_store._clients.clear()
    with pytest.raises(ObjectStoreError, match="no keys to it: set AWS_ACCESS_KEY_ID"):
        files.exists("s3://bucket/x")


def test_a_store_that_does_not_answer_is_worth_another_try(
    bucket: str, files: RoutedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that commits tries again as long as it takes, instead of failing the job."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(s3_store, "TRIES_MAX", 1)
    s3_store._clients.clear()
    with pytest.raises(Unavailable, match="Could not connect"):
        files.exists(f"s3://{bucket}/x")


def test_a_whole_bucket_is_no_output(bucket: str, files: RoutedFiles) -> None:
    """All uploads below an output are the job's to abort; those of a bucket are anybody's."""
    with pytest.raises(UserError, match=f"-output s3://{bucket}/DIRECTORY"):
        committer_for(JobConf(), f"s3://{bucket}/", files)
