"""SequenceFileInputFilter: which records of a sequence file a job reads, by their keys. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import count

from mrstream.cluster.errors import UserError
from mrstream.streaming.classes import SEQUENCE_FILE_FILTER, java_message
from mrstream.streaming.conf.jobconf import JobConf, setting_name
from mrstream.streaming.formats.writable import WritableType
from mrstream.streaming.java.java_regex import compile_java


class BadKeyFilter(UserError):
    """The filter of a sequence file's records is unknown, or lacks a setting."""


def key_filter(conf: JobConf, key_type: WritableType) -> Callable[[bytes], bool]:
    """Return the function that says of each key, in the order of the file, whether it is read."""
    match conf.key_filter_class.removeprefix(f"{SEQUENCE_FILE_FILTER}$"):
        case "PercentFilter":
            frequency, numbers = _frequency(conf), count()
            return lambda _: next(numbers) % frequency == 0
        case "MD5Filter":
            frequency = _frequency(conf)
            return lambda key: _md5_number(key_type.command_text(key)) % frequency == 0
        case "RegexFilter":
            if conf.key_filter_regex is None:
                raise BadKeyFilter(f"RegexFilter needs -D {setting_name('key_filter_regex')}")
            pattern = compile_java(conf.key_filter_regex)
            return lambda key: pattern.fullmatch(key_type.to_string(key).decode()) is not None
    name = conf.key_filter_class
    raise BadKeyFilter(java_message(setting_name("key_filter_class"), name, "keyfilter"))


def _frequency(conf: JobConf) -> int:
    if conf.key_filter_frequency <= 0:
        raise BadKeyFilter(
            f"-D {setting_name('key_filter_frequency')} is {conf.key_filter_frequency}; "
            "it must be above 0: every so many-th record is read"
        )
    return conf.key_filter_frequency


def _md5_number(key: bytes) -> int:
    digest = hashlib.md5(key, usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
