"""The hosts: which masters lead and follow, slots, load, memory, disks, and what each runs."""

from __future__ import annotations

from markupsafe import Markup

from mrstream.view import groups, hosts
from mrstream.view.picture import Picture
from mrstream.view.summary import NO_ANSWER_YET
from mrstream.web.pages.markup import Child, element, joined, url
from mrstream.web.pages.parts import (
    Part,
    cell_words,
    choice,
    facts,
    finder,
    nothing,
    page_slice,
    pager,
    table,
)
from mrstream.web.pages.visit import NoSuchPage, Page, Visit


def page(visit: Visit) -> Page:
    """Return the masters, and the table of all hosts, each with both its other roles."""
    sort = visit.one_of("sort", hosts.SORTS)

    def draw() -> Markup:
        with visit.watch.picture() as picture:
            found = hosts.listed(picture, sort=sort, wanted=visit.wanted)
            unheard = picture.lost_reason and not picture.at_s
            led = _masters(picture, visit.now_s)
        rows = [
            (host.name, hosts.host_cells(host, visit.now_s))
            for host in found[page_slice(visit.page)]
        ]
        if not rows:
            return joined(led, nothing(NO_ANSWER_YET if unheard else hosts.NO_HOSTS, visit.wanted))
        listed = table("Hosts", hosts.COLUMNS, rows, link=lambda key: url(f"/hosts/{key}"))
        ways = pager("/hosts", visit.page, len(found), find=visit.wanted, sort=sort)
        return joined(led, listed, ways)

    form = finder("/hosts", visit.wanted, choice("sort", "Sort by", hosts.SORTS, sort))
    return Page("Hosts", (form, Part("hosts", draw)), here="Hosts", every_s=2)


def one(visit: Visit, name: str) -> Page:
    """Return one host: its roles, disks, and what it runs."""
    with visit.watch.picture() as picture:
        known = hosts.host_named(picture, name)
        if known.worker is None and known.server is None:
            raise NoSuchPage(f"no host {name} has registered")

    def draw() -> Markup:
        with visit.watch.picture() as picture:
            host, led = hosts.host_named(picture, name), picture.groups
        row = (name, hosts.host_cells(host, visit.now_s))
        why = hosts.trouble(host)
        told: list[tuple[str, Child]] = []
        if host.worker:
            told.append(("address", host.worker.address))
        for fact in hosts.facts(host, led):
            value: Child = _runs(fact.text) if fact.label == "runs" else fact.text
            if fact.trouble:
                value = [value, "  ", element("strong", fact.trouble, cls="c-vermillion")]
            told.append((fact.label, value))
        return joined(
            element("p", element("strong", why, cls="c-vermillion")) if why else None,
            table("This host", hosts.COLUMNS, [row]),
            facts(told),
        )

    return Page(name, (Part("host", draw),), here="Hosts", every_s=2, back=(("Hosts", "/hosts"),))


def _masters(picture: Picture, now_s: float) -> Markup | None:
    """A badge for each member of each group, and who took over last."""
    lines = groups.lines(picture.groups, now_s)
    if not lines:
        return None
    told: list[tuple[str, Child]] = [
        (
            line.name,
            element(
                "ul",
                [element("li", cell_words(badge)) for badge in line.badges],
                element("li", line.led_for, cls="c-faint") if line.led_for else None,
                cls="badges",
            ),
        )
        for line in lines
    ]
    last = groups.last_event(picture, now_s)
    return joined(
        element("h2", "Masters"), facts(told), element("p", last, cls="c-faint") if last else None
    )


def _runs(text: str) -> Markup:
    """What it runs, each attempt a link to its page."""
    lines = []
    for line in text.split("\n"):
        words = line.split("_")
        is_attempt = line.startswith("attempt_") and len(words) > 3
        job = f"job_{words[1]}_{words[2]}" if is_attempt else ""
        shown = element("a", line, href=url(f"/jobs/{job}/attempts/{line}")) if job else line
        lines.append(element("li", shown))
    return element("ul", lines, cls="lines")
