"""A text to read: a failure report, a preview."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from mrstream.tui.widgets.ink import PlainText


class ReportScreen(ModalScreen[None]):
    """A window that scrolls; nothing in it is markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close"),
        Binding("c", "copy", "Copy"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="report"):
            yield Label(PlainText(self._title))
            yield Static(PlainText(self._text or "(empty)"))

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._text)
        self.notify("copied", timeout=2)
