"""Golden cases: what a real Hadoop did, and how to tell whether a command does the same.

A case directory holds `args` (a JSON list with the placeholders {in}, {out} and {case}), the input
`in/`, scripts, `expected/` (the visible files that Hadoop left), `expected.json`, and
`counters.json` for good jobs. `expected.json` says how files are compared:

    exact         same bytes in every file
    ties          lines grouped by the regular expression `tie_key`; the order inside a group does
                  not count
    sorted        same lines in any order
    decompressed  compressed files are compared by what is in them
    seqfile       same classes and records; the random sync marker does not count
    names         only the names of the files
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import os
import re
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent / "cases"
# Process statistics, and sizes that depend on the length of paths.
NOT_COMPARED = frozenset({"Input split bytes"})

Counters = dict[str, dict[str, int | None]]


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    stdout: str
    stderr: str
    files: Mapping[str, bytes]


def names() -> list[str]:
    """Give the names of all cases."""
    return sorted(path.parent.name for path in ROOT.glob("*/args"))


class Case:
    """One golden case."""

    def __init__(self, name: str) -> None:
        self.directory = ROOT / name
        self.expected: dict[str, Any] = json.loads((self.directory / "expected.json").read_text())

    def run(self, command: Sequence[str], room: Path, *, timeout_s: float = 120.0) -> Outcome:
        """Run the case with this command in a fresh directory."""
        (room / "cwd").mkdir()
        places = {"{in}": self.directory / "in", "{out}": room / "out", "{case}": self.directory}
        words = json.loads((self.directory / "args").read_text())
        for mark, path in places.items():
            words = [word.replace(mark, str(path)) for word in words]
        done = subprocess.run(
            [*command, *words],
            cwd=room / "cwd",
            env={**os.environ, "MRSTREAM_HOME": str(room / "home"), **self.expected.get("env", {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Outcome(
            done.returncode,
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
            visible_files(room / "out"),
        )

    def differences(self, outcome: Outcome) -> list[str]:
        """Say in words what is not as Hadoop did it; empty is good."""
        expected = self.expected
        wrong = []
        if outcome.status != expected["exit"]:
            tail = outcome.stderr.strip()[-2000:]
            wrong.append(f"exit {outcome.status}, want {expected['exit']}: {tail}")
        wrong += self._files_that_differ(outcome.files)
        for stream, text in (("stderr", outcome.stderr), ("stdout", outcome.stdout)):
            wanted = expected.get(f"{stream}_contains", [])
            wrong += [f"{stream} lacks {words!r}" for words in wanted if words not in text]
        if expected["exit"] == 0:
            wrong += self._counters_that_differ(printed_counters(outcome.stderr))
        return wrong

    def _files_that_differ(self, found: Mapping[str, bytes]) -> list[str]:
        wanted = visible_files(self.directory / "expected")
        wrong = []
        if sorted(found) != sorted(wanted):
            wrong.append(f"files {sorted(found)}, want {sorted(wanted)}")
        for name in sorted(set(found) & set(wanted)):
            if normal(name, found[name], self.expected) != normal(
                name, wanted[name], self.expected
            ):
                wrong.append(f"{name} is {found[name][:300]!r}, want {wanted[name][:300]!r}")
        return wrong

    def _counters_that_differ(self, found: Counters) -> list[str]:
        wanted: Counters = {
            group: dict(counters)
            for group, counters in (self.expected.get("counters") or {}).items()
        }
        path = self.directory / "counters.json"
        if path.exists():
            for group, counters in json.loads(path.read_text()).items():
                wanted.setdefault(group, {}).update(counters)
        return [
            f"counter {group}/{name} is {found.get(group, {}).get(name)}, want {value}"
            for group, counters in wanted.items()
            for name, value in counters.items()
            if name not in NOT_COMPARED
            # A counter that never was is as good as one that is 0.
            and (found.get(group, {}).get(name) or 0) != (value or 0)
        ]


def visible_files(directory: Path) -> dict[str, bytes]:
    """Give all files below a directory that are not hidden."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def normal(name: str, data: bytes, expected: Mapping[str, Any]) -> object:
    """Give what of a file is compared."""
    match expected["compare"]:
        case "names":
            return None
        case "sorted":
            return sorted(data.split(b"\n"))
        case "seqfile":
            return sequence_file(data)
        case "decompressed":
            unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".deflate": zlib.decompress}
            return unpack.get(Path(name).suffix, bytes)(data)
        case "ties":
            pattern = re.compile(expected["tie_key"].encode())

            def key(line: bytes) -> bytes | None:
                found = pattern.search(line)
                return found.group(1) if found else None

            groups = itertools.groupby(data.split(b"\n"), key)
            return [(of, sorted(lines)) for of, lines in groups]
    return data


def printed_counters(stderr: str) -> Counters:
    """Read the counters block that ends a job."""
    found: Counters = {}
    group: dict[str, int | None] | None = None
    lines = iter(stderr.split("\n"))
    if not any(re.search(r"Counters: \d+\s*$", line) for line in lines):
        return found
    for line in lines:
        if (counter := re.fullmatch(r"\t\t(.*)=(-?\d+)", line)) and group is not None:
            group[counter.group(1)] = int(counter.group(2))
        elif title := re.fullmatch(r"\t([^\t].*)", line):
            group = found.setdefault(title.group(1), {})
        else:
            break
    return found


class _Cursor:
    """Reads a sequence file from its start."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def vint(self) -> int:
        first = int.from_bytes(self.take(1), "big", signed=True)
        if first >= -112:
            return first
        value = int.from_bytes(self.take(-112 - first if first >= -120 else -120 - first), "big")
        return value if first >= -120 else ~value

    def text(self) -> bytes:
        return self.take(self.vint())


def sequence_file(data: bytes) -> object:
    """Read a sequence file without its sync markers: classes and records, unpacked."""
    if data[:4] != b"SEQ\x06":
        return data
    cursor = _Cursor(data)
    cursor.take(4)
    classes = cursor.text(), cursor.text()
    is_packed, is_block = cursor.take(2)
    codec = cursor.text() if is_packed else b""
    for _ in range(2 * cursor.int32()):
        cursor.text()
    cursor.take(16)
    records: list[tuple[bytes, bytes]] = []
    while cursor.at < len(data):
        length = cursor.int32()
        if length == -1:
            cursor.take(16)
            if is_block:
                records += _block(cursor)
            continue
        key_length = cursor.int32()
        record = cursor.take(length)
        value = record[key_length:]
        records.append((record[:key_length], zlib.decompress(value) if is_packed else value))
    return *classes, codec, records


def _block(cursor: _Cursor) -> Iterator[tuple[bytes, bytes]]:
    count = cursor.vint()
    sides = []
    for _ in range(2):
        lengths, items = (_Cursor(zlib.decompress(cursor.text())) for _ in range(2))
        sides.append([items.take(lengths.vint()) for _ in range(count)])
    return zip(*sides, strict=True)
