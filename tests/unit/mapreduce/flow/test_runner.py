"""Flows as real processes: killed at every step and at any moment, resumed, two at once (MR-42)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.mapreduce.flow import runner
from mrstream.mapreduce.flow.book import FlowBook, all_flows
from mrstream.mapreduce.flow.brain.messages import Completed, Started, StartStep
from tests.support.local_jobs import TREE

FLOW = """
name: six steps
variables: {out: out}
steps:
  split:   {input: in, mapper: ./split.sh, reducer: NONE}
  counts:  {input: "${split}", mapper: cat, reducer: uniq -c, output: "${out}/counts"}
  longest: {command: "sort -r ${split}/part* | head -1 > ${output}/part-0"}
  total:   {command: "cat ${split}/part* | wc -l > ${output}/part-0", output: "${out}/total"}
  both:    {input: ["${counts}", "${longest}"], mapper: cat, reducer: cat}
  report:  {command: "cat ${both}/part* ${total}/part* > ${output}/text", output: "${out}/report"}
"""
STEPS = ["split", "counts", "longest", "total", "both", "report"]


class Desk:
    """A directory with a flow in it, and a state directory of its own."""

    def __init__(self, room: Path) -> None:
        self.room = room
        (room / "flow.yaml").write_text(FLOW)
        (room / "in").write_text("b a\nc a b\nlongword\n")
        self.write_program('tr -s " " "\\n"')
        self.environment = {
            **{k: v for k, v in os.environ.items() if k != "MRSTREAM_CLUSTER"},
            "MRSTREAM_HOME": str(room / "home"), "PYTHONPATH": str(TREE),
        }  # fmt: skip

    def write_program(self, text: str) -> None:
        (self.room / "split.sh").write_text(f"#!/bin/sh\n{text}\n")
        (self.room / "split.sh").chmod(0o755)

    def start(self, *words: str, dies_at: int | None = None) -> subprocess.Popen[str]:
        """Start a flow; one with `dies_at` is gone before that change (`dying.py`)."""
        mrstream = ["-m", "mrstream.streaming.cli"]
        if dies_at is not None:
            mrstream = [str(Path(__file__).with_name("dying.py")), str(dies_at)]
        return subprocess.Popen(
            [sys.executable, "-P", *mrstream, "flow", *words],
            cwd=self.room, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out + err

    def changes(self) -> int:
        """Count the changes that a whole flow makes."""
        process = self.start("run", "flow.yaml", dies_at=0)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        self.clear()
        return int(said.split("changes: ")[1])

    def clear(self) -> None:
        """Forget all flows and what they left."""
        for path in (self.room / "home", *self.room.glob("out*")):
            shutil.rmtree(path, ignore_errors=True)

    def outputs(self, out: str = "out") -> dict[str, str]:
        """What a flow left under its final names."""
        return {
            str(path.relative_to(self.room / out)): path.read_text()
            for path in sorted((self.room / out).rglob("*"))
            if path.is_file() and path.name != "_flow"
        }

    def left_behind(self) -> list[Path]:
        """What no flow should leave."""
        return [*self.room.glob("out*/_flow_*"), *(self.room / "home").glob("flows/*/work/*")]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    return Desk(tmp_path)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the flow gives if nothing happens to it."""
    desk = Desk(tmp_path_factory.mktemp("undisturbed"))
    status, said = desk.run("run", "flow.yaml")
    assert status == 0, said
    assert desk.left_behind() == []
    return desk.outputs()


def completed(flow_id: str) -> set[str]:
    return {r.key for r in FlowBook(flow_id).records() if isinstance(r, Completed)}


def starts(flow_id: str) -> list[str]:
    return [r.key for r in FlowBook(flow_id).records() if isinstance(r, Started)]


def kill_when(process: subprocess.Popen[str], line: str) -> None:
    """Kill a flow when it says this, as nobody can prepare for."""
    assert process.stderr is not None
    for said in process.stderr:
        if said.startswith(line):
            break
    kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def resume_and_check(desk: Desk, wanted: dict[str, str]) -> None:
    (flow_id,) = all_flows()
    before, begun = completed(flow_id), len(starts(flow_id))

    status, said = desk.run("resume", flow_id)

    assert status == 0, said
    again = starts(flow_id)[begun:]
    assert not set(again) & before, "P2: nothing that was complete ran again"
    assert desk.outputs() == wanted
    assert desk.left_behind() == []


def moments() -> Iterator[str]:
    for step in STEPS:
        yield f"{step}: started"
    yield "split: done"
    yield "report: done"
    yield "counts: out/counts is there"


@pytest.mark.parametrize("moment", moments())
def test_a_flow_killed_at_a_step_goes_on(moment: str, desk: Desk, wanted: dict[str, str]) -> None:
    kill_when(desk.start("run", "flow.yaml"), moment)

    resume_and_check(desk, wanted)


def test_a_flow_that_dies_at_any_change_goes_on(desk: Desk, wanted: dict[str, str]) -> None:
    """Deaths spread over its whole life, one while it resumes; in a soak, all that there are."""
    total = desk.changes()
    is_soak = os.environ.get("MRSTREAM_FLOW_DEATHS") == "all"
    for number in range(1, total) if is_soak else [total * n // 4 for n in (1, 2, 3)]:
        died = desk.start("run", "flow.yaml", dies_at=number)
        died.communicate(timeout=120)
        if died.returncode == 0:
            continue  # steps run side by side: not each run makes as many changes
        assert died.returncode == -signal.SIGKILL
        if all_flows():
            if is_soak or number == total // 2:
                again = desk.start("resume", all_flows()[0], dies_at=number // 2 + 1)
                again.communicate(timeout=120)
            resume_and_check(desk, wanted)
        desk.clear()


def test_two_flows_at_once_do_not_disturb_each_other(desk: Desk, wanted: dict[str, str]) -> None:
    processes = [desk.start("run", "flow.yaml", "-v", f"out=out{n}") for n in (1, 2)]

    for process in processes:
        assert process.communicate(timeout=120) and process.returncode == 0

    assert desk.outputs("out1") == desk.outputs("out2") == wanted


def test_one_flow_is_run_by_one_process(desk: Desk) -> None:
    desk.write_program("sleep 1000")
    process = desk.start("run", "flow.yaml")
    assert process.stderr is not None
    while not process.stderr.readline().startswith("split: started"):
        pass
    (flow_id,) = all_flows()

    status, said = desk.run("resume", flow_id)
    listed = desk.run("list")[1]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert status == 1 and "is being run by another process" in said
    assert "running" in listed
    assert process.returncode == 130
    assert "interrupted" in desk.run("show", flow_id)[1]


def test_a_command_that_will_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Ctrl-C would do nothing for as long as the command takes."""
    monkeypatch.setattr(runner, "COMMAND_ENDS_S_MAX", 0.1)
    deaf = tmp_path / "deaf"
    words = ["sh", "-c", f"trap '' TERM; : > {deaf}; while :; do sleep 0.1; done"]
    step = StartStep("a", "a", str(tmp_path), tuple(words))
    running = runner._Running(step, words, str(tmp_path / "log"), is_job=False)
    until = time.monotonic() + 60
    while not deaf.exists():
        assert time.monotonic() < until
        time.sleep(0.01)

    running.kill()

    assert running.process is not None and running.process.returncode == -signal.SIGKILL


def test_what_changed_runs_again_and_nothing_else(desk: Desk, wanted: dict[str, str]) -> None:
    assert desk.run("run", "flow.yaml")[0] == 0
    (flow_id,) = all_flows()
    count = len(starts(flow_id))

    desk.run("resume", flow_id)
    assert len(starts(flow_id)) == count, "nothing has changed"

    text = FLOW.replace("| wc -l", "| wc -c")
    (desk.room / "flow.yaml").write_text(text)
    status, said = desk.run("resume", flow_id)

    assert status == 0, said
    # `split` and `both` are gone, so whoever reads them needs them anew; `counts` has its name.
    assert sorted(starts(flow_id)[count:]) == ["both", "longest", "report", "split", "total"]
    assert desk.outputs()["total/part-0"].split() != wanted["total/part-0"].split()


def test_a_flow_that_fails_leaves_the_old_outputs_and_goes_on_when_it_is_mended(
    desk: Desk, wanted: dict[str, str]
) -> None:
    assert desk.run("run", "flow.yaml")[0] == 0
    (desk.room / "in").write_text("x y\n")
    desk.write_program("cat > /dev/null; echo no such luck >&2; exit 3")
    (flow_id,) = all_flows()

    status, said = desk.run("resume", flow_id)

    assert status == 1
    assert "step split failed" in said and "no such luck" in said and "flow resume" in said
    assert desk.outputs() == wanted, "the outputs are what they were"
    desk.write_program('tr -s " " "\\n"')
    assert desk.run("resume", flow_id)[0] == 0
    assert desk.outputs()["report/text"].split()[-1] == "2"


LOOP = """
steps:
  count:
    input: ${previous}
    first: in
    mapper: ./down.py
    reducer: NONE
    until: loop,left is 0
    at_most: MOST
    output: out/count
"""
DOWN = """#!/usr/bin/env python3
import sys
for line in sys.stdin:
    number = max(0, int(line) - 1)
    print(number)
    if number:
        print(f"reporter:counter:loop,left,{number}", file=sys.stderr)
"""


@pytest.mark.parametrize(("most", "left", "times"), [(10, ["0", "0"], 3), (2, ["1", "0"], 2)])
def test_a_loop_goes_on_until_its_counter_says_so(
    most: int, left: list[str], times: int, desk: Desk
) -> None:
    (desk.room / "in").write_text("3\n1\n")
    (desk.room / "down.py").write_text(DOWN)
    (desk.room / "flow.yaml").write_text(LOOP.replace("MOST", str(most)))

    status, said = desk.run("run", "flow.yaml")

    assert status == 0, said
    assert desk.outputs()["count/part-00000"].split() == left
    assert starts(all_flows()[0]) == [f"count#{n + 1}" for n in range(times)]
    assert desk.left_behind() == []


def test_chosen_steps_run_alone_and_are_resumed_alone(desk: Desk, wanted: dict[str, str]) -> None:
    desk.write_program("exit 1")
    assert desk.run("run", "flow.yaml", "-steps", "total")[0] == 1
    desk.write_program('tr -s " " "\\n"')
    (flow_id,) = all_flows()

    status, said = desk.run("resume", flow_id)

    assert status == 0, said
    assert completed(flow_id) == {"split", "total"}
    total = {name: text for name, text in wanted.items() if name.startswith("total")}
    assert desk.outputs() == total and total
    assert desk.left_behind() == []


def test_status_says_where_a_result_without_a_name_lies(desk: Desk) -> None:
    assert desk.run("run", "flow.yaml", "-steps", "both")[0] == 0
    (flow_id,) = all_flows()

    said = desk.run("status", flow_id)[1]

    place = said.partition("  both: complete → ")[2].strip()
    assert "longword" in (Path(place) / "part-00000").read_text()
    assert "  split: complete\n" in said, "what is between is gone"


def test_a_dry_run_shows_the_plan_and_changes_nothing(desk: Desk) -> None:
    status, said = desk.run("run", "flow.yaml", "--dry-run")

    assert status == 0
    assert "2. counts after split" in said and "into out/counts" in said
    assert all_flows() == [] and not (desk.room / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "nothing.yaml"), "cannot be read"),
        (("run",), "needs one FILE"),
        (("run", "flow.yaml", "-v", "a"), "NAME=VALUE"),
        (("run", "flow.yaml", "-steps", "all"), "there is no step 'all'"),
        (("run", "flow.yaml", "-steps", ","), "needs the name of a step"),
        (("resume", "flow_none"), "there is no flow"),
        (("resume", "../x"), "needs the id"),
        (("nonsense",), "usage"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(words: tuple[str, ...], says: str, desk: Desk) -> None:
    status, said = desk.run(*words)

    assert status == 1
    assert says in said and "Traceback" not in said


@pytest.mark.parametrize("words", [("-help",), ("run", "--help"), ("resume", "-h")])
def test_help_is_given_behind_a_verb_too(words: tuple[str, ...], desk: Desk) -> None:
    status, said = desk.run(*words)

    assert status == 0
    assert said.startswith("usage: mrstream flow run FILE")
