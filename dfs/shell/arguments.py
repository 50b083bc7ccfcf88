"""The words of one verb: flags that it knows, then paths. Never does any IO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mrstream.cluster.errors import UserError


class BadUsage(UserError):
    """The words do not fit the verb; its usage is shown after the message."""

    exit_status = 255


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was said: flags without values, flags with values, and the rest."""

    flags: frozenset[str]
    values: dict[str, str]
    rest: tuple[str, ...]

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags


@dataclass(frozen=True, slots=True)
class Grammar:
    """Which flags a verb takes and how many other words."""

    flags: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None
    aliases: dict[str, str] = field(default_factory=dict)

    def parse(self, words: Sequence[str]) -> Arguments:
        """Cut the words; raise BadUsage in Hadoop's words if they do not fit."""
        flags: set[str] = set()
        values: dict[str, str] = {}
        position = 0
        while position < len(words):
            word = words[position]
            if len(word) < 2 or not word.startswith("-"):
                break
            position += 1
            if word == "--":
                break
            name = self.aliases.get(word[1:], word[1:])
            if name in self.values:
                if position == len(words):
                    raise BadUsage(f"option {word} requires a value")
                values[name] = words[position]
                position += 1
            elif name in self.flags:
                flags.add(name)
            elif self._is_cluster(word[1:]):
                flags.update(word[1:])
            else:
                raise BadUsage(f"Illegal option {word}")
        rest = tuple(words[position:])
        if len(rest) < self.least:
            raise BadUsage(f"Not enough arguments: expected {self.least} but got {len(rest)}")
        if self.most is not None and len(rest) > self.most:
            raise BadUsage(f"Too many arguments: expected {self.most} but got {len(rest)}")
        return Arguments(frozenset(flags), values, rest)

    def _is_cluster(self, letters: str) -> bool:
        """`-hR` for `-h -R`: a convenience that Hadoop lacks, where it cannot be mistaken."""
        return len(letters) > 1 and all(letter in self.flags for letter in letters)
