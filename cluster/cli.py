"""`mrstream cluster …`: up, down, status, logs, doctor, add, remove, join, restore.

A root: it may use what it needs of the other packages, and nothing imports it. Every command's
work is in a module of its own; here are words, questions and exit statuses.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mrstream.cluster.config import state
from mrstream.cluster.config.config import ROLES, Cluster, ClusterConfig, load
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.hosts import arguments

if TYPE_CHECKING:
    from mrstream.cluster.wire.network import Connection

INTERRUPTED = 130
_printing = threading.Lock()


def main(argv: list[str]) -> int:
    """Run one command; return its exit status."""
    options = arguments.parse(argv)
    try:
        return _COMMANDS[options.command](options)
    except ClusterError as error:
        print(f"mrstream cluster: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("interrupted; what this command had begun was undone", file=sys.stderr)
        return INTERRUPTED


# --- which cluster


def _config_to_start(options: Namespace) -> ClusterConfig:
    """For `up`: the file named, the one here, or the current cluster's."""
    path = options.file or os.environ.get("MRSTREAM_CLUSTER")
    if path is None and os.path.exists("cluster.yaml"):
        path = "cluster.yaml"
    return load(_chosen(path))


def _config_running(options: Namespace) -> ClusterConfig:
    """For what runs already: the file named, the current cluster's, or the one here. What the last
    `up` used counts, not what was written into the file since."""
    path = state.chosen(options.file)
    if path is None and os.path.exists("cluster.yaml"):
        path = "cluster.yaml"
    config = load(_chosen(path))
    kept = state.cluster_file(config.name)
    return load(kept) if os.path.exists(kept) else config


def _chosen(path: str | None) -> str:
    found = state.chosen(path)
    if found is None:
        raise UserError(
            "which cluster? There is no current one, and no cluster.yaml here: use -f FILE"
        )
    return found


def _cluster_running(options: Namespace) -> Cluster:
    config = _config_running(options)
    return Cluster(config, state.read_identity(state.identity_file(config.name)))


def _say(host: str, text: str) -> None:
    with _printing:
        print(f"{host}: {text}", flush=True)


# --- commands


def _up(options: Namespace) -> int:
    from mrstream.cluster.hosts.up import Up

    up = Up(_config_to_start(options), _say)
    failed = up.run()
    return _finish_up(up.config, failed)


def _finish_up(config: ClusterConfig, failed: dict[str, ClusterError]) -> int:
    for name, error in failed.items():
        print(f"{name}: FAILED: {error}", file=sys.stderr)
    count = len(config.hosts) - len(failed)
    total = len(config.hosts)
    hosts = f"{count} of {total} hosts" if failed else f"{total} host{'s' if total > 1 else ''}"
    address = config.host(config.master).address
    print(f"cluster {config.name} is up: {hosts}, master {config.master} ({address})")
    return 0


def _down(options: Namespace) -> int:
    from mrstream.cluster.hosts.down import down

    config = _config_running(options)
    if options.purge and not options.yes and not _agreed(config):
        return 1
    failed = down(config, _say, purge=options.purge)
    for name, error in failed.items():
        print(f"{name}: FAILED: {error}", file=sys.stderr)
    if failed:
        return 1
    print(f"cluster {config.name} is down{'; its data is removed' if options.purge else ''}")
    return 0


def _agreed(config: ClusterConfig) -> bool:
    print(f"This removes all data of cluster {config.name} on {len(config.hosts)} hosts for good.")
    try:
        answer = input("Type the cluster's name to go on: ")
    except EOFError:
        answer = ""
    if answer.strip() == config.name:
        return True
    print("nothing was done", file=sys.stderr)
    return False


def _status(options: Namespace) -> int:
    from mrstream.cluster.hosts.status import roles_now, status_document, status_lines

    cluster = _cluster_running(options)
    document = status_document(cluster, roles_now(cluster), _chunks(cluster))
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(status_lines(document)))
    return 0


def _chunks(cluster: Cluster) -> dict[str, int | None]:
    """Ask the dfs master for its numbers; None each if it does not answer."""
    from mrstream.dfs.protocol import ClusterReport, Report

    try:
        with _dfs_master(cluster) as connection:
            report: ClusterReport = connection.call(Report(), 3.0)
    except ClusterError:
        return dict.fromkeys(("total", "under_replicated", "missing", "corrupt"))
    return {
        "total": report.chunk_count,
        "under_replicated": report.under_replicated,
        "missing": report.missing,
        "corrupt": report.corrupt,
    }


def _dfs_master(cluster: Cluster) -> Connection:
    from mrstream.cluster.config.config import DFS_MASTER
    from mrstream.cluster.wire.network import Connection

    return Connection(
        cluster.config.master_address(DFS_MASTER),
        cluster.identity(),
        role=DFS_MASTER,
        connect_s_max=3.0,
    )


def _logs(options: Namespace) -> int:
    from mrstream.cluster.hosts.logs_command import show_logs

    roles = [options.role] if options.role else list(ROLES)
    logs = [f"{role}.rpc" for role in roles] if options.rpc else roles
    return show_logs(_config_running(options), options.host, logs, options.lines, options.follow)


def _doctor(options: Namespace) -> int:
    from mrstream.cluster.hosts.doctor import examine

    cluster = _cluster_running(options)
    findings = examine(cluster, _chunks(cluster))
    for finding in findings:
        print(finding)
    if not findings:
        print(f"cluster {cluster.config.name} is well")
    return 1 if findings else 0


def _add(options: Namespace) -> int:
    from mrstream.cluster.hosts.membership import add_host

    config = _config_to_start(options)
    return _finish_up(config, add_host(config, options.host, _say))


def _remove(options: Namespace) -> int:
    from mrstream.cluster.hosts.membership import remove_host, remove_lost_host
    from mrstream.dfs.chunk import ServerId
    from mrstream.dfs.protocol import DrainServer, ForgetServer, Report, ServerStatus

    cluster = _cluster_running(options)
    with _dfs_master(cluster) as master:

        def known(host: str) -> ServerStatus | None:
            servers: tuple[ServerStatus, ...] = master.call(Report()).servers
            return next((s for s in servers if s.address.server == host), None)

        def drain(host: str) -> int:
            server = known(host)
            if server is None or server.state == "drained":
                return 0
            if server.state == "dead":
                raise UserError(
                    f"{host} does not answer: `mrstream cluster up` starts it; if it is gone for "
                    f"good, `mrstream cluster remove {host} --lost`"
                )
            if server.state != "draining":
                master.call(DrainServer(ServerId(host)))
                return max(1, int(server.chunk_count))
            return max(1, int(server.chunks_to_drain))

        def silence_of(host: str) -> float | None:
            server = known(host)
            return server.last_heard_s_ago if server and server.state != "dead" else None

        def forget(host: str) -> None:
            if known(host) is not None:
                master.call(ForgetServer(ServerId(host)))

        if options.lost:
            config = remove_lost_host(cluster, options.host, _say, silence_of, forget)
        else:
            config = remove_host(cluster, options.host, _say, drain, forget)
    print(f"{options.host} is out of cluster {config.name}; take it out of your cluster file too")
    return 0


def _join(options: Namespace) -> int:
    from mrstream.cluster.hosts.join import join

    name = join(options.file, options.target, options.dir, options.name)
    print(f"joined cluster {name}; it is now the current one")
    return 0


def _restore(options: Namespace) -> int:
    from mrstream.cluster.hosts.restore import restore_master

    cluster = _cluster_running(options)
    config = restore_master(cluster, options.master, _say, options.source)
    address = config.host(config.master).address
    moved = "" if config.master == cluster.config.master else "; say so in cluster.yaml"
    print(f"cluster {config.name} is up, master {config.master} ({address}){moved}")
    return 0


_COMMANDS: Final[dict[str, Callable[[Namespace], int]]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "logs": _logs,
    "doctor": _doctor,
    "add": _add,
    "remove": _remove,
    "join": _join,
    "restore": _restore,
}
