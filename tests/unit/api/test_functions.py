"""Functions on their way: by value, for the right Python, found again by `-repeat`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mrstream as mr
from mrstream.api.functions import (
    BadFunctions,
    _is_local,
    keep,
    pack,
    stage_of,
    takes_pairs,
    unpack,
    unpack_value,
)
from tests.support import local_jobs

FACTOR = 3


def times(line: str) -> Any:
    yield line, FACTOR


def job(mapper: Any, **more: Any) -> mr.Job:
    return mr.Job("in", mapper=mapper, **more)


def test_a_function_of_a_module_beside_the_script_travels_with_what_it_uses() -> None:
    data = pack(job(times).functions())
    code = (
        "import sys; from mrstream.api.functions import unpack\n"
        "print(list(unpack(sys.stdin.buffer.read()).mapper('x')), 'tests' in sys.modules)"
    )

    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], input=data, stdout=subprocess.PIPE, check=True
    )

    assert ran.stdout == b"[('x', 3)] False\n"


def test_what_is_not_ours_is_not_left_registered() -> None:
    import cloudpickle

    pack(job(times).functions())

    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_a_module_that_is_known_by_two_names_travels_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def double(line):\n    yield line, 2\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "theirs.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    mine = importlib.import_module("mine")
    monkeypatch.setitem(sys.modules, "also_mine", mine)
    theirs = importlib.import_module("theirs")

    data = pack(mr.Job("in", mapper=mine.double).functions())

    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.delitem(sys.modules, "also_mine")
    (tmp_path / "mine.py").unlink()
    assert list(unpack(data).mapper("a")) == [("a", 2)], "by value: there is no file of it any more"
    assert not _is_local("theirs", theirs), "what an environment has installed is not sent"


def test_what_cannot_travel_is_told_with_what_to_do() -> None:
    lock = threading.Lock()

    with pytest.raises(BadFunctions, match=r"cannot travel.*setup"):
        pack(job(lambda line: [lock]).functions())


def test_another_python_is_refused_before_its_byte_code_is_run() -> None:
    data = pack(job(times).functions()).replace(b"%d.%d\n" % sys.version_info[:2], b"2.7\n", 1)

    with pytest.raises(BadFunctions, match=r"Python 2\.7"):
        unpack(data)
    with pytest.raises(BadFunctions, match="no file of functions"):
        unpack(b"something else")


SAME = """
import enum, sys
from mrstream.api.functions import pack_value, unpack_value

STOP = {"the", "a", "of", ("x", 1), None, 2.5, frozenset({"p", "q", "r"})}

class Colour(enum.Enum):
    RED = 1

class Base:
    seen = STOP

class Mapper(Base):
    def map(self, line):
        return [w for w in line.split() if w not in STOP and w not in {"in", "on", "at", "to"}]

def reduce(key, values):
    return Colour.RED, key in Mapper.seen

if __name__ == "__main__":
    data = pack_value((Mapper, reduce, STOP))
    sys.stdout.buffer.write(data)
"""


def test_the_same_functions_are_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    """A flow that is resumed by another process knows by them what need not run again; sets and
    classes by value are what differs with chance."""
    script = tmp_path / "same.py"
    script.write_text(SAME)
    packed = [
        subprocess.run(
            [sys.executable, str(script)], stdout=subprocess.PIPE, check=True,
            env={**os.environ, "PYTHONPATH": str(local_jobs.TREE), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip

    assert packed[0] == packed[1]
    mapper, reduce, stop = unpack_value(packed[0])
    assert mapper().map("to be in the sea") == ["be", "sea"]
    assert reduce("of", [])[1] and not reduce("sea", [])[1]
    assert stop == {"the", "a", "of", ("x", 1), None, 2.5, frozenset({"p", "q", "r"})}
    assert mapper.seen is stop, "one set stays one"


def test_the_same_functions_are_kept_once_and_old_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path))
    old = keep(b"old")
    os.utime(old, (0, time.time() - 30 * 86400))

    first, again = keep(b"a"), keep(b"a")

    assert first == again
    assert [Path(first).name] == os.listdir(tmp_path / "functions")
    assert Path(first).read_bytes() == b"a"


class Counting:
    """Has a life: before the first record and after the last."""

    def setup(self) -> None:
        self.lines = 0

    def map(self, line: str) -> None:
        self.lines += 1

    def close(self) -> Any:
        yield "lines", self.lines


def test_a_class_is_made_once_and_an_object_is_taken_as_it_is() -> None:
    assert stage_of(Counting, "map").setup is not None
    assert stage_of(Counting(), "map").close is not None
    assert stage_of(times, "map").setup is None
    with pytest.raises(TypeError, match="neither a command nor a function"):
        stage_of(7, "map")


@pytest.mark.parametrize(
    ("mapper", "pairs"),
    [
        (lambda line: None, False),
        (lambda key, value: None, True),
        (lambda line, factor=2: None, False),
        (Counting, False),
        (Counting(), False),
        (str.split, False),
    ],
)
def test_a_mapper_of_two_parameters_takes_pairs(mapper: Any, pairs: bool) -> None:
    assert takes_pairs(mapper) is pairs


def test_a_child_without_functions_says_so(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "mrstream.api.child", "-map"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(local_jobs.TREE)},
    )  # fmt: skip

    assert ran.returncode == 1
    assert "mrstream.functions" in ran.stderr and "Traceback" not in ran.stderr
