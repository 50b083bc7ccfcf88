"""Draw the pictures of the monitor that README shows, in an environment with mrstream."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from mrstream.tui.app import Monitor
from mrstream.view.demo import DemoSource

HERE = Path(__file__).parent

SIZE = (132, 40)


class Still(DemoSource):
    """The demonstration at one moment: time stands while the picture is taken."""

    def _catch_up(self) -> None:
        return


def plain(svg: str) -> str:
    """Leave out fonts from elsewhere, and keep blanks: the picture stands for itself."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("<text ", '<text xml:space="preserve" ')


async def picture(at_s: float, name: str, *keys: str) -> None:
    source = Still()
    source.advance_to(at_s)
    monitor = Monitor(source, job_id=source.job_id)
    async with monitor.run_test(size=SIZE) as pilot:
        while monitor.picture.job is None:
            await pilot.pause(0.05)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.2)
        await pilot.pause(1.5)
        title = f"mrstream top --demo, {at_s:.0f} simulated seconds into the job"
        (HERE / name).write_text(plain(monitor.export_screenshot(title=title)))


async def main() -> None:
    await picture(470.0, "top-job.svg")
    await picture(440.0, "top-hosts.svg", "2")


if __name__ == "__main__":
    asyncio.run(main())
