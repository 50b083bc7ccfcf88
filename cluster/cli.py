"""`mrstream cluster …`: up, down, status, logs, doctor, add, remove, join, restore.

A root: it may use what it needs of the other packages, and nothing imports it. Every command's
work is in a module of its own; here are words, questions and exit statuses.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster import state
from cluster.config import ROLES, Cluster, ClusterConfig, load
from cluster.errors import ClusterError, UserError

if TYPE_CHECKING:
    from cluster.network import Connection

INTERRUPTED = 130
_printing = threading.Lock()


def main(argv: list[str]) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(_tell_follow_from_file(argv))
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except ClusterError as error:
        print(f"mrstream cluster: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("interrupted; what this command had begun was undone", file=sys.stderr)
        return INTERRUPTED


def _tell_follow_from_file(argv: list[str]) -> list[str]:
    """For `logs`, -f alone means follow, as with tail; -f FILE.yaml names the cluster, as
    everywhere else."""
    if argv[:1] != ["logs"]:
        return argv
    words: list[str] = []
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        names_file = following.endswith((".yaml", ".yml")) or os.path.isfile(following)
        words.append("--follow" if word == "-f" and not names_file else word)
    return words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mrstream cluster", description="start, stop and look after a cluster"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, command: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument(
            "-f",
            "--file",
            help="the cluster file (default: cluster.yaml here, or the current cluster's)",
        )
        sub.set_defaults(command=command)
        return sub

    add("up", _up, "start what is not running on every host, and make the cluster current")
    sub = add("down", _down, "stop everything, and prove that no process is left")
    sub.add_argument("--purge", action="store_true", help="also remove all data, after asking")
    sub.add_argument("--yes", action="store_true", help="do not ask")
    sub = add("status", _status, "show every role on every host")
    sub.add_argument("--json", action="store_true", help="for programs")
    sub = add("logs", _logs, "show the logs of a host")
    sub.add_argument("host")
    sub.add_argument("role", nargs="?", choices=ROLES, metavar="ROLE")
    sub.add_argument("-n", "--lines", type=int, default=100)
    sub.add_argument("--rpc", action="store_true", help="the log of requests instead")
    sub.add_argument("--follow", action="store_true", help="(-f) go on showing what is added")
    add("doctor", _doctor, "say what is wrong, and what to do about it")
    sub = add("add", _add, "bring up a host that was added to the cluster file")
    sub.add_argument("host")
    sub = add("remove", _remove, "copy everything off a host, then take it out of the cluster")
    sub.add_argument("host")
    sub = add("join", _join, "fetch cluster file and secret over SSH, and make the cluster current")
    sub.add_argument("target", nargs="?", metavar="[USER@]HOST", help="a host of the cluster")
    sub.add_argument("--name", help="the cluster's name, if the host has several")
    sub.add_argument("--dir", default="~/.mrstream", help="the cluster's dir there")
    sub = add(
        "restore", _restore, "make another host the master, from a copy of the lost one's log"
    )
    sub.add_argument("--master", required=True, metavar="HOST")
    return parser


# --- which cluster


def _config_to_start(options: argparse.Namespace) -> ClusterConfig:
    """For `up`: the file named, the one here, or the current cluster's."""
    path = options.file or os.environ.get("MRSTREAM_CLUSTER")
    if path is None and os.path.exists("cluster.yaml"):
        path = "cluster.yaml"
    return load(_chosen(path))


def _config_running(options: argparse.Namespace) -> ClusterConfig:
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
        raise UserError("which cluster? There is no current one, and no cluster.yaml here: use -f")
    return found


def _cluster_running(options: argparse.Namespace) -> Cluster:
    config = _config_running(options)
    return Cluster(config, state.read_identity(state.identity_file(config.name)))


def _say(host: str, text: str) -> None:
    with _printing:
        print(f"{host}: {text}", flush=True)


# --- commands


def _up(options: argparse.Namespace) -> int:
    from cluster.up import Up

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


def _down(options: argparse.Namespace) -> int:
    from cluster.down import down

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


def _status(options: argparse.Namespace) -> int:
    from cluster.status import roles_now, status_document, status_lines

    cluster = _cluster_running(options)
    document = status_document(cluster, roles_now(cluster), _chunks(cluster))
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(status_lines(document)))
    return 0


def _chunks(cluster: Cluster) -> dict[str, int | None]:
    """Ask the dfs master for its numbers; None each if it does not answer."""
    from dfs.protocol import ClusterReport, Report

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
    from cluster.config import DFS_MASTER
    from cluster.network import Connection

    return Connection(
        cluster.config.master_address(DFS_MASTER),
        cluster.identity(),
        role=DFS_MASTER,
        connect_s_max=3.0,
    )


def _logs(options: argparse.Namespace) -> int:
    from cluster.logs_command import show_logs

    roles = [options.role] if options.role else list(ROLES)
    logs = [f"{role}.rpc" for role in roles] if options.rpc else roles
    return show_logs(_config_running(options), options.host, logs, options.lines, options.follow)


def _doctor(options: argparse.Namespace) -> int:
    from cluster.doctor import examine

    cluster = _cluster_running(options)
    findings = examine(cluster, _chunks(cluster))
    for finding in findings:
        print(finding)
    if not findings:
        print(f"cluster {cluster.config.name} is well")
    return 1 if findings else 0


def _add(options: argparse.Namespace) -> int:
    from cluster.membership import add_host

    config = _config_to_start(options)
    return _finish_up(config, add_host(config, options.host, _say))


def _remove(options: argparse.Namespace) -> int:
    from cluster.membership import remove_host
    from dfs.chunk import ServerId
    from dfs.protocol import DrainServer, ForgetServer, Report

    cluster = _cluster_running(options)
    with _dfs_master(cluster) as master:

        def drain(host: str) -> int:
            for server in master.call(Report()).servers:
                if server.address.server != host:
                    continue
                if server.state not in ("draining", "drained"):
                    master.call(DrainServer(ServerId(host)))
                    return max(1, int(server.chunk_count))
                return 0 if server.state == "drained" else max(1, int(server.chunks_to_drain))
            return 0  # the master does not know it: nothing is there

        def forget(host: str) -> None:
            master.call(ForgetServer(ServerId(host)))

        config = remove_host(cluster, options.host, _say, drain, forget)
    print(f"{options.host} is out of cluster {config.name}; take it out of your cluster file too")
    return 0


def _join(options: argparse.Namespace) -> int:
    from cluster.join import join

    name = join(options.file, options.target, options.dir, options.name)
    print(f"joined cluster {name}; it is now the current one")
    return 0


def _restore(options: argparse.Namespace) -> int:
    from cluster.restore import restore_master

    config = restore_master(_cluster_running(options), options.master, _say)
    address = config.host(config.master).address
    print(
        f"cluster {config.name} is up, master {config.master} ({address}); say so in cluster.yaml"
    )
    return 0
