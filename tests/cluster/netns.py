"""Test hosts as network namespaces: own network, mounts, host name and pids; sshd is pid 1.

They are joined by a bridge in a namespace of its own, reached by one link from this machine. An
`unreachable` route guards the subnet: a packet to a host that is gone never leaves the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from tests.cluster.machine import DISK_BYTES, Site, TestHosts, run, sshd_config, wait_for

CGROUPS = Path("/sys/fs/cgroup")


class NetnsHosts(TestHosts):
    """`count` hosts h1 … hn at 10.88.SITE.11 and on."""

    def __init__(self, count: int, disk_bytes: int = DISK_BYTES, sshd_extra: str = "") -> None:
        self.site = Site("netns")
        self._tag = f"mrs{self.site.number}"
        self._net = f"10.88.{self.site.number}"
        self._switch = f"{self._tag}sw"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._rules: list[list[str]] = []
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self._sweep()
        try:
            self._make_switch()
            for index, name in enumerate(self.names, 1):
                self._make_host(name, index, disk_bytes, sshd_extra)
            for name in self.names:
                self._boot(name)
            for name in self.names:
                self.wait_for_sshd(name)
        except BaseException:
            self.close()
            raise

    # --- what a host is

    def address(self, host: str) -> str:
        return f"{self._net}.{10 + self._index(host)}"

    def disk(self, host: str) -> Path:
        return self.site.directory / f"{host}.disk"

    def host_key(self, host: str) -> str:
        words = (self.site.directory / f"{host}.hostkey.pub").read_text().split()
        return " ".join(words[:2])

    def run(self, host: str, *argv: str, check: bool = True) -> str:
        inner = self._inner_pid(host)
        return run("nsenter", "-t", str(inner), "-m", "-u", "-n", "-p", *argv, check=check)

    def enter(self, host: str) -> list[str]:
        """Return the words that run a command in the host's network (and only that)."""
        return ["ip", "netns", "exec", self._ns(host)]

    # --- faults

    def kill(self, host: str) -> None:
        process = self._processes.pop(host)
        # First the cable, so that nobody hears of the death of its connections.
        self._link(host, "down")
        self._thaw(host)
        process.kill()
        process.wait()
        wait_for(lambda: not self._members(host), f"the end of every process of {host}", 60)

    def start(self, host: str) -> None:
        self._link(host, "up")
        self._boot(host)
        self.wait_for_sshd(host)

    def pause(self, host: str) -> None:
        self._group("freezer", host, "freezer.state").write_text("FROZEN")
        wait_for(
            lambda: self._group("freezer", host, "freezer.state").read_text().strip() == "FROZEN",
            f"{host} to freeze",
        )

    def resume(self, host: str) -> None:
        self._thaw(host)

    def cut(self, host: str, other: str | None = None) -> None:
        if other is None:
            self._link(host, "down")
            return
        self.deafen(host, other)
        self.deafen(other, host)

    def deafen(self, host: str, other: str) -> None:
        source, target = self.address(other), self.address(host)
        self._in_switch("iptables", "-I", "FORWARD", "-s", source, "-d", target, "-j", "DROP")

    def lose(self, host: str, share: float) -> None:
        """Lose this share of all packets to and from a host, by chance."""
        for side in ("-s", "-d"):
            chance = ["-m", "statistic", "--mode", "random", "--probability", str(share)]
            rule = [side, self.address(host), *chance, "-j", "DROP"]
            self._in_switch("iptables", "-I", "FORWARD", *rule)

    def heal(self) -> None:
        self._in_switch("iptables", "-F", "FORWARD")
        for name in self._processes:
            self._link(name, "up")

    def slow(self, host: str, share: float) -> None:
        self._group("cpu", host, "cpu.cfs_quota_us").write_text(str(int(share * 100_000)))

    def shape(self, host: str, rate: str) -> None:
        shaping = ["root", "tbf", "rate", rate, "burst", "128kbit", "latency", "400ms"]
        self._in_switch("tc", "qdisc", "replace", "dev", self._port(host), *shaping)
        run(
            "ip", "netns", "exec", self._ns(host), "tc", "qdisc", "replace", "dev", "eth0", *shaping
        )

    # --- making and unmaking

    def close(self) -> None:
        for name in list(self._processes):
            self._thaw(name)
            process = self._processes.pop(name)
            process.kill()
            process.wait()
        try:
            self._sweep()
        finally:
            self.site.close()

    def _sweep(self) -> None:
        """Remove whatever has this site's names, be it ours or a killed run's."""
        names = [n.split()[0] for n in run("ip", "netns", "list").splitlines() if n.strip()]
        for name in names:
            if not name.startswith(self._tag + "h") and name != self._switch:
                continue
            for pid in run("ip", "netns", "pids", name, check=False).split():
                with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", name)
        run("ip", "link", "del", f"{self._tag}up", check=False)
        run("ip", "route", "del", "unreachable", f"{self._net}.0/24", check=False)
        for kind in ("freezer", "cpu"):
            for group in sorted((CGROUPS / kind).glob(f"{self._tag}-*")):
                wait_for(lambda group=group: _remove_group(group), f"removing {group}", 60)

    def _make_switch(self) -> None:
        run("ip", "route", "replace", "unreachable", f"{self._net}.0/24", "metric", "9999")
        run("ip", "netns", "add", self._switch)
        lines = [
            "link add br0 type bridge",
            "link set br0 up",
            "link set lo up",
        ]
        self._batch(self._switch, lines)
        run("ip", "link", "add", f"{self._tag}up", "type", "veth", "peer", "name", "uplink",
            "netns", self._switch)  # fmt: skip
        self._batch(self._switch, ["link set uplink master br0 up"])
        run("ip", "addr", "add", f"{self._net}.1/24", "dev", f"{self._tag}up")
        run("ip", "link", "set", f"{self._tag}up", "up")

    def _make_host(self, host: str, index: int, disk_bytes: int, sshd_extra: str) -> None:
        namespace = self._ns(host)
        run("ip", "netns", "add", namespace)
        add = f"link add {self._port(host)} type veth peer name eth0 netns {namespace}"
        self._batch(self._switch, [add, f"link set {self._port(host)} master br0 up"])
        self._batch(
            namespace,
            [f"addr add {self.address(host)}/24 dev eth0", "link set eth0 up", "link set lo up"],
        )
        self.site.make_disk(host, disk_bytes)
        key = self.site.directory / f"{host}.hostkey"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host, "-f", key)
        config = sshd_config(str(key), f"{self.site.key}.pub", sshd_extra)
        (self.site.directory / f"{host}.sshd").write_text(config)
        for kind in ("freezer", "cpu"):
            self._group(kind, host).mkdir(exist_ok=True)

    def _boot(self, host: str) -> None:
        joins = " ".join(
            f"echo 0 > {self._group(kind, host, 'cgroup.procs')};" for kind in ("freezer", "cpu")
        )
        inside = (
            f"hostname {host}; mount --bind {self.disk(host)} /srv; "
            "mount -t tmpfs tmpfs /run; mkdir /run/sshd; "
            f"exec /usr/sbin/sshd -D -E {self.site.directory}/{host}.log "
            f"-f {self.site.directory}/{host}.sshd"
        )
        script = (
            f"{joins} exec ip netns exec {self._ns(host)} unshare --mount --uts --pid --fork "
            f'--kill-child --mount-proc bash -c "{inside}"'
        )
        with open(self.site.directory / f"{host}.out", "ab") as out:
            self._processes[host] = subprocess.Popen(
                ["sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.environ["PATH"], "HOME": "/root"},
            )

    # --- names

    def _index(self, host: str) -> int:
        return self.names.index(host) + 1

    def _ns(self, host: str) -> str:
        return f"{self._tag}{host}"

    def _port(self, host: str) -> str:
        return f"p{self._index(host)}"

    def _group(self, kind: str, host: str, file: str = "") -> Path:
        return CGROUPS / kind / f"{self._tag}-{host}" / file

    def _members(self, host: str) -> list[str]:
        return self._group("freezer", host, "cgroup.procs").read_text().split()

    def _inner_pid(self, host: str) -> int:
        """Return the pid (as this machine counts) of the host's pid 1."""
        outer = self._processes[host].pid
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(children[0])

    def _thaw(self, host: str) -> None:
        state = self._group("freezer", host, "freezer.state")
        state.write_text("THAWED")

    def _link(self, host: str, state: str) -> None:
        self._batch(self._switch, [f"link set {self._port(host)} {state}"])

    def _in_switch(self, *argv: str) -> None:
        run("ip", "netns", "exec", self._switch, *argv)

    def _batch(self, namespace: str, lines: list[str]) -> None:
        run("ip", "-n", namespace, "-batch", "-", input="\n".join(lines).encode() + b"\n")


def _remove_group(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True
