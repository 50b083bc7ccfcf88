"""The client of a cluster with cells: one face, and a client of its own for each cell behind it.

A path's first name decides whom to ask (`dfs/mounts`). Only `/` and its trash lie in several cells:
what is said of them and of all below is put together here. A rename or snapshot from one cell to
another is refused. A cell whose masters are down keeps nobody from the others.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from mrstream.cluster.errors import Unavailable
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import Fence, Fences, cell_of
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import NoSuchFile
from mrstream.dfs.mounts import ROOT_NAME, Mounts, first_name, is_trash, words
from mrstream.dfs.protocol import (
    NO_FILE,
    CloseFile,
    ClusterReport,
    ContentSummary,
    FileStatus,
    FsckPage,
    ListDirectory,
    Page,
    Report,
    ReportReplica,
    ServerStatus,
    Stat,
    StoryLine,
    TrashEntry,
)

_UNKNOWN_MODE = 0o755
T = TypeVar("T")


class MountedClient(DfsClient):
    """The client of the root cell, which knows those of the others."""

    def __init__(
        self,
        *root: Any,
        mounts: Mounts,
        cells: dict[str, DfsClient],
        **options: Any,
    ) -> None:
        """`cells`: by name."""
        super().__init__(*root, **options)
        self._mounts = mounts
        self._cells = cells

    def close(self) -> None:
        for cell in self._cells.values():
            cell.close()
        super().close()

    def at(self, path: str) -> DfsClient:
        return self._cells.get(self._mounts.cell_of(path), self)

    def under(self, fences: Fences) -> DfsClient:
        other = super().under(fences)
        assert isinstance(other, MountedClient)
        other._cells = {name: cell.under(fences) for name, cell in self._cells.items()}
        return other

    def check_removable(self, path: str) -> None:
        self._mounts.check_removable(path)

    # --- calls

    def call(self, request: Request) -> Any:
        return self._ask(request, super().call, lambda cell: cell.call)

    def call_once(self, request: Request) -> Any:
        return self._ask(request, super().call_once, lambda cell: cell.call_once)

    def _ask(
        self,
        request: Request,
        ask_root: Callable[[Request], Any],
        asking: Callable[[DfsClient], Callable[[Request], Any]],
    ) -> Any:
        if type(request) in (Stat, ListDirectory) and is_trash(request.path):  # type: ignore[attr-defined]
            asks = {ROOT_NAME: partial(ask_root, request)}
            asks |= {name: partial(asking(cell), request) for name, cell in self._cells.items()}
            found = self._in_every_trash(asks)
            return _merged(found) if type(request) is ListDirectory else found[0]
        cell = self._cells.get(self._cell_for(request))
        if cell is not None:
            return asking(cell)(request)
        reply = ask_root(request)
        if type(request) is ListDirectory and not first_name(request.path):
            return self._with_points(request, reply)
        return reply

    def _cell_for(self, request: Request) -> str:
        if type(request) is ReportReplica:
            return self._mounts.numbered(cell_of(request.handle))
        if type(request) is CloseFile:
            return ROOT_NAME  # of a file of ours: writers of others ask theirs
        return self._mounts.of(request)

    # --- what all cells are asked for

    def _everywhere(
        self,
        asks: Mapping[str, Callable[[], T]],
        on_silent: Callable[[Unavailable], None] | None = None,
    ) -> list[T]:
        """Ask cells, all at the same time: none waits for another. Those that do not answer are
        raised, or told of, when all others have."""
        with ThreadPoolExecutor(len(asks)) as threads:
            asked = {name: threads.submit(ask) for name, ask in asks.items()}
        found: list[T] = []
        silent: list[Unavailable] = []
        for name, answer in asked.items():
            try:
                found.append(answer.result())
            except Unavailable as error:
                said = f"{words(name)} does not answer: {error}"
                silent.append(Unavailable(said, path=self._mounts.point_of(name)))
        for each in silent:
            if on_silent is None:
                raise each
            on_silent(each)
        return found

    def _in_every_trash(self, asks: Mapping[str, Callable[[], T]]) -> list[T]:
        """What is said of the trash itself, by the cells that have one: it comes with what is first
        deleted."""

        def asking(ask: Callable[[], T]) -> Callable[[], T | NoSuchFile]:
            def answer() -> T | NoSuchFile:
                try:
                    return ask()
                except NoSuchFile as error:
                    return error

            return answer

        found = self._everywhere({name: asking(ask) for name, ask in asks.items()})
        there = [one for one in found if not isinstance(one, NoSuchFile)]
        for error in found if not there else ():
            assert isinstance(error, NoSuchFile)
            raise error
        return there

    # --- the root, which lies in all cells

    def _with_points(self, asked: ListDirectory, page: Page) -> Page:
        """A page of the root's entries with the mount points that belong on it."""
        shown = [one for one in page.entries if not self._mounts.is_point(one.path)]
        for path in self._mounts.points:
            name = path[1:]
            if name > asked.start_after and (not page.next or name <= page.next):
                shown.append(self._point(path))
        shown.sort(key=lambda one: one.path.encode())
        return Page(tuple(shown), page.next)

    def _point(self, path: str) -> FileStatus:
        """The directory at a mount point; while its cell does not answer, that there is one."""
        try:
            status: FileStatus = self.at(path).call_once(Stat(path))
        except Unavailable:
            return FileStatus(path, True, 0, 0, 0, 0.0, 0.0, "", "", _UNKNOWN_MODE, NO_FILE, 0)
        return status

    def _below(self, path: str) -> list[str]:
        """The mount points that are part of what lies at and below a path."""
        return list(self._mounts.points) if not first_name(path) else []

    def _root_only(self, found: Iterator[FileStatus]) -> Iterator[FileStatus]:
        """Without what mount points hide."""
        return (one for one in found if not self._mounts.cell_of(one.path))

    def glob(self, pattern: str) -> Iterator[FileStatus]:
        def of(name: str, matches: Iterator[FileStatus]) -> Iterator[FileStatus]:
            return (one for one in matches if self._mounts.cell_of(one.path) == name)

        ask_root = super().glob
        found = [
            of(name, self._cells[name].glob(pattern) if name else ask_root(pattern))
            for name in self._mounts.matching(pattern)
        ]
        return _in_path_order(*found)

    def find(self, path: str, depth_max: int = 0) -> Iterator[FileStatus]:
        if is_trash(path):
            own = super().find
            finds = {ROOT_NAME: own} | {name: cell.find for name, cell in self._cells.items()}
            trees = self._in_every_trash(
                {name: partial(_all, find, path, depth_max) for name, find in finds.items()}
            )
            return _in_path_order(iter(trees[0]), *(iter(tree[1:]) for tree in trees[1:]))
        if not self._below(path):
            return super().find(path, depth_max)
        # At depth 1 only the point itself is wanted, and 0 would mean all.
        found = [
            iter([self._point(point)]) if depth_max == 1 else self.at(point).find(
                point, max(0, depth_max - 1)
            )
            for point in self._below(path)
        ]  # fmt: skip
        return _in_path_order(self._root_only(super().find(path, depth_max)), *found)

    def summarise(self, path: str, *, children: bool = False) -> tuple[ContentSummary, ...]:
        points = self._below(path)
        if is_trash(path):
            return self._summarise_trash(path, children)
        if not points:
            return super().summarise(path, children=children)
        own = super().summarise(path, children=children)
        others = [self.at(point).summarise(point)[0] for point in points]
        if children:
            shown = [one for one in own if not self._mounts.is_point(one.path)]
            return tuple(sorted([*shown, *others], key=lambda one: one.path.encode()))
        hidden = [
            one for one in super().summarise(path, children=True)
            if self._mounts.is_point(one.path)
        ]  # fmt: skip
        return (_sum(own[0], others, hidden),)

    def _summarise_trash(self, path: str, children: bool) -> tuple[ContentSummary, ...]:
        ask = super().summarise
        asks = {ROOT_NAME: lambda: ask(path, children=children)}
        for name, cell in self._cells.items():
            asks[name] = partial(cell.summarise, path, children=children)
        found = self._in_every_trash(asks)
        if children:
            return tuple(sorted(itertools.chain(*found), key=lambda one: one.path.encode()))
        total = _sum(found[0][0], [one[0] for one in found[1:]], [])
        again = len(found) - 1  # the directory itself, by every cell after the first
        return (msgspec.structs.replace(total, directory_count=total.directory_count - again),)

    def fsck(self, path: str) -> Iterator[FsckPage]:
        yield from super().fsck(path)  # with what mount points hide: it is still to be seen to
        for point in self._below(path):
            yield from self.at(point).fsck(point)

    def set_replication(self, path: str, replication: int) -> int:
        others = [self.at(point).set_replication(point, replication) for point in self._below(path)]
        return super().set_replication(path, replication) + sum(others)

    def set_owner(
        self, path: str, *, owner: str = "", group: str = "", recursive: bool = False
    ) -> None:
        for point in self._below(path) if recursive else ():
            self.at(point).set_owner(point, owner=owner, group=group, recursive=True)
        super().set_owner(path, owner=owner, group=group, recursive=recursive)

    def set_mode(self, path: str, mode: int, *, recursive: bool = False) -> None:
        for point in self._below(path) if recursive else ():
            self.at(point).set_mode(point, mode, recursive=True)
        super().set_mode(path, mode, recursive=recursive)

    def expunge(
        self,
        *,
        now: bool = False,
        path: str = "/",
        on_silent: Callable[[Unavailable], None] | None = None,
    ) -> int:
        own = super().expunge
        asks = {ROOT_NAME: lambda: own(now=now, path=path)}
        for point in self._below(path):
            asks[self._mounts.cell_of(point)] = partial(self.at(point).expunge, now=now, path=point)
        return sum(self._everywhere(asks, on_silent))

    def trash(
        self, path: str = "/", *, on_silent: Callable[[Unavailable], None] | None = None
    ) -> tuple[TrashEntry, ...]:
        own = super().trash
        asks = {ROOT_NAME: lambda: own(path)}
        for point in self._below(path):
            asks[self._mounts.cell_of(point)] = partial(self.at(point).trash, point)
        found = itertools.chain.from_iterable(self._everywhere(asks, on_silent))
        return tuple(sorted(found, key=lambda entry: entry.deleted_at_s))

    # --- what is true of all cells

    def raise_fence(self, fence: Fence) -> None:
        """In every cell: whoever is fenced off may have files anywhere."""
        for cell in self._cells.values():
            cell.raise_fence(fence)
        super().raise_fence(fence)

    def story(self, subject: str) -> tuple[StoryLine, ...]:
        cell = self.at(subject) if subject.startswith("/") else self._of_chunk(subject)
        return super().story(subject) if cell is self else cell.story(subject)

    def _of_chunk(self, name: str) -> DfsClient:
        try:
            number = cell_of(int(name, 16))
        except ValueError:
            return self  # the master there says what is wrong with it
        return self._cells.get(self._mounts.numbered(number), self)

    def report(self) -> ClusterReport:
        """The sums of all cells that answer; servers as the root cell sees them, with the chunks of
        all."""
        report = super().report()
        for name, cell in self._cells.items():
            try:
                other: ClusterReport = cell.call_once(Report())
            except Unavailable as error:
                silent = f"{words(name)} does not answer: {error}"
                why = "; ".join(filter(None, [report.safe_mode, silent]))
                report = msgspec.structs.replace(report, safe_mode=why)
                continue
            report = _together(report, other, name)
        return report


def _all(find: Callable[[str, int], Iterator[T]], path: str, depth_max: int) -> list[T]:
    return list(find(path, depth_max))


def _merged(pages: Sequence[Page]) -> Page:
    """Pages of one directory, each of what one cell has of it, as one: up to where all of them
    go."""
    ends = [page.next for page in pages if page.next]
    last = min(ends, default="")
    found = sorted((one for page in pages for one in page.entries), key=lambda one: one.path)
    shown = [one for one in found if not last or one.path.rpartition("/")[2] <= last]
    return Page(tuple(shown), last)


def _in_path_order(*found: Iterator[FileStatus]) -> Iterator[FileStatus]:
    return heapq.merge(*found, key=lambda one: one.path.encode().strip(b"/").split(b"/"))


def _sum(
    own: ContentSummary, others: list[ContentSummary], hidden: list[ContentSummary]
) -> ContentSummary:
    def total(field: str) -> int:
        signed = [(1, [own, *others]), (-1, hidden)]
        return sum(sign * int(getattr(one, field)) for sign, ones in signed for one in ones)

    return ContentSummary(
        own.path,
        total("directory_count"),
        total("file_count"),
        total("length_bytes"),
        total("stored_bytes"),
    )


def _together(report: ClusterReport, other: ClusterReport, name: str) -> ClusterReport:
    waits = f"{words(name)}: {other.safe_mode}" if other.safe_mode else ""
    there = {server.address.server: server for server in other.servers}
    sums = {
        field: getattr(report, field) + getattr(other, field)
        for field in (
            "file_count", "directory_count", "chunk_count", "under_replicated", "missing",
            "corrupt", "clones_active", "leases", "files_open",
        )
    }  # fmt: skip
    return msgspec.structs.replace(
        report,
        servers=tuple(_server(one, there.get(one.address.server)) for one in report.servers),
        safe_mode="; ".join(filter(None, [report.safe_mode, waits])),
        **sums,
    )


def _server(one: ServerStatus, other: ServerStatus | None) -> ServerStatus:
    if other is None:
        return one
    return msgspec.structs.replace(
        one,
        chunk_count=one.chunk_count + other.chunk_count,
        clones_active=one.clones_active + other.clones_active,
        chunks_to_drain=one.chunks_to_drain + other.chunks_to_drain,
    )
