"""The keys of the page, at the bottom: all of them, on as many lines as that takes."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.screen import Screen
from textual.widgets import Static

from mrstream.tui.widgets.ink import ACCENT, PlainText

GAPS = (2, 1)
"""Cells between two keys: the narrower where that saves a line."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is shown: what to press, what is written, and where."""

    key: str
    sign: str
    word: str
    line: int = 0
    start: int = 0

    @property
    def width(self) -> int:
        return len(self.sign) + 1 + len(self.word)


def laid_out(keys: list[Key], width: int) -> list[Key]:
    """Give the keys their places; a line that is full is followed by another."""
    return min((_placed(keys, width, gap) for gap in GAPS), key=lambda placed: placed[-1].line)


def _placed(keys: list[Key], width: int, gap: int) -> list[Key]:
    placed: list[Key] = []
    line, start = 0, 1
    for key in keys:
        if start > 1 and start + key.width > width:
            line, start = line + 1, 1
        placed.append(Key(key.key, key.sign, key.word, line, start))
        start += key.width + gap
    return placed


class KeyLine(Static):
    """Keys and what they do; a click on one is the key."""

    DEFAULT_CSS = """
    KeyLine { dock: bottom; height: auto; background: $footer-background; }
    """

    def __init__(self) -> None:
        super().__init__("", id="keys")
        self._placed: list[Key] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_resize(self, event: events.Resize) -> None:
        self._changed(self.screen)

    def on_click(self, event: events.Click) -> None:
        for key in self._placed:
            if key.line == event.y and key.start <= event.x < key.start + key.width:
                self.app.simulate_key(key.key)

    def _changed(self, screen: Screen[object]) -> None:
        if not self.is_attached or screen is not self.app.screen or not self.app.size.width:
            return
        shown: dict[str, Key] = {}
        for _, binding, enabled, _ in screen.active_bindings.values():
            if binding.show and enabled and binding.action not in shown:
                sign = self.app.get_key_display(binding)
                shown[binding.action] = Key(binding.key, sign, binding.description)
        placed = laid_out(list(shown.values()), self.app.size.width) if shown else []
        if placed == self._placed:
            return
        self._placed = placed
        text, line, column = PlainText(), 0, 0
        for key in placed:
            if key.line != line:
                text.append("\n")
                line, column = key.line, 0
            text.append(" " * (key.start - column))
            text.append(key.sign, ACCENT).append(f" {key.word}")
            column = key.start + key.width
        self.update(text)
