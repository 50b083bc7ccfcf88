"""Who is there: a cookie of signed claims, so that any process with the secret knows the visitor.

Nothing is kept here: a session ends when its time is over or when the secret changes.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from mrstream.web.http.tokens import digest, sign, verify
from mrstream.web.pages.visit import Visitor

SESSION_S = 12 * 3600
LINK_S = 600
_COOKIE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([A-Za-z0-9._~/+=-]*)")


@dataclass(frozen=True, slots=True)
class Sessions:
    """Cookies of one secret."""

    secret: bytes
    cookie: str
    secure: bool

    def begin(self, visitor: Visitor, now_s: float) -> str:
        """Return the `Set-Cookie` that makes a browser this visitor's."""
        claims = {
            "user": visitor.user,
            "key": visitor.key,
            "change": visitor.may_change,
            "paths": visitor.paths,
            "salt": secrets.token_hex(8),
        }
        return self._set(sign(self.secret, "session", claims, now_s + SESSION_S), SESSION_S)

    def end(self) -> str:
        """Return the `Set-Cookie` that makes a browser forget."""
        return self._set("", 0)

    def visitor(self, cookies: dict[str, str], now_s: float) -> Visitor | None:
        """Return who has this cookie; None if it is none of ours, or too old."""
        text = cookies.get(self.cookie, "")
        claims = verify(self.secret, "session", text, now_s)
        if claims is None:
            return None
        session = digest(self.secret, "forms", text.encode())
        paths = tuple(claims["paths"])
        return Visitor(claims["user"], session, claims["change"], paths, claims["key"])

    def _set(self, value: str, age_s: int) -> str:
        safety = "; Secure" if self.secure else ""
        return f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{safety}"


class OneTimeLink:
    """A way in that works once, for a while."""

    def __init__(self, now_s: float) -> None:
        self.word = secrets.token_urlsafe(16)
        self._until_s = now_s + LINK_S
        self._is_spent = False

    def spend(self, word: str, now_s: float) -> bool:
        """Whether this is the word, the first time that it is said."""
        is_it = hmac.compare_digest(self.word.encode(), word.encode("utf-8", "replace"))
        if not is_it or self._is_spent or now_s > self._until_s:
            return False
        self._is_spent = True
        return True


def cookies_of(headers: Iterable[str]) -> dict[str, str]:
    """Return the cookies of a request; what is no cookie of ours in form is left out."""
    found = {}
    for header in headers:
        for item in header.split(";"):
            match = _COOKIE.fullmatch(item.strip())
            if match:
                found[match[1]] = match[2]
    return found
