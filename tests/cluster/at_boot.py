"""A host that was rebooted brings everything back, by Debian's own cron: `make soak`, as root.

In namespaces of processes and mounts of its own, with a spool and a /run of its own: `cluster up
--at-boot`, then every process there is killed, /run is empty as after a boot, and cron starts.
`$CRON_ROOT` is where the package was unpacked, where it is not installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
MRSTREAM = str(Path(sys.executable).with_name("mrstream"))
ROOT = os.environ.get("CRON_ROOT", "").rstrip("/")
LIMIT_S = 120.0


def main() -> int:
    if not Path(f"{ROOT}/usr/sbin/cron").exists():
        print("cron is not here: install it, or set CRON_ROOT", file=sys.stderr)
        return 1
    if "--inside" not in sys.argv:
        apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        return subprocess.run([*apart, sys.executable, str(HERE), "--inside"]).returncode
    with tempfile.TemporaryDirectory(prefix="mrs-boot-") as place:
        _play(Path(place))
    print("the host was rebooted, and all of it is up")
    return 0


def _play(place: Path) -> None:
    spool = Path("/var/spool/cron")
    spool.mkdir(exist_ok=True)
    _mount(spool)
    (spool / "crontabs").mkdir()
    os.environ.update(
        MRSTREAM_HOME=str(place / "home"), PATH=f"{ROOT}/usr/bin:{os.environ['PATH']}"
    )
    hosts = {"h1": {"address": "127.0.0.91", "dir": str(place / "h1")}}
    file = place / "cluster.yaml"
    file.write_text(json.dumps({"name": "boot", "defaults": {"via": "local"}, "hosts": hosts}))
    said = _mrstream("cluster", "up", "-f", str(file), "--at-boot")
    assert "no cron runs there" in said, said
    _boot()
    said = _mrstream("cluster", "up", "-f", str(file), "--at-boot")
    assert "at boot" not in said, said
    before = _pids(file)
    assert before, "it is up"
    (place / "kept").write_text("kept\n")
    _mrstream("dfs", "-put", str(place / "kept"), "/kept")

    _lose_power()
    _boot()

    deadline_s = time.monotonic() + LIMIT_S
    while len(after := _pids(file)) < len(before):
        assert time.monotonic() < deadline_s, f"after the boot there is only {after}"
        time.sleep(0.5)
    assert not set(before.values()) & set(after.values())
    assert _mrstream("dfs", "-cat", "/kept") == "kept\n"
    _mrstream("cluster", "down", "-f", str(file))
    listed = subprocess.run(["crontab", "-l"], capture_output=True, text=True)
    assert "mrstream" not in listed.stdout, listed.stdout


def _mount(path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(path)], check=True)


def _boot() -> None:
    """/run is empty, and cron runs what is to run at a boot."""
    _mount(Path("/run"))
    subprocess.Popen([f"{ROOT}/usr/sbin/cron", "-f"], stdin=subprocess.DEVNULL)


def _lose_power() -> None:
    """Everybody here but us; guards would start again what they see end."""
    for _ in range(3):
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            if pid not in (1, os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass


def _pids(file: Path) -> dict[str, int]:
    """Role to process of all that is up."""
    ended = subprocess.run(
        [MRSTREAM, "cluster", "status", "--json", "-f", str(file)], capture_output=True, text=True
    )
    roles = json.loads(ended.stdout)["hosts"]["h1"]["roles"]
    return {name: role["pid"] for name, role in roles.items() if role["state"] == "up"}


def _mrstream(*words: str) -> str:
    """Run a verb; give what it said."""
    ended = subprocess.run([MRSTREAM, *words], capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main())
