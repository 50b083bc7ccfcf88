"""Secrets that follow from one secret, and claims that nobody else can have written; without IO.

    key's secret   = HMAC(door secret, "key", id): kept nowhere, the same on every gateway
    signed claims  = BASE64(JSON) "." BASE64(HMAC(door secret, kind, JSON))

A kind of claim (a session, a link, a form) is part of what is signed, so that one is never taken
for another; claims end by the wall clock.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from typing import Any

KEY_PREFIX = "MR"
KEY_ID_CHARS = 18
KEY_ID = re.compile("MR[A-Z2-7]{18}")
SIGNED_CHARS_MAX = 4096


def new_key_id() -> str:
    return KEY_PREFIX + base64.b32encode(secrets.token_bytes(12)).decode()[:KEY_ID_CHARS]


def key_secret(door_secret: bytes, id: str) -> str:
    """Return the secret of a key: 40 characters."""
    return base64.urlsafe_b64encode(digest(door_secret, "key", id.encode())[:30]).decode()


def digest(door_secret: bytes, kind: str, data: bytes) -> bytes:
    """Return the proof that somebody who has the door secret meant this, as this kind."""
    return hmac.new(door_secret, kind.encode() + b"\0" + data, hashlib.sha256).digest()


def sign(door_secret: bytes, kind: str, claims: dict[str, Any], until_s: float) -> str:
    """Return claims that `verify` takes until then."""
    body = json.dumps({**claims, "until": int(until_s)}, separators=(",", ":")).encode()
    return f"{_encoded(body)}.{_encoded(digest(door_secret, kind, body))}"


def verify(door_secret: bytes, kind: str, text: str, now_s: float) -> dict[str, Any] | None:
    """Return the claims, or None if they are not ours, of another kind, or over."""
    body, dot, proof = text.partition(".")
    if not dot or len(text) > SIGNED_CHARS_MAX:
        return None
    try:
        raw, given = _decoded(body), _decoded(proof)
    except ValueError:
        return None
    # In this order: nothing is made of bytes that we have not written.
    if not hmac.compare_digest(given, digest(door_secret, kind, raw)):
        return None
    claims: dict[str, Any] = json.loads(raw)
    return claims if now_s < claims["until"] else None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    if not text.isascii():
        raise ValueError("not base64")
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encoded(data) != text:
        # Some bits at the end may be anything: one claim would have several spellings.
        raise ValueError("not base64 as we write it")
    return data
