"""Files that travel with a job, and how a task finds them in its working directory.

Takes a list of `Shipped`; makes links, and unpacks archives once into a cache that the
attempts of a job share. An archive never writes outside its own directory, and no
link that it brings leads out of it. Never changes a file of the user's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.streaming.conf.properties import from_wire

if TYPE_CHECKING:
    import tarfile
    import zipfile

ARCHIVE_SUFFIXES = (".zip", ".jar", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_COPY_BYTES = 1 << 20

Fetch = Callable[[str, str], None]


class BadArchive(UserError):
    """An archive that cannot be unpacked, or that reaches outside its own directory."""


class LeadsOut(BadArchive):
    """A link in it leads to what is not in it."""


class BadLinkName(UserError):
    """A link name that would not be inside the working directory."""


class NotShippable(UserError):
    """A file to ship that is neither here nor on a file system that we can read."""


class Shipped(msgspec.Struct, frozen=True):
    """A file, directory or archive that tasks find in their working directory under `link`.

    `source` is a path or URL. `word` is the word of a command that named it, for
    those that are shipped by themselves; else empty.
    """

    source: str
    link: str
    archive: bool = False
    word: str = ""


def is_archive(name: str) -> bool:
    """Whether a name has the suffix of something that can be unpacked."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def local_path(source: str) -> str | None:
    """Return the path of a local source (`/x`, `x`, `file:/x`, `file:///x`), or None."""
    if source.startswith("file:"):
        path = source.removeprefix("file:")
        return "/" + path.lstrip("/")
    scheme, colon, _ = source.partition("://")
    return None if colon and scheme.isalnum() else source


def link_shipped(
    cwd: str, shipped: Sequence[Shipped], cache: str, fetch: Fetch | None = None
) -> None:
    """Make the links of a working directory.

    `cache` holds unpacked archives and fetched files; attempts of one job may share
    it, also at the same time. `fetch(url, path)` brings a source that is not local.
    """
    for index, item in enumerate(shipped):
        path = _here(item, index, cache, fetch)
        if item.archive and is_archive(item.source.partition("#")[0]):
            path = _unpacked(path, os.path.join(cache, f"archive-{index}"))
        link = os.path.join(cwd, checked_link_name(from_wire(item.link)))
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.lexists(link):
            os.symlink(os.path.abspath(path), link)


def checked_link_name(name: str) -> str:
    """Return the link name, made plain; it must stay inside the working directory."""
    plain = os.path.normpath(name)
    if not name or os.path.isabs(plain) or plain == "." or plain.split("/")[0] == "..":
        raise BadLinkName(f"link name {name!r} is not inside the working directory of a task")
    return plain


def _here(item: Shipped, index: int, cache: str, fetch: Fetch | None) -> str:
    path = local_path(from_wire(item.source))
    if path is not None:
        return path
    if fetch is None:
        raise NotShippable(f"{item.source} is not a local file; put it on a file system of the job")
    base = os.path.basename(item.source)
    path = os.path.join(cache, f"file-{index}", base)
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}"
        fetch(item.source, partial)
        os.replace(partial, path)
    return path


def _unpacked(archive: str, directory: str) -> str:
    """Return the directory of an unpacked archive; only the first attempt unpacks it."""
    if os.path.isdir(directory):
        return directory
    partial = f"{directory}.{os.getpid()}"
    unpack(archive, partial)
    try:
        os.rename(partial, directory)
    except OSError:  # another attempt was quicker: its directory stands, and is the same
        _remove_tree(partial)
    return directory


def unpack(archive: str, directory: str) -> None:
    """Unpack a zip or tar file into a new directory."""
    import tarfile  # heavy, and most jobs ship no archive
    import zipfile

    os.makedirs(directory)
    try:
        if archive.lower().endswith((".zip", ".jar")):
            with zipfile.ZipFile(archive) as zip_file:
                _unpack_zip(zip_file, directory)
        else:
            with tarfile.open(archive) as tar_file:
                _unpack_tar(tar_file, directory)
    except BadArchive as e:
        _remove_tree(directory)
        raise type(e)(f"{archive}: {e}") from None
    except tarfile.ReadError as e:  # a list of all that was tried, a line each
        _remove_tree(directory)
        raise BadArchive(f"{archive} cannot be unpacked: no tar file, or a damaged one") from e
    except Exception as e:  # the libraries raise nearly anything for an archive that is damaged
        _remove_tree(directory)
        raise BadArchive(f"{archive} cannot be unpacked: {e or type(e).__name__}") from e


def _unpack_zip(archive: zipfile.ZipFile, directory: str) -> None:
    links: list[tuple[str, str]] = []
    for member in archive.infolist():
        mode = member.external_attr >> 16
        path = _inside(directory, member.filename)
        if stat.S_ISLNK(mode):
            links.append((path, os.fsdecode(archive.read(member))))
        elif member.is_dir():
            os.makedirs(path, exist_ok=True)
        else:
            with archive.open(member) as source:
                _write(path, source, mode)
    _make_links(directory, links)


def _unpack_tar(archive: tarfile.TarFile, directory: str) -> None:
    links: list[tuple[str, str]] = []
    for member in archive:
        path = _inside(directory, member.name)
        if member.isdir():
            os.makedirs(path, exist_ok=True)
        elif member.issym():
            links.append((path, member.linkname))
        elif member.isfile() or member.islnk():
            source = archive.extractfile(member)
            if source is not None:
                with source:
                    _write(path, source, member.mode)
        # Devices and pipes are nothing that a job can need.
    _make_links(directory, links)


def _inside(directory: str, name: str) -> str:
    plain = os.path.normpath(name)
    if os.path.isabs(plain) or plain.split("/")[0] == "..":
        raise BadArchive(f"member {name!r} would be written outside the archive's directory")
    return os.path.join(directory, plain)


def _write(path: str, source: IO[bytes], mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        while block := source.read(_COPY_BYTES):
            f.write(block)
    os.chmod(path, (stat.S_IMODE(mode) or 0o644) & 0o777 | 0o400)


def _make_links(directory: str, links: Sequence[tuple[str, str]]) -> None:
    """Make links when every file is written, and none through another, so that nothing is made
    but in the directory.

    Where a link leads is known only when all are there, so all are checked at the end.
    """
    made = {path for path, _ in links}
    for path, _ in links:
        above = os.path.dirname(path)
        while len(above) > len(directory):
            if above in made:
                raise BadArchive(f"link {os.path.relpath(path, directory)!r} lies behind a link")
            above = os.path.dirname(above)
    for path, target in links:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    root = os.path.realpath(directory)
    # First the culprit itself, not a link that leads to it.
    for path, target in sorted(links, key=lambda link: not os.path.isabs(link[1])):
        real = os.path.realpath(path)
        if os.path.isabs(target) or (real != root and not real.startswith(root + os.sep)):
            raise LeadsOut(
                f"link {os.path.relpath(path, directory)!r} leads out of the archive, to {target!r}"
            )


def _remove_tree(directory: str) -> None:
    import shutil  # heavy, and rarely needed

    shutil.rmtree(directory, ignore_errors=True)
