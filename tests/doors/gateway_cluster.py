"""A local cluster with gateways, keys to them, and clients that use them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from mrstream.cluster.config.config import GATEWAY, GATEWAY_HTTP
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster

ROLES = (MASTER, CHUNKSERVER, GATEWAY)


class _From(HTTPAdapter):
    """Connects from one address."""

    def __init__(self, source: str) -> None:
        self._source = source
        super().__init__()

    def init_poolmanager(self, *args: Any, **named: Any) -> None:
        super().init_poolmanager(*args, source_address=(self._source, 0), **named)


@dataclass(frozen=True)
class Secret:
    """A key as `mrstream key add` prints it."""

    id: str
    secret: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.id, self.secret


class GatewayCluster(LocalCluster):
    """Two hosts, each with a gateway."""

    def __init__(
        self,
        directory: Path,
        gateway: str = "{hosts: [h1, h2]}",
        roles: Sequence[str] = ROLES,
        **options: Any,
    ) -> None:
        super().__init__(directory, 2, roles=roles, gateway=gateway, **options)
        assert self.secret.door is not None
        self.authority = str(directory / "ca.pem")
        Path(self.authority).write_text(self.secret.door.authority)

    def port(self) -> int:
        """Where gateways listen."""
        return self.config.port(GATEWAY_HTTP)

    def url(self, path: str = "/", host: str = "h1") -> str:
        """A URL of WebHDFS, without the query."""
        return f"{self.base(host)}/webhdfs/v1{path}"

    def base(self, host: str = "h1") -> str:
        """Where a gateway is."""
        return f"https://{self.config.host(host).address}:{self.port()}"

    def key(self, name: str, *words: str) -> Secret:
        """Make a key by the command line."""
        done = self.mrstream("key", "add", name, *words)
        assert done.returncode == 0, done.stderr
        lines = dict(line.split() for line in done.stdout.decode().splitlines())
        return Secret(lines["id"], lines["secret"])

    def session(self, key: Secret | None, source: str = "") -> requests.Session:
        """A client that has a key and knows the authority, and may come from another address."""
        made = requests.Session()
        if source:
            made.mount("https://", _From(source))
        made.trust_env = False
        made.verify = self.authority
        if key is not None:
            made.auth = key.pair
        return made

    def curl(
        self, key: Secret, *words: str, data: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run curl with a key."""
        return subprocess.run(
            ["curl", "-q", "-sS", "--noproxy", "*", "--cacert", self.authority,
             "-u", f"{key.id}:{key.secret}", "--max-time", "30", *words],
            input=data, capture_output=True, check=False,
        )  # fmt: skip
