"""Cut points of a TotalOrderPartitioner: read from a sequence file once, before any map starts.

Takes settings and files; gives the job's partitioner as plain data. A wrong number of cut points,
or points out of order, is refused in Hadoop's words.
"""

from __future__ import annotations

from itertools import pairwise

from mapreduce.dataflow.files import Files
from mapreduce.errors import TaskFailed
from streaming.comparator import compare
from streaming.jobconf import JobConf
from streaming.partitioner import PartitionerSpec, TotalOrderPartition


class BadPartitionFile(TaskFailed):
    """The partition file of a total order does not fit the job."""


def partitioner_of(conf: JobConf, files: Files, reduces: int) -> PartitionerSpec:
    """Give the job's partitioner, with its cut points if it has any."""
    if not conf.is_total_order:
        return conf.partitioner_spec()
    spec = conf.partitioner_spec(_cut_points(conf, files))
    assert isinstance(spec, TotalOrderPartition)
    _check(spec, conf.total_order_path, reduces)
    return spec


def _cut_points(conf: JobConf, files: Files) -> list[bytes]:
    from streaming.sequence_file import SequenceFileReader  # few jobs have a partition file

    with files.open(files.qualify(conf.total_order_path)) as file:
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
