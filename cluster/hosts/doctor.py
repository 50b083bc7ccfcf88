"""`mrstream cluster doctor`: what is wrong with a cluster and what to do; it changes nothing."""

from __future__ import annotations

import ipaddress
import time

from mrstream.cluster.config import state
from mrstream.cluster.config.config import (
    CERTIFICATE_ENDS,
    DFS_MASTER,
    Cluster,
    ClusterConfig,
)
from mrstream.cluster.hosts.guarding import has_log
from mrstream.cluster.hosts.health import DEAD, DOWN, RoleState
from mrstream.cluster.hosts.launcher import HostLink, Hosts
from mrstream.cluster.hosts.status import left_down, log_copy_lines, roles_now
from mrstream.cluster.hosts.up import CLOCK_SKEW_S_MAX, FREE_BYTES_LOW
from mrstream.cluster.leader.group_view import look_at_groups, short_lease
from mrstream.cluster.units import binary_size
from mrstream.cluster.version import version


def examine(
    cluster: Cluster, chunks: dict[str, int | None], log_copies: dict[str, int | None]
) -> list[str]:
    """Return a line for each thing that is wrong, each with what to do; none if all is well."""
    roles = roles_now(cluster)
    findings: list[str] = []
    with Hosts(cluster.config) as hosts:
        hosts.open(lock=False)
        looks = hosts.each(lambda link: _look(link, roles[link.name]))
        for name, error in hosts.failed.items():
            findings.append(f"{name}: {error}")
    for host in cluster.config.hosts:
        findings += looks.get(host.name, [])
    findings += _versions(roles) + _chunks(chunks) + _doors(cluster.config)
    findings += [
        f"{line}: are the other hosts of masters up, and is there room on their disks?"
        for line in log_copy_lines(log_copies)
    ]
    for group in look_at_groups(cluster).values():
        findings += group.findings(cluster.config)
    findings += filter(None, [short_lease(cluster.config)])
    findings += one_host(cluster.config)
    if state.current_name() != cluster.config.name:
        findings.append(
            f"{cluster.config.name} is not the current cluster: `mrstream cluster up` or "
            "`-cluster FILE` makes commands use it"
        )
    return findings


def one_host(config: ClusterConfig) -> list[str]:
    """What is said of a cluster whose masters cannot be taken over."""
    if len(config.masters_of(DFS_MASTER)) > 1 or all(host.via == "local" for host in config.hosts):
        return []
    if len(config.hosts) == 1:
        return [
            "no fail-over: one host: whatever is here is lost with it; `backup:` keeps the logs"
        ]
    return [
        f"no fail-over: {config.master} alone is in masters, and has the only copy of the logs: "
        "leave `masters` out of cluster.yaml, or name three, and `mrstream cluster up`"
    ]


def _look(link: HostLink, roles: dict[str, RoleState]) -> list[str]:
    findings: list[str] = []
    running = link.facts["running"]
    for role, found in roles.items():
        if found.state == DOWN and role not in running:
            said = link.call("alive", role=role)["said"].strip().splitlines()
            last = f"; its last words: {said[-1]}" if said else ""
            findings.append(
                f"{link.name}: {role} does not run: `mrstream cluster up` starts it{last}"
            )
        elif found.state in (DOWN, DEAD) and role in running:
            findings.append(
                f"{link.name}: {role} runs (pid {running[role]['pid']}) but does not answer from "
                f"here ({found.reason}): a firewall, or it hangs: see `mrstream cluster logs "
                f"{link.name} {role}`"
            )
        elif found.health is not None and not found.health.ready:
            findings.append(f"{link.name}: {role} is not ready: {found.health.detail}")
        elif found.health is not None and CERTIFICATE_ENDS in found.health.detail:
            findings.append(f"{link.name}: {role}: {found.health.detail}: put a new one there")
    findings += _guard(link)
    skew_s = link.facts["wall_s"] - time.time()
    if abs(skew_s) > CLOCK_SKEW_S_MAX:
        findings.append(f"{link.name}: its clock is {skew_s:+.0f} s off: run a time service there")
    disks = [link.directory, *link.host.disks]
    free = link.call("check", address=link.host.address, ports=[], disks=disks)["free"]
    for path, count_bytes in free.items():
        if count_bytes < FREE_BYTES_LOW:
            findings.append(f"{link.name}: {path} has only {binary_size(count_bytes)} free")
    strays = _strays(link)
    if strays:
        findings.append(f"{link.name}: process {strays[0]} was left behind by a daemon that ended")
    return findings


def _guard(link: HostLink) -> list[str]:
    """What is wrong with a host's guard, and with the backup that it sees to."""
    guard, backup = link.facts["guard"], link.config.backup
    if not link.config.guard:
        return []
    if guard is None:
        return [
            f"{link.name}: no guard runs, so nothing that ends there is started again: `mrstream "
            "cluster up` starts it"
        ]
    findings = [
        f"{link.name}: {left_down(link.name, role, why)}"
        for role, why in guard["left_down"].items()
    ]
    said = guard.get("backup") or {}
    if backup is None or not has_log(link.config, link.name):
        return findings
    if said.get("error"):
        findings.append(f"{link.name}: the last backup to {backup.to} failed: {said['error']}")
    age_s = time.time() - max(float(said.get("at_s", 0.0)), float(guard["since"]))
    if age_s > 2 * backup.every_s:
        findings.append(
            f"{link.name}: there was no backup to {backup.to} for {age_s / 3600:.1f} hours: see "
            f"`mrstream cluster logs {link.name}`"
        )
    return findings


def _strays(link: HostLink) -> list[int]:
    """Processes of roles whose daemon does not run."""
    guard = link.facts["guard"]
    left = [pid for pid, _ in link.call("processes")["left"] if not guard or pid != guard["pid"]]
    return left if not link.facts["running"] else []


def _versions(roles: dict[str, dict[str, RoleState]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for host, states in roles.items():
        for role, known in states.items():
            if known.health is not None:
                found.setdefault(known.health.version, []).append(f"{role} on {host}")
    others = {seen: names for seen, names in found.items() if seen != version()}
    return [
        f"version {seen} runs as {', '.join(names[:3])}, while this is {version()}: `mrstream "
        "cluster up` brings all hosts to this version"
        for seen, names in others.items()
    ]


def _chunks(chunks: dict[str, int | None]) -> list[str]:
    findings: list[str] = []
    if chunks.get("missing"):
        findings.append(
            f"{chunks['missing']} chunks have no good replica: see `mrstream dfs -fsck /`"
        )
    if chunks.get("corrupt"):
        findings.append(f"{chunks['corrupt']} replicas are corrupt and are being replaced")
    if chunks.get("under_replicated"):
        findings.append(
            f"{chunks['under_replicated']} chunks have fewer replicas than wanted: repair is under "
            "way if there are enough hosts for it"
        )
    return findings


def _doors(config: ClusterConfig) -> list[str]:
    """What is unwise about a gateway as cluster.yaml has it."""
    gateway = config.gateway
    if gateway is None:
        return []
    findings: list[str] = []
    for name in gateway.hosts:
        addresses = [config.host(name).address, gateway.addresses.get(name, "127.0.0.1")]
        open_to = [text for text in addresses if not _is_loopback(text)]
        if not gateway.tls and open_to:
            findings.append(
                f"{name}: gateway.tls is false, and {open_to[0]} can be reached from elsewhere: "
                "keys are taken over plain HTTP from gateway.trusted only"
            )
    for text in gateway.trusted:
        network = ipaddress.ip_network(text)
        if network.prefixlen < 8 or network.is_global:
            findings.append(
                f"gateway.trusted has {text}: whoever calls from there is believed to be whom they "
                "say; name the networks of your own machines only"
            )
    return findings


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
