"""Hadoop Streaming without Hadoop: MapReduce jobs from Python functions or commands.

    import mrstream as mr

    def words(line):
        for word in line.split():
            yield word, 1

    def total(word, counts):
        yield word, sum(counts)

    for word, count in mr.Job(input="books", mapper=words, combiner=total, reducer=total).run():
        print(word, count)

`help(mr.Job)` tells the rest, and so does the guide, docs/guide/library.md. What is not named here
is not promised; it is all below this one name, and loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mrstream.api.checks import Checked, Tested, check, test
    from mrstream.api.codecs import BadRecord, Codec, json, pickle, raw, text
    from mrstream.api.files import fs
    from mrstream.api.flow import Flow, FlowFailed, FlowResult, FlowStep
    from mrstream.api.job import Job
    from mrstream.api.reporter import count, status
    from mrstream.api.result import JobFailed, Result

_HOMES = {
    "BadRecord": "codecs",
    "Checked": "checks",
    "Codec": "codecs",
    "Flow": "flow",
    "FlowFailed": "flow",
    "FlowResult": "flow",
    "FlowStep": "flow",
    "Job": "job",
    "JobFailed": "result",
    "Result": "result",
    "Tested": "checks",
    "check": "checks",
    "count": "reporter",
    "fs": "files",
    "json": "codecs",
    "pickle": "codecs",
    "raw": "codecs",
    "status": "reporter",
    "test": "checks",
    "text": "codecs",
}

__all__ = [
    "BadRecord",
    "Checked",
    "Codec",
    "Flow",
    "FlowFailed",
    "FlowResult",
    "FlowStep",
    "Job",
    "JobFailed",
    "Result",
    "Tested",
    "check",
    "count",
    "fs",
    "json",
    "pickle",
    "raw",
    "status",
    "test",
    "text",
]


def __getattr__(name: str) -> object:
    """Load what is asked for, when it is asked for: `import mrstream` itself costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mrstream' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"mrstream.api.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
