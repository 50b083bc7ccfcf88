"""Where the files of a job lie, and what they are called, in each edition of the course."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

import msgspec

MAPPER, GROUPER, REDUCER = "mapper-output", "grouper-output", "reducer-output"
FOLDERS = (MAPPER, GROUPER, REDUCER)


class Edition(msgspec.Struct, frozen=True):
    """The names that an edition of the assignment fixes; the paths are relative, as it has them."""

    root: str
    sorted_name: str
    reduce_name: str
    result_name: str
    first_number: int

    def job(self, job_id: int) -> str:
        return f"{self.root}/job-{job_id}"

    def folder(self, job_id: int, name: str) -> str:
        """One of the three directories of a job."""
        return f"{self.root}/job-{job_id}/{name}"

    def sorted_file(self, job_id: int, index: int) -> str:
        """What a worker's sort writes."""
        return f"{self.folder(job_id, GROUPER)}/{self._name(self.sorted_name, index)}"

    def reduce_input(self, job_id: int, index: int) -> str:
        """What a reduce reads; its base name is that of its output too."""
        return f"{self.folder(job_id, GROUPER)}/{self._name(self.reduce_name, index)}"

    def result(self, index: int) -> str:
        """The base name of a reduce's output in the job's output directory."""
        return self._name(self.result_name, index)

    def _name(self, pattern: str, index: int) -> str:
        return pattern.format(index + self.first_number)


EDITIONS = {
    "2017": Edition("var", "sorted_{}", "input_{}", "input_{}", 0),
    # Rule R12: the names that later editions use.
    "2019": Edition("tmp", "sorted{:02d}", "reduce{:02d}", "outputfile{:02d}", 1),
}
DEFAULT = EDITIONS["2017"]


def under(directory: str, path: str) -> str:
    """Return `directory`, exactly one slash, and the base name of `path` (R2)."""
    return f"{directory.rstrip('/') or ''}/{posixpath.basename(path)}"


def dealt(items: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Deal items into `count` near-equal parts, item i into part i mod count; none is empty."""
    return [tuple(items[n::count]) for n in range(min(count, len(items)))]


def is_of_another(path: str, expected: str) -> bool:
    """Whether a path names another job, or another phase, than the expected one does.

    Paths that do not look like ours say nothing: a foreign worker may write them its own way.
    """
    said, meant = _job_and_phase(path), _job_and_phase(expected)
    return said is not None and said != meant


def _job_and_phase(path: str) -> tuple[str, str] | None:
    parts = path.split("/")
    if len(parts) < 3 or not parts[-3].startswith("job-") or parts[-2] not in FOLDERS:
        return None
    return parts[-3], parts[-2]
