"""A split of another Sawzall job's result: the rows of its tables, as lines of CSV (§8.2).

An index of a table lies in one shard of a job with all of its state, so every map makes final
rows of its own part, and nothing passes through the client. Which tables there are stands beside
the shards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.attempt.saw_stage import MANIFEST, MANIFEST_BYTES_MAX
from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow.files import Files, join
from mrstream.mapreduce.dataflow.piece_reader import Record
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.saw import report
from mrstream.saw.report import Manifest
from mrstream.streaming.formats.record_io import record_writer
from mrstream.streaming.formats.text_lines import gathered
from mrstream.streaming.formats.writable import LONG, TEXT


class NoTables(UserError):
    """An input that is no result of a Sawzall job."""


class TableSplit(SplitReader):
    """One split; as every reader, iterate it for blobs or use `records_iter`."""

    def __init__(self, split: Split, attempt: Attempt) -> None:
        super().__init__(split, attempt.conf, attempt.files)
        self.key_type, self.value_type = LONG, TEXT
        self._attempt = attempt
        self._given_records = 0

    @property
    def records(self) -> int:
        """Rows given so far."""
        return self._given_records

    def __iter__(self) -> Iterator[bytes]:
        conf = self._attempt.conf
        if conf.map_input_identifier == "text" and conf.map_input_ignore_key is not False:
            yield from gathered(line + b"\n" for _, line in self.records_iter())
            return
        write = record_writer(conf.map_input_identifier, LONG, TEXT, conf.map_input_separator)
        yield from gathered(write(key, line) for key, line in self.records_iter())

    def records_iter(self) -> Iterator[Record]:
        """Yield the rows as `dump` prints them; the key is a row's number."""
        manifests: dict[str, Manifest] = {}
        for index, reader in enumerate(self._pieces()):
            place = self._split.pieces[index].url.rpartition("/")[0]
            if place not in manifests:
                manifests[place] = manifest_of(place, self._attempt.files)
            tables = manifests[place].tables
            found = report.rows(tables, reader.pairs(), report.chosen(tables, ()), random.Random(0))
            for line in report.csv_lines(found):
                number = self._given_records
                self._given_records += 1
                row = line.removesuffix("\n").encode("utf-8", "surrogateescape")
                yield number.to_bytes(8, "big"), row


def manifest_of(place: str, files: Files) -> Manifest:
    """Read the list of tables beside shards."""
    url = join(place, MANIFEST)
    if not files.exists(url):
        raise NoTables(f"{place} has no {MANIFEST}: it is no result of a Sawzall job")
    with files.open(url) as file:
        return report.read_manifest(file.read(MANIFEST_BYTES_MAX), url)
