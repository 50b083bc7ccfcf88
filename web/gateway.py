"""The gateway: one process on a host, through which other people's programs and browsers come in.

Keeps nothing on disk but its logs, so any number of them may run, behind a balancer too (decision
21). One loop for HTTP; the blocking dfs client runs in threads. What it knows of keys it asks the
dfs master for every two seconds: a key that was revoked is refused two seconds later, and when the
master has not answered for thirty everything is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import sys
import time
from collections.abc import Mapping
from typing import Any

from mrstream.cluster.config.config import (
    CERTIFICATE_ENDS,
    GATEWAY,
    GATEWAY_HTTP,
    GATEWAY_S3,
    GatewayConfig,
)
from mrstream.cluster.config.doors import names_of
from mrstream.cluster.config.extras import require
from mrstream.cluster.daemon import Daemon, Service, run
from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.retry import RetryPolicy
from mrstream.cluster.wire.addresses import join_address
from mrstream.cluster.wire.network import Handler
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.dfs.protocol import KeysSince, KeyTable
from mrstream.web.certificates import Certificates
from mrstream.web.http.access import Access, Key, Keys
from mrstream.web.http.audit import Audit
from mrstream.web.http.budget import Budget
from mrstream.web.http.faces import Faces
from mrstream.web.http.figures import Figures
from mrstream.web.http.limits import CONNECTION_BYTES, Limits
from mrstream.web.http.reply import Reply, text_reply
from mrstream.web.http.request import Request
from mrstream.web.http.server import BARE, Outcome, Server
from mrstream.web.http.server import Handler as Face
from mrstream.web.http.streams import Files
from mrstream.web.looking import Looking
from mrstream.web.s3.door import S3
from mrstream.web.webhdfs.door import WebHdfs

log = logging.getLogger(__name__)

ROLE = GATEWAY
POLL_S = 2.0
LOOK_AGAIN_S = 0.2
STOP_S = 8.0
"""For requests under way at a stop: less than a daemon is given for all of it."""
SILENT_S_MAX = 10.0
RETRY_S = 40.0
"""For how long a request rides over a master or servers that do not answer: less than the minute
after which most clients of HTTP give up, so that they hear 503 and `Retry-After`."""
CONNECTIONS_SHARE = 4
"""A fourth of all memory is for what connections hold beside streams..."""
FORMS_SHARE = 16
"""...and a sixteenth for bodies that are no files."""
SERVICE_USER = "mrstream"
CERTIFICATE_DAYS_MIN = 14


class Gateway(Service):
    """The service of the `web.gateway` daemon."""

    def __init__(self, daemon: Daemon) -> None:
        require(["http"], "a gateway")
        config = daemon.config
        door = daemon.cluster.secret.door
        if config.gateway is None or daemon.host.name not in config.gateway.hosts:
            raise UserError(f"gateway.hosts of cluster.yaml does not name {daemon.host.name}")
        if door is None:
            raise UserError("this identity has no keys for a gateway: run `mrstream cluster up`")
        self._daemon = daemon
        self._gateway: GatewayConfig = config.gateway
        self._door = door
        self.handlers: Mapping[type[Any], Handler] = {}
        self.figures = Figures()
        self.keys = Keys()
        self._key_client = self._connect(SERVICE_USER)
        budget = Budget(self._gateway.memory_bytes)
        # What connections hold is not asked for: it is set aside for as many as there may be.
        connections_max = self._gateway.memory_bytes // CONNECTIONS_SHARE // CONNECTION_BYTES
        self._connections_max = min(self._gateway.connections, connections_max)
        budget.split_off(self._connections_max * CONNECTION_BYTES)
        self._forms = budget.split_off(self._gateway.memory_bytes // FORMS_SHARE)
        self.files = Files(self._connect, budget, self.figures)
        self.access = Access(
            door.secret,
            self.keys,
            now_s=time.monotonic,
            wall_s=time.time,
            trusted=self._gateway.trusted,
            trusted_writes=self._gateway.trusted_writes,
            behind=self._gateway.behind,
            read_only=self._gateway.read_only,
        )
        self.access.look_again = self._ask_for_keys
        self._asking = asyncio.Lock()
        self._asked_at_s = -LOOK_AGAIN_S
        self._is_answered = False
        self._looking = Looking(
            daemon.cluster, self._gateway, self.access, self.keys, door.secret, self.figures, budget
        )
        self._audit = Audit(os.path.join(daemon.directory, "logs", f"{ROLE}.audit.log"))
        self._certificates = Certificates(config, daemon.host.name, door)
        self._server = self._made_server(Faces(self._faces()))
        self._s3 = self._s3_server() if self._gateway.s3 else None
        self._polling: asyncio.Task[None] | None = None
        self._is_listening = False
        self._said = "the dfs master has not answered yet"

    def _connect(self, user: str) -> DfsClient:
        return client_of(self._daemon.cluster, user=user, retry=RetryPolicy(total_s=RETRY_S))

    def _faces(self) -> dict[str, tuple[str, Face]]:
        """What is where; the longest prefix wins."""
        faces: dict[str, tuple[str, Face]] = {"/healthz": ("health", self._healthz)}
        if self._gateway.webhdfs:
            door = WebHdfs(
                self.files, self.access, self.keys, self._door.secret, self._daemon.config.dfs
            )
            faces["/webhdfs/"] = ("webhdfs", door)
        return faces | self._looking.faces()

    def _made_server(self, handler: Face, **options: Any) -> Server:
        gateway = self._gateway
        names = [*gateway.names, *filter(None, [gateway.s3_virtual_host])]
        return Server(
            handler,
            limits=Limits(connections=self._connections_max, stop_s=STOP_S),
            forms=self._forms,
            names=names,
            behind=gateway.behind,
            is_exempt=self.access.is_trusted,
            observe=self._observe,
            **options,
        )

    def _s3_server(self) -> Server:
        """A port of its own: S3 has the whole of its URLs, and nothing of the pages' origin."""
        gateway = self._gateway
        door = S3(
            self.files,
            self.access,
            self._door.secret,
            self._daemon.config.dfs,
            gateway.s3_root,
            gateway.s3_virtual_host,
        )
        return self._made_server(
            door,
            names_above=gateway.s3_virtual_host,
            protection=BARE,
            connections=self._server.connections,
        )

    # --- life

    async def start(self) -> None:
        """Listen; whether it can serve, the health says."""
        if self._connections_max < self._gateway.connections:
            log.warning("connections=%d are let in, not %d: gateway.memory has room for no more",
                        self._connections_max, self._gateway.connections)  # fmt: skip
        tls = None
        if self._gateway.tls:
            self._certificates.refresh(time.time())
            tls = self._certificates.context
        config, host = self._daemon.config, self._daemon.host
        names = names_of(config, host.name)
        listed = [host.address, self._gateway.addresses.get(host.name, host.address)]
        addresses = list(dict.fromkeys(await self._resolved(listed)))
        await self._listen(self._server, addresses, config.port(GATEWAY_HTTP), names, tls)
        if self._s3 is not None:
            await self._listen(self._s3, addresses, config.port(GATEWAY_S3), names, tls)
        self._is_listening = True
        self._polling = asyncio.create_task(self._poll())

    async def _listen(
        self,
        server: Server,
        addresses: list[str],
        port: int,
        names: tuple[str, ...],
        tls: ssl.SSLContext | None,
    ) -> None:
        for address in addresses:
            try:
                await server.listen(address, port, names, tls)
            except OSError as error:
                raise UserError(
                    f"gateway: {join_address(address, port)} cannot be listened on: {error}"
                ) from None
            log.info("listening at %s", join_address(address, port))

    async def _resolved(self, addresses: list[str]) -> list[str]:
        """Addresses as numbers: a listener is bound to those that were meant, and to no more."""
        loop = asyncio.get_running_loop()
        found = []
        for address in addresses:
            try:
                answers = await loop.getaddrinfo(address, 0)
            except OSError as error:
                raise UserError(f"gateway: {address} is no address: {error}") from None
            found.append(str(answers[0][4][0]))
        return found

    async def stop(self) -> None:
        """Take no more requests, let those under way end, then cut them."""
        self._is_listening = False
        if self._polling is not None:
            self._polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._polling
        servers = [self._server, *filter(None, [self._s3])]
        await asyncio.gather(*(server.close() for server in servers))
        self.files.close()
        self._key_client.close()
        self._looking.close()
        self._audit.close()

    async def _poll(self) -> None:
        """Ask for keys that changed, and see to what is due, for as long as the gateway lives."""
        while True:
            await self._ask_for_keys()
            try:
                if self._gateway.tls:
                    self._certificates.refresh(time.time())
            except UserError as error:
                log.warning("%s", error)
            self.files.tidy()
            await asyncio.sleep(POLL_S)

    async def _ask_for_keys(self) -> bool:
        """Know what the master knew when this was called; False if it does not answer."""
        called_at_s = time.monotonic()
        async with self._asking:
            if self._asked_at_s >= called_at_s:
                return self._is_answered  # to somebody else, meanwhile
            # Guesses make us ask too, but not more often than this.
            await asyncio.sleep(self._asked_at_s + LOOK_AGAIN_S - called_at_s)
            self._asked_at_s = time.monotonic()
            try:
                table = await asyncio.to_thread(self._keys_since)
            except ClusterError as error:
                self._said = f"the dfs master does not answer: {error}"
                self._is_answered = False
            else:
                take_over(self.keys, table, time.monotonic())
                self._is_answered = True
            return self._is_answered

    def _keys_since(self) -> KeyTable:
        # By a client and in a thread of its own: calls that hang must not make keys look old.
        table: KeyTable = self._key_client.call_once(KeysSince(self.keys.version))
        return table

    def ready(self) -> tuple[bool, str]:
        """Listening, and the master answered of late."""
        if not self._is_listening:
            return False, "starting"
        if time.monotonic() - self.keys.known_at_s > SILENT_S_MAX:
            return False, self._said
        count, keys = self._server.connections.count, len(self.keys)
        words = f"{self._url()}, {count} connections, {keys} key{'' if keys == 1 else 's'}"
        left_days = int((self._certificates.ends_at_s - time.time()) // 86400)
        if self._gateway.tls and left_days < CERTIFICATE_DAYS_MIN:
            words += f", {CERTIFICATE_ENDS} in {left_days} days"
        return True, words

    def _url(self) -> str:
        scheme = "https" if self._gateway.tls else "http"
        name = join_address(self._daemon.host.name, self._daemon.config.port(GATEWAY_HTTP))
        return f"{scheme}://{name}"

    def metrics(self) -> dict[str, float]:
        """Its counters, for other daemons and the monitor."""
        figures = self.figures
        return {
            "connections": self._server.connections.count,
            "connections_refused": self._server.connections.refused_count,
            "requests": sum(figures.requests.values()),
            "bytes_in": sum(n for (_, way), n in figures.bytes.items() if way == "in"),
            "bytes_out": sum(n for (_, way), n in figures.bytes.items() if way == "out"),
            "streams_reading": figures.reading,
            "streams_writing": figures.writing,
            "keys": len(self.keys),
            "certificate_ends_at_s": self._certificates.ends_at_s,
        }

    # --- requests

    def _observe(self, outcome: Outcome) -> None:
        self.figures.note(outcome)
        self._audit.note(outcome)

    async def _healthz(self, request: Request) -> Reply:
        """For balancers: 200 or 503, to anybody, and nothing else."""
        is_ready, _ = self.ready()
        return text_reply("ok\n" if is_ready else "not ready\n", 200 if is_ready else 503)


def take_over(keys: Keys, table: KeyTable, now_s: float) -> None:
    """Put into the table of keys what the master says."""
    keys.update(
        table.version,
        [
            Key(
                key.id,
                key.name,
                key.user,
                key.paths,
                "w" in key.rights,
                key.made_at_s,
                key.expires_at_s,
            )
            for key in table.keys
        ],
        table.revoked,
        whole=table.is_whole,
        now_s=now_s,
    )


def main() -> int:
    """Be a gateway until told to stop."""
    return run(ROLE, Gateway)


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All is closed; threads that still wait for a master that is gone must not hold up the end.
    os._exit(ended)
