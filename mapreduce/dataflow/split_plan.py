"""Stage 1: input paths and sizes of files become splits, one for each map.

Follows Hadoop's old-API FileInputFormat to the number: goal, minimum and block size, a last piece
of up to 1.1 times the others, longest split first. Reads file names, lengths and hosts through
`Files`, and, for NLineInputFormat only, the files themselves. Never decides where a map runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, ClassVar

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.dataflow.files import Files, FileStatus
from mrstream.mapreduce.dataflow.input_paths import InvalidInput, list_input_files
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.codec import CodecCorrupt
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.text_lines import line_lengths

SPLIT_SLOP = 1.1
READ_BYTES = 1024 * 1024
MAPS_MAX = 1_000_000


class TooManyMaps(UserError):
    """The job would have more maps than it allows itself."""

    exit_status: ClassVar[int] = 1


class UnknownInputFormat(UserError):
    """The input format is a Java class that is not built in."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A range of one file; `hosts` hold it, best first."""

    url: str
    start: Annotated[int, msgspec.Meta(ge=0)]
    length: Annotated[int, msgspec.Meta(ge=0)]
    hosts: tuple[str, ...] = ()
    version: str = ""
    """Which file of that name was meant (`FileStatus.version`): one that is put in its place while
    the job runs is not read by half."""


class Split(msgspec.Struct, frozen=True, array_like=True):
    """What one map reads. `index` is the map's number; `kind` is the name of an InputFormat."""

    index: int
    kind: str
    pieces: tuple[Piece, ...]
    source: int = 0
    """Which of the job's sources it is of, where inputs have mappers of their own."""

    @property
    def length(self) -> int:
        return sum(piece.length for piece in self.pieces)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts by how many bytes of the split they hold, most first."""
        held: dict[str, int] = {}
        for piece in self.pieces:
            for host in piece.hosts:
                held[host] = held.get(host, 0) + piece.length
        return tuple(sorted(held, key=lambda host: -held[host]))

    @property
    def input_format(self) -> InputFormat:
        return InputFormat[self.kind]


class SplitPlan(msgspec.Struct, frozen=True):
    """All splits of a job in map order, and how many files they came from."""

    splits: tuple[Split, ...]
    file_count: int


def plan_splits(conf: JobConf, inputs: Sequence[str], files: Files) -> SplitPlan:
    """Find the input files and cut them; raises `InvalidInput` with every path problem at once."""
    kind = input_format_of(conf)
    found = list_input_files(
        inputs,
        files,
        recursive=conf.input_recursive,
        ignore_subdirs=conf.input_ignore_subdirs,
        map_files=kind.is_sequence_file and kind is not InputFormat.COMBINE_SEQUENCE_FILE,
    )
    cut = _CUTTERS.get(kind, _cut_by_size)
    groups = list(islice(cut(conf, kind, found, files), MAPS_MAX + 1))
    if len(groups) > MAPS_MAX:
        raise TooManyMaps(
            f"the input would be cut into more than {MAPS_MAX:,} maps; larger splits help: "
            "mapreduce.job.maps, mapreduce.input.fileinputformat.split.minsize, lines per map"
        )
    groups.sort(key=lambda group: -sum(piece.length for piece in group))
    if 0 <= conf.maps_max < len(groups):
        raise TooManyMaps(f"The number of map tasks {len(groups)} exceeded limit {conf.maps_max}")
    versions = {status.url: status.version for status in found}
    splits = tuple(
        Split(index, kind.name, tuple(_of_version(piece, versions) for piece in group))
        for index, group in enumerate(groups)
    )
    return SplitPlan(splits, len(found))


def _of_version(piece: Piece, versions: Mapping[str, str]) -> Piece:
    return msgspec.structs.replace(piece, version=versions.get(piece.url, ""))


def input_format_of(conf: JobConf) -> InputFormat:
    kind = InputFormat.by_class_name(conf.input_format_class)
    if kind is None:
        raise UnknownInputFormat(f"-inputformat : class not found : {conf.input_format_class}")
    return kind


_Group = tuple[Piece, ...]


def _block_bytes(conf: JobConf, status: FileStatus) -> int:
    return conf.local_block_bytes or status.block_bytes


def _cut_by_size(
    conf: JobConf, kind: InputFormat, found: Sequence[FileStatus], files: Files
) -> Iterator[_Group]:
    total = sum(status.length for status in found)
    goal = total // max(1, conf.maps_hint)
    least = max(conf.split_bytes_min, 1, kind.split_bytes_min)
    for status in found:
        size = max(least, min(goal, _block_bytes(conf, status)))
        may_split = kind.may_split(status.url) or _is_seekable(kind, status, size, files)
        for start, length in _ranges(status, size, may_split):
            yield (Piece(status.url, start, length, files.hosts_of(status.url, start, length)),)


def _is_seekable(kind: InputFormat, status: FileStatus, size: int, files: Files) -> bool:
    """Whether a file of zstd has a table of its frames; only one that is large is looked at."""
    is_text = kind in (InputFormat.TEXT, InputFormat.KEY_VALUE_TEXT)
    if not is_text or not status.url.endswith(".zst") or status.length <= size * SPLIT_SLOP:
        return False
    from mrstream.streaming.formats.zstd_frames import seek_table  # few files are

    with files.open(status.url) as file:
        try:
            return seek_table(file) is not None
        except CodecCorrupt as error:
            raise CodecCorrupt(f"{status.url}: {error}") from None


def _ranges(status: FileStatus, size: int, may_split: bool) -> Iterator[tuple[int, int]]:
    """Cut one file into pieces of `size`, the last one up to `SPLIT_SLOP` times that."""
    remaining = status.length
    while may_split and remaining / size > SPLIT_SLOP:
        yield status.length - remaining, size
        remaining -= size
    # An empty file is a map too: its command runs, on an empty stdin.
    if remaining or not status.length:
        yield status.length - remaining, remaining


def _cut_by_lines(
    conf: JobConf, kind: InputFormat, found: Sequence[FileStatus], files: Files
) -> Iterator[_Group]:
    """NLineInputFormat: N lines each, recorded as (0, n-1) first and (begin-1, n) after (spec 3.5).

    The odd ranges are Hadoop's: they make its line reader skip just the line end before `begin`.
    A file that begins with an empty line is therefore read as Hadoop reads it, that line twice
    when N is 1.
    """
    for status in found:
        for begin, length in _line_runs(status.url, conf.lines_per_map, files):
            start, size = (0, length - 1) if begin == 0 else (begin - 1, length)
            yield (Piece(status.url, start, size, files.hosts_of(status.url, start, size)),)


def _line_runs(url: str, lines_per_map: int, files: Files) -> Iterator[tuple[int, int]]:
    begin = length = count = 0
    with files.open(url) as file:
        for line_length in line_lengths(iter(lambda: file.read(READ_BYTES), b"")):
            count += 1
            length += line_length
            if count == lines_per_map:
                yield begin, length
                begin, length, count = begin + length, 0, 0
    if count:
        yield begin, length


def _cut_and_combine(
    conf: JobConf, kind: InputFormat, found: Sequence[FileStatus], files: Files
) -> Iterator[_Group]:
    """CombineFileInputFormat: many small files a split, up to the split size, files of one host
    together.

    Hadoop puts everything into one split unless a maximum is set; a block is the maximum here, so
    that big input still spreads over the workers.
    """
    _check_combined_sizes(conf)
    left_over: list[Piece] = []
    limit = 0
    for pieces in _by_first_host(conf, kind, found, files).values():
        group: list[Piece] = []
        length = groups = 0
        for piece, size in pieces:
            limit = max(limit, size)
            group.append(piece)
            length += piece.length
            if length >= size:
                yield tuple(group)
                group, length, groups = [], 0, groups + 1
        if groups == 0 and 0 < conf.split_bytes_min_host <= length:
            yield tuple(group)
        else:
            left_over += group
    yield from _packed(left_over, limit)


class SplitSizesDisagree(InvalidInput):
    """A least size of combined splits is larger than one that is to be larger."""


def _check_combined_sizes(conf: JobConf) -> None:
    """Refuse what Hadoop refuses, in its words. All hosts are of one rack here: what is left of
    them is a split whether a rack's least size is reached or not."""
    host, rack, most = conf.split_bytes_min_host, conf.split_bytes_min_rack, conf.split_bytes_max
    if most and host > most:
        raise SplitSizesDisagree(
            f"Minimum split size pernode {host} cannot be larger than maximum split size {most}"
        )
    if most and rack > most:
        raise SplitSizesDisagree(
            f"Minimum split size per rack {rack} cannot be larger than maximum split size {most}"
        )
    if rack and host > rack:
        raise SplitSizesDisagree(
            f"Minimum split size per node {host} cannot be larger than minimum split size per "
            f"rack {rack}"
        )


def _by_first_host(
    conf: JobConf, kind: InputFormat, found: Sequence[FileStatus], files: Files
) -> dict[str, list[tuple[Piece, int]]]:
    """Group the pieces of all files, each with its size limit, by the host that holds most of
    it."""
    by_host: dict[str, list[tuple[Piece, int]]] = {}
    for status in found:
        block = max(1, _block_bytes(conf, status))
        size = conf.split_bytes_max if conf.split_bytes_max > 0 else block
        whole = [(0, status.length)]
        may_split = kind.may_split(status.url)
        for start, length in _blockwise(status.length, block, size) if may_split else whole:
            hosts = files.hosts_of(status.url, start, length)
            piece = Piece(status.url, start, length, hosts)
            by_host.setdefault(hosts[0] if hosts else "", []).append((piece, size))
    return by_host


def _blockwise(file_length: int, block: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut each block into pieces of `size`; what is between one and two of them is halved."""
    if not file_length:
        yield 0, 0
    for begin in range(0, file_length, block):
        left = min(block, file_length - begin)
        end = begin + left
        while left:
            length = left // 2 if size < left < 2 * size else min(size, left)
            yield end - left, length
            left -= length


def _packed(pieces: Iterable[Piece], limit: int) -> Iterator[_Group]:
    group: list[Piece] = []
    length = 0
    for piece in pieces:
        group.append(piece)
        length += piece.length
        if length >= limit:
            yield tuple(group)
            group, length = [], 0
    if group:
        yield tuple(group)


_CUTTERS = {
    InputFormat.NLINE: _cut_by_lines,
    InputFormat.COMBINE_TEXT: _cut_and_combine,
    InputFormat.COMBINE_SEQUENCE_FILE: _cut_and_combine,
}
