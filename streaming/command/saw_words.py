"""`saw:PROGRAM` where a command could stand: a Sawzall program as the mapper of an ordinary job.

Takes the words of `-mapper`, `-combiner` and `-reducer`; puts the program's text and the types of
its records into the job's settings. Reads that one file; whether the program is right is found by
who compiles it (`mapreduce.job.saw_program`).
"""

from __future__ import annotations

import base64

from mrstream.streaming.command.options import BadCommandLine, Options
from mrstream.streaming.conf.submission import OptionProperties

PREFIX = "saw:"


def is_saw(word: str | None) -> bool:
    return word is not None and word.startswith(PREFIX)


def take_program(said: Options, told: OptionProperties) -> None:
    """Check how the words go together, and put the program into the settings, if there is one.

    With a reducer of the same program the job is one of `mrstream saw`, and its output its shards;
    with another, or none, the mapper gives lines of text.
    """
    mapper, combiner, reducer = (said.first(name) for name in ("mapper", "combiner", "reducer"))
    for option, word in (("-reducer", reducer), ("-combiner", combiner)):
        if is_saw(word) and word != mapper:
            raise BadCommandLine(f"{option} {word} merges what -mapper {word} emits: give both")
    if mapper is None or not is_saw(mapper):
        return
    merges = is_saw(reducer) and told.conf.reduces > 0
    if combiner is not None and merges != is_saw(combiner):
        raise BadCommandLine(
            f"-combiner {combiner}: with -mapper and -reducer {mapper} the program combines its "
            "tables itself, and only then; leave -combiner out"
        )
    if merges and said.first("outputformat") is not None:
        raise BadCommandLine(
            f"-outputformat: the output of -reducer {reducer} is shards, which `mrstream dump` "
            "prints; leave it out"
        )
    # What is given already came with the job: a detached flow has no file.
    program = told.conf.saw_program or _encoded(mapper)
    told.set_saw_program(program, mapper.removeprefix(PREFIX))
    told.set_saw_records(are_states=merges)


def _encoded(word: str) -> str:
    try:
        with open(word.removeprefix(PREFIX), "rb") as file:
            return base64.b64encode(file.read()).decode()
    except OSError as error:
        raise BadCommandLine(f"-mapper {word}: {error.strerror}") from None
