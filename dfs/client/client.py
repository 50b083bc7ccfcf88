"""The client library: every request to the master, and files to read and write (GFS §2.4).

Blocking and safe for many threads. Rides over a restart of the master or of chunkservers by one
retry policy; a request that changes something keeps its number when repeated, so that it is carried
out once. Bytes never go through the master.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from mrstream.cluster.closing import Closing
from mrstream.cluster.config.config import DFS_MASTER, Cluster, ClusterConfig, cluster_meant
from mrstream.cluster.consensus.standing import NotLeader
from mrstream.cluster.errors import (
    DaemonFault,
    HostUnreachable,
    Speechless,
    Unavailable,
)
from mrstream.cluster.leader.connection import LeaderConnection, find_leader, keep_leader
from mrstream.cluster.leader.finding import Finding
from mrstream.cluster.retry import Attempt, RetryPolicy
from mrstream.cluster.user import user_name
from mrstream.cluster.wire.addresses import why_wait
from mrstream.cluster.wire.identity import Identity, new_client_id
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import NO_FENCE, Epoch, Fence, FileId
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.client.fence import fence_of_environment
from mrstream.dfs.client.keeper import Keeper
from mrstream.dfs.client.stale import StaleReads
from mrstream.dfs.client.topology import Place
from mrstream.dfs.protocol import (
    ANY_FILE,
    NO_FILE,
    QUOTA_STAYS,
    AttributesReply,
    ClearQuota,
    ClusterReport,
    ContentSummary,
    Delete,
    Expunge,
    FenceFact,
    FileStatus,
    FindKeys,
    FindTree,
    Fsck,
    FsckPage,
    GetAttributes,
    GetPolicy,
    GetQuota,
    Glob,
    JoinFiles,
    KeyPage,
    ListDirectory,
    ListFences,
    ListTrash,
    Locate,
    Located,
    LocatedChunk,
    MakeDirectory,
    Page,
    PolicyReply,
    QuotaReply,
    RaiseFence,
    RecoverFile,
    Rename,
    Report,
    SetAttributes,
    SetMode,
    SetOwner,
    SetPolicy,
    SetQuota,
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

UNCERTAIN = (HostUnreachable, NotLeader, DaemonFault, Speechless)
"""It may have been done: by one that was heard no more, or that ended, or whose answer could not be
read. Who does not lead does not know what became of an earlier try. So it keeps its number (F5)."""
PAGE_ENTRIES = 1000
LOCATE_COUNT = 64
RULE_STAYS, NO_RULE = -1, -2


class DfsClient(Closing):
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
        fence: Fence = NO_FENCE,
        finding: Finding | None = None,
        stale_s_max: float | None = None,
        on_stale: Callable[[str, float], None] | None = None,
        on_leader: Callable[[str, int], None] | None = None,
        role: str = DFS_MASTER,
    ) -> None:
        """Every change is made under `fence`; where none is given under that of
        `$MRSTREAM_SEQUENCER`, if that is set. `finding` knows who may lead; else `master` does.

        While nobody leads, what only reads may be answered by a shadow, if `stale_s_max` says so:
        from a state that is at most so old. `on_stale` hears of the shadow's host and its bound.
        `on_leader` hears of the host and the epoch of whoever leads.
        """
        self.master = master
        self._stale = StaleReads(stale_s_max, on_stale)
        self.fence = fence if fence != NO_FENCE else fence_of_environment()
        self.place = place or Place()
        self.user = user or user_name()
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
        self._connection = LeaderConnection(
            finding or Finding({"": master}),
            identity,
            role=role,
            connect_s_max=connect_s_max,
            on_leader=on_leader,
        )
        self._keeper = Keeper(self.name, self.call_once)
        self.calls_count = 0

    @property
    def leader_host(self) -> str:
        """The host of the master that leads, as far as is known."""
        return self._connection.finding.host

    def close(self) -> None:
        """End the connections; files still open for writing are left to their fate."""
        self._keeper.close()
        self._connection.close()
        self.pool.close()

    def at(self, path: str) -> DfsClient:
        """The client of the cell that has a path: whoever opens a file there stays with it."""
        return self

    def check_removable(self, path: str) -> None:
        """Raise `MountPoint` for what stays where it is, before anything below it goes."""

    # --- calls

    def call(self, request: Request) -> Any:
        """Ask the master, again and again while nobody answers; raise what it refuses."""
        request = self._fenced(request)
        number = self._connection.next_number()
        for attempt in self.retry.attempts():
            try:
                self.calls_count += 1
                lost = partial(_tell, attempt)
                reply = self._connection.call(request, self._call_s_max, number, on_lost=lost)
                self._stale.is_led()
                return reply
            except Unavailable as error:
                if not isinstance(error, UNCERTAIN):
                    # The leader refused it, which changed nothing: ask afresh.
                    number = self._connection.next_number()
                answer = self._stale.ask(self._connection, request)
                if answer is not None:
                    return answer.value
                attempt.failed(error, why_wait("dfs", error))
        raise AssertionError("attempts do not end")

    def call_once(self, request: Request) -> Any:
        self.calls_count += 1
        return self._connection.call(self._fenced(request), self._call_s_max)

    def _fenced(self, request: Request) -> Request:
        """The request under our fence, if it has none and changes something."""
        if self.fence != NO_FENCE and getattr(request, "fence", None) == NO_FENCE:
            return msgspec.structs.replace(request, fence=self.fence)
        return request

    # --- names

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

    def locate(
        self,
        path: str,
        first_index: int = 0,
        count: int = 8,
        file_id: FileId = NO_FILE,
        *,
        attributes: bool = False,
    ) -> Located:
        """Where chunks of a file are: of this very file, if an id is given."""
        located: Located = self.call(Locate(path, first_index, count, file_id, attributes))
        return located

    def chunks(self, path: str, first_index: int = 0) -> Iterator[LocatedChunk]:
        """The chunks of a file from one on, in order; some are asked for at a time."""
        while chunks := self.locate(path, first_index, LOCATE_COUNT).chunks:
            yield from chunks
            first_index = chunks[-1].index + 1

    def make_directory(
        self, path: str, *, mode: int = 0o755, parents: bool = False, implicit: bool = False
    ) -> None:
        """Make a directory; an implicit one goes when nothing lies in it and nothing is told of
        it any more."""
        self.call(MakeDirectory(path, self.user, self.group, mode, parents, implicit=implicit))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Give a file or tree another path, atomically."""
        self.call(Rename(source, target, self.user, overwrite))

    def delete(
        self,
        path: str,
        *,
        recursive: bool = False,
        skip_trash: bool = False,
        prune_to: str = "",
        file_id: FileId = ANY_FILE,
        unseen: bool = False,
    ) -> str:
        """Move to the trash; return the path that it has there, empty if it is gone for good.
        Empty directories below `prune_to` that nobody asked for go with it. `file_id`: only that
        very file; `unseen`: a directory goes with what is still being written in it."""
        asked = Delete(
            path, self.user, recursive, skip_trash, prune_to, file_id=file_id, unseen=unseen
        )
        hidden: str = self.call(asked)
        return hidden

    def undelete(self, path: str) -> str:
        """Bring back what was last deleted at this path."""
        restored: str = self.call(Undelete(path, self.user))
        return restored

    def expunge(
        self,
        *,
        now: bool = False,
        path: str = "/",
        on_silent: Callable[[Unavailable], None] | None = None,
    ) -> int:
        """Drop what is old enough (or everything) in the trash; return how many entries. Of
        several cells, `on_silent` hears of one that does not answer; without it that is raised,
        when the others have."""
        count: int = self.call(Expunge(self.user, now, path))
        return count

    def trash(
        self, path: str = "/", *, on_silent: Callable[[Unavailable], None] | None = None
    ) -> tuple[TrashEntry, ...]:
        """What can be undeleted; `on_silent` as for `expunge`."""
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
        self,
        path: str,
        *,
        replication: int = RULE_STAYS,
        trash_after_s: float = RULE_STAYS,
        appends: int = RULE_STAYS,
    ) -> None:
        """Set rules for a directory and all below it; `NO_RULE` takes one away. `appends`: 1 has
        record appends serialised, 0 leaves them GFS's."""
        self.call(SetPolicy(path, self.user, replication, trash_after_s, appends=appends))

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

    # --- what is told of files

    def attributes(self, path: str) -> AttributesReply:
        reply: AttributesReply = self.call(GetAttributes(path))
        return reply

    def set_attributes(
        self,
        path: str,
        changed: dict[str, bytes | None],
        *,
        replace_all: bool = False,
        file_id: FileId = NO_FILE,
    ) -> None:
        """Change attributes; None takes one away, `replace_all` those that are not named."""
        self.call(SetAttributes(path, changed, self.user, replace_all, file_id))

    def find_keys(
        self,
        root: str,
        prefix: str = "",
        after: str = "",
        *,
        by_directory: bool = False,
        limit: int = PAGE_ENTRIES,
        attributes: tuple[str, ...] = (),
    ) -> KeyPage:
        """One page of the keys below a directory, in their order."""
        page: KeyPage = self.call(FindKeys(root, prefix, after, by_directory, limit, attributes))
        return page

    def join(
        self, target: str, sources: Sequence[FileId], ending: Ending | None = None
    ) -> FileStatus:
        """Make one file of several without moving a byte; NotAligned if that cannot be. `ending`
        says what else comes with it."""
        end = ending or Ending()
        status: FileStatus = self.call(
            JoinFiles(
                target, tuple(sources), self.user, end.overwrite, end.parents, end.replaces,
                end.keep_replaced, end.attributes,
            )
        )  # fmt: skip
        return status

    # --- rules

    def raise_fence(self, fence: Fence) -> None:
        """Have changes under older generations refused."""
        self.call(RaiseFence(fence))

    def fences(self) -> tuple[FenceFact, ...]:
        """The highest generation seen of each name."""
        facts: tuple[FenceFact, ...] = self.call(ListFences())
        return facts

    def set_quota(
        self, path: str, *, names: int = QUOTA_STAYS, space_bytes: int = QUOTA_STAYS
    ) -> None:
        """Limit what a directory holds: files and directories, bytes with all replicas."""
        self.call(SetQuota(path, self.user, names, space_bytes))

    def clear_quota(self, path: str, *, names: bool = False, space: bool = False) -> None:
        """Take limits away."""
        self.call(ClearQuota(path, self.user, names, space))

    def quota(self, path: str) -> QuotaReply:
        """The limits of a directory itself, and what is used of them."""
        reply: QuotaReply = self.call(GetQuota(path))
        return reply

    # --- writers that live

    def keep_alive(self, epoch: Epoch, on_fenced: Callable[[], None]) -> None:
        """Tell the master, from now on, that this epoch's writer lives."""
        self._keeper.keep(epoch, on_fenced)

    def let_go(self, epoch: Epoch) -> None:
        self._keeper.let_go(epoch)


def connect(
    cluster: str | None = None,
    *,
    user: str = "",
    retry: RetryPolicy | None = None,
    fence: Fence = NO_FENCE,
    stale_s_max: float | None = None,
    on_stale: Callable[[str, float], None] | None = None,
) -> DfsClient:
    """Return a client of the cluster given (a file or a name), or of the current one.

    Raises UserError if there is none. Nothing is sent yet.
    """
    return client_of(
        cluster_meant(cluster),
        user=user,
        retry=retry,
        fence=fence,
        stale_s_max=stale_s_max,
        on_stale=on_stale,
    )


def client_of(
    cluster: Cluster,
    *,
    user: str = "",
    retry: RetryPolicy | None = None,
    fence: Fence = NO_FENCE,
    stale_s_max: float | None = None,
    on_stale: Callable[[str, float], None] | None = None,
) -> DfsClient:
    """Return a client of a cluster that was found already."""
    config = cluster.config
    place = place_in(config)

    def of(role: str, made: Callable[..., DfsClient] = DfsClient) -> DfsClient:
        return made(
            config.master_address(role),
            cluster.identity(),
            place=place,
            user=user,
            retry=retry,
            transfer_s_max=max(5.0, config.dfs.dead_after_s),
            fence=fence,
            finding=find_leader(cluster, role),
            on_leader=partial(keep_leader, cluster, role),
            stale_s_max=stale_s_max,
            on_stale=on_stale,
            role=role,
        )

    cells = config.dfs.cells
    if not cells:
        return of(DFS_MASTER)
    from mrstream.dfs.client.cells import MountedClient
    from mrstream.dfs.mounts import Mounts

    mounted = partial(
        MountedClient,
        mounts=Mounts(cells),
        cells={cell.name: of(cell.role) for cell in cells},
    )
    return of(DFS_MASTER, mounted)


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


def _tell(attempt: Attempt, error: HostUnreachable) -> None:
    """One of several masters does not answer: who has waited for a while hears of it."""
    attempt.tell(why_wait("dfs", error))
