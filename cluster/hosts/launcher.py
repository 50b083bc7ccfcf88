"""Hosts as the launcher holds them: a session with the agent on each, and work on all at once.

`Hosts` opens sessions (local or SSH), runs the same work on every host in parallel, and keeps who
failed and why; a host that failed is left out of what follows. Leaving it without `keep` makes
every agent undo what it had begun, also when we are interrupted.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from mrstream.cluster.closing import Closing
from mrstream.cluster.config.config import VIA_LOCAL, ClusterConfig, HostConfig
from mrstream.cluster.errors import ClusterError, HostUnreachable
from mrstream.cluster.hosts.session import AgentSession, LocalTransport

WORK_AT_ONCE_MAX = 64

Say = Callable[[str, str], None]
"""Called with (host, what happened there)."""
T = TypeVar("T")


class HostLink:
    """One host of a cluster and our session with it."""

    def __init__(self, config: ClusterConfig, host: HostConfig) -> None:
        self.config = config
        self.host = host
        self.session: AgentSession | None = None
        self.facts: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def is_local(self) -> bool:
        return self.host.via == VIA_LOCAL

    @property
    def directory(self) -> str:
        """The cluster's directory there (known once `begin` was called)."""
        directory: str = self.facts["directory"]
        return directory

    def open(self) -> None:
        """Log in and start the agent."""
        if self.is_local:
            self.session = AgentSession.over(self.name, LocalTransport())
            return
        from mrstream.cluster.hosts import (
            ssh,  # paramiko takes its time to load; a local cluster needs none
        )

        self.session = ssh.open_session(self.host, self.host.python or self.config.python)

    def begin(self, lock: bool) -> None:
        """Introduce ourselves; with `lock`, keep every other launcher off this host."""
        self.facts = self.call(
            "hello", directory=self.config.state_directory(self.host), host=self.name, lock=lock
        )

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        if self.session is None:
            raise HostUnreachable(f"{self.name}: the session has ended")
        return self.session.call(do, **arguments)

    def close(self) -> None:
        """End the session; what the agent had begun and not kept is undone."""
        session, self.session = self.session, None
        if session is not None:
            session.close()


class Hosts(Closing):
    """All hosts of a command, worked on in parallel."""

    def __init__(self, config: ClusterConfig, names: Iterable[str] | None = None) -> None:
        self.config = config
        wanted = None if names is None else set(names)
        self.links = [
            HostLink(config, host) for host in config.hosts if wanted is None or host.name in wanted
        ]
        self.failed: dict[str, ClusterError] = {}
        self._cancelled = threading.Event()

    @property
    def good(self) -> list[HostLink]:
        """The hosts that have not failed."""
        return [link for link in self.links if link.name not in self.failed]

    def link(self, name: str) -> HostLink:
        return next(link for link in self.links if link.name == name)

    def fail(self, name: str, error: ClusterError) -> None:
        """Leave a host out from here on; its agent undoes what it had begun."""
        self.failed.setdefault(name, error)
        self.link(name).close()

    def open(self, lock: bool) -> None:
        """Open a session with every host; those that cannot be reached have failed."""

        def one(link: HostLink) -> None:
            link.open()
            if self._cancelled.is_set():
                link.close()
                raise HostUnreachable(f"{link.name}: interrupted")
            link.begin(lock)

        self.each(one)

    def each(
        self, work: Callable[[HostLink], T], only: Collection[str] | None = None
    ) -> dict[str, T]:
        """Do the work on every good host at once, or on these; return what it gave where it did not
        fail."""
        links = [link for link in self.good if only is None or link.name in only]
        if not links:
            return {}
        done: dict[str, T] = {}
        pool = concurrent.futures.ThreadPoolExecutor(min(len(links), WORK_AT_ONCE_MAX))
        try:
            futures = {pool.submit(work, link): link for link in links}
            for future in concurrent.futures.as_completed(futures):
                link = futures[future]
                try:
                    done[link.name] = future.result()
                except ClusterError as error:
                    self.fail(link.name, error)
        except KeyboardInterrupt:
            self._cancelled.set()
            self.close()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return {link.name: done[link.name] for link in links if link.name in done}

    def close(self) -> None:
        """End every session, all at once."""
        threads = [threading.Thread(target=link.close) for link in self.links]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def with_resolved_addresses(config: ClusterConfig) -> ClusterConfig:
    """Return the cluster with the addresses that ssh_config gives for names, since daemons and
    clients on other machines do not have our ssh_config."""
    if all(host.via == VIA_LOCAL or host.address != host.name for host in config.hosts):
        return config
    from mrstream.cluster.hosts import ssh

    return replace(
        config,
        hosts=tuple(
            host
            if host.via == VIA_LOCAL or host.address != host.name
            else replace(host, address=ssh.resolve(host).address)
            for host in config.hosts
        ),
    )
