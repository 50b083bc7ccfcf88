"""Verbs that change names and attributes, not bytes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.units import parse_time
from mrstream.dfs.client.client import NO_RULE, RULE_STAYS, DfsClient
from mrstream.dfs.errors import (
    BadRequest,
    DirectoryNotEmpty,
    FileExists,
    IsADirectory,
    NoSuchFile,
    NotADirectory,
)
from mrstream.dfs.shell.arguments import Arguments, BadUsage
from mrstream.dfs.shell.formats import changed_mode
from mrstream.dfs.shell.items import Item, Shell, is_disk
from mrstream.dfs.shell.volumes import ClusterVolume

REPLICATION_POLL_S = 0.5
MANY_FILES = 100
DAY_S = 86_400.0
APPENDS = ("gfs", "serialised")
"""Words for the rule of record appends, by its number."""
Number = TypeVar("Number", int, float)


def mkdir(shell: Shell, said: Arguments) -> None:
    for word in said.rest:
        with shell.reported(word):
            item = shell.resolve(word)
            if item.status is not None:
                if not item.is_directory:
                    raise NotADirectory(word)
                if "p" not in said:
                    raise FileExists(word)
                continue
            item.volume.make_directory(item.path, parents="p" in said)


def rm(shell: Shell, said: Arguments) -> None:
    """Delete: into the trash, unless it is skipped or there is none."""
    for word in said.rest:
        try:
            items = shell.matches(word)
        except NoSuchFile as error:
            if "f" not in said:
                shell.fail(error, word)
            continue
        for item in items:
            with shell.reported(item.shown):
                _remove(shell, item, said)


def _remove(shell: Shell, item: Item, said: Arguments) -> None:
    is_recursive = "r" in said or "R" in said
    if item.is_directory and not is_recursive:
        raise IsADirectory(item.shown)
    if "safely" in said and item.is_directory and not _is_sure(shell, item):
        return
    hidden = item.volume.delete(item.path, recursive=is_recursive, skip_trash="skipTrash" in said)
    if hidden:
        shell.print(f"Moved: '{item.shown}' to trash at: {hidden}")
    else:
        shell.print(f"Deleted {item.shown}")


def _is_sure(shell: Shell, item: Item) -> bool:
    files = item.volume.summarise(item.path).file_count
    if files <= MANY_FILES or not sys.stdin.isatty():
        return True
    shell.out.flush()
    answer = input(f"Proceed deleting {files} files under {item.shown}? (Y or N) ")
    return answer.strip().lower() in ("y", "yes")


def rmdir(shell: Shell, said: Arguments) -> None:
    """Remove directories that are empty."""
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            if not item.is_directory:
                raise NotADirectory(item.shown)
            if next(iter(item.volume.list(item.path)), None) is not None:
                if "-ignore-fail-on-non-empty" in said:
                    continue
                raise DirectoryNotEmpty(item.shown)
            item.volume.delete(item.path, recursive=False, skip_trash=True)


def mv(shell: Shell, said: Arguments) -> None:
    """Rename, into the target if that is a directory."""
    *sources, last = said.rest
    target = shell.resolve(last)
    if len(sources) > 1 and not target.is_directory:
        shell.fail(NoSuchFile(last) if target.status is None else NotADirectory(last), last)
        return
    for item in shell.each(tuple(sources)):
        try:
            if item.volume is not target.volume:
                raise BadRequest(f"`{item.shown}': Does not match target filesystem")
            final = target.below(item.name) if target.is_directory else target
            if final.status is not None:
                raise FileExists(final.shown)
            if (final.path + "/").startswith(item.path + "/"):
                raise BadRequest(f"`{final.shown}': is a subdirectory of itself")
            try:
                item.volume.rename(item.path, final.path)
            except NoSuchFile:
                raise NoSuchFile(final.shown) from None
        except (FileExists, NoSuchFile) as error:
            shell.fail(error, str(error))
        except ClusterError as error:
            shell.fail(error)


def touchz(shell: Shell, said: Arguments) -> None:
    """Make empty files."""
    for word in said.rest:
        with shell.reported(word):
            item = shell.resolve(word)
            if item.is_directory:
                raise IsADirectory(word)
            if item.status is not None and item.status.length_bytes:
                shell.fail(f"`{word}': Not a zero-length file")
                continue
            item.volume.create(item.path, overwrite=True).close()


def touch(shell: Shell, said: Arguments) -> None:
    """Set times to now, making the file if it is not there (unless -c)."""
    for word in said.rest:
        with shell.reported(word):
            item = shell.resolve(word)
            if item.status is None:
                if "c" not in said:
                    item.volume.create(item.path, overwrite=False).close()
                continue
            now_s = time.time()
            item.volume.set_times(item.path, now_s, now_s)


def setrep(shell: Shell, said: Arguments) -> None:
    """Set how many replicas files have; with -w wait until they have them."""
    word = said.rest[0]
    if not word.isdigit() or int(word) < 1:
        raise BadUsage(f"Illegal replication, a positive integer expected: {word}")
    wanted = int(word)
    waiting = []
    for item in shell.each(said.rest[1:]):
        with shell.reported(item.shown):
            client_of(item).set_replication(item.path, wanted)
            for status in item.volume.find(item.path):
                if not status.is_directory:
                    shown = item.below_shown(status.path.removeprefix(item.path).lstrip("/"))
                    shell.print(f"Replication {wanted} set: {shown}")
                    waiting.append((item, status.path, shown))
    if "w" in said:
        for item, path, shown in waiting:
            _await_replicas(shell, client_of(item), path, shown)


def _await_replicas(shell: Shell, client: DfsClient, path: str, shown: str) -> None:
    shell.out.write(f"Waiting for {shown} ...".encode())
    while True:
        shell.out.flush()
        chunks = [
            chunk for page in client.fsck(path) for fact in page.files for chunk in fact.chunks
        ]
        good = [sum(one.state == "good" for one in chunk.replicas) for chunk in chunks]
        if all(count == chunk.goal for count, chunk in zip(good, chunks, strict=True)):
            shell.out.write(b" done\n")
            return
        shell.out.write(b".")
        time.sleep(REPLICATION_POLL_S)


def chmod(shell: Shell, said: Arguments) -> None:
    """Change permission bits: octal or symbolic."""
    change = said.rest[0]
    changed_mode(0, False, change)
    for item in _with_below(shell, said, said.rest[1:]):
        with shell.reported(item.shown):
            status = item.known()
            mode = changed_mode(status.mode, status.is_directory, change)
            if mode != status.mode:
                item.volume.set_mode(item.path, mode)


def chown(shell: Shell, said: Arguments) -> None:
    """Change `owner`, `owner:group` or `:group`."""
    owner, _, group = said.rest[0].partition(":")
    if not owner and not group:
        raise BadUsage(f"'{said.rest[0]}' does not match expected pattern for [owner][:group].")
    _change_owner(shell, said, owner, group)


def chgrp(shell: Shell, said: Arguments) -> None:
    _change_owner(shell, said, "", said.rest[0])


def _change_owner(shell: Shell, said: Arguments, owner: str, group: str) -> None:
    for item in _with_below(shell, said, said.rest[1:]):
        with shell.reported(item.shown):
            item.volume.set_owner(item.path, owner, group)


def _with_below(shell: Shell, said: Arguments, words: tuple[str, ...]) -> list[Item]:
    items = list(shell.each(words))
    if "R" not in said:
        return items
    found = []
    for item in items:
        for status in item.volume.find(item.path):
            shown = item.below_shown(status.path.removeprefix(item.path).lstrip("/"))
            found.append(Item(item.volume, status.path, shown, status))
    return found


def policy(shell: Shell, said: Arguments) -> None:
    """Show or set how many replicas new files of a directory get, how long what is deleted there
    can be brought back, and whether record appends there are serialised."""
    replication = _rule(said, "replication", int)
    trash_after_s = _rule(said, "trash", _time)
    appends = _rule(said, "appends", _appends)
    for item in shell.each(said.rest):
        with shell.reported(item.shown):
            client = client_of(item)
            if said.values:
                client.set_policy(
                    item.path,
                    replication=replication,
                    trash_after_s=trash_after_s,
                    appends=appends,
                )
            rules = client.policy(item.path)
            shell.print(
                f"{item.shown}\treplication {rules.replication} ({_source(rules.replication_from)})"
                f"\ttrash {_days(rules.trash_after_s)} ({_source(rules.trash_from)})"
                f"\tappends {APPENDS[rules.serialised]} ({_source(rules.appends_from)})"
            )


def _rule(said: Arguments, name: str, parse: Callable[[str], Number]) -> Number | int:
    text = said.values.get(name)
    if text is None:
        return RULE_STAYS
    if text == "default":
        return NO_RULE
    try:
        return parse(text)
    except ValueError as error:
        raise BadUsage(f"-{name} is {text!r}: {error}; or `default`") from None


def _time(text: str) -> float:
    return 0.0 if text == "0" else parse_time(text)


def _appends(text: str) -> int:
    if text not in APPENDS:
        raise ValueError(f"it is one of {', '.join(APPENDS)}")
    return APPENDS.index(text)


def _days(seconds: float) -> str:
    if seconds <= 0:
        return "none"
    return f"{seconds / DAY_S:g}d" if seconds >= DAY_S else f"{seconds:g}s"


def _source(directory: str) -> str:
    return f"rule of {directory}" if directory else "the cluster's"


def expunge(shell: Shell, said: Arguments) -> None:
    """Drop from the trash what is old enough, or everything with -immediate."""
    client = client_of(shell.named("/"))
    dropped = client.expunge(now="immediate" in said, on_silent=shell.fail)
    shell.print(f"Expunged {dropped} entries from the trash")


def undelete(shell: Shell, said: Arguments) -> None:
    """Bring back what was deleted; without a path list what can be."""
    if not said.rest:
        for entry in client_of(shell.named("/")).trash(on_silent=shell.fail):
            shell.print(f"{entry.original_path}\t{entry.hidden_path}")
        return
    for word in said.rest:
        with shell.reported(word):
            item = shell.named(word)
            restored = client_of(item).undelete(item.path)
            shell.print(f"Restored {restored}")


def snapshot(shell: Shell, said: Arguments) -> None:
    """Copy a file or tree at once, without copying bytes (GFS §3.4)."""
    source, target = shell.resolve(said.rest[0]), shell.resolve(said.rest[1])
    try:
        source.known()
        if target.is_directory:
            target = target.below(source.name)
        client_of(source).snapshot(source.path, target.path)
        shell.print(f"Created snapshot {target.shown}")
    except FileExists as error:
        shell.fail(error, target.shown)
    except ClusterError as error:
        shell.fail(error, source.shown)


def client_of(item: Item) -> DfsClient:
    """The client behind an item; BadRequest where the item is on the disk."""
    if is_disk(item.volume) or not isinstance(item.volume, ClusterVolume):
        raise BadRequest(f"`{item.shown}' is on this machine's disk; this needs a cluster")
    return item.volume.client
