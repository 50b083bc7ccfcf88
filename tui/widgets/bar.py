"""A bar that shows a share: heavy where it is done, thin where not; it reads without colour."""

from __future__ import annotations

from mrstream.tui.widgets.ink import DONE, REST, PlainText


def bar(fraction: float, width: int) -> PlainText:
    """Return a bar of `width` cells, in halves; less than half a cell still shows as something."""
    share = max(0.0, min(1.0, fraction))
    halves = round(share * width * 2)
    if share and not halves:
        halves = 1
    if share < 1 and halves == width * 2:
        halves -= 1
    full, half = divmod(halves, 2)
    rest = width - full - half
    text = PlainText().append("━" * full + "╸" * half, DONE)
    return text.append("─" * rest, REST)
