"""The files of results: `fs()` for any use, and the lines of an output directory.

Takes paths as the command line does: of the current cluster's dfs, or of this machine if there is
none. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mrstream.api.codecs import LINE_END
from mrstream.mapreduce.dataflow.files import Files, FileStatus, RoutedFiles
from mrstream.streaming.formats.codec import codec_by_suffix

if TYPE_CHECKING:
    from mrstream.streaming.command.command import StreamingCommand

READ_BYTES = 1 << 20


def fs(cluster: str | None = None) -> Any:
    """Return the fsspec file system that jobs read and write: the dfs of the cluster named, else of
    the current one; without a cluster, this machine's disk."""
    import fsspec  # 100 ms that jobs need not pay

    name = _cluster_name(cluster)
    return fsspec.filesystem("file") if name is None else fsspec.core.url_to_fs(f"dfs://{name}/")[0]


def is_here(command: StreamingCommand) -> bool:
    """Whether a job's paths without a scheme are of this machine's disk, wherever its tasks
    run: an engine's job reads and writes the dfs of the cluster that there is."""
    from mrstream.cluster.config import state

    return command.force_local or state.chosen(command.cluster) is None


def output_lines(output: str, cluster: str | None, *, is_local: bool) -> Iterator[bytes]:
    """Yield the lines of the parts of an output directory, in the order of their names."""
    name = None if is_local else _cluster_name(cluster)
    files = RoutedFiles("file:///" if name is None else f"dfs://{name}/")
    for part in _parts(files, files.qualify(output)):
        with files.open(part.url) as file:
            blobs = iter(lambda file=file: file.read(READ_BYTES), b"")  # type: ignore[misc]
            codec = codec_by_suffix(part.url)
            yield from _lines(blobs if codec is None else codec.decompressed(blobs, part.url))


def hadoop_lines(output: str, engine: str, cluster: str | None) -> Iterator[bytes]:
    """Yield the lines of the parts of a job that Hadoop ran, by its own client; `engine` is what
    the job's words say, if they do."""
    from mrstream.cluster.config import config
    from mrstream.mapreduce.engine import choice, hadoop

    known = None if engine else config.current(cluster)
    chosen = choice.parse(known.engine if known is not None else engine)
    assert chosen is not None, "Hadoop has run it"
    yield from _lines(hadoop.output_of(chosen, output))


def _lines(blobs: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for blob in blobs:
        *lines, rest = (rest + blob).split(LINE_END)
        yield from lines
    if rest:
        yield rest


def _parts(files: Files, url: str) -> Iterator[FileStatus]:
    for entry in files.list(url):
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_directory:
            yield from _parts(files, entry.url)
        else:
            yield entry


def _cluster_name(named: str | None) -> str | None:
    """Return the name of the cluster to use, and have its dfs at hand; None: there is none."""
    from mrstream.cluster.config import state

    if state.chosen(named) is None:
        return None
    from mrstream.cluster.config import config  # brings a YAML parser with it
    from mrstream.mapreduce.dataflow import dfs_files

    cluster = config.current_cluster(named)
    if cluster is None:
        return None
    dfs_files.serve(cluster)
    return cluster.config.name
