"""A cluster as cluster.yaml describes it, checked as a whole; and which cluster is current.

The types here are plain and frozen. Reading and complaining is `reader`'s work; the user's
state files are `state`'s. Never reads the network, nor the environment beyond what `state` reads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from mrstream.cluster.config import state
from mrstream.cluster.errors import BadConfig, UserError
from mrstream.cluster.wire.addresses import join_address
from mrstream.cluster.wire.identity import ROLE_CLIENT, Identity

DFS_MASTER: Final = "dfs.master"
CHUNKSERVER: Final = "dfs.chunkserver"
MAPREDUCE_MASTER: Final = "mapreduce.master"
WORKER: Final = "mapreduce.worker"
CHUNKSERVER_BULK: Final = "dfs.chunkserver.bulk"
WORKER_BULK: Final = "mapreduce.worker.bulk"
LOG_REPLICA: Final = "log.replica"

MASTER_ROLES: Final = (DFS_MASTER, MAPREDUCE_MASTER)
HOST_ROLES: Final = (CHUNKSERVER, WORKER)
ROLES: Final = (DFS_MASTER, CHUNKSERVER, MAPREDUCE_MASTER, WORKER)
"""In the order in which they are started; stopping goes the other way."""

PORT_OFFSETS: Final = {
    DFS_MASTER: 0,
    CHUNKSERVER: 1,
    CHUNKSERVER_BULK: 2,
    MAPREDUCE_MASTER: 3,
    WORKER: 4,
    WORKER_BULK: 5,
    LOG_REPLICA: 6,
}
PORTS_COUNT: Final = 10
"""Ports that a cluster may use from its base on; two clusters on a host keep this distance."""

VIA_LOCAL: Final = "local"
VIA_SSH: Final = "ssh"


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
    log_replicas: int = 2
    """Copies of the master's log on other hosts, where there are hosts for it."""
    scrub_every_s: float = 14 * 86400.0
    """Every block of every chunk is read and checked once in this time."""
    checkpoint_bytes: int = 16 * 1024 * 1024
    """A new checkpoint after so much log: reading that much takes about four seconds."""
    safe_mode_s: float = 30.0
    """After a start of the master, silent chunkservers are waited for at most so long."""


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

    def host(self, name: str) -> HostConfig:
        """Return the host of that name, or raise `UserError` naming those there are."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        raise UserError(f"cluster {self.name} has no host {name!r}; its hosts are {known}")

    def roles_of(self, name: str) -> tuple[str, ...]:
        """Return the roles that run on a host, in the order in which they are started."""
        masters = MASTER_ROLES if name == self.master else ()
        return tuple(role for role in ROLES if role in masters or role in HOST_ROLES)

    def extras_of(self, name: str) -> tuple[str, ...]:
        """Return the extras that a host has: those of the file. One that a role of `roles_of`
        brings by itself belongs here, so that nobody has to list it."""
        self.host(name)
        return self.extras

    def port(self, role: str) -> int:
        """Return the port of a role, the same on every host."""
        return self.base_port + PORT_OFFSETS[role]

    def address(self, host: str, role: str) -> str:
        """Return `HOST:PORT` where the role on that host listens."""
        return join_address(self.host(host).address, self.port(role))

    def master_address(self, role: str) -> str:
        """Return `HOST:PORT` of one of the two masters."""
        return self.address(self.master, role)

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
        """Return the identity of a process of this cluster."""
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
    # The last `up` wrote down what ssh_config says of names, which only SSH itself reads.
    resolved = load(kept)
    same = [host.name for host in resolved.hosts] == [host.name for host in config.hosts]
    return resolved if same else config


def current_cluster(explicit: str | None = None) -> Cluster | None:
    """As `current`, with the secret: ready to connect."""
    config = current(explicit)
    if config is None:
        return None
    return Cluster(config, state.read_identity(state.identity_file(config.name)))
