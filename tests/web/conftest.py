"""A browser for the whole run, and pages of recorded states to open in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from mrstream.cluster.wire.network import new_event_loop
from mrstream.view.source import Source
from mrstream.web.local import LocalPages, Opened

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WAIT_MS = 60_000


class Shown:
    """The pages of one source, served from a thread, and browsers that are let in."""

    def __init__(self, browser: Browser, source: Source, *, read_only: bool = False) -> None:
        self._browser = browser
        self._pages = LocalPages(source, read_only=read_only)
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.opened: Opened = self._run(self._pages.open())
        self.base = self.opened.link.partition("/enter")[0]
        self._cookies: Any = None
        self._contexts: list[BrowserContext] = []
        self.hosts: set[str] = set()
        self.troubles: list[str] = []

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def tab(self, **options: Any) -> Page:
        """A new browser that has been let in; `options` as playwright's contexts have them."""
        if self._cookies is None:
            context = self._browser.new_context()
            context.new_page().goto(self.opened.link)
            self._cookies = context.storage_state()
            context.close()
        context = self._browser.new_context(storage_state=self._cookies, **options)
        context.set_default_timeout(WAIT_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.on("console", self._note)
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog {dialog.message}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error {error}"))
        return page

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type} {message.text}")

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._run(self._pages.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


Show = Callable[..., Shown]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as player:
        started = player.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    """Give a function that serves a source; every tab is checked for what no page may do."""
    served: list[Shown] = []

    def begin(source: Source, *, read_only: bool = False) -> Shown:
        served.append(Shown(browser, source, read_only=read_only))
        return served[-1]

    yield begin
    for each in served:
        each.close()
    for each in served:
        assert each.hosts <= {each.base.removeprefix("http://")}, "a foreign host was asked"
        assert each.troubles == []
