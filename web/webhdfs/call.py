"""One operation under way: who asks for what, and the file system that it is asked of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlencode

from mrstream.cluster.config.config import DfsConfig
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.metadata.paths import join_path, split_path
from mrstream.web.http.access import Principal
from mrstream.web.http.request import Request
from mrstream.web.http.streams import Files
from mrstream.web.webhdfs.parameters import Parameters

T = TypeVar("T")
PREFIX = "/webhdfs/v1"


@dataclass(frozen=True, slots=True)
class Call:
    """What an operation works with."""

    request: Request
    principal: Principal
    parameters: Parameters
    files: Files
    dfs: DfsConfig

    @property
    def raw_path(self) -> str:
        """The path after `/webhdfs/v1`, as it was named."""
        return self.request.path.removeprefix(PREFIX) or "/"

    def path(self, *, writes: bool = False) -> str:
        """The path of the request in one spelling, if the principal may go there."""
        return self.reach(self.raw_path, writes=writes)

    def reach(self, path: str, *, writes: bool = False) -> str:
        """A path in one spelling, if the principal may go there; it is noted for the audit log."""
        parts = split_path(path)
        shown = join_path(parts)
        self.request.note.paths.append(shown)
        self.principal.check(parts, writes=writes)
        return shown

    def url(self, path: str, query: str = "") -> str:
        """Where a path is, by the address at which the client called."""
        place = f"{self.request.scheme}://{self.request.host}{PREFIX}{quote(path)}"
        return f"{place}?{query}" if query else place

    def data_url(self) -> str:
        """Where the bytes of this request are taken and given: the same address (decision 22)."""
        pairs = [
            (name, value)
            for name, value in self.request.query.pairs
            if name.lower() not in ("data", "noredirect")
        ]
        return self.url(self.raw_path, urlencode([*pairs, ("data", "true")]))

    async def ask(self, work: Callable[[DfsClient], T]) -> T:
        """Do something short with the principal's client."""
        return await self.files.ask(self.principal.user, work)
