"""The files that a job's `-input` values name: comma lists, globs, directories, hidden names
(spec 3.1).

Takes words as users write them and gives plain files in the order in which they are read;
collects every problem before it refuses. Never opens a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mrstream.cluster.errors import UserError
from mrstream.cluster.globs import (
    BadGlob,
    component_regex,
    expand_braces,
    has_wildcard,
    unquoted,
)
from mrstream.mapreduce.dataflow.files import Files, FileStatus, join


class InvalidInput(UserError):
    """Some input path names nothing, or not a file; the message has one line for each problem."""

    exit_status: ClassVar[int] = 5


def list_input_files(
    inputs: Sequence[str],
    files: Files,
    *,
    recursive: bool = False,
    ignore_subdirs: bool = False,
    map_files: bool = False,
) -> list[FileStatus]:
    """Return every input file, as often as it was named; raises `InvalidInput` with all problems.

    With `map_files` a directory that holds a file called `data` is a MapFile, and stands for that
    file.
    """
    problems: list[str] = []
    matched: list[FileStatus] = []
    for word in inputs:
        for path in split_at_commas(word):
            # The braces, stars and backslashes of a pattern pass through `qualify` untouched.
            found = _visible_matches(files.qualify(path), files, problems)
            matched += found
    if problems:
        raise InvalidInput("\n".join(problems))
    listed: list[FileStatus] = []
    for status in matched:
        listed += _contents(status, files, recursive) if status.is_directory else [status]
    if map_files:
        listed = [_data_of_map_file(status, files) for status in listed]
    for status in listed:
        if status.is_directory and not ignore_subdirs:
            raise InvalidInput(f"Not a file: {status.url}")
    return [status for status in listed if not status.is_directory]


def is_hidden(name: str) -> bool:
    """Names that jobs use for themselves (`_SUCCESS`, `.part.crc`) are never input."""
    return name.startswith(("_", "."))


def split_at_commas(word: str) -> list[str]:
    """Cut at commas that are not inside braces."""
    parts: list[str] = []
    depth = start = 0
    for index, character in enumerate(word):
        if character == "{":
            depth += 1
        elif character == "}":
            depth = max(0, depth - 1)
        elif character == "," and depth == 0:
            parts.append(word[start:index])
            start = index + 1
    parts.append(word[start:])
    return [part for part in parts if part]


def glob(pattern: str, files: Files) -> list[FileStatus]:
    """Return what a qualified pattern matches, sorted by URL, each once; a path without wildcards
    is itself."""
    found: dict[str, FileStatus] = {}
    try:
        for plain in expand_braces(pattern):
            for status in _glob_components(plain, files):
                found[status.url] = status
    except BadGlob as error:
        raise InvalidInput(f"Illegal file pattern: {error}: {pattern}") from None
    return [
        found[url] for url in sorted(found, key=lambda url: url.encode("utf-8", "surrogateescape"))
    ]


def _visible_matches(url: str, files: Files, problems: list[str]) -> list[FileStatus]:
    is_pattern = has_wildcard(url)
    visible = [status for status in glob(url, files) if not is_hidden(status.name)]
    if not visible:
        problems.append(
            f"Input Pattern {url} matches 0 files"
            if is_pattern
            else f"Input path does not exist: {url}"
        )
    return visible


def _contents(directory: FileStatus, files: Files, recursive: bool) -> Iterator[FileStatus]:
    for status in files.list(directory.url):
        if is_hidden(status.name):
            continue
        if status.is_directory and recursive:
            yield from _contents(status, files, recursive)
        else:
            yield status


def _data_of_map_file(status: FileStatus, files: Files) -> FileStatus:
    data = files.status(join(status.url, "data")) if status.is_directory else None
    return status if data is None or data.is_directory else data


def _glob_components(pattern: str, files: Files) -> Iterator[FileStatus]:
    """Match a pattern without braces: descend from the deepest directory that has no wildcard."""
    components = pattern.split("/")
    fixed = 0
    while fixed < len(components) and not has_wildcard(components[fixed]):
        fixed += 1
    base = "/".join(unquoted(component) for component in components[:fixed])
    if fixed == len(components):
        status = files.status(base)
        if status is not None:
            yield status
        return
    yield from _descend(base + "/" if base.endswith(":") else base, components[fixed:], files)


def _descend(directory: str, components: list[str], files: Files) -> Iterator[FileStatus]:
    status = files.status(directory)
    if status is None or not status.is_directory:
        return
    head, rest = components[0], components[1:]
    if not has_wildcard(head):
        found = files.status(join(directory, unquoted(head)))
        entries = [found] if found is not None else []
    else:
        match = component_regex(head).fullmatch
        entries = [entry for entry in files.list(directory) if match(entry.name)]
    for entry in entries:
        if rest:
            yield from _descend(entry.url, rest, files)
        else:
            yield entry
