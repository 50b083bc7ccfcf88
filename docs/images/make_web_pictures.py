"""Draw the pictures of the pages that README shows: needs the test group, and Debian's chromium."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from make_pictures import Still
from playwright.async_api import Browser, async_playwright

from mrstream.web.local import LocalPages

HERE = Path(__file__).parent
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
AT_S = 470.0
PICTURES: list[tuple[str, str, dict[str, Any]]] = [
    ("web-job.png", "/jobs/{job}", {"viewport": {"width": 1120, "height": 1010}}),
    (
        "web-hosts-dark.png",
        "/hosts?sort=load",
        {"viewport": {"width": 1120, "height": 560}, "color_scheme": "dark"},
    ),
    ("web-phone.png", "/jobs/{job}", {"viewport": {"width": 390, "height": 780}}),
]


async def draw(browser: Browser, link: str, job_id: str) -> None:
    first = await browser.new_context()
    await (await first.new_page()).goto(link)
    cookies = await first.storage_state()
    base = link.partition("/enter")[0]
    for name, path, options in PICTURES:
        context = await browser.new_context(storage_state=cookies, **options)
        page = await context.new_page()
        await page.goto(base + path.format(job=job_id))
        await page.screenshot(path=HERE / name)
        await context.close()


async def main() -> None:
    source = Still()
    source.advance_to(AT_S)
    pages = LocalPages(source)
    opened = await pages.open()
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        await draw(browser, opened.link, source.job_id)
        await browser.close()
    await pages.close()


if __name__ == "__main__":
    asyncio.run(main())
