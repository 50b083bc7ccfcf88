"""The proof at the start of every connection. Sans-IO: frames in, frames out.

    client → Hello      version, cluster id, roles, client id, nonce
    server → Challenge  version, its host, nonce, HMAC of the server
    client → Proof      HMAC of the client
    server → Welcome    the epoch of its lead, where it is a master and leads

Each HMAC (SHA-256, keyed with the cluster's secret) is over everything both sides said: both
nonces, the cluster's id, both roles and hosts, and which side speaks, so that a proof can neither
be replayed, nor reflected, nor moved to another role or cluster. The server proves itself first: a
client never shows anything to a stranger. The secret is never printed, logged or sent.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from mrstream.cluster.errors import ClusterError, NotTrusted, Speechless, Unavailable, WrongCluster
from mrstream.cluster.wire.frames import PROTOCOL_VERSION, Frame, Kind, encode_frame
from mrstream.cluster.wire.identity import Identity, PeerIdentity
from mrstream.cluster.wire.messages import ErrorReply, Message, pack, unpack

NONCE_BYTES = 16
SECRET_BYTES = 32
HANDSHAKE_S_MAX = 5.0

M = TypeVar("M", bound=Message)


class Hello(Message, frozen=True, array_like=True, tag=True):
    """The client's opening: who it is and whom it wants."""

    version: int
    cluster_id: str
    role: str
    host: str
    wanted_role: str
    client_id: int
    nonce: bytes


class Challenge(Message, frozen=True, array_like=True, tag=True):
    """The server's answer, which already proves the server."""

    version: int
    role: str
    host: str
    nonce: bytes
    proof: bytes


class Proof(Message, frozen=True, array_like=True, tag=True):
    proof: bytes


class Welcome(Message, frozen=True, array_like=True, tag=True):
    """The server believes the client; calls may follow. Who has met a master of a later epoch
    wants nothing from this one (cluster/leader)."""

    epoch: int = 0


def _proof(secret: bytes, side: bytes, hello: Hello, role: str, host: str, nonce: bytes) -> bytes:
    said = pack([side, hello, role, host, nonce])
    return hmac.new(secret, said, hashlib.sha256).digest()


class ClientHandshake:
    """The client's half: send `start()`, feed what comes, send what `feed` gives, until `done`."""

    def __init__(self, identity: Identity, wanted_role: str, client_id: int) -> None:
        self._identity = identity
        self._hello = Hello(
            PROTOCOL_VERSION,
            identity.cluster_id,
            identity.role,
            identity.host,
            wanted_role,
            client_id,
            secrets.token_bytes(NONCE_BYTES),
        )
        self._proven = False
        self.done = False
        self.peer = PeerIdentity("", "", 0)

    def start(self) -> bytearray:
        return encode_frame(Kind.HANDSHAKE, 0, self._hello)

    def feed(self, frame: Frame) -> bytearray | None:
        """Take the server's next frame; return ours, or None when it has welcomed us."""
        kind, _, body = frame
        if kind == Kind.ERROR:
            raise self._refused(_unpack(body, ErrorReply).error())
        if kind != Kind.HANDSHAKE:
            raise Speechless(f"expected a handshake, got a frame of kind {kind}")
        if self._proven:
            epoch = _unpack(body, Welcome).epoch
            self.peer = replace(self.peer, epoch=epoch)
            self.done = True
            return None
        return self._answer(_unpack(body, Challenge))

    def _refused(self, error: ClusterError) -> ClusterError:
        """Who has proven nothing says no more than that it does not want us: what other errors mean
        to their callers is not for a stranger to say."""
        if isinstance(error, Unavailable | NotTrusted | WrongCluster):
            return error
        return Speechless(f"the handshake was refused: {error}")

    def _answer(self, challenge: Challenge) -> bytearray:
        role, host, nonce = challenge.role, challenge.host, challenge.nonce
        secret = self._identity.secret
        expected = _proof(secret, b"server", self._hello, role, host, nonce)
        if not hmac.compare_digest(expected, challenge.proof):
            raise NotTrusted(
                f"the {self._hello.wanted_role} there did not prove this cluster's secret: another "
                "program has its port, or the secret on this side is not the cluster's (if it "
                "has a new one, `mrstream cluster join HOST` fetches it)"
            )
        self._proven = True
        self.peer = PeerIdentity(role, host, 0)
        ours = _proof(secret, b"client", self._hello, role, host, nonce)
        return encode_frame(Kind.HANDSHAKE, 0, Proof(ours))


class ServerHandshake:
    """The server's half: feed what comes and send what `feed` gives; `peer` is set when `done`."""

    def __init__(self, identity: Identity, epoch: Callable[[], int] = lambda: 0) -> None:
        self._identity = identity
        self._epoch = epoch
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._hello: Hello | None = None
        self.done = False
        self.peer = PeerIdentity("", "", 0)

    def feed(self, frame: Frame) -> bytearray:
        """Take the client's next frame; return ours. Raises a `ClusterError` to refuse it."""
        kind, _, body = frame
        if kind != Kind.HANDSHAKE:
            raise NotTrusted("prove the cluster's secret first: the handshake has not been made")
        if self._hello is None:
            return self._challenge(_unpack(body, Hello))
        return self._welcome(self._hello, _unpack(body, Proof))

    def _challenge(self, hello: Hello) -> bytearray:
        own = self._identity
        if hello.version != PROTOCOL_VERSION:
            raise Speechless(
                f"you speak protocol {hello.version}, this {own.role} speaks {PROTOCOL_VERSION}: "
                "run `mrstream cluster up` to bring all hosts to one version"
            )
        if hello.cluster_id != own.cluster_id:
            raise WrongCluster(f"this {own.role} belongs to another cluster than yours")
        if hello.wanted_role not in ("", own.role):
            raise WrongCluster(f"you want a {hello.wanted_role}; a {own.role} listens here")
        self._hello = hello
        proof = _proof(own.secret, b"server", hello, own.role, own.host, self._nonce)
        answer = Challenge(PROTOCOL_VERSION, own.role, own.host, self._nonce, proof)
        return encode_frame(Kind.HANDSHAKE, 0, answer)

    def _welcome(self, hello: Hello, proof: Proof) -> bytearray:
        own = self._identity
        expected = _proof(own.secret, b"client", hello, own.role, own.host, self._nonce)
        if not hmac.compare_digest(expected, proof.proof):
            raise NotTrusted("your proof of the cluster's secret is wrong")
        self.peer = PeerIdentity(hello.role, hello.host, hello.client_id)
        self.done = True
        return encode_frame(Kind.HANDSHAKE, 0, Welcome(self._epoch()))


def refusal(error: ClusterError) -> bytearray:
    """Return the frame that tells the other side why the connection ends."""
    return encode_frame(Kind.ERROR, 0, ErrorReply.of(error))


def _unpack(body: bytes, kind: type[M]) -> M:
    try:
        message: M = unpack(body, kind)
    except msgspec.DecodeError as error:
        raise Speechless(f"expected {kind.__name__}: {error}") from None
    return message
