"""`mrstream dfs …`: finds the cluster, the verb and its words, and runs it.

A root: nothing imports it. Exit status 0, 1 when something failed, 255 for wrong usage, 130 when
interrupted, as `hdfs dfs`.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
import sys
from collections.abc import Iterator

from mrstream.cluster.config.config import Cluster, cluster_meant, current_cluster
from mrstream.cluster.config.state import ClusterIsDown
from mrstream.cluster.config.values import parse_chunk_size
from mrstream.cluster.errors import INTERRUPTED, ClusterError, HostUnreachable
from mrstream.cluster.wire.addresses import WHAT_TO_DO
from mrstream.dfs.shell.arguments import BadUsage
from mrstream.dfs.shell.items import Shell
from mrstream.dfs.shell.verbs import VERBS, help_of, usage_of, usage_of_all
from mrstream.dfs.shell.volumes import PIECE_BYTES, ClusterVolume, DiskVolume, Volume

USAGE_STATUS = 255
CHANGING = frozenset((
    "appendToFile", "chgrp", "chmod", "chown", "copyFromLocal", "cp", "expunge", "mkdir", "mv",
    "policy", "put", "rm", "rmdir", "setrep", "snapshot", "touch", "touchz", "undelete",
))  # fmt: skip
"""Verbs that change what a bare path names."""
READING = frozenset((
    "cat", "checksum", "copyToLocal", "count", "df", "du", "find", "fsck", "get", "getmerge",
    "head", "ls", "stat", "tail", "test", "text",
))  # fmt: skip
"""Verbs that only read: a shadow answers them where no master does."""


def main(argv: list[str]) -> int:
    """Run one verb; return its exit status."""
    try:
        words, given = _generic(argv)
    except BadUsage as error:
        print(error, file=sys.stderr)
        return USAGE_STATUS
    if not words:
        print("\n".join(usage_of_all()), file=sys.stderr)
        return USAGE_STATUS
    name = "help" if words[0] in ("--help", "-h") else words[0].removeprefix("-")
    if name in ("help", "usage"):
        return _help(name, words[1:])
    verb = VERBS.get(name)
    if verb is None:
        print(f"{words[0]}: Unknown command", file=sys.stderr)
        print("\n".join(usage_of_all()), file=sys.stderr)
        return USAGE_STATUS
    try:
        shell = _shell(name, given)
        rest = words[1:]
        if name == "fsck":  # the path may come before its options, as in `hdfs fsck / -files`
            rest.sort(key=lambda word: not word.startswith("-"))
        said = verb.grammar.parse(rest)
        verb.run(shell, said)
        shell.out.flush()
        return shell.status
    except BadUsage as error:
        print(f"-{name}: {error}", file=sys.stderr)
        print(usage_of(name), file=sys.stderr)
        return USAGE_STATUS
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ClusterError as error:
        print(f"{name}: {error}", file=sys.stderr)
        if isinstance(error, HostUnreachable):
            print(WHAT_TO_DO, file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED


@dataclasses.dataclass
class _Given:
    """What the options before the verb say."""

    cluster: str | None = None
    is_local: bool = False
    is_fresh: bool = False
    replication: int = 0
    chunk_bytes: int = 0


def _generic(argv: list[str]) -> tuple[list[str], _Given]:
    """Take the options that stand before the verb: -cluster FILE, -fs URL, -D name=value,
    --fresh."""
    words = list(argv)
    given = _Given()
    while words:
        option = words[0]
        if option == "--fresh":
            given.is_fresh = True
        elif option.startswith("-D") and "=" in option:
            _property(given, option.removeprefix("-D"))
        elif option in ("-cluster", "-fs", "-D", "-conf", "-jt"):
            if len(words) < 2:
                raise BadUsage(f"{option} needs a value")
            value = words.pop(1)
            if option == "-cluster":
                given.cluster = value
            elif option == "-D":
                _property(given, value)
            elif option == "-fs":
                given.is_local = value in ("local", "file:///", "file:/")
                if value.startswith("dfs://") and value.removeprefix("dfs://").strip("/"):
                    given.cluster = value.removeprefix("dfs://").strip("/")
        else:
            break
        words.pop(0)
    return words, given


def _property(given: _Given, text: str) -> None:
    """Take `name=value`: how files are made that the verb makes. Others change nothing here."""
    name, _, value = text.partition("=")
    try:
        match name:
            case "dfs.replication":
                given.replication = int(value)
                if given.replication < 1:
                    raise ValueError
            case "dfs.blocksize" | "dfs.block.size":
                # Hadoop's letters are powers of 1,024.
                given.chunk_bytes = parse_chunk_size(re.sub(r"(?i)([kmg])$", r"\1iB", value))
            case _:
                pass
    except ValueError as error:
        reason = f": {error}" if name != "dfs.replication" else " is no number of replicas"
        raise BadUsage(f"-D {text}{reason}") from None


def _help(kind: str, names: list[str]) -> int:
    unknown = [name for name in names if name.removeprefix("-") not in VERBS]
    if unknown:
        print(f"{kind}: {unknown[0]}: Unknown command", file=sys.stderr)
        return USAGE_STATUS
    if not names and kind == "usage":
        print("\n".join(usage_of_all()))
        return 0
    for name in [name.removeprefix("-") for name in names] or list(VERBS):
        print("\n".join(help_of(name)) if kind == "help" else usage_of(name))
    return 0


def _shell(verb: str, given: _Given) -> Shell:
    disk = DiskVolume()
    stale_s_max = math.inf if verb in READING and not given.is_fresh else None
    known: dict[str, ClusterVolume] = {}

    def cluster_of(name: str) -> Volume:
        if name not in known:
            known[name] = _volume(given, cluster_meant(name or given.cluster), stale_s_max)
        return known[name]

    default: Volume = disk
    is_down: ClusterIsDown | None = None
    try:
        current = None if given.is_local else current_cluster(given.cluster)
    except ClusterIsDown as error:
        current, is_down = None, error
    if current is not None:
        default = known[""] = known[current.config.name] = _volume(given, current, stale_s_max)
    return Shell(
        default=default,
        disk=disk,
        cluster_of=cluster_of,
        decode=_decode,
        verb=verb,
        shows_progress=sys.stderr.isatty(),
        spares_disk=verb in CHANGING and not given.is_local,
        is_down=is_down,
    )


def _volume(given: _Given, cluster: Cluster, stale_s_max: float | None) -> ClusterVolume:
    from mrstream.dfs.client.client import client_of

    said: set[str] = set()

    def say(host: str, behind_s: float) -> None:
        if host not in said:  # a listing asks many times
            said.add(host)
            words = f"answered by a shadow on {host}, at most {math.ceil(behind_s)} s old"
            print(f"no master: {words}", file=sys.stderr)

    client = client_of(cluster, stale_s_max=stale_s_max, on_stale=say)
    return ClusterVolume(
        client,
        cluster.config.name,
        replication=given.replication,
        chunk_bytes=given.chunk_bytes,
    )


def _decode(name: str, file: io.BufferedReader) -> Iterator[bytes]:
    """What is in a file, for `text`: by its first bytes, else by its suffix, else as it is."""
    from mrstream.streaming.formats.codec import codec_by_suffix

    begin = file.peek(3)[:3]
    if begin == b"SEQ":
        from mrstream.streaming.formats.sequence_file import SequenceFileReader

        for key, value in SequenceFileReader(file, as_text=True):
            yield key + b"\t" + value + b"\n"
        return
    codec = codec_by_suffix("x.gz" if begin[:2] == b"\x1f\x8b" else name)
    pieces = iter(lambda: file.read1(PIECE_BYTES), b"")
    yield from pieces if codec is None else codec.decompressed(pieces, name)
