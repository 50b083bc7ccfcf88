"""Cut points of a TotalOrderPartitioner: read by each map from a sequence file before it starts.

The file is a shipped one that tasks have under that name, else one of the job's file system.
Takes settings and files; gives the job's partitioner as plain data. A wrong number of cut points,
or points out of order, is refused in Hadoop's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

from mrstream.mapreduce.dataflow.files import Files
from mrstream.mapreduce.program.errors import TaskFailed
from mrstream.streaming.classes import TEXT
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.writable import writable_type
from mrstream.streaming.records.comparator import compare
from mrstream.streaming.records.partitioner import (
    HashPartition,
    KeyFieldPartition,
    KeyPartitionerSpec,
    LongHashPartition,
    PartitionerSpec,
    StringHashPartition,
    TextOfKeyPartition,
    TotalOrderPartition,
    ValuePartition,
)
from mrstream.streaming.task.shipping import Shipped, local_path


class BadPartitionFile(TaskFailed):
    """The partition file of a total order does not fit the job."""


def partitioner_of(
    conf: JobConf, files: Files, reduces: int, shipped: Sequence[Shipped] = ()
) -> PartitionerSpec:
    """Return the job's partitioner, with its cut points if it has any."""
    if reduces == 1:
        return HashPartition()  # as on Hadoop: with nothing to choose, its settings are not read
    spec = _of_keys(conf, files, reduces, shipped)
    if conf.partition_by == "key":
        return spec
    return ValuePartition(HashPartition() if isinstance(spec, LongHashPartition) else spec)


def _of_keys(
    conf: JobConf, files: Files, reduces: int, shipped: Sequence[Shipped]
) -> KeyPartitionerSpec:
    if not conf.is_total_order:
        spec = conf.partitioner_spec()
        if isinstance(spec, KeyFieldPartition | StringHashPartition):
            by_value = conf.partition_by == "value"
            name = conf.map_output_value_class if by_value else conf.map_output_key_class
            return spec if name == TEXT else TextOfKeyPartition(spec, writable_type(name).to_string)
        return spec
    spec = conf.partitioner_spec(_cut_points(_open(conf.total_order_path, files, shipped)))
    assert isinstance(spec, TotalOrderPartition)
    _check(spec, conf.total_order_path, reduces)
    return spec


def _open(path: str, files: Files, shipped: Sequence[Shipped]) -> BinaryIO:
    for item in shipped:
        here = local_path(item.source)
        if item.link == path and here is not None:
            return open(here, "rb")
    return files.open(files.qualify(path))


def _cut_points(opened: BinaryIO) -> list[bytes]:
    from mrstream.streaming.formats.sequence_file import (
        SequenceFileReader,  # few jobs have a partition file
    )

    with opened as file:
        return [key for key, _ in SequenceFileReader(file)]


def _check(spec: TotalOrderPartition, path: str, reduces: int) -> None:
    if len(spec.cuts) != reduces - 1:
        raise BadPartitionFile(
            f"Wrong number of partitions in keyset: {path} has {len(spec.cuts)} cut points, "
            f"but {reduces} reduces need {reduces - 1}"
        )
    for before, after in pairwise(spec.cuts):
        if compare(spec.order, before, after) >= 0:
            raise BadPartitionFile(
                f"Split points are out of order: {path} has {before!r} before {after!r}"
            )
