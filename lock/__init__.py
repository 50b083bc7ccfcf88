"""The lock service: small files, locks and sessions, as Chubby has them.

    with mrstream.lock.connect() as cell:
        with cell.acquire("/ls/local/nightly", delay_s=15) as held: ...

The brain of the cell is `lock.cell`, which never does any IO; `lock.master` is the shell around it,
`lock.client` the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mrstream.lock.client.client import connect

__all__ = ["connect"]


def __getattr__(name: str) -> object:
    """Load the client when it is first asked for: the daemons need none of it."""
    if name == "connect":
        from mrstream.lock.client.client import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
