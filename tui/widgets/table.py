"""A table that writes only the cells that differ, and keeps its cursor on the same row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.widgets import DataTable
from textual.widgets.data_table import ColumnKey

from mrstream.tui.widgets.bar import bar
from mrstream.tui.widgets.ink import PlainText, ink
from mrstream.view.cells import Cell, Row
from mrstream.view.cells import Column as Titled


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, its width if that is fixed, where its cells stand, cells of its bars."""

    title: str
    width: int | None = None
    right: bool = False
    bar: int = 0


def columns(
    titled: Sequence[Titled], widths: dict[str, int], bars: dict[str, int] | None = None
) -> list[Column]:
    """Give these columns to a terminal: some of them with a fixed width, some with bars."""
    return [
        Column(each.title, widths.get(each.title), each.right, (bars or {}).get(each.title, 0))
        for each in titled
    ]


class RowTable(DataTable[PlainText]):
    """Rows by key. `show` is called with the whole wanted content as often as one likes."""

    DEFAULT_CSS = "RowTable { height: 1fr; }"

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._wanted_columns = list(columns)
        self._keys: list[str] = []
        self._cells: dict[str, tuple[Cell, ...]] = {}

    def on_mount(self) -> None:
        self._add_columns()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Have these columns from now on; does nothing if they are the same."""
        if list(columns) == self._wanted_columns:
            return
        self._wanted_columns = list(columns)
        self._keys, self._cells = [], {}
        self.clear(columns=True)
        self._add_columns()

    def _add_columns(self) -> None:
        for index, column in enumerate(self._wanted_columns):
            title = PlainText(column.title, justify="right" if column.right else "left")
            self.add_column(title, key=str(index), width=column.width)

    @property
    def selected_key(self) -> str | None:
        """The key of the row under the cursor."""
        if 0 <= self.cursor_row < len(self._keys):
            return self._keys[self.cursor_row]
        return None

    def show(self, rows: Sequence[Row]) -> None:
        """Make these the rows, in this order."""
        keys = [key for key, _ in rows]
        if keys != self._keys:
            self._rebuild(rows, keys)
            return
        for key, cells in rows:
            old = self._cells[key]
            for index, cell in enumerate(cells):
                if old[index] != cell:
                    self._write(key, index, self._drawn(index, cell))
            self._cells[key] = cells

    def _write(self, key: str, index: int, text: PlainText) -> None:
        """Write one cell; its column grows where the words need more room than any before had. To
        make it narrower again would be to measure all of it each time."""
        column = self.columns[ColumnKey(str(index))]
        is_wider = column.auto_width and text.cell_len > column.content_width
        self.update_cell(key, str(index), text, update_width=is_wider)

    def _rebuild(self, rows: Sequence[Row], keys: list[str]) -> None:
        selected, row_before, scroll = self.selected_key, self.cursor_row, self.scroll_y
        self.clear()
        for key, cells in rows:
            self.add_row(*(self._drawn(i, cell) for i, cell in enumerate(cells)), key=key)
        self._keys = keys
        self._cells = dict(rows)
        if selected in self._cells:
            self.move_cursor(row=keys.index(selected), scroll=False)
        elif keys:
            self.move_cursor(row=min(row_before, len(keys) - 1), scroll=False)
        self.scroll_to(y=scroll, animate=False)

    def _drawn(self, index: int, cell: Cell) -> PlainText:
        column = self._wanted_columns[index]
        if cell.share is not None and column.bar:
            text = bar(cell.share, column.bar).append(f" {cell.text}", "default")
        else:
            text = PlainText(cell.text, ink(cell.colour, loud=cell.loud))
        if column.right:
            text.justify = "right"
        return text
