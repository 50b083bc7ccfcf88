"""Reads a file of a record format in pieces, as maps would, and gives what every map is given."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Piece, Split
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming.conf.jobconf import JobConf

borders = st.lists(st.floats(0, 1), max_size=6)


def pieces_of(path: Path, cuts: Sequence[float]) -> list[Piece]:
    """Cut a file at these shares of its length."""
    length = path.stat().st_size
    places = sorted({0, length, *(int(cut * length) for cut in cuts)})
    return [
        Piece(f"file:{path}", start, end - start) for start, end in itertools.pairwise(places)
    ] or [Piece(f"file:{path}", 0, 0)]


def read_pieces(
    path: Path, kind: str, cuts: Sequence[float] = (), settings: dict[str, str] | None = None
) -> list[bytes]:
    """Give what the map of each piece reads; each must say truly how many lines that is."""
    given = []
    for index, piece in enumerate(pieces_of(path, cuts)):
        reader = SplitReader(
            Split(index, kind, (piece,)), JobConf(settings or {}), RoutedFiles("file:///")
        )
        blobs = list(reader)
        assert all(blob.endswith(b"\n") for blob in blobs), "blobs end where a line does"
        data = b"".join(blobs)
        assert reader.records == data.count(b"\n")
        reader.close()
        given.append(data)
    return given


def read_json(
    path: Path, kind: str, cuts: Sequence[float] = (), settings: dict[str, str] | None = None
) -> list[Any]:
    """Give the records of all pieces in order."""
    data = b"".join(read_pieces(path, kind, cuts, settings))
    return [json.loads(line) for line in data.splitlines()]
