"""Runs Sawzall programs in this process, without a job: text and records in, rows out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from mrstream.saw.program import Program, compiled
from mrstream.saw.report import LINES, chosen, rows


def packed(program: Program, records: Sequence[bytes], seed: int = 0) -> list[tuple[bytes, bytes]]:
    """Give what a map would: keys and packed states."""
    run = program.run(random.Random(seed))
    run.feed(records)
    return list(run.drain())


def shown(
    program: Program,
    states: Iterable[tuple[bytes, bytes]],
    form: str = "csv",
    tables: Sequence[str] = (),
) -> str:
    """Give what `mrstream dump` would print of states."""
    wanted = chosen(program.tables, tables)
    found = rows(program.tables, sorted(states), wanted, random.Random(0))
    return "".join(LINES[form](found))


def csv_of(
    text: str,
    records: Sequence[bytes | str] = (b"",),
    *,
    ignore_undefs: bool = False,
    protos: Mapping[str, bytes] | None = None,
) -> str:
    """Run a program on some records and give its tables as CSV."""
    program = compiled(text, "p.szl", ignore_undefs=ignore_undefs, protos=protos)
    data = [one.encode() if isinstance(one, str) else one for one in records]
    return shown(program, packed(program, data))


def value_of(expression: str, kind: str = "string", record: bytes = b"") -> str:
    """Give the value of an expression, as CSV shows it."""
    text = f"out: table collection of {kind};\nvalue: {kind} = {expression};\nemit out <- value;"
    return csv_of(text, [record]).removeprefix("out,").removesuffix("\n")
