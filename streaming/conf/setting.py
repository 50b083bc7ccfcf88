"""One typed property: how its text becomes a value, and what stands for it where it is absent.

The machinery behind `streaming.conf.jobconf`, which has the names. A value that cannot be
read raises `BadProperty`, with name, value and what it may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from mrstream.streaming.classes import ROW_OUTPUTS
from mrstream.streaming.conf.properties import BadProperty

if TYPE_CHECKING:
    from mrstream.streaming.conf.jobconf import JobConf

T = TypeVar("T")

UNSET = ""  # where Hadoop has no default either: a reader makes of it what absence means
PRIORITIES = {"VERY_LOW": 1, "LOW": 2, "DEFAULT": 3, "NORMAL": 3, "HIGH": 4, "VERY_HIGH": 5}
SORT_BUFFER_MEBIBYTES_MAX = 2047
_WHOLE = re.compile(r"[+-]?(?:[0-9]+|(0[xX])[0-9a-fA-F]+)")
IO_IDENTIFIERS = ("text", "rawbytes", "typedbytes", "keyonlytext")


class Setting(Generic[T]):
    """One property with its type; reading it from a JobConf gives the value in force.

    `default` stands for a property that neither the job nor Hadoop's defaults have;
    `ours` replaces Hadoop's default where mrstream differs on purpose.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[str, str], T],
        default: str = UNSET,
        *,
        ours: str | None = None,
    ) -> None:
        self.name = name
        self._read = read
        self._default = default
        self._ours = ours

    @overload
    def __get__(self, conf: None, owner: type[JobConf]) -> Setting[T]: ...
    @overload
    def __get__(self, conf: JobConf, owner: type[JobConf]) -> T: ...
    def __get__(self, conf: JobConf | None, owner: type[JobConf]) -> T | Setting[T]:
        if conf is None:
            return self
        if self._ours is not None and not conf.is_given(self.name):
            return self._read(self._ours, self.name)
        value = conf.get(self.name)
        return self._read(self._default if value is None else value, self.name)


def text(value: str, name: str) -> str:
    """Read text as it stands."""
    return value


def trimmed(value: str, name: str) -> str:
    """Read text without the blanks around it."""
    return value.strip()


def optional_text(value: str, name: str) -> str | None:
    """Read text; none is None."""
    return value or None


def words(value: str, name: str) -> tuple[str, ...]:
    """Read a comma list, without the blanks around its words."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def named_formats(value: str, name: str) -> dict[str, str]:
    """Read a comma list of NAME or NAME:FORMAT; `*` is any name."""
    found: dict[str, str] = {}
    for word in words(value, name):
        output, colon, kind = word.partition(":")
        bad_name = not output or "/" in output or output.startswith(("_", ".", "part-"))
        if bad_name or (colon and kind not in ROW_OUTPUTS):
            raise BadProperty(
                f"{name} is {value!r}; it must be NAME or NAME:FORMAT between commas, where a "
                f"format is one of {' '.join(ROW_OUTPUTS)}, and no name begins with _, . or part-"
            )
        found[output] = kind
    return found


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Read one of these words."""

    def read(value: str, name: str) -> str:
        word = value.strip().lower()
        if word not in choices:
            raise BadProperty(f"{name} is {value!r}; it must be {' or '.join(choices)}")
        return word

    return read


def percent(value: str, name: str) -> float:
    """Read a share such as `0.5%`; the sign may be left out."""
    share = decimal(value.strip().removesuffix("%"), name)
    if not 0 <= share <= 100:
        raise BadProperty(f"{name} is {value!r}; it must be 0 to 100 percent")
    return share


def one_byte(value: str, name: str) -> bytes:
    """Read one character of ASCII, which may be written `\\t`."""
    character = "\t" if value == "\\t" else value
    if len(character) != 1 or not character.isascii() or character in "\r\n\0":
        raise BadProperty(f"{name} is {value!r}; it must be one character of ASCII, or \\t")
    return character.encode()


def one_byte_or_none(value: str, name: str) -> bytes | None:
    """Read one character of ASCII, or the word none."""
    return None if value.strip().lower() == "none" else one_byte(value, name)


def byte_encoding(value: str, name: str) -> str:
    """Read the name of an encoding in which a byte below 128 is always ASCII."""
    import codecs  # few jobs name one

    ascii_text = bytes(range(128))
    try:
        info = codecs.lookup(value.strip())
        fits = info.decode(ascii_text)[0] == ascii_text.decode()
        fits = fits and (info.name == "utf-8" or len(info.decode(b"\xe4\xf6", "replace")[0]) == 2)
    except (LookupError, UnicodeError, TypeError):
        fits = False
    if not fits:
        raise BadProperty(
            f"{name} is {value!r}; it must be utf-8 or an encoding of one byte a character, such "
            "as latin-1"
        )
    return info.name


def byte_string(value: str, name: str) -> bytes:
    """Read text as the bytes that the user typed."""
    return value.encode("utf-8", "surrogateescape")


def separator(value: str, name: str) -> bytes:
    """Read a separator, as bytes; an empty one is TAB."""
    return value.encode("utf-8", "surrogateescape") or b"\t"


def optional_bytes(value: str, name: str) -> bytes | None:
    """Read text as bytes; none is None."""
    return value.encode("utf-8", "surrogateescape") or None


def whole(value: str, name: str) -> int:
    """Read a whole number, decimal or 0x…."""
    found = _WHOLE.fullmatch(value.strip())
    if found is None:
        raise BadProperty(f"{name} is {value!r}; it must be a whole number")
    return int(found[0], 16 if found[1] else 10)


def optional_whole(value: str, name: str) -> int | None:
    """Read a whole number; none is None."""
    return whole(value, name) if value.strip() else None


def optional_count(value: str, name: str) -> int | None:
    """Read a whole number; none, or a negative one, is None."""
    count = optional_whole(value, name)
    return None if count is None or count < 0 else count


def decimal(value: str, name: str) -> float:
    """Read a number."""
    try:
        return float(value.strip().rstrip("fFdD"))
    except ValueError:
        raise BadProperty(f"{name} is {value!r}; it must be a number") from None


def milliseconds(value: str, name: str) -> float:
    """Read milliseconds; give seconds."""
    return whole(value, name) / 1000


def true_or(default: bool) -> Callable[[str, str], bool]:
    """Read a boolean; as with Hadoop, a word that is neither true nor false means the default."""

    def read(value: str, name: str) -> bool:
        return {"true": True, "false": False}.get(value.strip().lower(), default)

    return read


def optional_bool(value: str, name: str) -> bool | None:
    """Read true or false; anything else is None."""
    return {"true": True, "false": False}.get(value.strip().lower())


def identifier(value: str, name: str) -> str:
    """Read how a program speaks; an unknown name means text."""
    word = value.strip().lower()
    return word if word in IO_IDENTIFIERS else "text"


def memory_limit(value: str, name: str) -> int:
    """Read a limit in MiB; give bytes, 0 for none (Hadoop's -1)."""
    return max(0, whole(value, name)) << 20


def priority(value: str, name: str) -> int:
    """Read a job's priority, as a word or as a number from 1 (very low) to 5 (very high)."""
    word = value.strip().upper()
    number = PRIORITIES.get(word) or (int(word) if word.isdigit() else 0)
    if not 1 <= number <= 5:
        known = ", ".join(PRIORITIES)
        raise BadProperty(f"{name} is {value!r}; it must be one of {known}, or 1 to 5")
    return number


def extra_names(value: str, name: str) -> tuple[str, ...]:
    if not value.strip():
        return ()
    from mrstream.cluster.config import extras  # few jobs name any

    try:
        return extras.known(word.strip() for word in value.split(",") if word.strip())
    except ValueError as error:
        raise BadProperty(f"{name} is {value!r}: {error}") from None


def mebibytes(value: str, name: str) -> int:
    """Read the size of a sort buffer in MiB; give bytes."""
    mebibytes = whole(value, name)
    if not 0 < mebibytes <= SORT_BUFFER_MEBIBYTES_MAX:
        raise BadProperty(
            f'Invalid "{name}": {mebibytes}; it must be 1 to {SORT_BUFFER_MEBIBYTES_MAX}'
        )
    return mebibytes << 20
