"""What a gateway shows: the pages, history and snapshots, metrics; and who may look.

The ways in are a key (in the form of the pages, or as everywhere at a gateway) and a link that
`mrstream web --on HOST` makes: signed with the secret of the doors, spent in the log of the dfs
master, so that it works once on all gateways together. A session ends with its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import OrderedDict

from mrstream.cluster.config.config import GATEWAY_HTTP, Cluster, GatewayConfig
from mrstream.cluster.errors import UserError
from mrstream.cluster.wire.addresses import join_address
from mrstream.dfs.client.client import client_of
from mrstream.dfs.protocol import SpendLink
from mrstream.view.source import ClusterSource
from mrstream.view.watch import Watch
from mrstream.web.http.access import KEYS_AGE_S_MAX, Access, Keys, Principal
from mrstream.web.http.budget import Budget
from mrstream.web.http.figures import Figures
from mrstream.web.http.head import Refused
from mrstream.web.http.request import Request
from mrstream.web.http.server import Handler
from mrstream.web.http.tokens import sign, verify
from mrstream.web.pages.door import Door
from mrstream.web.pages.session import LINK_S, Sessions
from mrstream.web.pages.visit import Visitor
from mrstream.web.rest.door import METRICS, PREFIXES, Rest

SOURCES_MAX = 64
"""Users whose connections are kept; the ones that looked longest ago are closed first."""
SERVICE_USER = "mrstream"
_LINK = "link"


class Sources:
    """A source for each user who changes something, so that what is made is theirs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._by_user: OrderedDict[str, ClusterSource] = OrderedDict()

    def of(self, user: str) -> ClusterSource:
        with self._lock:
            if user not in self._by_user:
                self._by_user[user] = ClusterSource(self._cluster, user=user)
            self._by_user.move_to_end(user)
            if len(self._by_user) > SOURCES_MAX:
                self._by_user.popitem(last=False)[1].close()
            return self._by_user[user]

    def close(self) -> None:
        """Give up all connections."""
        with self._lock:
            for source in self._by_user.values():
                source.close()
            self._by_user.clear()


class Looking:
    """The faces of a gateway that look, and change on behalf of whoever looks."""

    def __init__(
        self,
        cluster: Cluster,
        gateway: GatewayConfig,
        access: Access,
        keys: Keys,
        secret: bytes,
        figures: Figures,
        budget: Budget,
    ) -> None:
        self._cluster = cluster
        self._gateway = gateway
        self._access = access
        self._keys = keys
        self._secret = secret
        self._sources = Sources(cluster)
        self._source = ClusterSource(cluster, user=SERVICE_USER)
        watch = Watch(self._source)
        name = "__Host-mrstream" if gateway.tls else f"mrstream-{cluster.config.port(GATEWAY_HTTP)}"
        self._pages = Door(
            watch,
            Sessions(secret, name, secure=gateway.tls),
            self._by_link,
            login=self._by_key,
            source_of=self._sources.of,
            read_only=gateway.read_only,
            key_name=self._key_name,
            budget=budget,
        )
        self._rest = Rest(watch, self._check, figures if gateway.metrics else None)

    def faces(self) -> dict[str, tuple[str, Handler]]:
        """What is where, as the configuration wants it."""
        found: dict[str, tuple[str, Handler]] = {}
        for prefix in PREFIXES:
            wanted = self._gateway.metrics if prefix == METRICS else self._gateway.pages
            if wanted:
                found[prefix] = ("metrics" if prefix == METRICS else "rest", self._rest)
        if self._gateway.pages:
            found["/"] = ("pages", self._pages)
        return found

    def close(self) -> None:
        """Give up all connections."""
        self._pages.close()
        self._sources.close()
        self._source.close()

    # --- who is there

    async def _by_link(self, word: str) -> Visitor | None:
        claims = verify(self._secret, _LINK, word, time.time())
        if claims is None:
            return None

        def spend() -> None:
            with client_of(self._cluster, user=SERVICE_USER) as client:
                client.call(SpendLink(claims["nonce"], float(claims["until"])))

        with contextlib.suppress(UserError):  # such as: it was used before
            await asyncio.to_thread(spend)
            return Visitor(claims["user"], may_change=claims["change"])
        return None

    async def _by_key(self, request: Request, id: str, secret: str) -> Visitor | None:
        try:
            found = await self._access.principal(request, key=(id, secret))
        except Refused as refused:
            if refused.status == 401:
                return None
            raise
        return Visitor(found.user, may_change=found.can_write, paths=found.paths, key=found.key_id)

    async def _key_name(self, key_id: str) -> str:
        """A session lives no longer than its key, and not on the word of an old table."""
        if not self._keys.has(key_id):
            await self._access.look_again()  # it may have been made, and used elsewhere, just now
        is_known = time.monotonic() - self._keys.known_at_s <= KEYS_AGE_S_MAX
        key = self._keys.get(key_id, time.time())
        return key.name if is_known and key is not None else ""

    async def _check(self, request: Request) -> None:
        """Who asks for history or metrics: a key to everything, or a trusted network."""
        if request.path == METRICS and self._access.is_trusted(request.peer):
            return
        found: Principal = await self._access.principal(
            request, user_name=request.query.get("user.name")
        )
        if "/" not in found.paths:
            raise Refused(403, "jobs tell of any file; this key reaches only some of them")


def link_to(cluster: Cluster, host: str, user: str, *, read_only: bool, now_s: float) -> str:
    """Return a link that lets one browser into the pages of the gateway on `host`, once."""
    gateway, door = cluster.config.gateway, cluster.secret.door
    if gateway is None or host not in gateway.hosts or not gateway.pages:
        there = ", ".join(gateway.hosts) if gateway and gateway.pages else "none"
        raise UserError(f"there are no pages on {host}; gateways of this cluster: {there}")
    if door is None:
        raise UserError("this identity has no keys for a gateway: run `mrstream cluster up`")
    claims = {"user": user, "change": not read_only, "nonce": secrets.token_hex(16)}
    word = sign(door.secret, _LINK, claims, now_s + LINK_S)
    scheme = "https" if gateway.tls else "http"
    address = cluster.config.host(host).address
    place = join_address(address, cluster.config.port(GATEWAY_HTTP))
    return f"{scheme}://{place}/enter?link={word}"
