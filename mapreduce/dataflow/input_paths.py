"""The files that a job's `-input` values name: comma lists, globs, directories, hidden names
(spec 3.1).

Takes words as users write them and gives plain files in the order in which they are read;
collects every problem before it refuses. Never opens a file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from mrstream.cluster.errors import UserError
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
    """Give every input file, as often as it was named; raises `InvalidInput` with all problems.

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
    """Give what a qualified pattern matches, sorted by URL, each once; a path without wildcards
    is itself."""
    found: dict[str, FileStatus] = {}
    for plain in expand_braces(pattern):
        for status in _glob_components(plain, files):
            found[status.url] = status
    return [
        found[url] for url in sorted(found, key=lambda url: url.encode("utf-8", "surrogateescape"))
    ]


def has_wildcard(pattern: str) -> bool:
    """Say whether a word is a pattern: an unquoted `*`, `?`, `[` or `{`."""
    return re.search(r"[*?\[{]", re.sub(r"\\.", "", pattern, flags=re.DOTALL)) is not None


def expand_braces(pattern: str) -> list[str]:
    """Write `a{b,c}` out as `ab` and `ac`; braces nest and a backslash quotes."""
    opening = _find_unquoted(pattern, "{", 0)
    if opening < 0:
        return [pattern]
    parts: list[str] = []
    depth, start, index = 0, opening + 1, opening
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            index += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                break
        elif character == "," and depth == 1:
            parts.append(pattern[start:index])
            start = index + 1
        index += 1
    else:
        raise InvalidInput(
            f"Illegal file pattern: Unclosed group near index {len(pattern)}: {pattern}"
        )
    parts.append(pattern[start:index])
    before, after = pattern[:opening], pattern[index + 1 :]
    return list(
        itertools.chain.from_iterable(expand_braces(before + part + after) for part in parts)
    )


def component_regex(pattern: str) -> re.Pattern[str]:
    """Translate one path component of a glob (no braces left in it) to a regular expression."""
    out: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == "\\" and index + 1 < len(pattern):
            index += 1
            out.append(re.escape(pattern[index]))
        elif character == "*":
            out.append(".*")
        elif character == "?":
            out.append(".")
        elif character == "[":
            body, index = _character_class(pattern, index)
            out.append(body)
        else:
            out.append(re.escape(character))
        index += 1
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error as error:
        raise InvalidInput(f"Illegal file pattern: {error}: {pattern}") from None


def _character_class(pattern: str, opening: int) -> tuple[str, int]:
    """Translate `[a-z]`, `[^a]`, `[!a]`; gives the regex and the index of the closing bracket."""
    out = ["["]
    index = opening + 1
    if pattern[index : index + 1] in ("!", "^"):
        out.append("^")
        index += 1
    first = index
    while index < len(pattern):
        character = pattern[index]
        if character == "]" and index > first:
            return "".join(out) + "]", index
        if character == "\\" and index + 1 < len(pattern):
            index += 1
            out.append("\\" + pattern[index])
        elif character in "[]\\^&|~":
            out.append("\\" + character)
        else:
            out.append(character)
        index += 1
    raise InvalidInput(
        f"Illegal file pattern: Unclosed character class near index {len(pattern)}: {pattern}"
    )


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
    base = "/".join(_unquoted(component) for component in components[:fixed])
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
        found = files.status(join(directory, _unquoted(head)))
        entries = [found] if found is not None else []
    else:
        match = component_regex(head).fullmatch
        entries = [entry for entry in files.list(directory) if match(entry.name)]
    for entry in entries:
        if rest:
            yield from _descend(entry.url, rest, files)
        else:
            yield entry


def _unquoted(component: str) -> str:
    return re.sub(r"\\(.)", r"\1", component, flags=re.DOTALL)


def _find_unquoted(text: str, character: str, start: int) -> int:
    index = start
    while index < len(text):
        if text[index] == "\\":
            index += 1
        elif text[index] == character:
            return index
        index += 1
    return -1
