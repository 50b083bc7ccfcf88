"""Input that is no file: an object with `splits()` and `records(split)`, as a program of the job.

The command line calls it `-inputformat program:COMMAND`: `splits` prints a line for each split, a
JSON value, and `read SPLIT` prints the records of one. Takes the object and the words of such a
call; writes lines. Never knows where it runs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mrstream.api.codecs import LINE_END, BadRecord, Codec, shown


def is_source(given: object) -> bool:
    """Whether an input gives its records itself."""
    return all(callable(getattr(given, name, None)) for name in ("splits", "records"))


def name_of(source: Any) -> str:
    """Return what stands for the object where a path would stand."""
    return (source if inspect.isclass(source) else type(source)).__name__


def run(source: Any, words: Sequence[str], reads: Codec | None, write: Callable[..., None]) -> None:
    """Do what the words ask for; `write` takes records and the function that makes lines of them.

    `reads` is how the mapper reads pairs; None: records are lines of text.
    """
    made: Any = source() if inspect.isclass(source) else source
    match words:
        case ["splits", *_]:
            write(map(split_line, made.splits()), text_lines)
        case ["read", split]:
            write(made.records(json.loads(split)), text_lines if reads is None else reads.lines)
        case _:
            raise ValueError(f"a source is asked for splits, or to read one, not {words}")


def split_line(split: Any) -> str:
    """Write a split as JSON without single quotes: it comes back between two of them."""
    try:
        return json.dumps(split, allow_nan=False).replace("'", "\\u0027")
    except (TypeError, ValueError) as error:
        raise BadRecord(
            f"the split {shown(split)} cannot be written as JSON ({error}); give text, numbers, or "
            "lists and dictionaries of them, and make the rest of it in records()"
        ) from None


def text_lines(records: Iterable[Any]) -> bytes:
    """Make lines of text."""
    return b"".join(map(_text_line, records))


def _text_line(record: Any) -> bytes:
    data = record if isinstance(record, bytes) else str(record).encode("utf-8", "surrogateescape")
    if LINE_END in data:
        raise BadRecord(f"a line cannot have a newline in it: {shown(record)}")
    return data + LINE_END
