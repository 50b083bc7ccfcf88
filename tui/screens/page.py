"""What all pages share: the summary above, the keys below, a filter line on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input, Static

from mrstream.cluster.errors import UserError
from mrstream.tui.screens.confirm import Ask
from mrstream.tui.widgets.ink import PlainText
from mrstream.tui.widgets.key_line import KeyLine
from mrstream.tui.widgets.summary import Summary, Troubles
from mrstream.tui.widgets.table import RowTable
from mrstream.view.actions import Action
from mrstream.view.cells import Row, passes
from mrstream.view.picture import Picture
from mrstream.view.source import Source
from mrstream.view.summary import NO_ANSWER_YET

Answer = TypeVar("Answer")


class Monitor(Protocol):
    """The application, as its pages use it."""

    source: Source
    read_only: bool
    picture: Picture

    def watch_job(self, job_id: str) -> None: ...

    def ask(
        self, question: Callable[[Source], Answer], then: Callable[[Answer], object]
    ) -> None: ...

    def act(self, action: Action) -> None: ...

    def confirm(self, action: Action) -> None: ...


class Page(Screen[None]):
    """A full page. Subclasses compose their body and draw it from the picture."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Find"),
        Binding("escape", "leave", "Back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self._mounted_once = False

    @property
    def monitor(self) -> Monitor:
        """The application, by its own type."""
        return cast("Monitor", self.app)

    @property
    def picture(self) -> Picture:
        return self.monitor.picture

    @property
    def _composed(self) -> bool:
        """Whether the widgets are there: news may come before they are and while they go, one
        after the other."""
        return self._mounted_once and bool(self.query(Summary)) and bool(self.query(KeyLine))

    def compose(self) -> ComposeResult:
        yield Summary()
        yield Troubles()
        yield from self.body()
        yield Input(
            placeholder="show only rows with this text; Enter keeps, Esc clears", id="filter"
        )
        yield KeyLine()

    def body(self) -> ComposeResult:
        """Return the widgets between summary and keys."""
        raise NotImplementedError

    def draw(self) -> None:
        """Bring the body up to date with the picture."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self._mounted_once = True
        self.query_one("#filter", Input).display = False
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Bring everything up to date with the picture."""
        if self._composed:
            self.tick()
            self.draw()

    def tick(self) -> None:
        """Time went by and nothing else: only the summary can differ."""
        if not self._composed:
            return
        now_s = self.monitor.source.now_s()
        self.query_one(Summary).show(self.picture, now_s, read_only=self.monitor.read_only)
        self.query_one(Troubles).show(self.picture)

    def show_rows(self, table: RowTable, rows: list[Row], nothing: str) -> None:
        """Show these rows; if there are none, say why in the place of the table's body."""
        table.show(rows)
        if self.picture.lost_reason and not self.picture.at_s:
            nothing = NO_ANSWER_YET
        elif self.filter_text:
            nothing = f"Nothing here has {self.filter_text!r} in it; Esc shows all again."
        table.set_class(not rows, "empty")
        said = self.query_one("#nothing", Static)
        said.display = not rows
        if not rows:
            said.update(PlainText(nothing))

    def passes(self, *words: str) -> bool:
        """Whether a row with these words passes the filter."""
        return passes(self.filter_text, *words)

    def action_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.display = True
        line.focus()

    def action_leave(self) -> None:
        line = self.query_one("#filter", Input)
        if line.display:
            line.value = ""
            line.display = False
            self.filter_text = ""
            self.redraw()
            self.focus_body()
        elif len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def focus_body(self) -> None:
        """Give the keyboard back to what the page shows."""
        self.focus_next()

    def ask(self, question: str, usual: str, use: Callable[[str], None]) -> None:
        """Ask for a value; what is wrong with it is said."""

        def given(value: str | None) -> None:
            if value is None:
                return
            try:
                use(value)
            except UserError as error:
                self.notify(str(error), severity="error")

        self.app.push_screen(Ask(question, usual), given)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.filter_text = event.value
            self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            event.input.display = bool(event.value)
            self.focus_body()
