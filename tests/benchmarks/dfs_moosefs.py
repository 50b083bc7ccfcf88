"""MooseFS (Debian's moosefs-master, -chunkserver and -client) beside us: one server, one replica.

It does not talk over a loopback address, so it gets a network of its own. Its chunkserver is told
to fsync a chunk before closing it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NETWORK = "mrstream-mfs"
ADDRESS = "10.77.0.1"
PROGRAMS = ("mfsmaster", "mfschunkserver", "mfsmount", "mfssetgoal", "ip", "nsenter")
READY_S_MAX = 60.0
MASTER_CONFIG = """
WORKING_USER = root
WORKING_GROUP = root
LOCK_MEMORY = 0
DATA_PATH = {place}/meta
EXPORTS_FILENAME = {place}/exports.cfg
TOPOLOGY_FILENAME = {place}/topology.cfg
MATOML_LISTEN_HOST = {address}
MATOCS_LISTEN_HOST = {address}
MATOCL_LISTEN_HOST = {address}
"""
CHUNKSERVER_CONFIG = """
WORKING_USER = root
WORKING_GROUP = root
LOCK_MEMORY = 0
DATA_PATH = {place}/run
HDD_CONF_FILENAME = {place}/hdd.cfg
HDD_LEAVE_SPACE_DEFAULT = 256MiB
HDD_FSYNC_BEFORE_CLOSE = 1
MASTER_HOST = {address}
CSSERV_LISTEN_HOST = {address}
"""


class MooseFs:
    """A running MooseFS, mounted at `mount`."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.mount = place / "mount"
        for name in ("meta", "run", "chunks", "mount"):
            (place / name).mkdir()
        for name, text in (
            ("master.cfg", MASTER_CONFIG),
            ("chunkserver.cfg", CHUNKSERVER_CONFIG),
            ("exports.cfg", "* / rw,alldirs,admin,maproot=0:0\n"),
            ("topology.cfg", ""),
            ("hdd.cfg", "{place}/chunks\n"),
            ("meta/metadata.mfs", "MFSM NEW"),
        ):
            (place / name).write_text(text.format(place=place, address=ADDRESS))

    def start(self) -> None:
        """Begin to serve, and wait until there is room for bytes."""
        _run("ip", "netns", "add", NETWORK)
        self._within("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        self._within("ip", "addr", "add", f"{ADDRESS}/24", "dev", "v0")
        for device in ("lo", "v0", "v1"):
            self._within("ip", "link", "set", device, "up")
        self._within("mfsmaster", "-c", f"{self._place}/master.cfg", "start")
        self._within("mfschunkserver", "-c", f"{self._place}/chunkserver.cfg", "start")
        self._mount()
        self._within("mfssetgoal", "1", str(self.mount))

    def forget(self) -> None:
        """Mount anew: what the client had read before is not in its cache any more."""
        _run("umount", str(self.mount))
        self._mount()

    def close(self) -> None:
        """End everything that `start` began, however far it came."""
        _run("umount", str(self.mount), check=False)
        self._within("mfschunkserver", "-c", f"{self._place}/chunkserver.cfg", "stop", check=False)
        self._within("mfsmaster", "-c", f"{self._place}/master.cfg", "stop", check=False)
        _run("ip", "netns", "del", NETWORK, check=False)

    def _mount(self) -> None:
        self._within("mfsmount", str(self.mount), "-H", ADDRESS)
        until_s = time.monotonic() + READY_S_MAX
        while os.statvfs(self.mount).f_bavail == 0:
            if time.monotonic() > until_s:
                raise OSError(f"MooseFS has no room after {READY_S_MAX:g} s")
            time.sleep(0.1)

    def _within(self, *words: str, check: bool = True) -> None:
        _run("nsenter", f"--net=/var/run/netns/{NETWORK}", *words, check=check)


@contextmanager
def moosefs(place: Path) -> Iterator[MooseFs | str]:
    """Give a running MooseFS, or the reason why there is none."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        yield f"{', '.join(missing)} not installed"
        return
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        yield "it needs root and /dev/fuse"
        return
    home = place / "moosefs"
    home.mkdir()
    found = MooseFs(home)
    try:
        reason = _tried(found)
        yield reason or found
    finally:
        found.close()
        shutil.rmtree(home)


def _tried(found: MooseFs) -> str:
    try:
        found.start()
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "output", None) or b""
        return f"{error} {said.decode('utf-8', 'replace')}".strip()
    return ""


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=check,
    )  # fmt: skip
