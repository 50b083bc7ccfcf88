"""A real terminal to type at: tmux on a server of its own."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Mapping, Sequence

from tests.cluster.local import wait_for


class Terminal:
    """A shell in a window of `columns` × `lines`; `type` sends keys, `screen` reads it."""

    def __init__(self, environment: Mapping[str, str], columns: int = 120, lines: int = 40) -> None:
        self._server = f"mrstream-{uuid.uuid4().hex[:12]}"
        self._tmux(
            "new-session", "-d", "-x", str(columns), "-y", str(lines),
            "env", "-i", *(f"{name}={value}" for name, value in environment.items()),
            "TERM=screen-256color", "PS1=ready> ", "/bin/sh",
        )  # fmt: skip
        self.wait("ready>")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._server, "-f", "/dev/null", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        """Press keys by their tmux names (`Enter`, `Escape`, `Down`), or text."""
        self._tmux("send-keys", *keys)

    def run(self, command: Sequence[str]) -> None:
        """Type a command and press Enter."""
        quoted = " ".join(f"'{word}'" for word in command)
        self._tmux("send-keys", "-l", quoted)
        self.type("Enter")

    def screen(self) -> str:
        """What one sees now."""
        return self._tmux("capture-pane", "-p")

    def wait(self, text: str, seconds: float = 60.0) -> str:
        """Wait until the screen shows some text."""

        def shown() -> str | None:
            screen = self.screen()
            return screen if text in screen else None

        try:
            return wait_for(shown, seconds, f"{text!r} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen()}") from None

    def in_alternate_screen(self) -> bool:
        """Whether a full-screen program has not given the screen back."""
        return self._tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def close(self) -> None:
        """End the terminal and what runs in it."""
        self._tmux("kill-server")
