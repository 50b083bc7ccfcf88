"""`mrstream cluster …`: up, down, status, logs, doctor, add, remove, join, restore, backup, ca.

A root: it may use what it needs of the other packages, and nothing imports it. Every command's
work is in a module of its own; here are words, questions and exit statuses.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from mrstream.cluster.config import state
from mrstream.cluster.config.config import (
    DFS_MASTER,
    GATEWAY,
    CellConfig,
    Cluster,
    ClusterConfig,
    load,
)
from mrstream.cluster.errors import INTERRUPTED, ClusterError, Unavailable, UserError
from mrstream.cluster.hosts import arguments

if TYPE_CHECKING:
    from mrstream.cluster.leader.connection import LeaderConnection
    from mrstream.cluster.wire.messages import Request
    from mrstream.dfs.protocol import ClusterReport

LEADER_S_MAX = 60.0
LOOK_EVERY_S = 0.2
LISTED_MAX = 10_000
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
    path = state.known(options.file)
    if path is None and os.path.exists("cluster.yaml"):
        path = "cluster.yaml"
    config = load(_chosen(path))
    kept = state.cluster_file(config.name)
    return load(kept) if os.path.exists(kept) else config


def _chosen(path: str | None) -> str:
    found = state.known(path)
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

    up = Up(
        _config_to_start(options),
        _say,
        new_secret=options.new_secret,
        without=options.without,
        at_boot=options.at_boot,
    )
    failed = up.run()
    status = _finish_up(up.config, failed)
    if options.new_secret:
        print("it has a new secret: others who use it must `mrstream cluster join HOST` again")
    if 2 * len(failed) < len(up.config.hosts) or options.partial:
        return status
    print(
        "mrstream cluster: half of the hosts or more are missing; --partial is for those who mean "
        "it (the cluster is left as it is)",
        file=sys.stderr,
    )
    return 1


def _finish_up(config: ClusterConfig, failed: dict[str, ClusterError]) -> int:
    from mrstream.cluster.hosts.session import advice_on_keys

    for name, error in failed.items():
        print(f"{name}: FAILED: {error}", file=sys.stderr)
    for line in advice_on_keys(failed.values()):
        print(line, file=sys.stderr)
    voters = config.voters_of(DFS_MASTER)
    there = [name for name in voters if name not in failed]
    if len(there) < len(voters):
        print(
            f"{len(there)} of {len(voters)} masters are up, and {len(voters) // 2 + 1} must be: "
            "run `mrstream cluster up` again when the others are back",
            file=sys.stderr,
        )
    count = len(config.hosts) - len(failed)
    total = len(config.hosts)
    hosts = f"{count} of {total} hosts" if failed else f"{total} host{'s' if total > 1 else ''}"
    print(f"cluster {config.name} is up: {hosts}, {_master_words(config, _leader(config.name))}")
    return 0


def _leader(name: str) -> str:
    """The host that leads the dfs of a cluster that is up; "" where nobody does at the moment."""
    config = load(state.cluster_file(name))
    voters = config.voters_of(DFS_MASTER)
    if len(voters) == 1:
        return voters[0]
    from mrstream.cluster.leader.group_view import look_at_group

    cluster = Cluster(config, state.read_identity(state.identity_file(name)))
    return look_at_group(cluster, DFS_MASTER).leader


def _master_words(config: ClusterConfig, leader: str) -> str:
    if not leader:
        return "no master leads at the moment (`mrstream cluster status` says more)"
    return f"master {leader} ({config.host(leader).address})"


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
    return _typed(config)


def _typed(config: ClusterConfig) -> bool:
    """Ask a person to type the cluster's name."""
    try:
        answer = input("Type the cluster's name to go on: ")
    except EOFError:
        answer = ""
    if answer.strip() == config.name:
        return True
    print("nothing was done", file=sys.stderr)
    return False


def _status(options: Namespace) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from mrstream.cluster.hosts.status import (
        answering,
        is_all_up,
        roles_now,
        status_document,
        status_lines,
    )
    from mrstream.cluster.leader.group_view import look_at_groups

    cluster = _cluster_running(options)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look_at_groups, cluster)
        roles = roles_now(cluster)
        groups = looking.result()
    up = answering(roles)
    reports = _reports(cluster, up)
    document = status_document(cluster, roles, _chunks(reports), _log_copies(cluster, up))
    cells = {cell.name: _cell(cell, reports[cell.role]) for cell in cluster.config.dfs.cells}
    if cells:
        document["cells"] = cells
    document["groups"] = {name: group.document() for name, group in groups.items()}
    if options.json:
        print(json.dumps(document, indent=2))
    else:
        print("\n".join([*status_lines(document), *(one.line() for one in groups.values())]))
    return 0 if is_all_up(document) else 1


def _switch(options: Namespace) -> int:
    from mrstream.cluster.hosts.switch import switch_alone

    cluster = _cluster_running(options)
    before, epoch, took_s = switch_alone(cluster, options.host, options.group)
    if before == options.host:
        print(f"{options.host} leads already, epoch {epoch}")
    else:
        print(f"{options.host} leads after {before}, epoch {epoch}, in {1000 * took_s:.0f} ms")
    return 0


def _reports(cluster: Cluster, up: Container[str]) -> dict[str, ClusterReport | None]:
    """Ask every dfs master for its numbers, by role; None for one that does not answer. Those that
    are not `up` are not waited for."""
    from mrstream.dfs.protocol import Report

    reports: dict[str, ClusterReport | None] = {}
    for role in cluster.config.dfs_masters:
        reports[role] = None
        if role not in up:
            continue
        with contextlib.suppress(ClusterError), _dfs_master(cluster, role) as connection:
            reports[role] = connection.call(Report(), 3.0)
    return reports


def _chunks(reports: dict[str, ClusterReport | None]) -> dict[str, int | None]:
    """The numbers of all cells together; None each if one of them does not say."""
    known = [report for report in reports.values() if report is not None]
    if len(known) < len(reports):
        return dict.fromkeys(("total", "under_replicated", "missing", "corrupt"))
    return {
        "total": sum(report.chunk_count for report in known),
        "under_replicated": sum(report.under_replicated for report in known),
        "missing": sum(report.missing for report in known),
        "corrupt": sum(report.corrupt for report in known),
    }


def _cell(cell: CellConfig, report: ClusterReport | None) -> dict[str, Any]:
    """One cell in `status --json`; numbers are None if its master does not answer."""
    return {
        "path": cell.path,
        "number": cell.number,
        "files": None if report is None else report.file_count,
        "chunks": None if report is None else report.chunk_count,
    }


def _log_copies(cluster: Cluster, up: Container[str]) -> dict[str, int | None]:
    """Ask the dfs master how many copies of its log are in step; None each if it does not say."""
    from mrstream.cluster.wire.messages import Metrics

    figures: dict[str, float] = {}
    if DFS_MASTER in up:
        with contextlib.suppress(ClusterError), _dfs_master(cluster) as connection:
            figures = connection.call(Metrics(), 3.0)
    names = {"in_step": "log_copies_in_step", "wanted": "log_copies_wanted"}
    return {key: int(figures[name]) if name in figures else None for key, name in names.items()}


def _dfs_master(cluster: Cluster, role: str = DFS_MASTER) -> LeaderConnection:
    """The dfs master that leads, of the root cell or another."""
    from mrstream.cluster.leader.connection import connect_to_leader

    return connect_to_leader(cluster, role, connect_s_max=3.0)


def _patiently(master: LeaderConnection, request: Request) -> Any:
    """Have the master that leads answer; one of a host that is lost has to be followed first."""
    from mrstream.cluster.retry import RetryPolicy

    number = master.next_number()
    for attempt in RetryPolicy(LEADER_S_MAX, LOOK_EVERY_S, LOOK_EVERY_S).attempts():
        try:
            return master.call(request, number=number)
        except Unavailable as error:
            attempt.failed(error)
    raise AssertionError("attempts do not end")


def _logs(options: Namespace) -> int:
    from mrstream.cluster.hosts.logs_command import show_logs

    config = _config_running(options)
    there = {role for host in config.hosts for role in config.roles_of(host.name)}
    roles = [options.role] if options.role else [role for role in config.roles if role in there]
    logs = [f"{role}.rpc" for role in roles] if options.rpc else roles
    if options.audit:
        logs = [f"{GATEWAY}.audit"]
    return show_logs(config, options.host, logs, options.lines, options.follow)


def _doctor(options: Namespace) -> int:
    from mrstream.cluster.hosts.doctor import examine
    from mrstream.cluster.hosts.status import answering, roles_now

    cluster = _cluster_running(options)
    up = answering(roles_now(cluster))
    findings = examine(cluster, _chunks(_reports(cluster, up)), _log_copies(cluster, up))
    findings += _hidden(cluster) if DFS_MASTER in up else []
    if options.json:
        print(json.dumps({"name": cluster.config.name, "findings": findings}, indent=2))
        return 1 if findings else 0
    for finding in findings:
        print(finding)
    if not findings:
        print(f"cluster {cluster.config.name} is well")
    return 1 if findings else 0


def _hidden(cluster: Cluster) -> list[str]:
    """Say what lies in the root cell where another cell is mounted: nobody sees it."""
    from mrstream.dfs.protocol import ListDirectory, Page

    cells = {cell.path: cell.name for cell in cluster.config.dfs.cells}
    found: list[str] = []
    with contextlib.suppress(ClusterError), _dfs_master(cluster) as connection:
        page: Page = connection.call(ListDirectory("/", "", LISTED_MAX), 3.0) if cells else Page(())
        found = [entry.path for entry in page.entries if entry.path in cells]
    return [
        f"{path}: cell {cells[path]} is mounted over something of that name in the root cell, and "
        "nobody sees it: take the cell out of cluster.yaml, `mrstream cluster up -f` it, `mrstream "
        f"dfs -mv {path} {path}-before`, and put the cell back"
        for path in found
    ]


def _add(options: Namespace) -> int:
    from mrstream.cluster.hosts.membership import add_host

    config = _config_to_start(options)
    return _finish_up(config, add_host(config, options.host, _say))


def _remove(options: Namespace) -> int:
    from mrstream.cluster.hosts.membership import remove_host, remove_lost_host
    from mrstream.dfs.chunk import ServerId
    from mrstream.dfs.protocol import DrainServer, ForgetServer, Report, ServerStatus

    cluster = _cluster_running(options)
    with contextlib.ExitStack() as stack:
        roles = cluster.config.dfs_masters
        masters = [stack.enter_context(_dfs_master(cluster, role)) for role in roles]

        def known(master: LeaderConnection, host: str) -> ServerStatus | None:
            servers: tuple[ServerStatus, ...] = _patiently(master, Report()).servers
            return next((s for s in servers if s.address.server == host), None)

        def drain(host: str) -> int:
            return sum(drain_cell(master, host) for master in masters)

        def drain_cell(master: LeaderConnection, host: str) -> int:
            server = known(master, host)
            if server is None or server.state == "drained":
                return 0
            if server.state == "dead":
                raise UserError(
                    f"{host} does not answer: `mrstream cluster up` starts it; if it is gone for "
                    f"good, `mrstream cluster remove {host} --lost`"
                )
            if server.state != "draining":
                _patiently(master, DrainServer(ServerId(host)))
                return max(1, int(server.chunk_count))
            return max(1, int(server.chunks_to_drain))

        def silence_of(host: str) -> float | None:
            servers = [known(master, host) for master in masters]
            alive = [server for server in servers if server and server.state != "dead"]
            return min((server.last_heard_s_ago for server in alive), default=None)

        def forget(host: str) -> None:
            for master in masters:
                if known(master, host) is not None:
                    _patiently(master, ForgetServer(ServerId(host)))

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
    from mrstream.cluster.hosts.backup import read_backup
    from mrstream.cluster.hosts.restore_group import restore_groups

    cluster = _cluster_running(options)

    def agreed(doubts: list[str]) -> bool:
        print("\n".join(doubts))
        return options.yes or _typed(cluster.config)

    source = options.source
    if source is not None and _is_backup(cluster.config, source):
        config = restore_groups(cluster, options.master, _say, read_backup(source), agreed)
    else:
        if source is not None and len(cluster.config.voters_of(DFS_MASTER)) > 1:
            raise UserError(
                f"--from is {source!r}: where there are several masters it is a backup; of the "
                "logs that hosts have, the one that goes furthest always counts"
            )
        config = restore_groups(cluster, options.master, _say, None, agreed, source or "")
    address = config.host(config.master).address
    moved = "" if config.master == cluster.config.master else "; say so in cluster.yaml"
    print(f"cluster {config.name} is up, master {config.master} ({address}){moved}")
    return 0


def _is_backup(config: ClusterConfig, source: str) -> bool:
    """A host of the cluster, or a directory: a host's name has no slash in it."""
    return "/" in source or all(host.name != source for host in config.hosts)


def _backup(options: Namespace) -> int:
    from mrstream.cluster.hosts.backup import back_up

    made = back_up(_cluster_running(options), options.directory, options.keep, _say)
    for role, end in made.ends.items():
        print(f"{role}: up to record {end.sequence:,}")
    print(f"backed up and proven: {made.path}")
    return 0


def _ca(options: Namespace) -> int:
    door = _cluster_running(options).secret.door
    if door is None:
        raise UserError(
            "this cluster has no gateway: name its hosts in cluster.yaml (`gateway: {hosts: "
            "[h1]}`), then `mrstream cluster up`"
        )
    print(door.authority, end="")
    return 0


_COMMANDS: dict[str, Callable[[Namespace], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "logs": _logs,
    "doctor": _doctor,
    "switch": _switch,
    "add": _add,
    "remove": _remove,
    "join": _join,
    "restore": _restore,
    "backup": _backup,
    "ca": _ca,
}
