"""Verbs that look at names: ls, du, df, count, stat, find, test."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from mrstream.cluster.globs import BadGlob, component_regex, expand_braces
from mrstream.dfs.protocol import FileStatus
from mrstream.dfs.shell import quotas
from mrstream.dfs.shell.arguments import Arguments, BadUsage
from mrstream.dfs.shell.formats import figure, minute, permissions, second_utc, table
from mrstream.dfs.shell.items import Item, Shell


def ls(shell: Shell, said: Arguments) -> None:
    """List entries, or the entry itself for a file."""
    for item in shell.each(said.rest or (".",)):
        with shell.reported(item.shown):
            if "d" in said or not item.is_directory:
                _print_entries(shell, [item], said)
            else:
                _list_directory(shell, item, said)


def _list_directory(shell: Shell, item: Item, said: Arguments) -> None:
    entries = _ordered([item.child(one) for one in item.volume.list(item.path)], said)
    if "R" not in said:
        if entries and "C" not in said and "json" not in said:
            shell.print(f"Found {len(entries)} items")
        _print_entries(shell, entries, said)
        return
    for entry in entries:
        _print_entries(shell, [entry], said)
        if entry.is_directory:
            _list_directory(shell, entry, said)


def _ordered(entries: list[Item], said: Arguments) -> list[Item]:
    def time_of(item: Item) -> float:
        status = item.known()
        return status.accessed_at_s if "u" in said else status.modified_at_s

    if "t" in said:
        entries = sorted(entries, key=time_of, reverse=True)
    elif "S" in said:
        entries = sorted(entries, key=lambda item: item.known().length_bytes, reverse=True)
    return entries[::-1] if "r" in said else entries


def _print_entries(shell: Shell, entries: list[Item], said: Arguments) -> None:
    if "C" in said or "json" in said:
        for entry in entries:
            shell.print(_as_json(entry) if "json" in said else entry.shown)
        return
    rows = [_row(entry, said) for entry in entries]
    if not rows:
        return
    widths = [max(len(row[at]) for row in rows) for at in range(6)]
    replication, length = max(3, widths[1]), max(10, widths[4])
    for mode, copies, owner, group, count, at, shown in rows:
        shell.print(
            f"{mode} {copies:>{replication}} {owner:<{widths[2]}} {group:<{widths[3]}} "
            f"{count:>{length}} {at} {shown}"
        )


def _row(item: Item, said: Arguments) -> tuple[str, str, str, str, str, str, str]:
    status = item.known()
    at_s = status.accessed_at_s if "u" in said else status.modified_at_s
    shown = "".join(c if c.isprintable() else "?" for c in item.shown) if "q" in said else None
    return (
        ("d" if status.is_directory else "-") + permissions(status.mode),
        "-" if status.is_directory else str(status.replication),
        status.owner,
        status.group,
        figure(status.length_bytes, "h" in said),
        minute(at_s),
        item.shown if shown is None else shown,
    )


def _as_json(item: Item) -> str:
    """All facts of an entry; names as the user would write them, in ASCII whatever they hold."""
    return json.dumps({**msgspec.structs.asdict(item.known()), "path": item.shown})


def du(shell: Shell, said: Arguments) -> None:
    """Bytes, and bytes times replication, of each entry (of the whole with -s)."""
    rows = [("SIZE", "DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS", "FULL_PATH_NAME")]
    rows = rows if "v" in said else []
    for item in shell.each(said.rest or (".",)):
        with shell.reported(item.shown):
            inside = item.is_directory and "s" not in said
            entries = [item.child(one) for one in item.volume.list(item.path)] if inside else [item]
            for entry in entries:
                total = entry.volume.summarise(entry.path)
                rows.append(
                    (
                        figure(total.length_bytes, "h" in said),
                        figure(total.stored_bytes, "h" in said),
                        entry.shown,
                    )
                )
    for line in table(rows):
        shell.print(line)


def df(shell: Shell, said: Arguments) -> None:
    """Capacity of the file system."""
    rows = [("Filesystem", "Size", "Used", "Available", "Use%")]
    for text in said.rest or ("/",):
        with shell.reported(text):
            volume = shell.resolve(text).volume
            total, used, free = volume.space()
            share = f"{100 * used / total:.0f}%" if total else "0%"
            plain = "h" in said
            rows.append(
                (volume.uri, figure(total, plain), figure(used, plain), figure(free, plain), share)
            )
    for line in table(rows, right=(1, 2, 3, 4)):
        shell.print(line)


def count(shell: Shell, said: Arguments) -> None:
    """Directories, files and bytes below each path; with -q quotas before them, with -u quotas
    alone."""
    shows_quotas, shows_counts = "q" in said or "u" in said, "u" not in said
    is_human = "h" in said
    if "v" in said:
        counts = f"{'DIR_COUNT':>12} {'FILE_COUNT':>12} {'CONTENT_SIZE':>18} "
        head = (quotas.HEADER if shows_quotas else "") + (counts if shows_counts else "")
        shell.print(f"{head}PATHNAME")
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            line = quotas.columns(item, is_human) if shows_quotas else ""
            if shows_counts:
                total = item.volume.summarise(item.path)
                line += (
                    f"{figure(total.directory_count, is_human):>12} "
                    f"{figure(total.file_count, is_human):>12} "
                    f"{figure(total.length_bytes, is_human):>18} "
                )
            shell.print(f"{line}{item.shown}")


def stat(shell: Shell, said: Arguments) -> None:
    """Facts of a path after a format; by default its time of change in UTC."""
    words = list(said.rest)
    pattern = words.pop(0) if "%" in words[0] else "%y"
    if not words:
        raise BadUsage("Not enough arguments: expected 1 but got 0")
    for item in shell.each(tuple(words)):
        shell.print(_as_json(item) if "json" in said else "".join(_stat_parts(item, pattern)))


def _stat_parts(item: Item, pattern: str) -> Iterator[str]:
    status = item.known()
    at = 0
    while at < len(pattern):
        if pattern[at] != "%" or at + 1 == len(pattern):
            yield pattern[at]
            at += 1
            continue
        yield _stat_field(item, status, pattern[at + 1])
        at += 2


def _stat_field(item: Item, status: FileStatus, letter: str) -> str:
    match letter:
        case "a":
            return f"{status.mode:o}"
        case "A":
            return permissions(status.mode)
        case "b":
            return str(status.length_bytes)
        case "F":
            return "directory" if status.is_directory else "regular file"
        case "g":
            return status.group
        case "n":
            return item.name
        case "o":
            return str(status.chunk_bytes)
        case "r":
            return str(status.replication)
        case "u":
            return status.owner
        case "x":
            return second_utc(status.accessed_at_s)
        case "X":
            return str(int(status.accessed_at_s * 1000))
        case "y":
            return second_utc(status.modified_at_s)
        case "Y":
            return str(int(status.modified_at_s * 1000))
        case "%":
            return "%"
    return letter


def test(shell: Shell, said: Arguments) -> None:
    """Exit status 0 if it is so, 1 if not; prints nothing."""
    asked = list(said.flags)
    if len(asked) != 1:
        raise BadUsage("exactly one of -d -e -f -s -w -r -z is needed")
    item = shell.resolve(said.rest[0])
    status = item.status
    holds = False
    if status is not None:
        match asked[0]:
            case "e":
                holds = True
            case "d":
                holds = status.is_directory
            case "f":
                holds = not status.is_directory
            case "s":
                holds = status.length_bytes > 0
            case "z":
                holds = not status.is_directory and status.length_bytes == 0
            case "r":
                holds = bool(status.mode & 0o444)
            case "w":
                holds = bool(status.mode & 0o222)
    shell.status = 0 if holds else 1


def find(shell: Shell, said: Arguments) -> None:
    """Print what is at and below paths and fits the expression."""
    words = list(said.rest)
    paths = []
    while words and not words[0].startswith("-"):
        paths.append(words.pop(0))
    tests, end = _expression(words)
    for item in shell.each(tuple(paths or ["."])):
        with shell.reported(item.shown):
            for status in item.volume.find(item.path):
                below = status.path.removeprefix(item.path).lstrip("/")
                shown = item.below_shown(below)
                name = status.path.rpartition("/")[2]
                if all(fits(name) for fits in tests):
                    shell.out.write(shown.encode("utf-8", "surrogateescape") + end)


def _expression(words: list[str]) -> tuple[list[NameTest], bytes]:
    tests: list[NameTest] = []
    end = b"\n"
    while words:
        word = words.pop(0)
        match word:
            case "-name" | "-iname":
                if not words:
                    raise BadUsage(f"{word} needs a pattern")
                tests.append(NameTest(words.pop(0), folds=word == "-iname"))
            case "-print":
                end = b"\n"
            case "-print0":
                end = b"\0"
            case "-a" | "-and":
                continue
            case _:
                raise BadUsage(f"find: Unexpected argument: {word}")
    return tests, end


class NameTest:
    """Does a name fit a pattern?"""

    def __init__(self, pattern: str, *, folds: bool) -> None:
        self._folds = folds
        try:
            patterns = expand_braces(pattern.lower() if folds else pattern)
            self._fits = [component_regex(one).fullmatch for one in patterns]
        except BadGlob as error:
            raise BadUsage(f"find: {pattern!r}: {error}") from None

    def __call__(self, name: str) -> bool:
        return any(fits(name.lower() if self._folds else name) for fits in self._fits)
