"""A cluster as cluster.yaml describes it, checked as a whole; and which cluster is current.

The types here are plain and frozen. Reading and complaining is `reader`'s work; the user's
state files are `state`'s. Never reads the network, nor the environment beyond what `state` reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mrstream.cluster.config import extras, state
from mrstream.cluster.errors import BadConfig, UserError
from mrstream.cluster.wire.addresses import join_address
from mrstream.cluster.wire.identity import ROLE_CLIENT, Identity

DFS_MASTER = "dfs.master"
CHUNKSERVER = "dfs.chunkserver"
MAPREDUCE_MASTER = "mapreduce.master"
WORKER = "mapreduce.worker"
LOCK_MASTER = "lock.master"
CHUNKSERVER_BULK = "dfs.chunkserver.bulk"
WORKER_BULK = "mapreduce.worker.bulk"
GROUP = ".group"
"""Behind the name of a master's role: where the members of its group talk to each other."""
GATEWAY = "web.gateway"
GATEWAY_HTTP = "web.gateway.http"
GATEWAY_S3 = "web.gateway.s3"
CERTIFICATE_ENDS = "its certificate ends"
"""What a gateway's health says when that is near."""

GROUP_ROLES = (DFS_MASTER, MAPREDUCE_MASTER, LOCK_MASTER)
"""The masters: they run on all hosts of `masters:`, one of each leading."""
HOST_ROLES = (CHUNKSERVER, WORKER)
ROLES = (DFS_MASTER, CHUNKSERVER, MAPREDUCE_MASTER, WORKER, LOCK_MASTER, GATEWAY)
"""In the order in which they are started; stopping goes the other way. The last two run only where
cluster.yaml asks for them."""

GROUP_NAMES = {DFS_MASTER: "dfs", MAPREDUCE_MASTER: "jobs", LOCK_MASTER: "lock"}
"""What people call a master's group."""
CELL_MARK = "@"
"""Between `dfs.master` and the name of a cell: the role of that cell's master."""

PORT_OFFSETS = {
    DFS_MASTER: 0,
    CHUNKSERVER: 1,
    CHUNKSERVER_BULK: 2,
    MAPREDUCE_MASTER: 3,
    WORKER: 4,
    WORKER_BULK: 5,
    DFS_MASTER + GROUP: 6,
    MAPREDUCE_MASTER + GROUP: 7,
    LOCK_MASTER + GROUP: 8,
    LOCK_MASTER: 26,
    GATEWAY: 28,
    GATEWAY_HTTP: 30,
    GATEWAY_S3: 31,
}
# 9 is the probe of `up`; 27, 29 and 32 to 39 are kept for what comes.
CELLS_MAX = 8
CELL_PORTS_FIRST = 10
"""Two for each cell, from this offset on: its master's, and its group's."""
PORTS_COUNT = 10
"""Ports that a cluster may use from its base on; two clusters on a host keep this distance..."""
WIDE_PORTS_COUNT = 40
"""...or this one, where one of them has a gateway, a lock cell or cells of the dfs."""

VIA_LOCAL = "local"
VIA_SSH = "ssh"


def base_role(role: str) -> str:
    """Return the role without the cell: every cell's master is a `dfs.master`."""
    return role.partition(CELL_MARK)[0]


def group_name(role: str) -> str:
    """Return what people call the group of a master's role: `dfs`, `dfs@logs`, `jobs`, `lock`."""
    return GROUP_NAMES[base_role(role)] + role[len(base_role(role)) :]


@dataclass(frozen=True, slots=True)
class HostConfig:
    """One host. Paths may begin with `~`, which means the home of the user there."""

    name: str
    address: str
    via: str = VIA_SSH
    port: int | None = None
    """Of sshd; None: what ssh_config says, else 22."""
    user: str | None = None
    key: str | None = None
    dir: str = "~/.mrstream"
    rack: str = ""
    slots: int | None = None
    """Attempts at a time; None: the host's cores."""
    disks: tuple[str, ...] = ()
    """Where chunks and map output are kept; empty: below `dir`."""
    python: str | None = None


@dataclass(frozen=True, slots=True)
class CellConfig:
    """A part of the name space with masters of its own, over the same chunkservers."""

    name: str
    path: str
    """Where it is mounted: one name below the root, such as `/logs`."""
    number: int
    """From 1 on, for ever: the top byte of its chunks' handles, and its place among the ports."""

    @property
    def role(self) -> str:
        """The role of its master."""
        return f"{DFS_MASTER}{CELL_MARK}{self.name}"


@dataclass(frozen=True, slots=True)
class DfsConfig:
    """The `dfs:` part."""

    chunk_bytes: int = 64 * 1024 * 1024
    replication: int = 3
    dead_after_s: float = 10.0
    heartbeat_s: float = 1.0
    lease_s: float = 60.0
    trash_after_s: float = 3 * 86400.0
    reserve_share: float = 0.05
    """Of each disk, kept free..."""
    reserve_bytes: int = 0
    """...or so many bytes, where cluster.yaml gives a size."""
    log_replicas: int | None = None
    """Of an earlier version, and counts for nothing: the log is kept by the group of `masters`."""
    scrub_every_s: float = 14 * 86400.0
    """Every block of every chunk is read and checked once in this time."""
    checkpoint_bytes: int = 16 * 1024 * 1024
    """A new checkpoint after so much log: reading that much takes about four seconds."""
    safe_mode_s: float = 30.0
    """After a start of the master, silent chunkservers are waited for at most so long."""
    cells: tuple[CellConfig, ...] = ()
    """Besides the root cell, which has everything that lies below none of these."""

    def mounts(self) -> dict[str, str]:
        """Return which cell is mounted where, as running daemons are compared by."""
        return {cell.path: f"{cell.name} {cell.number}" for cell in self.cells}


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The `gateway:` part: where other people's programs and browsers come in."""

    hosts: tuple[str, ...]
    webhdfs: bool = True
    s3: bool = True
    pages: bool = True
    metrics: bool = True
    port: int = 0
    """The first of two, the second for S3; 0: the base port + 30."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Host → one more address of it to listen on."""
    tls: bool = True
    certificate: str = ""
    """A file on the hosts, with its key in another; empty: from the cluster's own authority."""
    key: str = ""
    trusted: tuple[str, ...] = ()
    """Networks from which `user.name=` is believed."""
    trusted_writes: bool = False
    names: tuple[str, ...] = ()
    """Further names, in `Host:` and in certificates."""
    behind: tuple[str, ...] = ()
    """Balancers, whose word on a client's address is taken."""
    read_only: bool = False
    memory_bytes: int = 1 << 30
    connections: int = 1024
    s3_root: str = "/"
    """The directory whose directories are buckets."""
    s3_virtual_host: str = ""
    """BUCKET.NAME is a bucket too; empty: buckets are named in paths only."""


@dataclass(frozen=True, slots=True)
class LockConfig:
    """The `lock:` part."""

    session_s: float = 12.0
    """The lease of a session."""
    grace_s: float = 45.0
    """How long a client that hears nothing waits before it gives its session up."""


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """The `backup:` part: what the hosts of masters do by themselves."""

    to: str
    """A directory there; best one of another machine."""
    every_s: float = 86400.0
    keep: int = 7


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A whole cluster file."""

    name: str
    master: str
    hosts: tuple[HostConfig, ...]
    install: str = "wheel"
    python: str | None = None
    tls: bool = False
    base_port: int = 7700
    dfs: DfsConfig = DfsConfig()
    mapreduce: dict[str, str] = field(default_factory=dict)
    path: str = ""
    """The file that it came from."""
    extras: tuple[str, ...] = ()
    """The optional parts of mrstream that every host has, in the order of `extras.MODULES`."""
    gateway: GatewayConfig | None = None
    lock: LockConfig | None = None
    """The lock cell, where there is one."""
    masters: tuple[str, ...] = ()
    """Hosts that can lead, 3 or 5 of them; empty: `master` alone."""
    learner: str = ""
    """Of two hosts, the one that keeps the logs too, and cannot lead: two are no majority."""
    failover_after_s: float = 3.0
    """The lease of a leader: so long after its last word another may be chosen."""
    engine: str = ""
    """Where jobs run unless they say otherwise; empty: on the cluster's own workers."""
    guard: bool = True
    """A process on each host starts again what has ended there."""
    backup: BackupConfig | None = None

    def host(self, name: str) -> HostConfig:
        """Return the host of that name, or raise `UserError` naming those there are."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        raise UserError(f"cluster {self.name} has no host {name!r}; its hosts are {known}")

    def roles_of(self, name: str) -> tuple[str, ...]:
        """Return the roles that run on a host, in the order in which they are started."""
        masters = [role for role in self.master_roles if name in self.masters_of(role)]
        gateway = (GATEWAY,) if self.gateway is not None and name in self.gateway.hosts else ()
        here = (*masters, *HOST_ROLES, *gateway)
        return tuple(role for role in self.roles if role in here)

    @property
    def dfs_masters(self) -> tuple[str, ...]:
        """The roles of the masters of files: the root cell's first."""
        return (DFS_MASTER, *(cell.role for cell in self.dfs.cells))

    @property
    def master_roles(self) -> tuple[str, ...]:
        """The roles of all masters that the cluster has, in the order of `GROUP_ROLES`."""
        lock = () if self.lock is None else (LOCK_MASTER,)
        return (*self.dfs_masters, MAPREDUCE_MASTER, *lock)

    @property
    def roles(self) -> tuple[str, ...]:
        """As `ROLES`, with the masters of cells after that of the root."""
        return (*self.dfs_masters, *(role for role in ROLES if role != DFS_MASTER))

    def cell(self, role: str) -> CellConfig | None:
        """Return the cell of a dfs master's role; None: the root's. `UserError` if there is none
        of that name."""
        name = role.partition(CELL_MARK)[2]
        if not name:
            return None
        for cell in self.dfs.cells:
            if cell.name == name:
                return cell
        known = ", ".join(cell.name for cell in self.dfs.cells) or "none"
        raise UserError(f"cluster {self.name} has no cell {name!r}; its cells are {known}")

    def mounts_known_to(self, role: str) -> dict[str, str]:
        """Return the mount table by which a daemon goes. When it changes, it is started anew."""
        return {} if role == LOCK_MASTER else self.dfs.mounts()

    def masters_of(self, role: str) -> tuple[str, ...]:
        """Return the hosts of a master's role: those that can lead, the one that leads first
        being the first, and then the one that only listens, if there is one."""
        voters = self.voters_of(role)
        listens = self.learner if base_role(role) in GROUP_ROLES else ""
        return (*voters, listens) if listens and listens not in voters else voters

    def voters_of(self, role: str) -> tuple[str, ...]:
        """Return the hosts on which a master can lead; the one that leads first is the first."""
        others = self.masters if base_role(role) in GROUP_ROLES else ()
        return (self.master, *(name for name in others if name != self.master))

    def masters_known_to(self, role: str) -> tuple[str, ...]:
        """Return the hosts of the masters that a daemon belongs to, or else talks to. When they
        change, it is started anew."""
        return self.masters_of(role if base_role(role) in GROUP_ROLES else DFS_MASTER)

    def group_addresses(self, role: str) -> dict[str, str]:
        """Return where the members of a master's group talk to each other, by host."""
        return {name: self.address(name, role + GROUP) for name in self.masters_of(role)}

    def master_addresses(self, role: str) -> dict[str, str]:
        """Return `HOST:PORT` of a master on each host that may lead, by host."""
        return {name: self.address(name, role) for name in self.masters_of(role)}

    def extras_of(self, name: str) -> tuple[str, ...]:
        """Return the extras that a host has: those of the file, and what its roles bring, so that
        nobody has to list it."""
        self.host(name)
        if GATEWAY in self.roles_of(name):
            return extras.known([*self.extras, "http"])
        return self.extras

    def port(self, role: str) -> int:
        """Return the port of a role, the same on every host."""
        if role in (GATEWAY_HTTP, GATEWAY_S3) and self.gateway is not None and self.gateway.port:
            return self.gateway.port + (role == GATEWAY_S3)
        cell = self.cell(role.removesuffix(GROUP))
        if cell is not None:
            return self.base_port + CELL_PORTS_FIRST + 2 * (cell.number - 1) + role.endswith(GROUP)
        return self.base_port + PORT_OFFSETS[role]

    def listeners_of(self, roles: Iterable[str]) -> list[str]:
        """Return what of these roles has a port: themselves, and what stands behind some names."""
        wanted = tuple(roles)
        cells = [name for cell in self.dfs.cells for name in (cell.role, cell.role + GROUP)]
        return [
            name
            for name in (*PORT_OFFSETS, *cells)
            if any(name == role or name.startswith(role + ".") for role in wanted)
        ]

    def ports_of(self, roles: Iterable[str]) -> list[int]:
        return [self.port(name) for name in self.listeners_of(roles)]

    def address(self, host: str, role: str) -> str:
        """Return `HOST:PORT` where the role on that host listens."""
        return join_address(self.host(host).address, self.port(role))

    def master_address(self, role: str) -> str:
        """Return `HOST:PORT` of a master, where it leads first."""
        return self.address(self.master, role)

    def without(self, name: str) -> ClusterConfig:
        gateway = self.gateway
        if gateway is not None:
            hosts = tuple(host for host in gateway.hosts if host != name)
            addresses = {host: at for host, at in gateway.addresses.items() if host != name}
            gateway = replace(gateway, hosts=hosts, addresses=addresses) if hosts else None
        others = tuple(host for host in self.hosts if host.name != name)
        learner = "" if self.learner == name else self.learner
        return replace(self, hosts=others, gateway=gateway, learner=learner)

    def state_directory(self, host: HostConfig) -> str:
        """Return the directory (on that host) of all that this cluster keeps there. The host's
        name is part of it, since home directories may be shared between hosts."""
        return os.path.join(host.dir, self.name, host.name)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that can be talked to: its file and the means to prove ourselves."""

    config: ClusterConfig
    secret: state.Secret

    def identity(self, role: str = ROLE_CLIENT, host: str = "") -> Identity:
        tls = None
        if self.config.tls:
            from mrstream.cluster.config.tls import tls_of

            tls = tls_of(self.secret)
        return Identity(self.secret.cluster_id, self.secret.secret, role, host, tls)


def load(path: str) -> ClusterConfig:
    """Read a cluster file; `BadConfig` lists every mistake in it."""
    from mrstream.cluster.config.reader import read_config

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        raise BadConfig(f"there is no cluster file {path}") from None
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadConfig(
            f"{path} is no cluster file: byte {error.start} of it is not text in UTF-8"
        ) from None
    return read_config(text, path)


def current(explicit: str | None = None) -> ClusterConfig | None:
    """Return the cluster to use: of the file given, of `$MRSTREAM_CLUSTER`, or the one that the
    last `cluster up` or `join` made current; None means local mode."""
    path = state.chosen(explicit)
    if path is None:
        return None
    config = load(path)
    kept = state.cluster_file(config.name)
    if all(host.address != host.name for host in config.hosts) or not os.path.exists(kept):
        return config
    # The last `up` resolved the hosts' addresses by ssh_config, and kept them.
    resolved = load(kept)
    same = [host.name for host in resolved.hosts] == [host.name for host in config.hosts]
    return resolved if same else config


def current_cluster(explicit: str | None = None) -> Cluster | None:
    """As `current`, with the secret: ready to connect."""
    config = current(explicit)
    if config is None:
        return None
    return Cluster(config, state.read_identity(state.identity_file(config.name)))


def cluster_meant(explicit: str | None = None) -> Cluster:
    """As `current_cluster`; UserError if there is none."""
    cluster = current_cluster(explicit)
    if cluster is None:
        raise UserError(
            "there is no current cluster: `mrstream cluster up` makes one, or name a cluster file "
            "with -cluster FILE or $MRSTREAM_CLUSTER"
        )
    return cluster
