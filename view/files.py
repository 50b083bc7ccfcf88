"""Files in words: a directory's table, and where the chunks of a file are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mrstream.view.cells import NOT_KNOWN, Cell, Column, passes
from mrstream.view.palette import Colour
from mrstream.view.picture import ChunkPlace, FileEntry, SilentCell
from mrstream.view.words import mode, moment, natural, size

COLUMNS = (
    Column("Name"),
    Column("Size", right=True),
    Column("Copies", right=True),
    Column("Owner"),
    Column("Mode"),
    Column("Modified"),
)
EMPTY_DIRECTORY = "This directory is empty."
EMPTY_TRASH = "The trash is empty."
CHUNKS_TOLD_MAX = 200


def listed(entries: Iterable[FileEntry], *, wanted: str = "") -> list[FileEntry]:
    """Return the entries that the user wants to see, directories first."""
    found = [entry for entry in entries if passes(wanted, entry.name)]
    return sorted(found, key=lambda entry: (not entry.is_directory, entry.name))


def not_shown(silent: Iterable[SilentCell]) -> list[str]:
    """Return which parts of the trash cannot be seen, and why, in words."""
    return [
        f"✗ What was deleted {'in the root cell' if cell.path == '/' else f'below {cell.path}'} is "
        f"not shown: {cell.why}"
        for cell in silent
    ]


def entry_cells(entry: FileEntry) -> tuple[Cell, ...]:
    """Return the cells of one directory entry, in the order of `COLUMNS`."""
    folder = entry.is_directory
    return (
        Cell(f"{entry.name}/", Colour.SKY, loud=True) if folder else Cell(entry.name),
        Cell(NOT_KNOWN if folder else size(entry.length_bytes)),
        Cell(NOT_KNOWN if folder else str(entry.replication)),
        Cell(entry.owner),
        Cell(mode(entry.mode, is_directory=folder)),
        Cell(moment(entry.modified_at_s)),
    )


def parent(path: str) -> str:
    """Return the directory that holds this one; the root holds itself."""
    return path.rstrip("/").rpartition("/")[0] or "/"


def shares(usage: Sequence[tuple[str, int]]) -> list[tuple[str, Cell]]:
    """Return each entry of a directory with the bytes below it; the bar is beside the most."""
    most = max((used for _, used in usage), default=0) or 1
    return [(path, Cell(size(used), share=used / most)) for path, used in usage]


@dataclass(frozen=True, slots=True)
class ChunkMap:
    """Which host holds which chunk: a line a host, a column a chunk."""

    hosts: tuple[str, ...]
    held: tuple[tuple[bool, ...], ...]
    """Of each host, whether it holds each chunk."""
    troubles: tuple[str, ...]
    """Chunks that are not well, in words."""
    chunks: tuple[str, ...]
    """The first chunks in words: index, handle, version, length, hosts."""


def chunk_map(chunks: Sequence[ChunkPlace]) -> ChunkMap:
    hosts = sorted({host for chunk in chunks for host in chunk.hosts}, key=natural)
    return ChunkMap(
        tuple(hosts),
        tuple(tuple(host in chunk.hosts for chunk in chunks) for host in hosts),
        tuple(
            f"✗ chunk {chunk.index} ({chunk.handle:x}): {chunk.state}"
            for chunk in chunks
            if chunk.state != "good"
        ),
        tuple(_told(chunk) for chunk in chunks[:CHUNKS_TOLD_MAX]),
    )


def _told(chunk: ChunkPlace) -> str:
    where = ", ".join(chunk.hosts) or "nowhere"
    what = f"{chunk.index:>5}  {chunk.handle:016x}  v{chunk.version}"
    return f"{what}  {size(chunk.length_bytes):>5}  {where}"
