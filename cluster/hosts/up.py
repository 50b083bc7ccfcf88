"""`mrstream cluster up`: from a list of hosts to a running cluster, or to the reason why not.

In order: log in and look at every host, see that they reach each other, put software and state
there, start what does not run, wait until it is healthy, and only then keep it. Whatever ends this
early (a failure, Ctrl-C, a lost connection) leaves the hosts as they were. A host that fails is
named; the cluster comes up without it as long as a majority of its masters is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from mrstream.cluster.agent.guard import ROLE as GUARD
from mrstream.cluster.agent.processes import module_of
from mrstream.cluster.config import extras, state
from mrstream.cluster.config.config import DFS_MASTER, GATEWAY, Cluster, ClusterConfig, load
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import ClusterError, HostUnreachable, UserError
from mrstream.cluster.hosts.down import unmounted
from mrstream.cluster.hosts.guarding import guard_plan
from mrstream.cluster.hosts.health import UP, ask
from mrstream.cluster.hosts.launcher import HostLink, Hosts, Say, with_resolved_addresses
from mrstream.cluster.hosts.rolling import NotReplaced, Rolling
from mrstream.cluster.hosts.session import HostRefused, advice_on_keys
from mrstream.cluster.hosts.software import Software
from mrstream.cluster.leader.forming import form_group
from mrstream.cluster.units import binary_size
from mrstream.cluster.version import version

PROBE_OFFSET = 9
"""The port, from the base on, with which hosts try whether they reach each other."""
FREE_BYTES_MIN = 64 * 1024 * 1024
FREE_BYTES_LOW = 1024 * 1024 * 1024
BALLAST_BYTES = 64 * 1024 * 1024
"""What hosts keep on the disk of `dir`, to be given up when it is full."""
COPIES = "log-copies"
CLOCK_SKEW_S_MAX = 5.0
REACH_S_MAX = 3.0
HEALTHY_S_MAX = 60.0
_ASK_EVERY_S = (0.02, 0.02, 0.05, 0.05, 0.1)


class UpFailed(UserError):
    """The cluster could not be brought up; what had been started is stopped again."""


class WaitsForMaster(HostRefused):
    """A host whose only fault is that its master did not come up."""


class Up:
    def __init__(
        self,
        config: ClusterConfig,
        say: Say,
        only: list[str] | None = None,
        *,
        new_secret: bool = False,
        without: Sequence[str] = (),
        at_boot: bool | None = None,
    ) -> None:
        """With `new_secret` the cluster, which must be down, gets another one: who knew the old one
        is shut out. `without`: hosts that are lost, and have no group of masters, by a person's
        word. `at_boot`: whether the hosts start everything when they do; None: as before."""
        if at_boot and not config.guard:
            raise UserError("--at-boot starts the guards, which `guard: false` does without")
        self._at_boot = at_boot
        self._new_secret = new_secret
        self._without = [config.host(name).name for name in without]
        self.config = with_resolved_addresses(config)
        self._say = say
        self._only = only
        self._pythons: dict[str, str] = {}
        self._software = Software(self.config, say)

    def run(self) -> dict[str, ClusterError]:
        """Bring it up; return the hosts that it is up without, and why."""
        self._forget_no_host()
        if self.config.dfs.log_replicas is not None:
            self._say(self.config.name, "dfs.log_replicas counts for nothing: `masters` rules now")
        kept = self._kept_secret()
        self.cluster = Cluster(self.config, self._secret(kept))
        with Hosts(self.config, self._only) as hosts:
            hosts.open(lock=True)
            self._master_lives(hosts)
            hosts.each(self._look)
            self._master_lives(hosts)
            self._see_each_other(hosts)
            self._master_lives(hosts)
            if self.cluster.secret != kept:
                path = state.identity_file(self.config.name)
                state.write_private(path, self.cluster.secret.to_text())
            hosts.each(self._furnish)
            self._master_lives(hosts)
            self._replace_old(hosts)
            hosts.each(self._start)
            self._master_lives(hosts)
            self._form_groups(hosts)
            hosts.each(lambda link: self._await_healthy(link, hosts))
            self._master_lives(hosts)
            self._start_gateways(hosts)
            self._master_lives(hosts)
            hosts.each(self._keep)
            self._master_lives(hosts)
            failed = dict(hosts.failed)
        self._remember()
        return failed

    # --- steps

    def _forget_no_host(self) -> None:
        """A host that the cluster has and the file lacks would run on unseen, with its data."""
        name = self.config.name
        kept = state.cluster_file(name)
        if not os.path.exists(kept):
            return
        named = {host.name: host for host in self.config.hosts}
        has = load(kept).hosts
        lacking = [host.name for host in has if host.name not in named]
        if lacking:
            raise UserError(
                f"{self.config.path} lacks {', '.join(lacking)}, which cluster {name} has: "
                f"`mrstream cluster remove {lacking[0]}` copies what is there elsewhere first "
                "(--lost: the host is gone for good); if this is another cluster, name it otherwise"
            )
        for host in has:
            if named[host.name].dir != host.dir:
                raise UserError(
                    f"{self.config.path} puts {host.name} into {named[host.name].dir}, but cluster "
                    f"{name} has it in {host.dir}: write that again, or `mrstream cluster remove "
                    f"{host.name}` and add it anew; if this is another cluster, name it otherwise"
                )

    def _kept_secret(self) -> state.Secret | None:
        path = state.identity_file(self.config.name)
        return state.read_identity(path) if os.path.exists(path) else None

    def _secret(self, kept: state.Secret | None) -> state.Secret:
        """The cluster's identity is made once, by the first `up`; it is written down when the hosts
        were found good, just before they get it."""
        secret = kept or state.Secret.new()
        if self._new_secret and kept is not None:
            # The doors' keys stay: they are for others, and have a life of their own.
            secret = replace(state.Secret.new(), cluster_id=kept.cluster_id, door=kept.door)
        if self.config.gateway is not None:
            from mrstream.cluster.config.doors import with_door_keys

            secret = with_door_keys(secret, self.config)
        if not self.config.tls:
            return secret
        from mrstream.cluster.config.tls import with_tls_keys

        return with_tls_keys(secret)

    def _can_be_led(self, hosts: Hosts) -> bool:
        """Is a majority there of the hosts that may lead? Of one, that one."""
        voters = self.config.voters_of(DFS_MASTER)
        return 2 * sum(name not in hosts.failed for name in voters) > len(voters)

    def _master_lives(self, hosts: Hosts) -> None:
        """Stop here if the cluster cannot come up at all."""
        if self._can_be_led(hosts) and hosts.good:
            return
        voters = self.config.voters_of(DFS_MASTER)
        lost = [name for name in voters if name in hosts.failed]
        lines = [] if lost else ["no host could be used:"]
        if len(voters) > 1 and lost:
            needed = len(voters) // 2 + 1
            lines.append(
                f"{len(voters) - len(lost)} of {len(voters)} masters can be used, and {needed} must"
            )
        order = [*voters, *(host.name for host in self.config.hosts)]
        failed = sorted(hosts.failed.items(), key=lambda each: order.index(each[0]))
        for name, error in failed:
            if isinstance(error, WaitsForMaster):
                continue  # the master's own line says why
            who = name
            if name in voters:
                who += " (a master)" if len(voters) > 1 else " (the master)"
            lines.append(f"{who}: {error}")
        raise UpFailed("\n".join([*lines, *advice_on_keys(error for _, error in failed)]))

    def _look(self, link: HostLink) -> None:
        """Check a host before anything is changed on it."""
        facts, host = link.facts, link.host
        if self._new_secret and facts["running"]:
            raise HostRefused(
                f"{', '.join(facts['running'])} runs, with the old secret: `mrstream cluster down` "
                "first"
            )
        text = link.call("read", path=f"{link.directory}/identity.json")["text"]
        if text is not None:
            there = state.Secret.from_text(text, f"{link.directory}/identity.json")
            if there.cluster_id != self.cluster.secret.cluster_id:
                raise HostRefused(
                    f"{link.directory} belongs to another cluster named {self.config.name}: choose "
                    "another name or dir, or `mrstream cluster join` that cluster"
                )
        if text is not None:
            self._make_room(link)
        old = link.call("read", path=f"{link.directory}/cluster.yaml")["text"]
        if facts["running"] and old not in (None, write_config(self.config)):
            self._say(host.name, "cluster.yaml has changed: what runs uses it after a restart")
        roles = [r for r in self.config.roles_of(host.name) if r not in facts["running"]]
        disks = [link.directory, *host.disks]
        ports = self.config.ports_of(roles)
        found = link.call("check", address=host.address, ports=ports, disks=disks)
        for port, reason in found["busy"].items():
            raise HostRefused(_busy(host.address, port, reason))
        for path, free in found["free"].items():
            if free >= FREE_BYTES_MIN:
                continue
            if text is None:
                raise HostRefused(
                    f"{path} has {binary_size(free)} free; at least {binary_size(FREE_BYTES_MIN)} "
                    "are needed"
                )
            # What is stored there can still be read, and deleted to make room.
            words = f"{path} is full ({binary_size(free)} free): it is up for reading and deleting"
            self._say(host.name, f"WARNING: {words}; delete files, then run `up` again")
        low = [f for f in found["free"].values() if f < FREE_BYTES_LOW]
        skew_s = abs(facts["wall_s"] - time.time())
        self._say(
            host.name,
            f"{facts['user']}@{facts['hostname']}, Python {facts['version']}, {facts['cores']} "
            f"cores, {binary_size(min(found['free'].values()))} free"
            + (" (LOW)" if low else "")
            + ("" if roles else ", runs already")
            + (f", CLOCK is {skew_s:.0f} s off" if skew_s > CLOCK_SKEW_S_MAX else ""),
        )

    def _make_room(self, link: HostLink) -> None:
        """On a full disk, give up what is kept there for that: daemons must write a little, and
        the master a record for each file that is deleted."""
        given = link.call("give_up_ballast", directory=link.directory, free_bytes=FREE_BYTES_MIN)
        if given["bytes"]:
            self._say(
                link.name,
                f"{link.directory} is full: {binary_size(given['bytes'])} of ballast are given up",
            )

    def _see_each_other(self, hosts: Hosts) -> None:
        """See that every host reaches the master, and the master every host, where given."""
        links = [link for link in hosts.good if not _all_running(link, self.config)]
        if len(hosts.good) < 2 or not links or all(link.is_local for link in hosts.good):
            return
        port = self.config.base_port + PROBE_OFFSET
        hosts.each(lambda link: link.call("listen", address=link.host.address, port=port))
        targets = {link.name: [link.host.address, port] for link in hosts.good}
        found = hosts.each(
            lambda link: link.call(
                "reach",
                targets={name: at for name, at in targets.items() if name != link.name},
                limit_s=REACH_S_MAX,
            )
        )
        hosts.each(lambda link: link.call("unlisten"))
        for name, answer in found.items():
            for other, reason in answer["failed"].items():
                text = f"{name} cannot reach {other} at {targets[other][0]} ({reason})"
                if self.config.master in (name, other):
                    culprit = other if name == self.config.master else name
                    text += ": is the address right, and does a firewall let the ports through?"
                    hosts.fail(culprit, HostUnreachable(text))
                else:
                    self._say(name, f"WARNING: {text}")

    def _furnish(self, link: HostLink) -> None:
        """Put software, cluster file and identity there."""
        self._pythons[link.name] = self._software.install(link)
        python = self._pythons[link.name]
        wanted = self.config.extras_of(link.name)
        roles = self.config.roles_of(link.name)
        programs = [*roles, GUARD] if self.config.guard else roles
        names = [*map(module_of, programs), *extras.modules_of(wanted)]
        found = link.call("modules", python=python, names=names)
        lacking = [role for role in programs if module_of(role) not in found["found"]]
        if lacking:
            raise HostRefused(f"the mrstream of {python} ({found['version']}) has no {lacking[0]}")
        gaps = extras.lacking(wanted, found["found"])
        if gaps:
            raise HostRefused(extras.lacking_there(gaps, python))
        if found["version"] != version():
            words = f"the mrstream of {python} is {found['version']}, this one is {version()}"
            self._say(link.name, f"WARNING: {words}: install one version everywhere")
        files = {
            "cluster.yaml": write_config(self.config),
            "identity.json": self.cluster.secret.to_text(),
        }
        # Never up before, so that nothing is anywhere: the master need not ask every host for its
        # log, and comes up though some are down. Once it was up, a missing log is a loss.
        voters = self.config.voters_of(DFS_MASTER)
        first = next((name for name in voters if name not in self._without), "")
        if link.name == first and not os.path.exists(state.cluster_file(self.config.name)):
            for role in self.config.dfs_masters:
                files[f"{role}/{state.NEW_MARK}"] = ""
        for name, text in files.items():
            path = f"{link.directory}/{name}"
            if link.call("read", path=path)["text"] != text:  # a full disk takes no new file
                link.call("put", path=path, mode=0o600, payload=text.encode())
        if not link.is_local:
            link.call(
                "keep_ballast",
                directory=link.directory,
                size_bytes=BALLAST_BYTES,
                room_bytes=FREE_BYTES_LOW,
            )

    def _inner_roles(self, name: str) -> list[str]:
        return [role for role in self.config.roles_of(name) if role != GATEWAY]

    def _keep(self, link: HostLink) -> None:
        """Leave what runs there to itself, and to its guard."""
        if COPIES in link.call("names", path=link.directory)["names"]:
            # Of a version before there were groups: whoever keeps the log now has all of it.
            link.call("discard", path=f"{link.directory}/{COPIES}")
        plan = guard_plan(self.config, link, self._pythons[link.name], self._environment(link))
        said = link.call("keep", guard=plan, at_boot=self._at_boot)["said"]
        if said:
            self._say(link.name, f"WARNING: at boot: {said}")

    def _environment(self, link: HostLink) -> dict[str, str]:
        """What daemons there have in their environment besides that of the login."""
        wheel = self._software.wheel(link)
        environment = {"MRSTREAM_BUILD": wheel.digest if wheel is not None else ""}
        path = os.environ.get("PYTHONPATH")
        if link.is_local and path:
            environment["PYTHONPATH"] = path
        return environment

    def _start_gateways(self, hosts: Hosts) -> None:
        """Start gateways last, one after the other: one that has to be replaced is back before the
        next one goes, so that a balancer always has one to ask."""
        for link in hosts.good:
            if GATEWAY not in self.config.roles_of(link.name):
                continue
            try:
                self._start_roles(link, [GATEWAY])
                self._await_role(link, GATEWAY, hosts)
            except ClusterError as error:
                hosts.fail(link.name, error)

    def _start(self, link: HostLink) -> None:
        self._start_roles(link, self._inner_roles(link.name))

    def _start_roles(self, link: HostLink, roles: list[str]) -> None:
        """Start what does not run, and what has to be replaced and was not yet."""
        for role in unmounted(link, roles):
            link.call("stop", roles=[role], grace_s=10.0)
            self._say(
                link.name,
                f"{role} is stopped: cluster.yaml names no such cell; what it holds is kept",
            )
        for role in roles:
            if self._outdated(link, role):
                self._replace(link, role)
            else:
                self._start_one(link, role)

    def _replace_old(self, hosts: Hosts) -> None:
        """Replace what runs another version, without an outage where that is possible."""
        try:
            Rolling(
                self.cluster, hosts, self._say, self._outdated, self._replace, self._see_one
            ).run()
        except NotReplaced as error:
            raise UpFailed(str(error)) from None

    def _outdated(self, link: HostLink, role: str) -> str:
        """Say why what runs there has to be replaced: it is another build of the software, or has
        other extras or masters, and reads only at its start which ones there are."""
        running = link.facts["running"].get(role)
        if running is None:
            return ""
        build = self._environment(link)["MRSTREAM_BUILD"]
        if build and running.get("build") not in ("", build):
            return "ran another build"
        if running.get("extras", []) != list(self.config.extras_of(link.name)):
            return "ran with other extras"
        masters = running.get("masters", [self.config.master])
        if masters != list(self.config.masters_known_to(role)):
            return f"ran with the masters {', '.join(masters)}"
        if running.get("mounts", {}) != self.config.mounts_known_to(role):
            return "ran with other cells"
        return ""

    def _replace(self, link: HostLink, role: str) -> None:
        why = self._outdated(link, role)
        link.call("stop", roles=[role], grace_s=10.0)
        self._say(link.name, f"{role} {why}; it is started anew")
        link.facts["running"].pop(role, None)
        self._start_one(link, role)

    def _start_one(self, link: HostLink, role: str) -> None:
        python, environment = self._pythons[link.name], self._environment(link)
        link.call("start", role=role, python=python, environment=environment)

    def _form_groups(self, hosts: Hosts) -> None:
        """Found the groups of masters that are to have one, and bring members in."""
        for role in self.config.master_roles:
            names = [link for link in hosts.good if role in self.config.roles_of(link.name)]
            if not names:
                continue

            def check(role: str = role, links: list[HostLink] = names) -> None:
                for link in links:
                    self._see_alive(link, role)

            try:
                form_group(self.cluster, role, self._say, self._without, tuple(hosts.failed), check)
            except ClusterError as error:
                raise UpFailed(f"{role}: {error}") from None

    def _await_healthy(self, link: HostLink, hosts: Hosts) -> None:
        for role in self._inner_roles(link.name):
            self._await_role(link, role, hosts)

    def _await_role(self, link: HostLink, role: str, hosts: Hosts) -> None:
        deadline_s = time.monotonic() + HEALTHY_S_MAX
        turn = 0
        while True:
            found = ask(self.cluster, link.name, role)
            if found.state == UP and found.health is not None and found.health.ready:
                if role not in link.facts["running"]:
                    self._say(link.name, f"{role} is up (pid {found.health.pid})")
                return
            self._see_alive(link, role)
            if not self._can_be_led(hosts):
                raise WaitsForMaster(f"{role} waits for the master, which did not come up")
            if time.monotonic() > deadline_s:
                words = found.health.detail if found.health is not None else found.reason
                raise HostRefused(
                    f"{role} runs but is not healthy after {HEALTHY_S_MAX:.0f} s: {words}"
                )
            time.sleep(_ASK_EVERY_S[min(turn, len(_ASK_EVERY_S) - 1)])
            turn += 1

    def _see_alive(self, link: HostLink, role: str) -> None:
        """Raise what a role said when it ended, or one that was up before it: a master may find out
        that it must not serve when chunkservers report."""
        roles = self.config.roles_of(link.name)
        for started in roles[: roles.index(role) + 1]:
            self._see_one(link, started)

    def _see_one(self, link: HostLink, role: str) -> None:
        alive = link.call("alive", role=role)
        if not alive["alive"]:
            raise HostRefused(f"{role} ended right after its start: {alive['said'] or '?'}")

    def _remember(self) -> None:
        """Keep the cluster file, and make this the current cluster."""
        state.write_private(state.cluster_file(self.config.name), write_config(self.config))
        state.make_current(self.config.name)
        self.config = replace(self.config, path=state.cluster_file(self.config.name))


def _all_running(link: HostLink, config: ClusterConfig) -> bool:
    return all(role in link.facts["running"] for role in config.roles_of(link.name))


def _busy(address: str, port: str, reason: str) -> str:
    if "assign" in reason:
        return (
            f"{address} is not an address of this host: give the one that other hosts reach it by"
        )
    return (
        f"port {port} at {address} is taken ({reason}): another program or cluster uses it; choose "
        "another ports.base"
    )
