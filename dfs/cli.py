"""`mrstream dfs …`: finds the cluster, the verb and its words, and runs it.

A root: nothing imports it. Exit status 0, 1 when something failed, 255 for wrong usage, 130 when
interrupted, as `hdfs dfs`.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterator

from mrstream.cluster.config.config import current_cluster
from mrstream.cluster.errors import ClusterError, HostUnreachable, UserError
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
        words, cluster, is_local, is_fresh = _generic(argv)
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
        shell = _shell(name, cluster, is_local, is_fresh)
        # The path may come before fsck's options, as in `hdfs fsck / -files`.
        said = verb.grammar.parse(_options_first(words[1:]) if name == "fsck" else words[1:])
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
        return 130


def _generic(argv: list[str]) -> tuple[list[str], str | None, bool, bool]:
    """Take the options that stand before the verb: -cluster FILE, -fs URL, -D name=value,
    --fresh."""
    words = list(argv)
    cluster: str | None = None
    is_local = is_fresh = False
    while words and words[0] in ("-cluster", "-fs", "-D", "-conf", "-jt", "--fresh"):
        option = words.pop(0)
        if option == "--fresh":
            is_fresh = True
            continue
        if not words:
            raise BadUsage(f"{option} needs a value")
        value = words.pop(0)
        if option == "-cluster":
            cluster = value
        elif option == "-fs":
            is_local = value in ("local", "file:///", "file:/")
            if value.startswith("dfs://") and value.removeprefix("dfs://").strip("/"):
                cluster = value.removeprefix("dfs://").strip("/")
    return words, cluster, is_local, is_fresh


def _options_first(words: list[str]) -> list[str]:
    return sorted(words, key=lambda word: not word.startswith("-"))


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


def _shell(verb: str, cluster: str | None, is_local: bool, is_fresh: bool) -> Shell:
    disk = DiskVolume()
    stale_s_max = math.inf if verb in READING and not is_fresh else None
    known: dict[str, ClusterVolume] = {}

    def cluster_of(name: str) -> Volume:
        if name not in known:
            known[name] = _cluster_volume(name or cluster, stale_s_max)
        return known[name]

    default: Volume = disk
    if not is_local and (found := _current(cluster, stale_s_max)) is not None:
        known[""] = default = found
        known[found.uri.removeprefix("dfs://")] = found
    return Shell(
        default=default,
        disk=disk,
        cluster_of=cluster_of,
        decode=_decode,
        verb=verb,
        shows_progress=sys.stderr.isatty(),
        spares_disk=verb in CHANGING and not is_local,
    )


def _current(cluster: str | None, stale_s_max: float | None) -> ClusterVolume | None:
    from mrstream.dfs.client.client import client_of

    found = current_cluster(cluster)
    if found is None:
        return None
    said: set[str] = set()

    def say(host: str, behind_s: float) -> None:
        if host not in said:  # a listing asks many times
            said.add(host)
            words = f"answered by a shadow on {host}, at most {math.ceil(behind_s)} s old"
            print(f"no master: {words}", file=sys.stderr)

    client = client_of(found, stale_s_max=stale_s_max, on_stale=say)
    return ClusterVolume(client, found.config.name)


def _cluster_volume(cluster: str | None, stale_s_max: float | None) -> ClusterVolume:
    volume = _current(cluster, stale_s_max)
    if volume is None:
        raise UserError(
            "there is no current cluster: `mrstream cluster up` makes one, or name a cluster file "
            "with -cluster FILE or $MRSTREAM_CLUSTER"
        )
    return volume


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
