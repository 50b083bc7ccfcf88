"""The trash: deleted files that can still be brought back."""

from __future__ import annotations

from mrstream.view import files
from mrstream.view.cells import Cell, Column
from mrstream.view.words import moment
from mrstream.web.pages.markup import Child, element, joined, url
from mrstream.web.pages.parts import finder, nothing, page_slice, pager, table
from mrstream.web.pages.visit import Page, Visit

COLUMNS = (Column("Name"), Column("Deleted"))


def page(visit: Visit) -> Page:
    """Return what was deleted, each with the way back."""
    trash = visit.source.trash()
    silent = files.not_shown(cell for cell in trash.silent if visit.visitor.may_enter(cell.path))
    troubles = [element("p", line, cls="c-vermillion") for line in silent]
    found = [
        entry
        for entry in files.listed(trash.entries)
        if visit.wanted.lower() in entry.path.lower() and visit.visitor.may_see(entry.path)
    ]

    def back(path: str) -> Child:
        if not visit.visitor.may_change:
            return None
        return element("a", "Bring back", href=url("/act/undelete", path=path))

    if found:
        rows = [
            (entry.path, (Cell(entry.path), Cell(moment(entry.modified_at_s))))
            for entry in found[page_slice(visit.page)]
        ]
        listed = table("Trash", COLUMNS, rows, more=back)
    else:
        listed = joined() if silent else nothing(files.EMPTY_TRASH, visit.wanted)
    ways = pager("/trash", visit.page, len(found), find=visit.wanted)
    return Page(
        "Trash", (finder("/trash", visit.wanted), joined(troubles, listed, ways)), here="Trash"
    )
