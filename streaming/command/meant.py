"""What was probably meant: misspelt options and properties, variables without a value.

Takes what was said; gives lines for the log. Decides nothing: a job runs as it was said.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from mrstream.streaming.command.options import KNOWN_OPTIONS, Options
from mrstream.streaming.conf.jobconf import settings
from mrstream.streaming.conf.properties import default_properties, deprecated_names

# Nearer than this a word is a misspelling. Names of properties are long and share their beginnings.
_OPTION_LIKENESS_MIN = 0.6
_PROPERTY_LIKENESS_MIN = 0.9


def closest(word: str, known: Collection[str], likeness_min: float) -> str | None:
    """Return the known word that is most like this one, if one is like it enough."""
    from difflib import get_close_matches  # only mistakes need it

    close = get_close_matches(word, known, n=1, cutoff=likeness_min)
    return close[0] if close else None


def option_meant(word: str) -> str:
    """Return the question after the option that a word misspells; nothing if it is like none."""
    bare = word.lstrip("-").partition("=")[0]
    by_small = {name.lower(): name for name in KNOWN_OPTIONS}
    found = closest(bare.lower(), by_small, _OPTION_LIKENESS_MIN)
    return f"did you mean -{by_small[found]}?" if found else ""


def misspelt_inputs(said: Options) -> Iterator[str]:
    """Yield a line for each word that was taken for an input, as Hadoop does, and looks like an
    option."""
    for value in said.all("input"):
        if value.startswith("-"):
            line = f"{value} is taken for an input path: there is no such option"
            meant = option_meant(value)
            yield f"{line}; {meant}" if meant else line


def odd_settings(said: Options) -> Iterator[str]:
    """Yield a line for each property that nobody reads but that is like one that is read, and for
    words that set nothing."""
    known: frozenset[str] = frozenset()
    for pair in (*said.all("D"), *said.all("jobconf")):
        name, equals, _ = pair.partition("=")
        if not equals:
            yield f"-D {pair} sets nothing: it must be NAME=VALUE"
        known = known or _known_properties()
        if name not in known and (meant := closest(name, known, _PROPERTY_LIKENESS_MIN)):
            yield f"-D {name}: nothing reads this property; did you mean {meant}?"
    for entry in said.all("cmdenv"):
        if "=" not in entry:
            value = f'"${entry}"' if entry in os.environ else "VALUE"
            yield f"-cmdenv {entry} sets nothing: did you mean -cmdenv {entry}={value}?"


def _known_properties() -> frozenset[str]:
    """Every property that Hadoop has a default for or has renamed, and all that are read here."""
    read = (setting.name for _, setting in settings())
    return frozenset((*default_properties(), *deprecated_names(), *read))
