"""Delegation tokens in Hadoop's own encoding, so that its clients can carry them; without IO.

    urlString  = base64url(Token), without padding
    Token      = vint length, identifier; vint length, password; Text kind; Text service
    identifier = 0, Text owner, Text renewer, Text realUser, vlong issued, vlong until, vint serial,
                 vint 0                                               (times in milliseconds)

The owner is the user, the renewer the id of the key with which it was made: revoking the key ends
its tokens. The password is an HMAC of the identifier; nothing about a token is kept, but that it
was cancelled.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass

from mrstream.web.http.tokens import digest

KINDS = {"http": "WEBHDFS delegation", "https": "SWEBHDFS delegation"}
"""By which Hadoop's clients `webhdfs://` and `swebhdfs://` know theirs; the same to us."""
LIFE_S = 86400.0
TEXT_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Token:
    user: str
    key_id: str
    issued_at_ms: int
    until_ms: int
    serial: int

    @property
    def id(self) -> str:
        """By which it is cancelled."""
        return f"{self.key_id}-{self.serial:x}"

    def identifier(self) -> bytes:
        """The part that the password proves."""
        return (
            b"\0"
            + _text(self.user)
            + _text(self.key_id)
            + _text("")
            + write_vlong(self.issued_at_ms)
            + write_vlong(self.until_ms)
            + write_vlong(self.serial)
            + write_vlong(0)
        )


def encode(token: Token, door_secret: bytes, service: str, scheme: str = "https") -> str:
    """Return the token as it travels; `service` is where it is good, `host:port`."""
    identifier = token.identifier()
    password = digest(door_secret, "delegation", identifier)
    packed = (
        write_vlong(len(identifier))
        + identifier
        + write_vlong(len(password))
        + password
        + _text(KINDS[scheme])
        + _text(service)
    )
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def decode(text: str, door_secret: bytes) -> Token | None:
    """Return what a token says if it is one of ours, whole and unchanged; else None."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        reader = _Reader(packed)
        identifier = reader.sized()
        password = reader.sized()
        kind = reader.text()
        reader.text()
    except (ValueError, IndexError):
        return None
    if kind not in KINDS.values() or not hmac.compare_digest(
        password, digest(door_secret, "delegation", identifier)
    ):
        return None
    fields = _Reader(identifier[1:])
    user, key_id, _ = fields.text(), fields.text(), fields.text()
    return Token(user, key_id, fields.vlong(), fields.vlong(), fields.vlong())


def write_vlong(value: int) -> bytes:
    """Hadoop's numbers of variable length: small ones in a byte, others behind their length."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1)
    first, magnitude = (-112, value) if value >= 0 else (-120, ~value)
    size = (magnitude.bit_length() + 7) // 8
    return ((first - size) & 0xFF).to_bytes(1) + magnitude.to_bytes(size)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError("it ends too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def vlong(self) -> int:
        first = int.from_bytes(self.take(1), signed=True)
        if first >= -112:
            return first
        size = -112 - first if first >= -120 else -120 - first
        magnitude = int.from_bytes(self.take(size))
        return magnitude if first >= -120 else ~magnitude

    def sized(self) -> bytes:
        size = self.vlong()
        if size > TEXT_BYTES_MAX:
            raise ValueError("too long")
        return self.take(size)

    def text(self) -> str:
        return self.sized().decode()


def _text(value: str) -> bytes:
    packed = value.encode()
    return write_vlong(len(packed)) + packed
