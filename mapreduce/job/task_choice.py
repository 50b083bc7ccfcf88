"""Which tasks of a job to run, as `-tasks m0,m3-5` says it (MapReduce §4.7: local execution).

Pure: words in, numbers out.
"""

from __future__ import annotations

import re

from mrstream.cluster.errors import UserError

_RANGE = re.compile(r"m(\d+)(?:-m?(\d+))?")


class BadTaskChoice(UserError):
    """A `-tasks` value that names no maps of the job."""


def chosen_maps(choice: str, maps: int) -> list[int]:
    """Return the numbers of the chosen maps, in order; all of them for an empty choice."""
    if not choice:
        return list(range(maps))
    chosen: set[int] = set()
    for word in choice.split(","):
        found = _RANGE.fullmatch(word.strip())
        if found is None:
            raise BadTaskChoice(f"-tasks {choice}: {word!r} is not m3, or m3-5, or a list of those")
        first = int(found[1])
        last = int(found[2]) if found[2] else first
        if last < first or last >= maps:
            raise BadTaskChoice(
                f"-tasks {choice}: {word!r} is not among the job's maps, "
                + (f"m0 to m{maps - 1}" if maps else "of which there are none")
            )
        chosen.update(range(first, last + 1))
    return sorted(chosen)
