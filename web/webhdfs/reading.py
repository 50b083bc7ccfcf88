"""The operations of WebHDFS that change nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from functools import partial
from itertools import takewhile

from mrstream.cluster.errors import UnknownRequest
from mrstream.dfs.client.client import PAGE_ENTRIES, DfsClient
from mrstream.dfs.client.file_checksum import composite_crc
from mrstream.dfs.errors import IsADirectory, NoSuchFile
from mrstream.dfs.protocol import (
    FileStatus,
    ListDirectory,
    LocatedChunk,
    Page,
    QuotaReply,
)
from mrstream.web.http.head import Refused
from mrstream.web.http.ranges import NotSatisfiable, Span, parse_range
from mrstream.web.http.reply import (
    Reply,
    empty_reply,
    json_reply,
    not_satisfiable_reply,
    range_headers,
    stream_reply,
)
from mrstream.web.webhdfs import answers
from mrstream.web.webhdfs.call import Call
from mrstream.web.webhdfs.errors import PastEnd

USER_NAMES = "user."
"""Attributes that programs set; others are of doors and of the file system."""


async def open_file(call: Call) -> Reply:
    """OPEN: the bytes themselves, by `offset` and `length` or by `Range`."""
    path = call.path()
    offset = call.parameters.whole("offset", 0)
    length = call.parameters.whole("length", 1 << 62)
    if call.parameters.flag("noredirect", False) and not call.parameters.flag("data", False):
        return json_reply({"Location": call.data_url()})
    reading = await call.files.open(call.principal.user, path)
    try:
        size = reading.size
        if offset > size:
            raise PastEnd(f"Offset={offset} out of the range [0, {size}]; OPEN, path={path}")
        span: Span | None = None
        if not offset and not call.parameters.has("length"):
            span = parse_range(call.request.headers.get("range"), size)
        start = span.start if span is not None else offset
        count = span.length if span is not None else min(length, size - offset)
        status, headers = range_headers(span)
        return stream_reply(reading.take(start, count), count, status=status, headers=headers)
    except NotSatisfiable as error:
        await reading.aclose()
        return not_satisfiable_reply(error)
    except BaseException:
        await reading.aclose()
        raise


async def file_status(call: Call) -> Reply:
    """GETFILESTATUS, GETFILELINKSTATUS (there are no links)."""
    path = call.path()
    status = await call.ask(lambda client: client.stat(path))
    return json_reply({"FileStatus": answers.file_status(status)})


async def list_status(call: Call) -> Reply:
    """LISTSTATUS: at once if it is a page; a long one while it is sent."""
    path = call.path()

    def first_page(client: DfsClient) -> tuple[FileStatus, Page]:
        return client.stat(path), client.call(ListDirectory(path, "", PAGE_ENTRIES))

    directory, page = await call.ask(first_page)
    if not page.next:
        return json_reply(answers.listing(directory, page.entries))

    async def pieces() -> AsyncIterator[bytes]:
        here = page
        yield b'{"FileStatuses":{"FileStatus":['
        while True:
            found = answers.listing(directory, here.entries)["FileStatuses"]["FileStatus"]
            yield ",".join(json.dumps(entry) for entry in found).encode()
            if not here.next:
                break
            here = await call.ask(partial(_page, path=path, after=here.next))
            if here.entries:
                yield b","
        yield b"]}}"

    return stream_reply(pieces(), None, type="application/json")


def _page(client: DfsClient, path: str, after: str) -> Page:
    page: Page = client.call(ListDirectory(path, after, PAGE_ENTRIES))
    return page


async def list_status_batch(call: Call) -> Reply:
    """LISTSTATUS_BATCH: one page, after `startAfter`."""
    path = call.path()
    after = call.parameters.text("startafter")

    def page_after(client: DfsClient) -> tuple[FileStatus, Page]:
        return client.stat(path), _page(client, path, after)

    directory, page = await call.ask(page_after)
    return json_reply(answers.partial_listing(directory, page.entries, more=bool(page.next)))


async def content_summary(call: Call) -> Reply:
    path = call.path()
    found, quota = await call.ask(lambda client: (client.summarise(path)[0], _quota(client, path)))
    return json_reply(answers.content_summary(found, quota.names, quota.space_bytes))


async def quota_usage(call: Call) -> Reply:
    path = call.path()
    found, quota = await call.ask(lambda client: (client.summarise(path)[0], _quota(client, path)))
    return json_reply(answers.quota_usage(found, quota.names, quota.space_bytes))


def _quota(client: DfsClient, path: str) -> QuotaReply:
    if not client.stat(path).is_directory:
        return QuotaReply(-1, 0, -1, 0)
    try:
        return client.quota(path)
    except UnknownRequest:
        return QuotaReply(-1, 0, -1, 0)  # a master of a version that has no quotas


async def file_checksum(call: Call) -> Reply:
    """GETFILECHECKSUM, from the checksums that chunkservers keep: no byte is read here."""
    path = call.path()

    def summed(client: DfsClient) -> int:
        if client.stat(path).is_directory:
            raise IsADirectory(path)
        return composite_crc(client, path)

    return json_reply(answers.checksum(await call.ask(summed)))


async def block_locations(call: Call) -> Reply:
    """GETFILEBLOCKLOCATIONS: which hosts hold which part."""
    path = call.path()
    offset = call.parameters.whole("offset", 0)
    length = call.parameters.whole("length", 1 << 62)

    def located(client: DfsClient) -> tuple[FileStatus, list[LocatedChunk]]:
        status = client.stat(path)
        if status.is_directory:
            return status, []

        def begins_before_end(chunk: LocatedChunk) -> bool:
            return chunk.index * status.chunk_bytes < offset + length

        chunks = client.chunks(path, offset // status.chunk_bytes)
        return status, list(takewhile(begins_before_end, chunks))

    status, chunks = await call.ask(located)
    return json_reply(answers.block_locations(status, chunks, offset, length))


async def home_directory(call: Call) -> Reply:
    return json_reply({"Path": f"/user/{call.principal.user}"})


async def trash_root(call: Call) -> Reply:
    """GETTRASHROOT: where Hadoop's own shell puts what it deletes. Ours is kept by the master."""
    return json_reply({"Path": f"/user/{call.principal.user}/.Trash"})


async def trash_roots(call: Call) -> Reply:
    """GETTRASHROOTS: the same, if it is there."""
    path = f"/user/{call.principal.user}/.Trash"

    def found(client: DfsClient) -> list[FileStatus]:
        try:
            return [client.stat(path)]
        except NoSuchFile:
            return []

    roots = [{**answers.file_status(status), "path": path} for status in await call.ask(found)]
    return json_reply({"Paths": roots})


async def check_access(call: Call) -> Reply:
    """CHECKACCESS: what the key allows; the dfs itself enforces no modes."""
    action = call.parameters.text("fsaction", "---").lower()
    if not re.fullmatch("[r-][w-][x-]", action):
        raise Refused(400, f'Invalid value for webhdfs parameter "fsaction": {action[:20]!r}')
    path = call.path(writes="w" in action)
    await call.ask(lambda client: client.stat(path))
    return empty_reply(200)


async def fs_status(call: Call) -> Reply:
    return json_reply(answers.fs_status(await call.ask(lambda client: client.report())))


async def server_defaults(call: Call) -> Reply:
    dfs = call.dfs
    return json_reply(answers.server_defaults(dfs.chunk_bytes, dfs.replication, dfs.trash_after_s))


async def acl_status(call: Call) -> Reply:
    path = call.path()
    return json_reply(answers.acl_status(await call.ask(lambda client: client.stat(path))))


async def get_xattrs(call: Call) -> Reply:
    """GETXATTRS: those named, or all."""
    path = call.path()
    encoding = call.parameters.choice(
        "encoding", answers.TEXT, answers.TEXT, answers.HEX, answers.BASE64
    )
    values = await call.ask(lambda client: attributes(client, path))
    names = call.request.query.folded().all("xattr.name")
    for name in names:
        if name not in values:
            raise Refused(403, f"{path} has no attribute {name[:80]!r}")
    wanted = {name: values[name] for name in names or values}
    return json_reply(answers.xattrs(wanted, encoding))


async def list_xattrs(call: Call) -> Reply:
    path = call.path()
    return json_reply(answers.xattr_names(await call.ask(lambda client: attributes(client, path))))


def attributes(client: DfsClient, path: str) -> dict[str, bytes]:
    """The attributes that programs set."""
    found = client.attributes(path).values
    return {name: value for name, value in found.items() if name.startswith(USER_NAMES)}
