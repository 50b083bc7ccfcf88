"""Which files travel with a job: those that options name, and those that commands name.

Takes options and the words of commands; gives a list of `Shipped` and warnings. Looks
whether local files are there, and never reads one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mrstream.cluster.errors import UserError
from mrstream.streaming.command.options import BadCommandLine, Options
from mrstream.streaming.task.shipping import Shipped, checked_link_name, is_archive, local_path

# A word of a command may name a file by accident; a file this large is shipped on request only.
UNASKED_BYTES_MAX = 64 << 20
# Programs and libraries that every host has, or must have its own of.
_SYSTEM_DIRECTORIES = (
    "/bin/", "/boot/", "/dev/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/proc/", "/run/",
    "/sbin/", "/sys/", "/usr/",
)  # fmt: skip
# Where a file of `-file` lies in the job's jar, unless at its top: a task finds it there too.
_JAR_PLACES = {(".class",): "classes", (".jar", ".zip"): "lib"}
_SHELL_WORDS = re.compile(r"[^\s;|&()<>\"'`$=]+")

_NEEDS_LINK = (
    "You need to specify the uris as scheme://path#linkname,"
    "Please specify a different link name for all of your caching URIs"
)


class NoSuchShippedFile(UserError):
    """A file of `-files` or `-archives` that does not exist."""


class Shipment:
    """The files of one job. Of two with one link name the first stays."""

    def __init__(self) -> None:
        self.items: list[Shipped] = []
        self.warnings: list[str] = []
        self.packed: list[str] = []
        """The plain files of `-file`, by their real paths."""
        self._by_link: dict[str, Shipped] = {}
        self._replaced: dict[str, str] = {}

    def add_option_files(self, said: Options) -> None:
        """Add what `-files -archives -file -cacheFile -cacheArchive` name."""
        for entry in _entries(said.all("files")):
            self._add_entry(entry, archive=False)
        for entry in _entries(said.all("archives")):
            self._add_entry(entry, archive=True)
        for path in said.all("file"):
            self._add_file(path)
        for uri in said.all("cacheFile"):
            self._add_cache_uri(uri, archive=False)
        for uri in said.all("cacheArchive"):
            self._add_cache_uri(uri, archive=True)

    def add_words(self, words: Sequence[str]) -> None:
        """Add the local files that the words of a command name, and those that parts of
        a word name (`bash -c './a.py | ./b.py'`, `awk -v f=names.txt`)."""
        for word in words:
            if self._add_word(word):
                continue
            for inner in _SHELL_WORDS.findall(word):
                if inner != word and not os.path.isabs(inner):
                    self._add_word(inner)

    def has(self, link: str) -> bool:
        """Whether tasks find something under this name."""
        return link in self._by_link

    def rewritten(self, command: str) -> str:
        """Return a command whose first word, if it is a `-file` file, is its bare name."""
        first, blank, rest = command.partition(" ")
        return (
            self._replaced.get(os.path.realpath(first), first) + blank + rest if first else command
        )

    def told(self, command: str | None) -> list[str]:
        """Return what `-verbose` says about a command."""
        if command is None:
            return ["cmd=null"]
        program = os.path.realpath(command.partition(" ")[0])
        is_packed = "true" if program in self.packed else "false"
        return [f"shipped: {is_packed} {program}", f"cmd={self.rewritten(command)}"]

    def _add_entry(self, entry: str, *, archive: bool) -> None:
        source, _, alias = entry.partition("#")
        if not source:
            option = "-archives" if archive else "-files"
            raise NoSuchShippedFile(f"{option}: File name can't be empty string")
        path = local_path(source)
        if path is not None and not os.path.exists(path):
            option = "-archives" if archive else "-files"
            raise NoSuchShippedFile(
                f"{option} {entry}: there is no such file here; Hadoop says "
                f"java.io.FileNotFoundException: File {source} does not exist"
            )
        self._add(source, alias or _base_name(source), archive=archive)

    def _add_file(self, path: str) -> None:
        plain = local_path(path) or path
        shown = f"file:{os.path.abspath(plain)}"
        if not os.path.exists(plain):
            raise BadCommandLine(f"File: {shown} does not exist.")
        if not os.access(plain, os.R_OK):
            raise BadCommandLine(f"File: {shown} is not readable.")
        name = _base_name(plain)
        if os.path.isfile(plain):
            self.packed.append(os.path.realpath(plain))
            self._replaced[os.path.realpath(plain)] = name
        self._add(plain, name, archive=False)
        for suffixes, directory in _JAR_PLACES.items():
            if name.endswith(suffixes):
                self._add(plain, f"{directory}/{name}", archive=False)

    def _add_cache_uri(self, uri: str, *, archive: bool) -> None:
        source, _, link = uri.partition("#")
        if not link:
            raise BadCommandLine(_NEEDS_LINK)
        path = local_path(source)
        if path is not None and not os.path.exists(path):
            raise BadCommandLine(f"File: {source} does not exist.")
        self._add(source, link, archive=archive)

    def _add_word(self, word: str) -> bool:
        """Add a word if it names a local file; say whether it did."""
        if not word or word.startswith("-") or not os.path.isfile(word):
            return False
        if word.startswith(_SYSTEM_DIRECTORIES):
            return False
        link = os.path.normpath(word)
        if os.path.isabs(link) or link.startswith(".."):
            link = os.path.basename(link)
        known = self._by_link.get(link)
        if known is not None:
            return os.path.realpath(known.source) == os.path.realpath(word)
        if os.path.getsize(word) > UNASKED_BYTES_MAX:
            self.warnings.append(
                f"{word} is named by a command but larger than {UNASKED_BYTES_MAX >> 20} MiB; "
                "it is not shipped unless you say so with -files"
            )
            return True
        self._add(word, link, archive=False, word=word)
        return True

    def _add(self, source: str, link: str, *, archive: bool, word: str = "") -> None:
        link = checked_link_name(link)
        path = local_path(source)
        if path is not None:
            source = os.path.abspath(path)
        if archive and not is_archive(source):
            self.warnings.append(f"Cannot unpack {source}: it is linked as it is")
        known = self._by_link.get(link)
        if known is not None:
            if known.source != source:
                self.warnings.append(
                    f"{source} conflicts with {known.source}: both would be {link}"
                )
            return
        shipped = Shipped(source, link, archive, word)
        self._by_link[link] = shipped
        self.items.append(shipped)


def _entries(values: Sequence[str]) -> list[str]:
    return [entry for value in values for entry in (value.split(",") if value else [""])]


def _base_name(source: str) -> str:
    return os.path.basename(source.rstrip("/"))
