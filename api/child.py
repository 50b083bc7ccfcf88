"""`python -m mrstream.api.child map|combine|reduce`: runs a job's Python function as a program.

Reads lines from standard input, writes lines to standard output, says what went wrong on standard
error, and ends with 1 if the function failed: a program like any other, so all that the framework
does for programs it does for functions. As `source` it is the program of an input that is no file.
Looks for the functions in the working directory.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mrstream.api import loops, reporter
from mrstream.api.codecs import BadRecord, all_pairs, is_pair, shown
from mrstream.api.functions import LINK, BadFunctions, Functions, stage_of, unpack

REDUCES_VARIABLE = "mapreduce_job_reduces"
RECORD_MARK = "mrstream: the record: "
"""Begins the line that names the record at which a function failed."""


def main(stage: str, words: Sequence[str] = ()) -> int:
    """Run the function of a stage over standard input, or a source with the words that tell it
    what to do; return the exit status."""
    try:
        with open(LINK, "rb") as file:
            functions = unpack(file.read())
    except (OSError, BadFunctions) as error:
        print(f"mrstream: {error}", file=sys.stderr)
        return 1
    # What a function prints must not get between the records.
    records = os.dup(1)
    os.dup2(2, 1)
    place = loops.Place()
    try:
        if stage == "source":
            _run_source(functions, words, records)
        else:
            _run(stage, functions, records, place)
    except BrokenPipeError:
        return 1  # whoever reads has gone, and knows why
    except Exception as error:
        _complain(error, place)
        return 1
    finally:
        reporter.tell()
    return 0


def _run(stage: str, functions: Functions, records: int, place: loops.Place) -> None:
    layout = functions.layout
    is_last = stage == "reduce" or (stage == "map" and functions.is_map_only)
    reduces = int(os.environ.get(REDUCES_VARIABLE) or 1)
    lines = result_lines(functions) if is_last else layout.writer(reduces)
    out = loops.Output(records, lines)
    given = {"map": functions.mapper, "combine": functions.combiner, "reduce": functions.reducer}
    does = stage_of(given[stage], "map" if stage == "map" else "reduce")
    if does.setup is not None:
        out.take(does.setup())
    source = loops.blocks(0)
    if stage == "map":
        errors = "surrogateescape" if functions.keeps_bytes else "replace"
        loops.run_map(does.call, loops.records_of(source, functions.reads, errors), out, place)
    else:
        loops.run_reduce(does.call, source, layout, out, place)
    if does.close is not None:
        out.take(does.close())
    out.flush()


def _run_source(functions: Functions, words: Sequence[str], records: int) -> None:
    from mrstream.api import source  # few jobs have one

    def write(given: Iterable[Any], lines: Callable[[Sequence[Any]], bytes]) -> None:
        out = loops.Output(records, lines)
        out.take(given)
        out.flush()

    source.run(functions.source, words, functions.reads, write)


def result_lines(functions: Functions) -> Callable[[Sequence[Any]], bytes]:
    lines = functions.writes.lines
    return (lambda records: lines(_pairs(records))) if functions.only_pairs else lines


def _pairs(records: Sequence[Any]) -> Sequence[Any]:
    for record in () if all_pairs(records) else records:
        if not is_pair(record):
            raise BadRecord(
                f"{shown(record)} is no pair of key and value: in a job with a combiner the "
                "reducer must give pairs, since its output is cut as the combiner's is"
            )
    return records


def _complain(error: Exception, place: loops.Place) -> None:
    """Print the traceback from the user's function on, and the record."""
    own = os.path.dirname(__file__)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _directory_of(trace) == own:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(error), error, trace)
    if place.record is not None:
        print(RECORD_MARK + shown(place.record), file=sys.stderr)


def _directory_of(trace: object) -> str:
    return os.path.dirname(str(trace.tb_frame.f_code.co_filename))  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].removeprefix("-"), sys.argv[2:]))
