"""The operations of WebHDFS about delegation tokens."""

from __future__ import annotations

import secrets
import time

from mrstream.dfs.protocol import RevokeKey
from mrstream.web.http.access import Keys
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, empty_reply, json_reply
from mrstream.web.webhdfs import delegation
from mrstream.web.webhdfs.call import Call
from mrstream.web.webhdfs.delegation import Token


class Tokens:
    """Tokens of one cluster: made from the door secret, kept nowhere."""

    def __init__(self, door_secret: bytes, keys: Keys) -> None:
        self._door_secret = door_secret
        self._keys = keys

    def read(self, text: str) -> tuple[str, str] | None:
        """The key's id and the user of a good token."""
        token = delegation.decode(text, self._door_secret)
        if token is None or token.until_ms <= time.time() * 1000:
            return None
        return None if self._keys.is_revoked(token.id) else (token.key_id, token.user)

    async def get(self, call: Call) -> Reply:
        """GETDELEGATIONTOKEN: for a day, with all that the key may do."""
        principal = call.principal
        if not principal.key_id:
            raise Refused(403, "a token is given to whoever has proven a key")
        if call.parameters.has("delegation"):
            raise Refused(403, "a token is not given for a token")
        now_ms = int(time.time() * 1000)
        until_ms = now_ms + int(delegation.LIFE_S * 1000)
        token = Token(principal.user, principal.key_id, now_ms, until_ms, secrets.randbits(31))
        text = delegation.encode(token, self._door_secret, call.request.host, call.request.scheme)
        return json_reply({"Token": {"urlString": text}})

    async def renew(self, call: Call) -> Reply:
        """RENEWDELEGATIONTOKEN: it ends when it ends."""
        return json_reply({"long": self._given(call).until_ms})

    async def cancel(self, call: Call) -> Reply:
        """CANCELDELEGATIONTOKEN: void on every gateway, two seconds later at most."""
        token = self._given(call)
        await call.ask(lambda client: client.call(RevokeKey(token.id, token.until_ms / 1000)))
        return empty_reply(200)

    def _given(self, call: Call) -> Token:
        token = delegation.decode(call.parameters.text("token"), self._door_secret)
        if token is None or token.user != call.principal.user:
            raise Refused(403, "this is no token of yours")
        return token
