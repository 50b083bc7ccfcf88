"""The shards of Sawzall jobs, merged: from directories of part files to rows in order.

Every shard is sorted by key, so one pass over all of them at once gives whole tables (§8). Reads
shards through `Files`; what the rows look like is `saw.report`'s.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from operator import itemgetter

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.mapreduce.attempt.saw_input import manifest_of
from mrstream.mapreduce.attempt.saw_stage import MANIFEST
from mrstream.mapreduce.dataflow.files import Files, join
from mrstream.mapreduce.saw_job import shards_of
from mrstream.saw import report
from mrstream.saw.report import Manifest, Row
from mrstream.streaming.formats.sequence_file import SequenceFileReader

_PART = re.compile(r"part-\d{5,}")


class NoResult(UserError):
    """A source that is not the finished output of a Sawzall job."""


def rows(sources: Sequence[str], files: Files, names: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of one result, or of several with the same tables, as if of one job."""
    found = [_result(source, files) for source in sources]
    tables = report.same_tables([(place, manifest) for place, manifest, _ in found])
    wanted = report.chosen(tables, names)
    with ExitStack() as open_shards:
        shards = [_records(url, files, open_shards) for _, _, parts in found for url in parts]
        packed = heapq.merge(*shards, key=itemgetter(0))
        yield from report.rows(tables, packed, wanted, random.Random(0))


def _result(source: str, files: Files) -> tuple[str, Manifest, list[str]]:
    base, count = shards_of(source, "--source")
    url = files.qualify(base)
    status = files.status(url)
    if status is None or not status.is_directory:
        raise NoResult(f"--source {source}: there is no directory {url}")
    parts = sorted(one.url for one in files.list(url) if _PART.fullmatch(one.name))
    if not files.exists(join(url, MANIFEST)):
        raise NoResult(f"--source {source}: {url} has no {MANIFEST}; is the job finished?")
    if count is not None and count != len(parts):
        raise NoResult(f"--source {source}: {url} has {len(parts)} shards: @{len(parts)}")
    return base, manifest_of(url, files), parts


def _records(url: str, files: Files, open_shards: ExitStack) -> Iterator[tuple[bytes, bytes]]:
    last = b""
    for key, value in SequenceFileReader(open_shards.enter_context(files.open(url))):
        if key < last:
            raise Corrupt(f"{url} is not in the order of its keys: no shard of a Sawzall job")
        last = key
        yield key, value
