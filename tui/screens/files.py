"""The files of the dfs: browse, preview, see where the chunks are; the trash."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tui.screens.confirm import Ask
from tui.screens.page import Page
from tui.screens.report import ReportScreen
from tui.widgets.bar import bar
from tui.widgets.table import Cell, Column, RowTable
from view.picture import ChunkPlace, FileEntry
from view.words import natural, size

UP = ".."


def mode_text(entry: FileEntry) -> str:
    """Give `drwxr-xr-x`."""
    letters = "".join(
        letter if entry.mode >> (8 - i) & 1 else "-" for i, letter in enumerate("rwxrwxrwx")
    )
    return ("d" if entry.is_directory else "-") + letters


def entry_cells(entry: FileEntry) -> tuple[Cell, ...]:
    """Give the cells of one directory entry."""
    name = f"{entry.name}/" if entry.is_directory else entry.name
    return (
        Text(name, "bold #56b4e9" if entry.is_directory else ""),
        "–" if entry.is_directory else size(entry.length_bytes),
        "–" if entry.is_directory else str(entry.replication),
        entry.owner,
        mode_text(entry),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified_at_s)),
    )


def chunk_map(chunks: list[ChunkPlace]) -> Text:
    """Draw which host holds which chunk: one line a host, one sign a chunk."""
    hosts = sorted({host for chunk in chunks for host in chunk.hosts}, key=natural)
    width = max((len(host) for host in hosts), default=4)
    text = Text().append(f"{len(chunks)} chunks; one column a chunk\n", "dim")
    for host in hosts:
        text.append(f"{host:<{width}}  ", "bold")
        for chunk in chunks:
            text.append(
                "■" if host in chunk.hosts else "·", "#56b4e9" if host in chunk.hosts else "dim"
            )
        text.append("\n")
    for chunk in chunks:
        if chunk.state != "good":
            text.append(
                f"✗ chunk {chunk.index} ({chunk.handle:x}): {chunk.state}\n", "bold #d55e00"
            )
    for chunk in chunks[:200]:
        where = ", ".join(chunk.hosts) or "nowhere"
        text.append(f"{chunk.index:>5}  {chunk.handle:016x}  v{chunk.version}")
        text.append(f"  {size(chunk.length_bytes):>5}  {where}\n")
    return text


class FilesScreen(Page):
    """One directory at a time; what is known of the chosen file below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", priority=True),
        Binding("backspace", "up", "Up"),
        Binding("v", "preview", "Preview"),
        Binding("m", "map", "Chunks"),
        Binding("d", "space", "Space"),
        Binding("t", "trash", "Trash"),
        Binding("u", "undelete", "Undelete"),
        Binding("r", "replication", "Replication"),
        Binding("f5", "reload", "Reload", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.path = "/"
        self.in_trash = False
        self._entries: list[FileEntry] = []
        self._read = False

    def body(self) -> ComposeResult:
        yield Static(id="where")
        yield RowTable(
            [
                Column("Name"),
                Column("Size", right=True),
                Column("Copies", right=True),
                Column("Owner"),
                Column("Mode"),
                Column("Modified"),
            ],
            id="files",
        )
        yield Static(id="nothing")
        with VerticalScroll(id="detail"):
            yield Static(id="about", markup=False)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#detail").display = False
        self.action_reload()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.action_reload()

    def draw(self) -> None:
        place = "trash: deleted files, u brings one back" if self.in_trash else self.path
        self.query_one("#where", Static).update(Text(place, no_wrap=True))
        rows = [
            (entry.path, entry_cells(entry)) for entry in self._entries if self.passes(entry.name)
        ]
        if self.path != "/" or self.in_trash:
            rows.insert(0, (UP, (Text("../", "bold"), "", "", "", "", "")))
        nothing = "The trash is empty." if self.in_trash else "This directory is empty."
        self.show_rows(self.query_one(RowTable), rows, nothing if self._read else "Reading…")

    def action_reload(self) -> None:
        path, in_trash = self.path, self.in_trash
        self.monitor.ask(
            lambda source: source.trash() if in_trash else source.list_directory(path),
            lambda entries: self._take(path, in_trash, entries),
        )

    def _take(self, path: str, in_trash: bool, entries: list[FileEntry]) -> None:
        if (path, in_trash) == (self.path, self.in_trash) and self.is_mounted:
            self._read = True
            self._entries = sorted(entries, key=lambda e: (not e.is_directory, e.name))
            self.redraw()

    def _go(self, path: str, *, trash: bool = False) -> None:
        self.path, self.in_trash, self._entries, self._read = path, trash, [], False
        self._about("")
        self.redraw()
        self.action_reload()

    def _about(self, text: str | Text) -> None:
        self.query_one("#about", Static).update(text)
        self.query_one("#detail").display = bool(text)

    def _chosen(self) -> FileEntry | None:
        key = self.query_one(RowTable).selected_key
        return next((entry for entry in self._entries if entry.path == key), None)

    def focus_body(self) -> None:
        self.query_one(RowTable).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self.monitor.read_only and action in ("undelete", "replication"))

    def action_open(self) -> None:
        if self.query_one("#filter").has_focus:
            self.focus_body()
            return
        chosen = self._chosen()
        if self.query_one(RowTable).selected_key == UP:
            self.action_up()
        elif chosen and chosen.is_directory and not self.in_trash:
            self._go(chosen.path)
        elif chosen:
            self.action_map()

    def action_up(self) -> None:
        if self.in_trash:
            self._go("/")
        elif self.path != "/":
            self._go(self.path.rstrip("/").rsplit("/", 1)[0] or "/")

    def action_preview(self) -> None:
        chosen = self._chosen()
        if chosen and not chosen.is_directory:
            path = chosen.path
            self.monitor.ask(
                lambda source: source.preview(path),
                lambda text: self.app.push_screen(ReportScreen(path, text)),
            )

    def action_map(self) -> None:
        chosen = self._chosen()
        if chosen and not chosen.is_directory:
            path = chosen.path
            self.monitor.ask(
                lambda source: source.chunks(path),
                lambda chunks: self._about(
                    Text().append(path + "  ", "bold").append_text(chunk_map(chunks))
                ),
            )

    def action_space(self) -> None:
        path = self.path
        self.monitor.ask(lambda source: source.usage(path), self._show_usage)

    def _show_usage(self, usage: list[tuple[str, int]]) -> None:
        most = max((used for _, used in usage), default=0) or 1
        text = Text().append("space below here\n", "dim")
        for path, used in usage:
            text.append(f"{size(used):>6} ").append_text(bar(used / most, 20))
            text.append(f" {path}\n", "bold")
        self._about(text)

    def action_trash(self) -> None:
        self._go("/", trash=not self.in_trash)

    def action_undelete(self) -> None:
        chosen = self._chosen()
        if not (chosen and self.in_trash):
            self.notify("go to the trash (t) and choose a file first", timeout=3)
            return
        path = chosen.path
        self.monitor.confirm(f"Bring back {path}?", lambda source: source.undelete(path))

    def action_replication(self) -> None:
        chosen = self._chosen()
        if not chosen or chosen.is_directory:
            self.notify("choose a file first", timeout=3)
            return
        path = chosen.path

        def given(value: str | None) -> None:
            if value is None:
                return
            if not value.isdigit() or not 1 <= int(value) <= 100:
                self.notify(f"{value!r} is no number of copies; 1 to 100", severity="error")
                return
            self.monitor.confirm(
                f"Keep {value} copies of {path}?",
                lambda source: source.set_replication(path, int(value)),
            )

        self.app.push_screen(Ask(f"How many copies of {path}?", str(chosen.replication)), given)
