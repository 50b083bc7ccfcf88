"""The Sawzall program of a job: from its settings to what runs, checked before the job is.

Every job with such a mapper passes `checked` on its way to a cluster or a local run, so that none
starts with a fault in its program (§8); its tasks ask `program_of` for the same program again.
"""

from __future__ import annotations

import base64
from functools import lru_cache

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.mapreduce.job import saw_protos
from mrstream.mapreduce.job.job import JobSpec
from mrstream.saw.program import Program, compiled, proto_files
from mrstream.saw.tables.registry import ESTIMATED
from mrstream.saw.times import zone_of
from mrstream.streaming import classes
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.conf.submission import OptionProperties

EXTRA = "saw"


class NotForLines(UserError):
    """A table whose states only the program itself can merge, before a reducer of another kind."""


def program_of(conf: JobConf) -> Program:
    return _compiled(
        conf.saw_program, conf.saw_name, conf.saw_ignore_undefs, conf.saw_zone, conf.saw_protos
    )


@lru_cache(maxsize=4)
def _compiled(encoded: str, name: str, ignore_undefs: bool, zone: str, protos: str) -> Program:
    found = saw_protos.decoded(protos)
    text = _text(encoded, name)
    return compiled(text, name, ignore_undefs=ignore_undefs, zone=zone, protos=found)


def gives_states(spec: JobSpec) -> bool:
    """Whether the job's own reduces merge its tables; else its maps give lines of text."""
    return bool(spec.reduces) and spec.reducer is not None and spec.reducer.builtin == classes.SAW


def checked(spec: JobSpec) -> JobSpec:
    """Return a job whose program has no fault, with what its `proto` files describe; `Refused` with
    every fault if it has any."""
    conf = spec.conf()
    try:
        zone_of(conf.saw_zone)
    except ValueError as error:
        raise UserError(f"mrstream.saw.timezone: {error}") from None
    names = proto_files(_text(conf.saw_program, conf.saw_name), conf.saw_name)
    if names and not conf.saw_protos:
        descriptors = saw_protos.compiled(names, conf.saw_name)
        OptionProperties(conf).set("saw_protos", saw_protos.encoded(descriptors))
    program = program_of(conf)
    if not gives_states(spec):
        for table in program.tables:
            if table.kind in ESTIMATED:
                raise NotForLines(
                    f"{conf.saw_name}: only the program itself can merge the parts of table "
                    f"{table.name} ({table.kind}): give it as -reducer saw:{conf.saw_name}, too"
                )
    needed = (EXTRA,) if names else ()
    extras = tuple(dict.fromkeys((*spec.extras, *needed)))
    return msgspec.structs.replace(spec, properties=conf.to_dict(), extras=extras)


def _text(encoded: str, name: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is no UTF-8 text: {error}") from None
    except ValueError as error:
        raise UserError(f"mrstream.saw.program is no base64: {error}") from None
