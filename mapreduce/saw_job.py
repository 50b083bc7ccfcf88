"""A Sawzall job as data: what `mrstream saw` was asked for becomes a `JobSpec` like any other.

The program is compiled here first, so that no job starts with a fault in it (§8). Its text travels
in the job's settings; mapper, combiner and reducer are the built-in `saw`.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence

import msgspec

from mrstream.cluster.errors import UserError
from mrstream.cluster.user import user_name
from mrstream.mapreduce.job import saw_program
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.saw.program import Program as SawProgram
from mrstream.streaming import classes
from mrstream.streaming.classes import SAW
from mrstream.streaming.command import options
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.conf.properties import to_wire
from mrstream.streaming.conf.submission import OptionProperties
from mrstream.streaming.formats.input_format import InputFormat

SHARDS_MAX = 100_000
INPUT_FORMATS = {
    "text": InputFormat.TEXT,
    "keyvalue": InputFormat.KEY_VALUE_TEXT,
    "sequence": InputFormat.SEQUENCE_FILE,
    "auto": InputFormat.AUTO,
    "records": InputFormat.RECORD_APPEND,
    "delimited": InputFormat.DELIMITED,
    "saw": InputFormat.SAW,
}


class SawRequest(msgspec.Struct, frozen=True):
    """What a user asks for."""

    program_path: str
    input_files: tuple[str, ...]
    destination: str
    ignore_undefs: bool = False
    zone: str = "UTC"
    machines: int = 0
    input_format: str = "text"
    properties: tuple[tuple[str, str], ...] = ()


def program_at(path: str, *, ignore_undefs: bool = False, zone: str = "UTC") -> SawProgram:
    """Read and compile the program in a file."""
    request = SawRequest(path, (), ".", ignore_undefs, zone)
    return saw_program.program_of(spec_of(request).conf())


def shards_of(word: str, option: str) -> tuple[str, int | None]:
    """Cut `base@N` into the directory and the number of shards; None if it says none."""
    match = re.fullmatch(r"(.+)@(\d+)", word)
    if match is None:
        return word, None
    count = int(match.group(2))
    if not 1 <= count <= SHARDS_MAX:
        raise UserError(f"{option} {word}: the number of shards must be 1 to {SHARDS_MAX:,}")
    return match.group(1), count


def spec_of(request: SawRequest) -> JobSpec:
    """Return the job; a UserError, with every fault of the program, if there is none."""
    output, shards = shards_of(request.destination, "--destination")
    conf = JobConf()
    for name, value in request.properties:
        conf.set(name, value)
    told = OptionProperties(conf)
    told.set_reduces(shards or 1)
    told.set_input_format(INPUT_FORMATS[request.input_format].value)
    told.set_output_dir(output)
    told.set_partitioner(classes.HASH_PARTITIONER)
    told.set_programs(mapper=("", SAW), combiner=("", SAW), reducer=("", SAW))
    told.set_saw_program(_encoded(request.program_path), request.program_path)
    told.set_saw_ways(ignore_undefs=request.ignore_undefs, zone=request.zone)
    told.set_saw_records(are_states=True)
    if request.machines:
        conf.set(setting_name("workers_max"), str(request.machines))
    if not conf.is_given_setting("job_name"):
        conf.set(setting_name("job_name"), f"saw {os.path.basename(request.program_path)}")
    built_in = Program(builtin=SAW)
    spec = JobSpec(
        job_id=JobId(""),
        properties=conf.to_dict(),
        mapper=built_in,
        combiner=built_in,
        reducer=built_in,
        reduces=shards or 1,
        inputs=_inputs(request.input_files),
        output=to_wire(output),
        working_directory=os.getcwd(),
        user=user_name(),
    )
    return saw_program.checked(spec)


def _encoded(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return base64.b64encode(file.read()).decode()
    except OSError as error:
        raise UserError(f"--program {path}: {error.strerror}") from None


def _inputs(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(to_wire(path) for word in words for path in options.split_paths(word))
