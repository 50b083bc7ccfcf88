"""Where the chunks of a file are: a line a host, a column a chunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

from mrstream.view.files import ChunkMap, chunk_map
from mrstream.view.picture import ChunkPlace
from mrstream.web.pages.markup import element, joined

UNITS = 10
CHUNKS_DRAWN_MAX = 2000


def drawn(chunks: Sequence[ChunkPlace]) -> Markup:
    """Return the map, what is wrong in words, and the first chunks one by one."""
    found = chunk_map(chunks[:CHUNKS_DRAWN_MAX])
    caption = f"{len(chunks)} chunks; one column a chunk"
    if len(chunks) > CHUNKS_DRAWN_MAX:
        caption = f"{len(chunks)} chunks, the first {CHUNKS_DRAWN_MAX:,} drawn; one column a chunk"
    return joined(
        [element("p", trouble, cls="c-vermillion") for trouble in found.troubles],
        element(
            "div",
            element(
                "table",
                element("caption", caption),
                element("tbody", [_line(found, at) for at in range(len(found.hosts))]),
                cls="plain chunks",
            ),
            cls="wide",
            tabindex=0,
            role="region",
            aria_label="Hosts and the chunks that they hold",
        ),
        element("pre", "\n".join(found.chunks), tabindex=0),
    )


def _line(found: ChunkMap, at: int) -> Markup:
    held = found.held[at]
    strokes, column = {True: "", False: ""}, 0
    for is_here, run in groupby(held):
        length = sum(1 for _ in run)
        strokes[is_here] += f"M{column * UNITS} {UNITS // 2}h{length * UNITS}"
        column += length
    drawing = element(
        "svg",
        element("path", cls="t-done s-sky", d=strokes[True]),
        element("path", cls="t-idle s-grey", d=strokes[False]),
        viewBox=f"0 0 {len(held) * UNITS} {UNITS}",
        width=len(held) * UNITS,
        height=UNITS,
        aria_hidden="true",
    )
    here = f"{sum(held)} of {len(held)}"
    return element(
        "tr",
        element("th", found.hosts[at], scope="row"),
        element("td", here, cls="num"),
        element("td", drawing),
    )
