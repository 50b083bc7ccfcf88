"""The client library: every request to the master, and files to read and write (GFS §2.4).

Blocking and safe for many threads. Rides over a restart of the master or of chunkservers by one
retry policy; a request that changes something keeps its number when repeated, so that it is carried
out once. Bytes never go through the master.
"""

from __future__ import annotations

import getpass
import logging
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mrstream.cluster.config.config import DFS_MASTER, Cluster, ClusterConfig, current_cluster
from mrstream.cluster.errors import HostUnreachable, Unavailable, UserError
from mrstream.cluster.wire.identity import Identity, new_client_id
from mrstream.cluster.wire.messages import Request
from mrstream.cluster.wire.network import Connection
from mrstream.dfs.chunk import Epoch
from mrstream.dfs.client.retry import RetryPolicy
from mrstream.dfs.client.topology import Place
from mrstream.dfs.protocol import (
    ClusterReport,
    ContentSummary,
    Delete,
    Expunge,
    FileStatus,
    FindTree,
    Fsck,
    FsckPage,
    GetPolicy,
    Glob,
    KeepAlive,
    ListDirectory,
    ListTrash,
    Locate,
    Located,
    MakeDirectory,
    Page,
    PolicyReply,
    RecoverFile,
    Rename,
    Report,
    SetMode,
    SetOwner,
    SetPolicy,
    SetReplication,
    SetTimes,
    Snapshot,
    Stat,
    Story,
    StoryLine,
    Summarise,
    TrashEntry,
    Undelete,
)
from mrstream.dfs.transfer.bulk_pool import BulkPool

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 2.0
PAGE_ENTRIES = 1000
RULE_STAYS, NO_RULE = -1, -2


class DfsClient:
    """One user's view of one cluster's file system."""

    def __init__(
        self,
        master: str,
        identity: Identity,
        *,
        place: Place | None = None,
        user: str = "",
        group: str = "",
        retry: RetryPolicy | None = None,
        call_s_max: float = 10.0,
        transfer_s_max: float = 15.0,
        connect_s_max: float = 3.0,
    ) -> None:
        self.master = master
        self.place = place or Place()
        self.user = user or _user()
        self.group = group or self.user
        self.retry = retry or RetryPolicy()
        self.name = f"{self.user}@{os.uname().nodename}:{os.getpid()}:{new_client_id():x}"
        self.pool = BulkPool(
            identity,
            timeout_s=transfer_s_max,
            connect_s_max=connect_s_max,
            is_here=lambda server: self.place.distance(server) == 0,
        )
        self.chance = random.Random()
        self._call_s_max = call_s_max
        self._connection = Connection(
            master, identity, role=DFS_MASTER, connect_s_max=connect_s_max
        )
        self._writers_lock = threading.Lock()
        self._epochs: dict[Epoch, Callable[[], None]] = {}
        self._keeper: threading.Thread | None = None
        self._closed = threading.Event()
        self.calls_count = 0

    def __enter__(self) -> DfsClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections; files still open for writing are left to their fate."""
        self._closed.set()
        self._connection.close()
        self.pool.close()

    # -- calls ----------------------------------------------------------------------------

    def call(self, request: Request) -> Any:
        """Ask the master, again and again while nobody answers; raise what it refuses."""
        number = self._connection.next_number()
        for attempt in self.retry.attempts():
            try:
                self.calls_count += 1
                return self._connection.call(request, self._call_s_max, number)
            except Unavailable as error:
                if not isinstance(error, HostUnreachable):
                    # It was answered with a refusal, which changed nothing: ask afresh.
                    number = self._connection.next_number()
                attempt.failed(error)
        raise AssertionError("attempts do not end")

    def call_once(self, request: Request) -> Any:
        """Ask the master once."""
        self.calls_count += 1
        return self._connection.call(request, self._call_s_max)

    # -- names ----------------------------------------------------------------------------

    def stat(self, path: str) -> FileStatus:
        """What has this path; NoSuchFile if nothing."""
        status: FileStatus = self.call(Stat(path))
        return status

    def list(self, path: str) -> Iterator[FileStatus]:
        """The entries of a directory in name order; of a file: itself."""
        return self._pages(lambda after: ListDirectory(path, after, PAGE_ENTRIES))

    def glob(self, pattern: str) -> Iterator[FileStatus]:
        """Everything that a pattern names, in path order."""
        return self._pages(lambda after: Glob(pattern, after, PAGE_ENTRIES))

    def find(self, path: str, depth_max: int = 0) -> Iterator[FileStatus]:
        """Everything at and below a path, parents first."""
        return self._pages(lambda after: FindTree(path, after, PAGE_ENTRIES, depth_max))

    def summarise(self, path: str, *, children: bool = False) -> tuple[ContentSummary, ...]:
        """The sums of a tree, or of each entry of a directory."""
        sums: tuple[ContentSummary, ...] = self.call(Summarise(path, children))
        return sums

    def locate(self, path: str, first_index: int = 0, count: int = 8) -> Located:
        """Where chunks of a file are."""
        located: Located = self.call(Locate(path, first_index, count))
        return located

    def make_directory(self, path: str, *, mode: int = 0o755, parents: bool = False) -> None:
        """Make a directory."""
        self.call(MakeDirectory(path, self.user, self.group, mode, parents))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Give a file or tree another path, atomically."""
        self.call(Rename(source, target, self.user, overwrite))

    def delete(self, path: str, *, recursive: bool = False, skip_trash: bool = False) -> str:
        """Move to the trash; return the path that it has there, empty if it is gone for good."""
        hidden: str = self.call(Delete(path, self.user, recursive, skip_trash))
        return hidden

    def undelete(self, path: str) -> str:
        """Bring back what was last deleted at this path."""
        restored: str = self.call(Undelete(path, self.user))
        return restored

    def expunge(self, *, now: bool = False, path: str = "/") -> int:
        """Drop what is old enough (or everything) in the trash; return how many entries."""
        count: int = self.call(Expunge(self.user, now, path))
        return count

    def trash(self, path: str = "/") -> tuple[TrashEntry, ...]:
        """What can be undeleted."""
        entries: tuple[TrashEntry, ...] = self.call(ListTrash(path))
        return entries

    def set_replication(self, path: str, replication: int) -> int:
        """Set the goal for a file or every file of a tree; return how many files."""
        count: int = self.call(SetReplication(path, replication, self.user))
        return count

    def policy(self, path: str) -> PolicyReply:
        """The rules in force at a path, and which directory they come from."""
        reply: PolicyReply = self.call(GetPolicy(path))
        return reply

    def set_policy(
        self, path: str, *, replication: int = RULE_STAYS, trash_after_s: float = RULE_STAYS
    ) -> None:
        """Set rules for a directory and all below it; `NO_RULE` takes one away."""
        self.call(SetPolicy(path, self.user, replication, trash_after_s))

    def set_owner(
        self, path: str, *, owner: str = "", group: str = "", recursive: bool = False
    ) -> None:
        """Change owner and group; an empty one stays."""
        self.call(SetOwner(path, self.user, owner, group, recursive))

    def set_mode(self, path: str, mode: int, *, recursive: bool = False) -> None:
        """Change the permission bits."""
        self.call(SetMode(path, mode, self.user, recursive))

    def set_times(
        self, path: str, *, modified_at_s: float = -1.0, accessed_at_s: float = -1.0
    ) -> None:
        """Change times; -1 leaves one."""
        self.call(SetTimes(path, self.user, modified_at_s, accessed_at_s))

    def snapshot(self, source: str, target: str) -> None:
        """Copy a file or tree without copying bytes (GFS §3.4)."""
        self.call(Snapshot(source, target, self.user))

    def recover(self, path: str, *, force: bool = False) -> FileStatus:
        """Close a file whose writer is gone."""
        status: FileStatus = self.call(RecoverFile(path, self.user, force))
        return status

    def report(self) -> ClusterReport:
        """The state of the cluster."""
        report: ClusterReport = self.call(Report())
        return report

    def fsck(self, path: str) -> Iterator[FsckPage]:
        """What the master knows of every replica of every file at and below a path."""
        after = ""
        while True:
            page: FsckPage = self.call(Fsck(path, after))
            yield page
            if not page.next:
                return
            after = page.next

    def story(self, subject: str) -> tuple[StoryLine, ...]:
        """What happened to a file or chunk."""
        lines: tuple[StoryLine, ...] = self.call(Story(subject))
        return lines

    def _pages(self, request_after: Callable[[str], Request]) -> Iterator[FileStatus]:
        after = ""
        while True:
            page: Page = self.call(request_after(after))
            yield from page.entries
            if not page.next:
                return
            after = page.next

    # -- writers that live ----------------------------------------------------------------

    def keep_alive(self, epoch: Epoch, on_fenced: Callable[[], None]) -> None:
        """Tell the master, from now on, that this epoch's writer lives."""
        with self._writers_lock:
            self._epochs[epoch] = on_fenced
            if self._keeper is None or not self._keeper.is_alive():
                self._keeper = threading.Thread(
                    target=self._keep, name="dfs-keep-alive", daemon=True
                )
                self._keeper.start()

    def let_go(self, epoch: Epoch) -> None:
        """The writer is done."""
        with self._writers_lock:
            self._epochs.pop(epoch, None)

    def _keep(self) -> None:
        while not self._closed.wait(KEEP_ALIVE_S):
            with self._writers_lock:
                epochs = tuple(self._epochs)
                if not epochs:
                    self._keeper = None
                    return
            try:
                fenced = self.call_once(KeepAlive(self.name, epochs))
            except Unavailable as error:
                log.debug("keep-alive was not answered: %s", error)
                continue
            for epoch in fenced:
                with self._writers_lock:
                    on_fenced = self._epochs.pop(epoch, None)
                if on_fenced is not None:
                    on_fenced()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def connect(
    cluster: str | None = None, *, user: str = "", retry: RetryPolicy | None = None
) -> DfsClient:
    """Return a client of the cluster given (a file or a name), or of the current one.

    Raises UserError if there is none. Nothing is sent yet.
    """
    found = current_cluster(cluster)
    if found is None:
        raise UserError(
            "there is no current cluster: `mrstream cluster up` makes one, or name a cluster file "
            "with -cluster FILE or $MRSTREAM_CLUSTER"
        )
    return client_of(found, user=user, retry=retry)


def client_of(cluster: Cluster, *, user: str = "", retry: RetryPolicy | None = None) -> DfsClient:
    """Return a client of a cluster that was found already."""
    config = cluster.config
    return DfsClient(
        config.master_address(DFS_MASTER),
        cluster.identity(),
        place=place_in(config),
        user=user,
        retry=retry,
        transfer_s_max=max(5.0, config.dfs.dead_after_s),
    )


def place_in(config: ClusterConfig) -> Place:
    """Where this process is in the cluster: `$MRSTREAM_HOST` if a daemon said so, else the host
    whose address is one of this machine's."""
    name = os.environ.get("MRSTREAM_HOST", "")
    for host in config.hosts:
        if host.name == name or (not name and _is_here(host.address)):
            return Place(host.name, host.rack)
    return Place()


def _is_here(address: str) -> bool:
    """Only an address of this machine can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
