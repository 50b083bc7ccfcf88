"""About: the cluster, this software, what these pages are."""

from __future__ import annotations

from mrstream.cluster.version import version
from mrstream.view.palette import TASK_MARKS
from mrstream.web.pages.markup import element, joined
from mrstream.web.pages.parts import facts
from mrstream.web.pages.visit import Page, Visit

_WORDS = (
    " shows, in the same words. They are made where they come from, need no script to be read, and "
    "load nothing from anywhere else."
)


def page(visit: Visit) -> Page:
    signs = [
        element("li", element("span", mark.sign, cls=f"c-{mark.colour}"), f" {mark.word}")
        for mark in TASK_MARKS.values()
    ]
    visitor = visit.visitor
    body = joined(
        element("p", "These pages show what ", element("code", "mrstream top"), _WORDS),
        facts(
            [
                ("cluster", visit.source.cluster),
                ("masters on", ", ".join(dict.fromkeys(filter(None, visit.source.masters))) or "–"),
                ("version", version()),
                ("you are", visitor.user),
                ("you may", "look and change" if visitor.may_change else "look"),
                ("files open to you", ", ".join(visitor.paths)),
            ]
        ),
        element("h2", "Signs of tasks"),
        element("ul", signs, cls="figures"),
    )
    return Page("About", (body,), here="About")
