"""The operations of WebHDFS that bring bytes.

A client that sends none is told to send them to the same address with `data=true` (the shape of
HttpFS: never another host), one that sends them at once is taken at its word. A new file is hidden
until it is complete and then replaces what was there, in one step.
"""

from __future__ import annotations

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.ending import Ending
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.writer import DfsWriter, append, create_hidden
from mrstream.dfs.errors import BadRequest, CrossesCells, NotAligned
from mrstream.dfs.protocol import FileStatus
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, empty_reply, json_reply, redirect_reply
from mrstream.web.webhdfs.call import Call


async def create(call: Call) -> Reply:
    """CREATE: a new file, whole or not at all."""
    path = call.path(writes=True)
    # Hadoop's client says it in one of two ways.
    flags = call.parameters.text("createflag").upper().split(",")
    overwrite = call.parameters.flag("overwrite", False) or "OVERWRITE" in flags
    replication = call.parameters.whole("replication", 0)
    mode = call.parameters.mode("permission", 0o644)
    parents = call.parameters.flag("createparent", True)
    chunk_bytes = call.parameters.chunk_bytes(call.dfs.chunk_bytes)
    elsewhere = _elsewhere(call)
    if elsewhere is not None:
        return elsewhere

    def begin(client: DfsClient) -> DfsWriter:
        return create_hidden(
            client,
            path,
            overwrite=overwrite,
            replication=replication,
            chunk_bytes=chunk_bytes,
            mode=mode,
            parents=parents,
            queue_runs=1,
        )

    await call.files.store(call.principal.user, call.request, begin)
    return empty_reply(201, [("Location", call.url(path))])


async def append_to(call: Call) -> Reply:
    """APPEND: opened, written and closed in one request; the file grows visibly."""
    path = call.path(writes=True)
    elsewhere = _elsewhere(call)
    if elsewhere is not None:
        return elsewhere
    await call.files.store(call.principal.user, call.request, lambda client: append(client, path))
    return empty_reply(200)


def _elsewhere(call: Call) -> Reply | None:
    """The answer to a client that has yet to send its bytes; None: they come with this request."""
    if call.request.has_body or call.parameters.flag("data", False):
        return None
    location = call.data_url()
    if call.parameters.flag("noredirect", False):
        return json_reply({"Location": location})
    return redirect_reply(307, location)


async def concat(call: Call) -> Reply:
    """CONCAT: without moving a byte where the files fill their chunks, else by a hidden copy."""
    path = call.path(writes=True)
    named = [name for name in call.parameters.text("sources").split(",") if name]
    sources = [call.reach(name, writes=True) for name in named]
    if not sources or path in sources or len(set(sources)) != len(sources):
        raise Refused(400, "sources are other files than the target, at least one, each once")
    try:
        await call.ask(lambda client: _join(client, path, sources))
    except (NotAligned, CrossesCells):
        await call.files.work(
            call.principal.user, lambda client: _join_by_bytes(client, path, sources)
        )
    return empty_reply(200)


def _join(client: DfsClient, path: str, sources: list[str]) -> FileStatus:
    ids = [client.stat(name).file_id for name in (path, *sources)]
    return client.join(path, ids, Ending(overwrite=True, replaces=ids[0]))


def _join_by_bytes(client: DfsClient, path: str, sources: list[str]) -> None:
    """Write all of them into one hidden file, put it in the target's place, drop the sources."""
    target = client.stat(path)
    if target.is_directory:
        raise BadRequest(f"{path} is a directory")
    writer = create_hidden(
        client,
        path,
        overwrite=True,
        replication=target.replication,
        chunk_bytes=target.chunk_bytes,
        mode=target.mode,
        queue_runs=1,
    )
    # Only in place of the very file that was read.
    writer.ending.replaces = target.file_id
    read = {}
    with writer:
        for name in (path, *sources):
            with DfsReader(client, name) as reader:
                writer.writelines(reader.pieces())
                read[name] = reader.status.file_id
    for name in sources:
        client.delete(name, skip_trash=True, file_id=read[name])
