"""rclone against a gateway's S3 port: `make interop`. Debian's, installed if it is not here.

What it does with an object store is done once, and what is there afterwards is compared. `--record`
writes down what was said, for test_recorded.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.doors.gateway_cluster import GatewayCluster
from tests.doors.s3_clients import endpoint, recorded


def main() -> int:
    """Run it; an assertion says what differs."""
    if shutil.which("rclone") is None:
        words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "rclone"]
        subprocess.run(words, check=True)
    with tempfile.TemporaryDirectory() as name:
        if "--record" in sys.argv:
            with recorded(Path(name), "rclone") as (doors, url):
                journey(Rclone(doors, Path(name), url), Path(name))
        else:
            with GatewayCluster(Path(name)) as doors:
                journey(Rclone(doors, Path(name), endpoint(doors)), Path(name))
    print("rclone: all as expected")
    return 0


class Rclone:
    """The command, with a remote `lab:`."""

    def __init__(self, doors: GatewayCluster, directory: Path, url: str) -> None:
        key = doors.key("rclone")
        ours = ("AWS_", "RCLONE_")
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ours) and "proxy" not in name.lower()
        }
        self._environment = {
            **plain,
            "RCLONE_CONFIG": str(directory / "rclone.conf"),
            "RCLONE_CONFIG_LAB_TYPE": "s3",
            "RCLONE_CONFIG_LAB_PROVIDER": "Other",
            "RCLONE_CONFIG_LAB_ENDPOINT": url,
            "RCLONE_CONFIG_LAB_ACCESS_KEY_ID": key.id,
            "RCLONE_CONFIG_LAB_SECRET_ACCESS_KEY": key.secret,
            "RCLONE_CA_CERT": doors.authority,
        }

    def __call__(self, *words: str, data: bytes = b"") -> tuple[str, str]:
        done = subprocess.run(
            ["rclone", "-v", *words], env=self._environment, input=data, capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"rclone {words}: {done.stderr.decode()}"
        return done.stdout.decode(), done.stderr.decode()


def journey(rclone: Rclone, directory: Path) -> None:
    """Store, store again, compare, copy, move, pipe, fetch, and take all away."""
    source = directory / "source"
    (source / "sub").mkdir(parents=True)
    for name, data in {"a": b"a" * 1000, "sub/ü +": b"b" * 5000, "empty": b""}.items():
        (source / name).write_bytes(data)
    (source / "big").write_bytes(os.urandom(13 << 20))
    rclone("mkdir", "lab:data")
    rclone("sync", "--s3-upload-cutoff", "5M", str(source), "lab:data/t")
    _, said = rclone("sync", str(source), "lab:data/t")
    assert "nothing to transfer" in said, "the second moves nothing"
    rclone("check", "--download", str(source), "lab:data/t")
    _, said = rclone("copyto", "lab:data/t/big", "lab:data/copy")
    assert "server-side copy" in said
    rclone("moveto", "lab:data/t/a", "lab:data/t/moved")
    rclone("rcat", "lab:data/piped", data=b"x" * 6_000_000)
    assert rclone("cat", "--offset", "5999990", "lab:data/piped")[0] == "x" * 10
    names = sorted(rclone("lsf", "-R", "--files-only", "lab:data")[0].splitlines())
    assert names == ["copy", "piped", "t/big", "t/empty", "t/moved", "t/sub/ü +"], names
    rclone("sync", "lab:data/t", str(directory / "back"))
    assert (directory / "back" / "big").read_bytes() == (source / "big").read_bytes()
    rclone("purge", "lab:data")
    assert rclone("lsd", "lab:")[0] == ""


if __name__ == "__main__":
    sys.exit(main())
