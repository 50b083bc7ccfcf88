"""One attempt: what its command writes, as it writes it; and how to repeat it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.timer import Timer
from textual.widgets import RichLog, Static

from mrstream.tui.screens.page import Page
from mrstream.tui.widgets.ink import ACCENT, PlainText
from mrstream.view import actions, attempts

FOLLOW_S = 0.5
LINES_KEPT_MAX = 20_000


class AttemptScreen(Page):
    """stderr or stdout of an attempt, followed live; `/` shows only lines with some text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "other", "Stdout/stderr"),
        Binding("c", "copy", "Copy the repeat command"),
        Binding("k", "kill", "Kill"),
        Binding("f", "fail", "Fail"),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(self, attempt_id: str) -> None:
        super().__init__()
        self.attempt_id = attempt_id
        self._stream = "stderr"
        self._offset = 0
        self._lines: list[str] = []
        self._rest = b""
        self._filter_shown = ""
        self._timer: Timer | None = None
        self._asking = False

    @property
    def repeat_command(self) -> str:
        """The command that repeats this attempt before the user's eyes."""
        return attempts.repeat_command(self.attempt_id)

    def body(self) -> ComposeResult:
        yield Static(id="where")
        yield Static(id="progress")
        yield RichLog(id="log", max_lines=LINES_KEPT_MAX, wrap=False, auto_scroll=True)

    def on_mount(self) -> None:
        super().on_mount()
        self._timer = self.set_interval(FOLLOW_S, self._follow)
        self._follow()
        self.query_one("#log").focus()

    def draw(self) -> None:
        where = PlainText().append(self.attempt_id, "bold").append(f"  {self._stream}", ACCENT)
        if not self._offset:
            where.append("  (nothing written so far)")
        where.append(f"\nrepeat it with  {self.repeat_command}")
        self.query_one("#where", Static).update(where)
        board = self.picture.job
        row = board.attempts.get(self.attempt_id) if board else None
        if row is not None:
            now_s = self.monitor.source.now_s()
            lines = attempts.about(row, now_s)
            self.query_one("#progress", Static).update(PlainText("\n".join(lines)))
        if self.filter_text != self._filter_shown:
            self._filter_shown = self.filter_text
            log = self.query_one("#log", RichLog)
            log.clear()
            self._write(self._lines)

    def _follow(self) -> None:
        if self._asking:
            return
        self._asking = True
        stream, offset = self._stream, self._offset
        self.monitor.ask(
            lambda source: source.log(self.attempt_id, stream, offset),
            lambda news: self._take(stream, offset, news),
        )
        self.set_timer(FOLLOW_S * 4, self._ask_again)

    def _ask_again(self) -> None:
        """An answer that never came must not end the following."""
        self._asking = False

    def _take(self, stream: str, offset: int, news: bytes) -> None:
        self._asking = False
        if not news or stream != self._stream or offset != self._offset or not self.is_mounted:
            return
        self._offset += len(news)
        self.draw()
        *whole, self._rest = (self._rest + news).split(b"\n")
        lines = [line.decode("utf-8", "replace") for line in whole]
        self._lines = (self._lines + lines)[-LINES_KEPT_MAX:]
        self._write(lines)

    def _write(self, lines: list[str]) -> None:
        log = self.query_one("#log", RichLog)
        shown = [line for line in lines if self.passes(line)]
        if shown:
            log.write(PlainText("\n".join(shown)))

    def focus_body(self) -> None:
        self.query_one("#log").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.monitor.read_only and action in ("kill", "fail"))

    def action_other(self) -> None:
        self._stream = "stdout" if self._stream == "stderr" else "stderr"
        self._offset, self._rest, self._lines = 0, b"", []
        self.query_one("#log", RichLog).clear()
        self._asking = False
        self.redraw()
        self._follow()

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.repeat_command)
        self.notify(f"copied: {self.repeat_command}", timeout=4)

    def action_kill(self) -> None:
        self.monitor.confirm(actions.kill_attempt(self.attempt_id))

    def action_fail(self) -> None:
        self.monitor.confirm(actions.fail_attempt(self.attempt_id))
