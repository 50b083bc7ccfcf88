"""`mr.Flow`: chains of Python functions, resumed, side by side with commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import mrstream as mr
from tests.conformance.test_library import total, words


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    Path("in").write_text("b a\na c\n")
    return tmp_path


def by_count(word: str, count: int) -> Iterator[tuple[int, str]]:
    yield count, word


def listed(count: int, found: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    yield count, sorted(found)


def size_of(output: str, source: str) -> None:
    size = sum(len(path.read_bytes()) for path in Path(source).glob("part-*"))
    Path(output, "part-0").write_text(f"{size}\n")


def chain(factor: int = 1) -> tuple[mr.Flow, mr.FlowStep, mr.FlowStep]:
    def times(word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield word, factor * sum(counts)

    flow = mr.Flow("chain")
    counts = flow.job("in", mapper=words, combiner=total, reducer=times, name="counts")
    groups = flow.job(counts, mapper=by_count, reducer=listed, output="groups", name="groups")
    size = flow.call(size_of, groups, name="size", output="size")
    flow.command("cat ${size}/part-0 > ${output}/part-1", after=[groups], name="copy")
    return flow, groups, size


def test_a_chain_of_functions_gives_its_records() -> None:
    flow, groups, size = chain()

    result = flow.run()

    assert list(result[groups]) == [(1, ["b", "c"]), (2, ["a"])]
    assert list(result[size]) == [b"%d" % len(Path("groups/part-00000").read_bytes())]
    assert result.outputs["groups"] == "groups"
    assert "counts" not in result.outputs, "what is between is removed"
    assert len(result) == len(list(result))


def test_chosen_steps_bring_what_they_need_and_no_more() -> None:
    flow, groups, size = chain()

    result = flow.run(steps=[groups])

    assert result.started == ["counts", "groups"]
    assert list(result[groups]) == [(1, ["b", "c"]), (2, ["a"])]
    with pytest.raises(KeyError, match="size"):
        result[size]


def test_a_resumed_chain_runs_what_changed_and_nothing_else() -> None:
    first = chain()[0].run()

    same = chain()[0].resume(first.flow_id)
    other = chain(factor=2)[0].resume(first.flow_id)

    assert same.started == []
    assert sorted(other.started) == ["copy", "counts", "groups", "size"]
    assert Path("groups/part-00000").read_text() == '2\t["b","c"]\n4\t["a"]\n'


def test_a_leaf_without_a_name_can_be_read() -> None:
    flow = mr.Flow("leaf")
    counts = flow.job("in", mapper=words, reducer=total)

    assert list(flow.run()[counts]) == [("a", 2), ("b", 1), ("c", 1)]


def test_a_step_reads_an_input_that_is_no_file_and_runs_again_when_that_changed() -> None:
    def flow(first: str) -> mr.Flow:
        class Pages:
            def splits(self) -> list[str]:
                return [first, "b"]

            def records(self, page: str) -> list[str]:
                return [page, "c"]

        made = mr.Flow("pages")
        made.job(Pages, mapper=words, reducer=total, output="out", name="count")
        return made

    done = flow("a").run()

    assert Path("out/part-00000").read_text() == '"a"\t1\n"b"\t1\n"c"\t2\n'
    assert flow("a").resume(done.flow_id).started == []
    assert flow("d").resume(done.flow_id).started == ["count"]


def test_functions_run_in_a_loop() -> None:
    Path("numbers").write_text('"x"\t3\n"y"\t1\n')

    def down(name: str, number: int) -> Iterator[tuple[str, int]]:
        if number > 1:
            mr.count("loop", "left")
        yield name, max(0, number - 1)

    flow = mr.Flow("loop")
    last = flow.job("numbers", mapper=down, until="loop,left is 0", name="down")
    result = flow.run()

    assert list(result[last]) == [("x", 0), ("y", 0)]
    assert result.started == ["down#1", "down#2", "down#3"]


def test_a_step_that_fails_is_named_and_the_flow_can_be_resumed() -> None:
    def fails(line: str) -> None:
        raise ValueError("not today")

    flow = mr.Flow("failing")
    flow.job("in", mapper=fails, name="bad")
    with pytest.raises(mr.FlowFailed, match=r"(?s)step bad failed.*not today") as failed:
        flow.run()

    mended = mr.Flow("failing")
    good = mended.job("in", mapper=words, name="bad")
    assert len(list(mended.resume(failed.value.flow_id)[good])) == 4
    another = mr.Flow("another")
    another.job("in", mapper=words)
    with pytest.raises(Exception, match="called 'failing'"):
        another.resume(failed.value.flow_id)


def test_a_flow_that_cannot_run_is_told_before_anything_runs() -> None:
    flow = mr.Flow("wrong")
    flow.job("nowhere", mapper=words)
    with pytest.raises(Exception, match="Input path does not exist"):
        flow.run()
    with pytest.raises(Exception, match="at least one step"):
        mr.Flow("empty").run()
    with pytest.raises(Exception, match="whenever"):
        flow.job("in", mapper=words, until="whenever")


def test_a_flow_that_needs_this_python_is_not_detached() -> None:
    with pytest.raises(ValueError, match="step 'size' needs this machine"):
        chain()[0].detach()
    flow, groups, _ = chain()
    with pytest.raises(ValueError, match="needs a cluster"):  # without that step it could be
        flow.detach(steps=[groups])

    class Pages:
        def splits(self) -> list[str]:
            return ["a"]

        def records(self, page: str) -> list[str]:
            return [page]

    reading = mr.Flow("reading")
    reading.job(Pages, mapper=words, name="pages")
    with pytest.raises(ValueError, match="step 'pages' needs this machine"):
        reading.detach()
    alone = mr.Flow("alone")
    alone.job("in", mapper=words, reducer=total)
    with pytest.raises(ValueError, match="needs a cluster"):
        alone.detach()
