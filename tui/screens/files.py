"""The files of the dfs: browse, preview, see where the chunks are; the trash."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from mrstream.tui.screens.page import Page
from mrstream.tui.screens.report import ReportScreen
from mrstream.tui.widgets.bar import bar
from mrstream.tui.widgets.ink import BAD, DONE, PlainText
from mrstream.tui.widgets.table import RowTable, columns
from mrstream.view import actions, files
from mrstream.view.cells import Cell, Row
from mrstream.view.picture import ChunkPlace, FileEntry, Trash

UP = ".."


def chunk_map(chunks: list[ChunkPlace]) -> PlainText:
    """Draw which host holds which chunk: one line a host, one sign a chunk."""
    found = files.chunk_map(chunks)
    width = max((len(host) for host in found.hosts), default=4)
    text = PlainText().append(f"{len(chunks)} chunks; one column a chunk\n", "dim")
    for host, held in zip(found.hosts, found.held, strict=True):
        text.append(f"{host:<{width}}  ", "bold")
        for is_here in held:
            text.append("■" if is_here else "·", DONE if is_here else "dim")
        text.append("\n")
    for trouble in found.troubles:
        text.append(f"{trouble}\n", BAD)
    return text.append("".join(f"{told}\n" for told in found.chunks))


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
        yield RowTable(columns(files.COLUMNS, {}), id="files")
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
        self.query_one("#where", Static).update(PlainText(place, no_wrap=True))
        rows: list[Row] = [
            (entry.path, files.entry_cells(entry))
            for entry in files.listed(self._entries, wanted=self.filter_text)
        ]
        if self.path != "/" or self.in_trash:
            rows.insert(0, (UP, (Cell("../", loud=True), *[Cell("")] * 5)))
        nothing = files.EMPTY_TRASH if self.in_trash else files.EMPTY_DIRECTORY
        self.show_rows(self.query_one(RowTable), rows, nothing if self._read else "Reading…")

    def action_reload(self) -> None:
        path, in_trash = self.path, self.in_trash
        if in_trash:
            self.monitor.ask(lambda source: source.trash(), self._take_trash)
        else:
            self.monitor.ask(
                lambda source: source.list_directory(path),
                lambda entries: self._take(path, False, entries),
            )

    def _take_trash(self, trash: Trash) -> None:
        if self.in_trash and self.is_mounted:
            self._about("\n".join(files.not_shown(trash.silent)))
        self._take("/", True, list(trash.entries))

    def _take(self, path: str, in_trash: bool, entries: list[FileEntry]) -> None:
        if (path, in_trash) == (self.path, self.in_trash) and self.is_mounted:
            self._read = True
            self._entries = entries
            self.redraw()

    def _go(self, path: str, *, trash: bool = False) -> None:
        self.path, self.in_trash, self._entries, self._read = path, trash, [], False
        self._about("")
        self.redraw()
        self.action_reload()

    def _about(self, text: str | PlainText) -> None:
        self.query_one("#about", Static).update(PlainText(text) if isinstance(text, str) else text)
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
            self._go(files.parent(self.path))

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
                    PlainText().append(path + "  ", "bold").append(chunk_map(chunks))
                ),
            )

    def action_space(self) -> None:
        path = self.path
        self.monitor.ask(lambda source: source.usage(path), self._show_usage)

    def _show_usage(self, usage: list[tuple[str, int]]) -> None:
        text = PlainText().append("space below here\n", "dim")
        for path, used in files.shares(usage):
            text.append(f"{used.text:>6} ").append_text(bar(used.share or 0.0, 20))
            text.append(f" {path}\n", "bold")
        self._about(text)

    def action_trash(self) -> None:
        self._go("/", trash=not self.in_trash)

    def action_undelete(self) -> None:
        chosen = self._chosen()
        if not (chosen and self.in_trash):
            self.notify("go to the trash (t) and choose a file first", timeout=3)
            return
        self.monitor.confirm(actions.undelete(chosen.path))

    def action_replication(self) -> None:
        chosen = self._chosen()
        if not chosen or chosen.is_directory:
            self.notify("choose a file first", timeout=3)
            return
        path = chosen.path
        self.ask(
            f"How many copies of {path}?",
            str(chosen.replication),
            lambda value: self.monitor.confirm(actions.set_replication(path, value)),
        )
