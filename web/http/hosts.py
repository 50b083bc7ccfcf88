"""The names by which a server is called: a request that names another is not for us.

A page of a stranger can have a browser send requests to 127.0.0.1 under the stranger's own name
(DNS rebinding); whoever checks `Host` before anything else never answers it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mrstream.web.http.head import Refused, parse_host


class Hosts:
    """Which values of `Host` are ours: `(name, port)` of the listeners, and further names, which
    a balancer may have on any port."""

    def __init__(self, names: Iterable[str] = (), above: str = "") -> None:
        """`above`: whatever lies below this name is ours too."""
        self._exact: set[tuple[str, int]] = set()
        self._names = {name.lower() for name in names}
        self._above = f".{above.lower()}" if above else ""

    def add(self, name: str, port: int) -> None:
        """This name or address with this port is ours."""
        self._exact.add((canonical(name), port))

    def check(self, values: list[str], default_port: int) -> str:
        """Return the authority, in one spelling; 400 for none or two, 421 for a stranger's."""
        if len(values) != 1:
            raise Refused(400, f"{len(values)} Host headers; one is needed", close=True)
        name, port = parse_host(values[0])
        is_below = bool(self._above) and name.endswith(self._above)
        if (
            name not in self._names
            and not is_below
            and (name, port or default_port) not in self._exact
        ):
            raise Refused(421, "this server does not go by that name", close=True)
        shown = f"[{name}]" if ":" in name else name
        return shown if port is None else f"{shown}:{port}"


def canonical(name: str) -> str:
    """A host's name in lower case, an address as Python writes it."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()
