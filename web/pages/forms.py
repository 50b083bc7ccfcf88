"""What can be done from a page: each action asks first on a page of its own, then is done by POST.

`ACTIONS` is the whole list. An action is made from the words of the address (to ask) or of the form
(to act), which are checked by `view.actions` both times: nothing is trusted to come back unchanged.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from mrstream.cluster.errors import UserError
from mrstream.view import actions
from mrstream.view.actions import Action
from mrstream.view.files import parent
from mrstream.web.http.tokens import digest
from mrstream.web.pages.markup import Child, element, url
from mrstream.web.pages.parts import choice, hidden
from mrstream.web.pages.visit import NoSuchPage, OutOfBounds, Page, Visit, Visitor

Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of action: what it needs to be told, what it is, and where one is led afterwards."""

    title: str
    needs: tuple[str, ...]
    make: Callable[[Words], Action]
    back: Callable[[Words], str]
    ask: str = ""
    """The word that the page asks for, if the address does not have it."""
    paths: tuple[str, ...] = ()
    """Which of the words are paths of files, to be looked at by who may see them."""


def _job_of(attempt_id: str) -> str:
    words = attempt_id.split("_")
    return f"job_{'_'.join(words[1:3])}"


ACTIONS: dict[str, Kind] = {
    "kill-job": Kind(
        "Kill a job",
        ("job",),
        lambda words: actions.kill_job(words["job"]),
        lambda words: url(f"/jobs/{words['job']}"),
    ),
    "priority": Kind(
        "Change a priority",
        ("job", "value"),
        lambda words: actions.set_priority(words["job"], words["value"]),
        lambda words: url(f"/jobs/{words['job']}"),
        ask="value",
    ),
    "kill-attempt": Kind(
        "Kill an attempt",
        ("attempt",),
        lambda words: actions.kill_attempt(words["attempt"]),
        lambda words: url(f"/jobs/{_job_of(words['attempt'])}/attempts"),
    ),
    "fail-attempt": Kind(
        "Fail an attempt",
        ("attempt",),
        lambda words: actions.fail_attempt(words["attempt"]),
        lambda words: url(f"/jobs/{_job_of(words['attempt'])}/attempts"),
    ),
    "mkdir": Kind(
        "New directory",
        ("into", "value"),
        lambda words: actions.make_directory(words["into"], words["value"]),
        lambda words: url(f"/files{words['into']}"),
        ask="value",
        paths=("into",),
    ),
    "rename": Kind(
        "Rename",
        ("path", "value"),
        lambda words: actions.rename(words["path"], words["value"]),
        lambda words: url(f"/files{parent(words['path'])}"),
        ask="value",
        paths=("path", "value"),
    ),
    "replication": Kind(
        "Copies",
        ("path", "value"),
        lambda words: actions.set_replication(words["path"], words["value"]),
        lambda words: url(f"/files{words['path']}"),
        ask="value",
        paths=("path",),
    ),
    "delete": Kind(
        "Delete",
        ("path",),
        lambda words: actions.delete(words["path"]),
        lambda words: url(f"/files{parent(words['path'])}"),
        paths=("path",),
    ),
    "undelete": Kind(
        "Bring back",
        ("path",),
        lambda words: actions.undelete(words["path"]),
        lambda words: "/trash",
        paths=("path",),
    ),
}
_LABELS = {
    "priority": "Priority",
    "mkdir": "Name of the new directory",
    "rename": "New name, or a whole path",
    "replication": "How many copies",
}


def kind_of(name: str) -> Kind:
    found = ACTIONS.get(name)
    if found is None:
        raise NoSuchPage(f"there is no action {name!r}")
    return found


def token_of(visitor: Visitor, path: str) -> str:
    """Return what a form of this visitor must carry to be taken at `path`."""
    return digest(visitor.session, "form", path.encode()).hex()


def is_token(visitor: Visitor, path: str, given: str) -> bool:
    """Whether a form carries what this visitor's forms carry."""
    return hmac.compare_digest(token_of(visitor, path).encode(), given.encode("utf-8", "replace"))


def asked(visit: Visit, name: str) -> Page:
    """Return the page that asks before an action: for a value that is missing, then whether."""
    kind, words = kind_of(name), visit.query
    _check(visit.visitor, kind, words)
    if kind.ask and not words.get(kind.ask):
        return Page(kind.title, (_value_form(name, kind, words),), here=_here(kind))
    action = kind.make(words)
    return Page(kind.title, (_question(visit.visitor, name, kind, words, action.question),),
                here=_here(kind))  # fmt: skip


def act(visit: Visit, name: str, words: Words) -> tuple[str, str]:
    """Do it; return how it ended in words, and where to go."""
    kind = kind_of(name)
    _check(visit.visitor, kind, words)
    said = kind.make(words).act(visit.source)
    visit.watch.hurry()
    return said, kind.back(words)


def upload_form(visit: Visit) -> Page:
    """Return the page on which files are chosen."""
    into = visit.visitor.check(visit.query.get("into", "/"))
    path = f"/upload{into}"
    replace = element("input", type="checkbox", name="replace", value="yes")
    chosen = element("input", type="file", name="file", multiple=True, required=True)
    form = element(
        "form",
        hidden("token", token_of(visit.visitor, path)),
        element("p", element("label", replace, " Replace files that are there already")),
        element("p", element("label", "Files ", chosen)),
        element("p", element("button", "Upload"), " ",
                element("a", "No, go back", href=url(f"/files{into}"))),
        element("p", element("progress", value=0, max=1, hidden=True), cls="progress"),
        action=url(path),
        method="post",
        enctype="multipart/form-data",
        cls="ask",
        data_upload=True,
    )  # fmt: skip
    return Page(f"Upload into {into}", (form,), here="Files", every_s=0)


def _here(kind: Kind) -> str:
    return "Jobs" if not kind.paths else "Files"


def _check(visitor: Visitor, kind: Kind, words: Words) -> None:
    if not kind.paths and not visitor.sees_all:
        raise OutOfBounds("jobs are not open to your key")
    missing = [need for need in kind.needs if need != kind.ask and not words.get(need)]
    if missing:
        raise UserError(f"what is missing: {', '.join(missing)}")
    for name in kind.paths:
        if words.get(name, "").startswith("/"):
            visitor.check(words[name])


def _value_form(name: str, kind: Kind, words: Words) -> Markup:
    field: Child
    if name == "priority":
        field = choice(kind.ask, _LABELS[name], actions.PRIORITIES, "NORMAL")
    else:
        known = words.get("path", "").rpartition("/")[2] if name == "rename" else ""
        box = element("input", name=kind.ask, value=known, required=True, autofocus=True)
        field = element("label", f"{_LABELS[name]} ", box)
    return element(
        "form",
        [hidden(need, words[need]) for need in kind.needs if need != kind.ask],
        element("p", field),
        element("p", element("button", "Go on"), " ",
                element("a", "No, go back", href=kind.back(words))),
        action=url(f"/act/{name}"),
        method="get",
        cls="ask",
    )  # fmt: skip


def _question(visitor: Visitor, name: str, kind: Kind, words: Words, question: str) -> Markup:
    path = f"/act/{name}"
    return element(
        "form",
        element("p", question),
        [hidden(need, words[need]) for need in kind.needs],
        hidden("token", token_of(visitor, path)),
        element("p", element("button", "Yes", cls="danger"), " ",
                element("a", "No, go back", href=kind.back(words))),
        action=url(path),
        method="post",
        cls="ask",
    )  # fmt: skip
