"""The table of verbs: what each is called, takes, does; and help from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrstream.dfs.shell import changing, copying, fsck, listing, quotas, reading
from mrstream.dfs.shell.arguments import Arguments, Grammar
from mrstream.dfs.shell.items import Shell


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    usage: str
    says: str
    grammar: Grammar
    run: Callable[[Shell, Arguments], None]


_COPY = Grammar(("f", "p", "l", "d", "q", "crc", "ignoreCrc"), ("t",), 1)
_JSON = {"-json": "json"}  # it is written --json, as everywhere
_PUT_USAGE = "[-f] [-p] [-d] [-q] [-t THREADS] LOCAL ... TARGET"
_GET_USAGE = "[-f] [-p] [-q] [-t THREADS] PATH ... LOCAL"

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb(
            "ls",
            "[-C] [-d] [-h] [-q] [-R] [-t] [-S] [-r] [-u] [--json] [PATH ...]",
            "List directories. -C: paths only; -d: the directory itself; -h: sizes for people; -q: "
            "? for what cannot be printed; -R: all below; -t: newest first; -S: largest first; -r: "
            "the other way round; -u: times of access; --json: an object a line.",
            Grammar(("C", "d", "h", "q", "R", "t", "S", "r", "u", "json"), aliases=_JSON),
            listing.ls,
        ),
        Verb(
            "put", _PUT_USAGE,
            "Copy files and trees from this machine; `-` is standard input. -f: replace; -p: keep "
            "times, owner and mode; -d: no temporary name; -q: no progress line; -t: files at a "
            "time.",
            _COPY, copying.put,
        ),
        Verb("copyFromLocal", _PUT_USAGE, "The same as put.", _COPY, copying.put),
        Verb(
            "get", _GET_USAGE,
            "Copy files and trees to this machine; `-` is standard output. Options as for put.",
            _COPY, copying.get,
        ),
        Verb("copyToLocal", _GET_USAGE, "The same as get.", _COPY, copying.get),
        Verb(
            "cat", "[-ignoreCrc] PATH ...", "Write files to standard output.",
            Grammar(("ignoreCrc",), (), 1), reading.cat,
        ),
        Verb(
            "text", "[-ignoreCrc] PATH ...",
            "As cat, decompressed; sequence files as text.",
            Grammar(("ignoreCrc",), (), 1), reading.text,
        ),
        Verb(
            "mkdir", "[-p] PATH ...",
            "Make directories. -p: those above too, and one that exists is fine.",
            Grammar(("p",), (), 1), changing.mkdir,
        ),
        Verb(
            "rm", "[-f] [-r|-R] [-skipTrash] [-safely] PATH ...",
            "Delete files, and trees with -r: into the trash, unless it is skipped. -f: a path "
            "that names nothing is fine.",
            Grammar(("f", "r", "R", "skipTrash", "safely"), (), 1), changing.rm,
        ),
        Verb(
            "rmdir", "[--ignore-fail-on-non-empty] PATH ...", "Remove empty directories.",
            Grammar(("-ignore-fail-on-non-empty",), (), 1), changing.rmdir,
        ),
        Verb(
            "mv", "PATH ... TARGET", "Rename; into the target if it is a directory.",
            Grammar((), (), 2), changing.mv,
        ),
        Verb(
            "cp", "[-f] [-p] [-d] [-q] [-t THREADS] PATH ... TARGET",
            "Copy within and between file systems. Options as for put.",
            Grammar(("f", "p", "d", "q"), ("t",), 2), copying.cp,
        ),
        Verb(
            "du", "[-s] [-h] [-v] [-x] PATH ...",
            "Bytes, and bytes with all replicas, of each entry. -s: of the whole; -v: a header.",
            Grammar(("s", "h", "v", "x")), listing.du,
        ),
        Verb(
            "df", "[-h] [PATH ...]", "Capacity, used and free bytes of the file system.",
            Grammar(("h",)), listing.df,
        ),
        Verb(
            "count", "[-q] [-u] [-h] [-v] [-x] PATH ...",
            "Number of directories, files and bytes. -q: quotas before them, and what is left of "
            "each; -u: quotas alone; -v: a header.",
            Grammar(("q", "u", "h", "v", "x"), (), 1), listing.count,
        ),
        Verb(
            "stat", "[--json] [FORMAT] PATH ...",
            "Facts of a path; --json: all of them, an object a line. %a %A "
            "mode, %b bytes, %F kind, %g group, %n name, %o chunk size, %r "
            "replication, %u owner, %x %X time of access, %y %Y time of change.",
            Grammar(("json",), (), 1, aliases=_JSON), listing.stat,
        ),
        Verb(
            "tail", "[-f] [-s SECONDS] PATH",
            "The last kilobyte. -f: and what is added from then on.",
            Grammar(("f",), ("s",), 1, 1), reading.tail,
        ),
        Verb("head", "PATH", "The first kilobyte.", Grammar((), (), 1, 1), reading.head),
        Verb(
            "test", "-[defswrz] PATH",
            "Exit status 0 if the path is a directory (-d), exists (-e), is a file (-f), is not "
            "empty (-s), may be written (-w) or read (-r), is empty (-z).",
            Grammar(("d", "e", "f", "s", "w", "r", "z"), (), 1, 1), listing.test,
        ),
        Verb("touchz", "PATH ...", "Make empty files.", Grammar((), (), 1), changing.touchz),
        Verb(
            "touch", "[-c] PATH ...", "Set times to now. -c: do not make a file.",
            Grammar(("a", "m", "c"), (), 1), changing.touch,
        ),
        Verb(
            "getmerge", "[-nl] [-skip-empty-file] PATH ... LOCAL",
            "Put files one after the other into one. -nl: a newline after each.",
            Grammar(("nl", "skip-empty-file"), (), 2), copying.getmerge,
        ),
        Verb(
            "appendToFile", "LOCAL ... PATH", "Append local files; `-` is standard input.",
            Grammar((), (), 2), copying.append_to_file,
        ),
        Verb(
            "setrep", "[-R] [-w] NUMBER PATH ...",
            "Set the number of replicas. -w: wait until it is so.",
            Grammar(("R", "w"), (), 2), changing.setrep,
        ),
        Verb(
            "checksum", "[-v] PATH ...", "CRC32C of each file's bytes.",
            Grammar(("v",), (), 1), reading.checksum,
        ),
        Verb(
            "find", "[PATH ...] [-name PATTERN | -iname PATTERN] [-print | -print0]",
            "Everything at and below paths whose name fits.",
            Grammar((), ()), listing.find,
        ),
        Verb(
            "chmod", "[-R] MODE PATH ...", "Change permissions: octal or symbolic.",
            Grammar(("R",), (), 2), changing.chmod,
        ),
        Verb(
            "chown", "[-R] [OWNER][:GROUP] PATH ...", "Change owner and group.",
            Grammar(("R",), (), 2), changing.chown,
        ),
        Verb(
            "chgrp", "[-R] GROUP PATH ...", "Change the group.",
            Grammar(("R",), (), 2), changing.chgrp,
        ),
        Verb(
            "expunge", "[-immediate]",
            "Drop from the trash what is old enough; everything with -immediate.",
            Grammar(("immediate",), ("fs",), 0, 0), changing.expunge,
        ),
        Verb(
            "undelete", "[PATH ...]",
            "Bring back what was deleted last at a path; without one list the trash.",
            Grammar((), ()), changing.undelete,
        ),
        Verb(
            "setQuota", "NUMBER DIRECTORY ...",
            "Limit how many files and directories a directory may hold with all below it, itself "
            "included.",
            Grammar((), (), 2), quotas.set_quota,
        ),
        Verb(
            "setSpaceQuota", "SIZE DIRECTORY ...",
            "Limit how many bytes a directory may hold with all below it, each counted as often as "
            "it has replicas; a chunk that is being written counts as a whole one.",
            Grammar((), (), 2), quotas.set_space_quota,
        ),
        Verb(
            "clrQuota", "DIRECTORY ...", "Take the limit of names away.",
            Grammar((), (), 1), quotas.clear_quota,
        ),
        Verb(
            "clrSpaceQuota", "DIRECTORY ...", "Take the limit of bytes away.",
            Grammar((), (), 1), quotas.clear_space_quota,
        ),
        Verb(
            "policy",
            "[-replication N|default] [-trash TIME|default] [-appends serialised|gfs|default] "
            "PATH ...",
            "Show or set the rules of directories for all below them: replicas of files created "
            "there from now on; how long deleted files can be brought back (0: not at all); "
            "whether record appends land at least once (gfs), or once and in one order.",
            Grammar((), ("replication", "trash", "appends"), 1), changing.policy,
        ),
        Verb(
            "story", "PATH|CHUNK ...",
            "What happened lately to files, or to chunks by their handle, when and why.",
            Grammar((), (), 1), fsck.story,
        ),
        Verb(
            "snapshot", "SOURCE TARGET",
            "Copy a file or tree at once, without copying bytes.",
            Grammar((), (), 2, 2), changing.snapshot,
        ),
        Verb(
            "fsck", "[PATH ...] [-files] [-chunks] [-locations] [-racks] [-compare] [--json]",
            "The state of every replica. -compare: have every replica read and compare them; "
            "--json: the totals and what is wrong, as an object.",
            Grammar(
                ("files", "chunks", "locations", "racks", "compare", "openforwrite", "json"),
                aliases={"blocks": "chunks", **_JSON},
            ),
            fsck.fsck,
        ),
    )
}  # fmt: skip


def help_of(name: str) -> list[str]:
    """The lines of `-help NAME`."""
    verb = VERBS[name]
    return [f"-{verb.name} {verb.usage} :", f"  {verb.says}", ""]


def usage_of(name: str) -> str:
    """The line of `-usage NAME`."""
    verb = VERBS[name]
    return f"Usage: mrstream dfs [generic options] -{verb.name} {verb.usage}".rstrip()


def usage_of_all() -> list[str]:
    """The lines shown when nothing, or something unknown, was asked for."""
    lines = ["Usage: mrstream dfs [generic options]"]
    lines += [f"\t[-{verb.name} {verb.usage}]" for verb in VERBS.values()]
    lines += [
        "\t[-help [VERB ...]]",
        "\t[-usage [VERB ...]]",
        "",
        "Generic options are:",
        "-cluster FILE   the cluster's file or name (else $MRSTREAM_CLUSTER, else the current one)",
        "-fs local       paths without a scheme are on this machine's disk",
    ]
    return lines
