"""Several handlers behind one listener, by the beginning of the path."""

from __future__ import annotations

from collections.abc import Mapping

from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import Request
from mrstream.web.http.server import Handler


class Faces:
    """Hands a request to the face whose prefix its path has: `/webhdfs/` is a tree, `/healthz` one
    path, and `/` takes what nobody else wants. The audit log calls a face by its name."""

    def __init__(self, faces: Mapping[str, tuple[str, Handler]]) -> None:
        """`faces`: prefix → name, handler."""
        # The longest prefix first, so that `/` comes last.
        self._faces = sorted(faces.items(), key=lambda item: -len(item[0]))

    async def __call__(self, request: Request) -> Reply:
        for prefix, (name, handler) in self._faces:
            is_tree = prefix.endswith("/")
            if request.path.startswith(prefix) if is_tree else request.path == prefix:
                request.note.face = name
                return await handler(request)
        raise Refused(404, "there is nothing here")
