"""The files of the dfs: browse, look into one, see where its chunks are; what can be done to it."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from mrstream.cluster.errors import Corrupt, UserError
from mrstream.view import files
from mrstream.view.picture import FileEntry
from mrstream.view.words import mode, moment, size
from mrstream.web.pages import chunk_map
from mrstream.web.pages.markup import Child, element, joined, url
from mrstream.web.pages.parts import button, cell_content, facts, finder, link, nothing, table
from mrstream.web.pages.visit import Page, Visit

ENTRIES_A_PAGE = 500
VIEWS = ("preview", "chunks", "story")
VIEW_WORDS = {"preview": "Preview", "chunks": "Chunks", "story": "Story"}
HEX_BYTES_MAX = 4096
LINES_MAX = 200


def page(visit: Visit, path: str) -> Page:
    """Return a directory's list, or what is known of a file."""
    visit.visitor.check(path)
    entry = visit.source.stat(path)
    return _directory(visit, path) if entry.is_directory else _file(visit, entry)


# --- A directory


def _directory(visit: Visit, path: str) -> Page:
    entries = visit.source.list_directory(path)
    found = [
        entry
        for entry in files.listed(entries, wanted=visit.wanted)
        if visit.visitor.may_see(entry.path)
    ]
    first = (visit.page - 1) * ENTRIES_A_PAGE
    shown = found[first : first + ENTRIES_A_PAGE]
    if shown:
        rows = [(entry.path, files.entry_cells(entry)) for entry in shown]
        listed = table(
            path, files.COLUMNS, rows, link=lambda key: url(f"/files{key}"),
            more=(lambda key: _entry_acts(visit, key)),
        )  # fmt: skip
    else:
        listed = nothing(files.EMPTY_DIRECTORY, visit.wanted)
    acts = None
    if visit.visitor.may_change:
        acts = element(
            "div",
            button("Upload…", "/act/upload", into=path),
            button("New directory…", "/act/mkdir", into=path),
            cls="acts",
        )
    body = (
        finder(f"/files{path}", visit.wanted),
        joined(acts, listed, _pager(visit, path, len(found)), _space(visit, path)),
    )
    return Page(path, body, here="Files", back=_crumbs(path))


def _entry_acts(visit: Visit, path: str) -> Child:
    if not visit.visitor.may_change:
        return None
    return [
        element("a", "Rename", href=url("/act/rename", path=path)),
        " ",
        element("a", "Delete", href=url("/act/delete", path=path)),
    ]


def _pager(visit: Visit, path: str, count: int) -> Child:
    pages = -(-count // ENTRIES_A_PAGE)
    if pages < 2:
        return None
    there = f"/files{path}"
    return element(
        "nav",
        link("← before", there, find=visit.wanted, page=visit.page - 1) if visit.page > 1 else None,
        element("span", f"page {visit.page:,} of {pages:,}, {count:,} entries"),
        link("after →", there, find=visit.wanted, page=visit.page + 1)
        if visit.page < pages
        else None,
        cls="pager",
        aria_label="Pages of this list",
    )


def _space(visit: Visit, path: str) -> Child:
    """Space by directory, on request: the master sums it up for each question."""
    if visit.query.get("view") != "space":
        return element("p", link("Space below here", f"/files{path}", view="space"))
    found = [pair for pair in visit.source.usage(path) if visit.visitor.may_see(pair[0])]
    rows = [
        element(
            "tr",
            element("th", link(below, f"/files{below}"), scope="row"),
            element("td", cell_content(used), cls="bars"),
        )
        for below, used in files.shares(found)
    ]
    return element(
        "table",
        element("caption", "space below here"),
        element("tbody", rows),
        cls="plain phases",
    )


# --- A file


def _file(visit: Visit, entry: FileEntry) -> Page:
    path, view = entry.path, visit.one_of("view", VIEWS)
    tabs = [
        element(
            "li",
            element(
                "a", VIEW_WORDS[each], href=url(f"/files{path}", view=each),
                aria_current=each == view and "page",
            ),
        )
        for each in VIEWS
    ]  # fmt: skip
    body = joined(
        facts(
            [
                ("size", f"{size(entry.length_bytes)} ({entry.length_bytes:,} bytes)"),
                ("copies", str(entry.replication)),
                ("owner", f"{entry.owner}:{entry.group}"),
                ("mode", mode(entry.mode, is_directory=False)),
                ("modified", moment(entry.modified_at_s)),
            ]
        ),
        _file_acts(visit, path),
        element("nav", element("ul", tabs), cls="tabs", aria_label="About this file"),
        _shown(visit, path, view),
    )
    return Page(entry.name, (body,), here="Files", back=_crumbs(path))


def _file_acts(visit: Visit, path: str) -> Markup:
    download = element("a", "Download", href=url(f"/download{path}"), cls="button", download=True)
    changes = [
        button("Rename…", "/act/rename", path=path),
        button("Copies…", "/act/replication", path=path),
        button("Delete…", "/act/delete", cls="danger", path=path),
    ]
    return element("div", download, changes if visit.visitor.may_change else None, cls="acts")


def _shown(visit: Visit, path: str, view: str) -> Markup:
    if view == "chunks":
        return chunk_map.drawn(visit.source.chunks(path))
    if view == "story":
        told = [
            element("li", element("span", moment(at_s), cls="age"), " ", text)
            for at_s, text in visit.source.story(path)
        ]
        return element("ul", told, cls="events") if told else nothing("Nothing is remembered.")
    try:
        data = visit.source.head(path)
    except (Corrupt, UserError) as error:
        return nothing(f"{path} cannot be shown: {error}")
    return preview(data)


def preview(data: bytes) -> Markup:
    """Return the beginning of a file as text; as numbers if it is none. It is never more than that,
    whatever the bytes are."""
    if not data:
        return nothing("This file is empty.")
    if is_text(data):
        lines = data.split(b"\n")[:LINES_MAX]
        return element("pre", b"\n".join(lines).decode("utf-8", "replace"), tabindex=0)
    note = element("p", f"No text: the first {min(len(data), HEX_BYTES_MAX):,} bytes as numbers.")
    return joined(note, element("pre", hex_lines(data[:HEX_BYTES_MAX]), tabindex=0))


def is_text(data: bytes) -> bool:
    """Whether these bytes are for people: UTF-8 (perhaps cut at the end), and no NUL."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(data) - 3
    return True


def hex_lines(data: bytes) -> str:
    """Return sixteen bytes a line: offset, numbers, and the letters among them."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def _crumbs(path: str) -> tuple[tuple[str, str], ...]:
    """The directories above a path, each a link."""
    if path == "/":
        return ()
    above: Sequence[str] = path.strip("/").split("/")[:-1]
    steps = [("Files", "/files/")]
    for at, name in enumerate(above):
        steps.append((name, "/files/" + "/".join(above[: at + 1])))
    return tuple(steps)
