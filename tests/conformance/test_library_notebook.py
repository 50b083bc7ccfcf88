"""The library in a notebook: a real kernel, asked as a notebook asks it."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.support.local_jobs import TREE, processes_with

SECONDS_MAX = 60.0
pytestmark = pytest.mark.timeout(90)


class Notebook:
    """A kernel, and its cells."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def start(self, code: str) -> str:
        """Begin to run a cell."""
        return str(self.client.execute(code))

    def messages(self, cell: str) -> Iterator[dict[str, Any]]:
        """Give what a cell shows, until it is done."""
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=SECONDS_MAX)
            except queue.Empty:
                raise AssertionError("the kernel says nothing") from None
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return
            yield message

    def run(self, code: str) -> list[dict[str, Any]]:
        """Run a cell; give all that it showed."""
        return list(self.messages(self.start(code)))


def text_of(messages: list[dict[str, Any]]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    room = tmp_path_factory.mktemp("notebook")
    (room / "in").write_text("b a\na c\n")
    environment = {k: v for k, v in os.environ.items() if k != "MRSTREAM_CLUSTER"}
    manager, client = start_new_kernel(
        kernel_name="python3", cwd=str(room),
        env={**environment, "MRSTREAM_HOME": str(room / "home"), "PYTHONPATH": str(TREE),
             "IPYTHONDIR": str(room / "ipython")},
    )  # fmt: skip
    try:
        made = Notebook(manager, client)
        made.run("import mrstream as mr")  # each test alone must do, in whatever order
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_functions_of_cells_travel_and_a_bar_shows_how_far_the_job_is(notebook: Notebook) -> None:
    notebook.run("factor = 2\ndef words(line):\n    for word in line.split(): yield word, factor\n")
    shown = notebook.run(
        "result = mr.Job('in', mapper=words, reducer=lambda w, ns: [(w, sum(ns))]).run()\n"
        "print(list(result))"
    )

    assert text_of(shown) == "[('a', 4), ('b', 2), ('c', 2)]\n"
    bars = [m for m in shown if m["msg_type"] in ("display_data", "update_display_data")]
    assert bars[0]["msg_type"] == "display_data"
    last = bars[-1]["content"]["data"]["text/html"]
    assert "succeeded" in last and 'value="100"' in last and "Map input records" in last


def test_the_stop_button_kills_the_job(notebook: Notebook, tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    cell = notebook.start(
        "try:\n"
        f"    mr.Job('in', mapper='sleep 1000', D={{'mark': '{mark}'}}).run()\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped')"
    )
    shown, is_stopped = [], False
    for message in notebook.messages(cell):
        shown.append(message)
        if message["msg_type"] == "update_display_data" and not is_stopped:
            is_stopped = True
            notebook.manager.interrupt_kernel()  # it waits by now

    assert text_of(shown).endswith("stopped\n")
    assert processes_with(mark) == []


def test_a_failure_is_shown_with_its_record(notebook: Notebook) -> None:
    shown = notebook.run(
        "def fails(line):\n    raise ValueError('not ' + line)\nmr.Job('in', mapper=fails).run()"
    )

    (error,) = [m["content"] for m in shown if m["msg_type"] == "error"]
    assert error["ename"] == "JobFailed"
    assert "ValueError: not b a" in error["evalue"] and "mrstream -repeat" in error["evalue"]
