"""The line at the top of every page: the cluster at a glance, and whether we still hear of it."""

from __future__ import annotations

from textual.widgets import Static

from mrstream.tui.widgets.ink import PlainText, ink
from mrstream.view.picture import Picture
from mrstream.view.summary import Part, parts, silence

LOST_STYLE = "bold #ffffff on #b04a00"


def summary(picture: Picture, now_s: float, *, read_only: bool, width: int = 200) -> PlainText:
    """Return the one line that answers: is everything all right? What is wrong comes before what is
    merely good to know, which is left out where there is no room for it."""
    line = PlainText().append(f" {picture.cluster or 'no cluster'} ", "bold reverse")
    silent = silence(picture, now_s)
    if silent:
        line.append(f" {silent} ", LOST_STYLE)
        return line.append(" last picture below; trying again")
    drawn = [(part.rank, _drawn(part)) for part in parts(picture)]
    if read_only:
        drawn.append((1, PlainText("read-only", "italic dim")))
    while drawn and len(line) + sum(len(text) + 2 for _, text in drawn) > width:
        drawn.remove(max(drawn, key=lambda ranked: ranked[0]))
    for _, text in drawn:
        line.append("  ").append_text(text)
    return line


def _drawn(part: Part) -> PlainText:
    style = ink(part.cell.colour, loud=part.cell.loud)
    if not part.label:
        return PlainText(part.cell.text, style)
    return PlainText().append(f"{part.label} ", "dim").append(part.cell.text, style)


class Summary(Static):
    """The summary line; drawn again only when its text differs."""

    DEFAULT_CSS = "Summary { height: 1; }"

    def __init__(self) -> None:
        super().__init__("", id="summary")
        self._shown = ""

    def show(self, picture: Picture, now_s: float, *, read_only: bool) -> None:
        line = summary(picture, now_s, read_only=read_only, width=self.app.size.width)
        if line.markup != self._shown:
            self._shown = line.markup
            self.update(line)
