"""Commands that documents tell people to type exist, with the options that they have there."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from mrstream.cluster.hosts import arguments
from mrstream.dfs.shell.verbs import VERBS
from mrstream.streaming.cli import _SUBCOMMANDS
from tests.house.tree import ROOT

GUIDE = (ROOT / "docs" / "guide" / "dfs.md").read_text()
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
NOT_OF_A_VERB = ("--fresh", "-D")


def commands(program: str) -> Iterator[tuple[Path, list[str]]]:
    """The words behind `mrstream PROGRAM`, wherever something follows that can be typed."""
    for path in DOCUMENTS:
        for said in re.findall(rf"mrstream {program} ([^`\n|#>;&\"]+)", path.read_text()):
            with contextlib.suppress(ValueError):  # a quote that goes on behind a bar
                words = [word for word in shlex.split(said) if not re.search(r"[…\[\]()]", word)]
                if words and (words[0].startswith("-") or program == "cluster"):
                    yield path.relative_to(ROOT), words


def options_of(verb: str) -> set[str]:
    """By its grammar; verbs that read expressions of their own say them in their usage."""
    grammar = VERBS[verb].grammar
    own = re.findall(r"(?<![\w-])--?[\w-]+", VERBS[verb].usage)
    named = (*grammar.flags, *grammar.values, *grammar.aliases, *own)
    return {name.lstrip("-") for name in named}


def test_every_verb_of_the_dfs_is_in_the_guide_with_its_options() -> None:
    """A row may tell of several verbs: each of its options is one of theirs."""
    told: set[str] = set()
    for cell, options in re.findall(r"^\| (`-[^|]*) \|([^|]*)\|", GUIDE, re.MULTILINE):
        verbs = set(re.findall(r"`-(\w+)", cell)) - {"help", "usage", "D"}
        told |= verbs
        named = set(re.findall(r"(?<![\w-])--?([\w-]+)", options))
        assert named <= {option for verb in verbs for option in options_of(verb)}, cell

    assert told == set(VERBS)


def test_every_command_is_in_a_guide() -> None:
    guides = "".join(path.read_text() for path in (ROOT / "docs" / "guide").glob("*.md"))

    assert [name for name in _SUBCOMMANDS if not re.search(rf"mrstream {name}\b", guides)] == []


def test_every_command_of_the_dfs_in_the_documents_exists() -> None:
    found = list(commands("dfs"))
    wrong = []
    for path, words in found:
        words = [word for word in words if word not in NOT_OF_A_VERB and "=" not in word]
        verb = words[0].lstrip("-")
        options = [w.lstrip("-") for w in words[1:] if re.fullmatch(r"--?[a-zA-Z-]+", w)]
        if verb not in VERBS or set(options) - options_of(verb):
            wrong.append((str(path), words))

    assert len(found) > 25
    assert wrong == []


def test_every_command_of_the_cluster_in_the_documents_can_be_typed() -> None:
    found = [(path, words) for path, words in commands("cluster") if words[0].isalpha()]
    wrong = []
    for path, words in found:
        try:
            with contextlib.redirect_stderr(io.StringIO()) as said:
                typed = ["dfs.master" if word == "ROLE" else word for word in words]
                arguments.parser().parse_args(arguments._tell_follow_from_file(typed))
        except SystemExit:
            if "required" not in said.getvalue():
                wrong.append((str(path), words, said.getvalue().splitlines()[-1:]))

    assert len(found) > 25
    assert wrong == []
