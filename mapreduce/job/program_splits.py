"""Input that a program lists and gives: `-inputformat program:COMMAND` (MapReduce §4.4).

`COMMAND splits INPUT…` prints one split a line, with what it needs to find it again, and behind a
TAB how many bytes it is, if that is known. `COMMAND read SPLIT` prints the records of a split, a
line each. Listing happens here, where the job is submitted; reading wherever its maps run.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.dataflow.split_plan import Piece, Split, SplitPlan
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.task.child import find_program, parse_command, resolve_words
from mrstream.streaming.task.shipping import Shipped, link_shipped

SPLITS_MAX = 1_000_000
SPLIT_CHARS_MAX = 4096


class BadInputProgram(UserError):
    """The program does not list its splits."""


def command_of(conf: JobConf) -> str:
    """Return the command of the format, as the user wrote it."""
    return conf.input_format_class.partition(":")[2]


def list_splits(
    conf: JobConf, inputs: Sequence[str], shipped: Sequence[Shipped], files: Files
) -> SplitPlan:
    """Ask the program for its splits; longest first, those without a length as they come."""

    def fetch(url: str, path: str) -> None:
        with files.open(files.qualify(url)) as source, open(path, "wb") as target:
            while data := source.read(1 << 20):
                target.write(data)

    command = command_of(conf)
    with tempfile.TemporaryDirectory(prefix="mrstream-splits-") as room:
        work, cache = os.path.join(room, "work"), os.path.join(room, "cache")
        os.mkdir(work)
        os.mkdir(cache)
        link_shipped(work, shipped, cache, fetch)
        words = resolve_words(parse_command(command), shipped)
        argv = find_program(words, work, os.environ.get("PATH", os.defpath))
        ran = subprocess.run(
            [*argv, "splits", *inputs],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
    if ran.returncode != 0:
        raise BadInputProgram(f"`{command} splits` ended with status {ran.returncode}")
    lines = [line for line in ran.stdout.decode("utf-8", "replace").split("\n") if line]
    if len(lines) > SPLITS_MAX:
        raise BadInputProgram(f"`{command} splits` lists {len(lines)} splits, above {SPLITS_MAX}")
    pieces = sorted((_piece(line, command) for line in lines), key=lambda piece: -piece.length)
    kind = InputFormat.PROGRAM.name
    return SplitPlan(
        tuple(Split(index, kind, (piece,)) for index, piece in enumerate(pieces)), len(inputs)
    )


def _piece(line: str, command: str) -> Piece:
    name, tab, length = line.partition("\t")
    is_good = not tab or (length.isascii() and length.isdigit() and len(length) < 19)
    if not is_good or not name or len(name) > SPLIT_CHARS_MAX or ("'" in name and '"' in name):
        raise BadInputProgram(
            f"`{command} splits` says {line[:80]!r}; it must be a split of up to {SPLIT_CHARS_MAX} "
            "characters, without both kinds of quotes, and a number of bytes behind a TAB if any"
        )
    return Piece(name, 0, int(length) if tab else 0)


def read_command(conf: JobConf, split: Split) -> str:
    """Return the command that prints the records of a split."""
    name = split.pieces[0].url
    quote = '"' if "'" in name else "'"
    return f"{command_of(conf)} read {quote}{name}{quote}"
