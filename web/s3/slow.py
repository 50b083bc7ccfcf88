"""Answers that may take long: blanks keep the connection alive until there is something to say.

As S3 does it: the status is 200 by then, so an error is told in the document. Whoever leaves does
not stop the work: asked again, it is found done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from mrstream.web.http.reply import Reply, stream_reply, xml_reply
from mrstream.web.s3.call import Call
from mrstream.web.s3.errors import S3Error, error_document, named
from mrstream.web.s3.xml import DECLARATION

BLANK_S = 10.0


async def slow_answer(
    call: Call, work: Callable[[], Coroutine[Any, Any, str]], blank_s: float = BLANK_S
) -> Reply:
    """Return the document that `work` makes (without its first line) as an answer."""
    task = asyncio.create_task(work())
    call.place.underway.add(task)
    task.add_done_callback(call.place.underway.discard)
    await asyncio.wait({task}, timeout=blank_s)
    if task.done():
        return xml_reply(DECLARATION + task.result())

    async def pieces() -> AsyncIterator[bytes]:
        yield DECLARATION.encode()
        while not task.done():
            yield b" "
            await asyncio.wait({task}, timeout=blank_s)
        yield _told(call, task).encode()

    return stream_reply(pieces(), None, type="application/xml")


def _told(call: Call, task: asyncio.Task[str]) -> str:
    error = task.exception()
    if error is None:
        return task.result()
    found = named(error) if isinstance(error, Exception) else S3Error("InternalError", "stopped")
    text = error_document(found, call.request.path, call.request.id)
    return text.removeprefix(DECLARATION)
