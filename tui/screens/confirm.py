"""Small windows: a question before an action, a value to type, the help."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from mrstream.tui.widgets.ink import PlainText


class Confirm(ModalScreen[bool]):
    """Ask before something is done that cannot be undone by a key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Label(PlainText(self._question))
            with Horizontal(classes="buttons"):
                yield Button("No (n)", id="no", variant="primary")
                yield Button("Yes (y)", id="yes", variant="error")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Ask(ModalScreen[str | None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Cancel")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question, self._value = question, value

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Label(PlainText(self._question))
            yield Input(self._value, id="answer")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_give_up(self) -> None:
        self.dismiss(None)


class Help(ModalScreen[None]):
    """What the keys do and what the signs mean."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "Close")]

    TEXT = """\
1 2 3   jobs, hosts, files          k   kill a job or an attempt
Enter   open what the cursor is on  f   fail an attempt
Esc     back                        p   change a job's priority
/       only rows with some text    e   why the job failed
s S     sort; turn the order round  r   set a file's replication
o       stderr or stdout            v   preview a file
c       copy the repeat command     m   map of a file's chunks
t u     trash; bring a file back    d   space by directory
?       this help                   q   quit

·  idle    ▸  running    ■  done    ✗  failed    ◆  has a backup
A cell for several tasks is shaded by how many of them are done.
Whatever changes something asks first.
"""

    def compose(self) -> ComposeResult:
        with Vertical(classes="window help"):
            yield Static(self.TEXT, markup=False)
