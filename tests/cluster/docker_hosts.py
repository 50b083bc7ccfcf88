"""Test hosts as docker containers, through the docker SDK and an engine of our own.

The engine has its own fresh root directory and touches neither iptables nor routing of the machine;
the image (half a megabyte) is a tree of links into this machine's /usr, which the containers mount
read-only together with Python and the virtual environment. Nothing is pulled, and the network is
internal: no packet leaves the machine.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import docker
from docker.models.containers import Container
from docker.models.networks import Network

from tests.cluster.machine import DISK_BYTES, ROOT, Site, TestHosts, run, sshd_config, wait_for

IMAGE = "mrstream-host"
ETC = (
    "passwd",
    "group",
    "nsswitch.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
)


class Engine:
    """A docker engine for one test run, contained."""

    def __init__(self) -> None:
        self.site = Site("docker")
        base = self.site.directory
        self._socket = base / "docker.sock"
        self._subnet = f"172.30.{self.site.number}.0/24"
        self._bridge = f"mrs{self.site.number}br"
        run("ip", "link", "del", self._bridge, check=False)  # of a run that was killed
        run("ip", "route", "replace", "unreachable", self._subnet, "metric", "9999")
        contained = ["--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        contained += ["--ip-masq=false", "--userland-proxy=false", "--bridge=none"]
        places = ["--data-root", base / "data", "--exec-root", base / "exec"]
        places += ["--pidfile", base / "dockerd.pid", "-H", f"unix://{self._socket}"]
        self._process = subprocess.Popen(
            ["/usr/sbin/dockerd", *places, *contained],
            stdout=open(base / "dockerd.log", "wb"),  # noqa: SIM115 - the child's, for its life
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_for(self._answers, "the docker engine", 60)
            self.client.api.import_image_from_data(_tree(), repository=IMAGE)
        except BaseException:
            print((base / "dockerd.log").read_text()[-3000:], file=sys.stderr)
            self.close()
            raise

    def _answers(self) -> bool:
        assert self._process.poll() is None, "the docker engine ended at once"
        if not self._socket.exists():
            return False
        try:
            self.client = docker.DockerClient(base_url=f"unix://{self._socket}", timeout=60)
            return bool(self.client.ping())
        except Exception:
            return False  # not yet: it opens its socket before it is ready

    def network(self) -> Network:
        """Return a new internal network with our subnet."""
        pool = docker.types.IPAMPool(subnet=self._subnet)
        config = docker.types.IPAMConfig(pool_configs=[pool])
        name = f"mrs{self.site.number}"
        options = {"com.docker.network.bridge.name": self._bridge}
        return self.client.networks.create(
            name, driver="bridge", internal=True, ipam=config, options=options
        )

    def close(self) -> None:
        """End the engine, its shims, its mounts and its control groups."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        base = str(self.site.directory)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{base}/")), reverse=True):
            if not mount.endswith(".disk"):
                run("umount", "-l", mount, check=False)
        run("ip", "route", "del", "unreachable", self._subnet, check=False)
        self.site.close()


def _tree() -> bytes:
    """Return the image: links into /usr, a few files of /etc, and empty places to mount on."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in (
            ("usr", 0o755), ("tmp", 0o1777), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755),
            ("root", 0o700), ("run", 0o755), ("run/sshd", 0o755), ("var", 0o755),
            ("var/tmp", 0o1777), ("srv", 0o755), ("etc", 0o755), ("etc/ssh", 0o755),
        ):  # fmt: skip
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            if os.path.islink(f"/{name}"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
                tar.addfile(entry)
        for name in ETC:
            if os.path.exists(f"/etc/{name}"):
                tar.add(f"/etc/{name}", f"etc/{name}")
        shadow = b"root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n"
        entry = tarfile.TarInfo("etc/shadow")
        entry.size, entry.mode = len(shadow), 0o600
        tar.addfile(entry, io.BytesIO(shadow))
    return buffer.getvalue()


class DockerHosts(TestHosts):
    """`count` hosts h1 … hn at 172.30.SITE.11 and on."""

    def __init__(
        self, engine: Engine, count: int, disk_bytes: int = DISK_BYTES, sshd_extra: str = ""
    ) -> None:
        self.engine = engine
        self.site = engine.site
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self._containers: dict[str, Container] = {}
        self._cut: list[str] = []
        self._network = engine.network()
        self._place = self.site.directory / f"hosts-{os.urandom(4).hex()}"
        self._place.mkdir()
        try:
            for name in self.names:
                self._make(name, disk_bytes, sshd_extra)
            for name in self.names:
                self.wait_for_sshd(name)
        except BaseException:
            self.close()
            raise

    def address(self, host: str) -> str:
        return f"172.30.{self.site.number}.{11 + self.names.index(host)}"

    def disk(self, host: str) -> Path:
        return self.site.directory / f"{self._place.name}-{host}.disk"

    def host_key(self, host: str) -> str:
        return " ".join((self._place / f"{host}.hostkey.pub").read_text().split()[:2])

    def run(self, host: str, *argv: str, check: bool = True) -> str:
        status, said = self._containers[host].exec_run(list(argv))
        text = said.decode(errors="replace")
        assert not check or status == 0, f"{host}: {' '.join(argv)}: status {status}: {text}"
        return text

    # --- faults

    def kill(self, host: str) -> None:
        self._containers[host].kill()
        self._containers[host].wait()

    def start(self, host: str) -> None:
        self._containers[host].start()
        self.wait_for_sshd(host)

    def pause(self, host: str) -> None:
        self._containers[host].pause()

    def resume(self, host: str) -> None:
        self._containers[host].unpause()

    def cut(self, host: str, other: str | None = None) -> None:
        if other is None:
            self._network.disconnect(self._containers[host])
            self._cut.append(host)
            return
        for here, there in ((host, other), (other, host)):
            for chain, way in (("OUTPUT", "-d"), ("INPUT", "-s")):
                self.run(here, "iptables", "-I", chain, way, self.address(there), "-j", "DROP")

    def heal(self) -> None:
        for host in self._cut:
            self._network.connect(self._containers[host], ipv4_address=self.address(host))
        self._cut = []
        for name, container in self._containers.items():
            container.reload()
            if container.status == "running":
                self.run(name, "iptables", "-F")

    def slow(self, host: str, share: float) -> None:
        self._containers[host].update(cpu_period=100_000, cpu_quota=int(share * 100_000))

    def shape(self, host: str, rate: str) -> None:
        shaping = ["root", "tbf", "rate", rate, "burst", "128kbit", "latency", "400ms"]
        self.run(host, "tc", "qdisc", "replace", "dev", "eth0", *shaping)
        index = self.run(host, "cat", "/sys/class/net/eth0/iflink").strip()
        for line in run("ip", "-o", "link").splitlines():
            number, name = line.split(": ")[:2]
            if number == index:
                run("tc", "qdisc", "replace", "dev", name.split("@")[0], *shaping)

    # --- making and unmaking

    def _make(self, host: str, disk_bytes: int, sshd_extra: str) -> None:
        key = self._place / f"{host}.hostkey"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host, "-f", key)
        config = self._place / f"{host}.sshd"
        config.write_text(sshd_config("/etc/ssh/hostkey", "/etc/ssh/authorized_keys", sshd_extra))
        disk = self.site.make_disk(f"{self._place.name}-{host}", disk_bytes)
        mounts = {"/usr": "/usr", str(ROOT): str(ROOT)}
        mounts |= {place: place for place in (sys.base_prefix, sys.prefix)}
        volumes = {source: {"bind": target, "mode": "ro"} for source, target in mounts.items()}
        volumes |= {
            str(key): {"bind": "/etc/ssh/hostkey", "mode": "ro"},
            str(config): {"bind": "/etc/ssh/sshd_config", "mode": "ro"},
            f"{self.site.key}.pub": {"bind": "/etc/ssh/authorized_keys", "mode": "ro"},
            str(disk): {"bind": "/srv", "mode": "rw"},
        }
        endpoint = self.engine.client.api.create_endpoint_config(ipv4_address=self.address(host))
        container = self.engine.client.containers.create(
            IMAGE,
            ["/usr/sbin/sshd", "-D", "-e"],
            hostname=host,
            volumes=volumes,
            cap_add=["NET_ADMIN", "NET_RAW"],
            detach=True,
            network=self._network.name,
            networking_config={self._network.name: endpoint},
        )
        self._containers[host] = container
        container.start()

    def close(self) -> None:
        for container in self._containers.values():
            container.remove(force=True)
        self._network.remove()
        for host in self._containers:
            self.site.remove_disk(self.disk(host))
        shutil.rmtree(self._place)
