"""The optional parts of mrstream: which libraries each needs, and who has them.

`pip install 'mrstream[records]'` puts an extra on this machine, `extras: [records]` in cluster.yaml
on every host of a cluster. Whatever needs one calls `require` first, so that a missing library is
one line with what to do about it. Only looks for libraries, and never imports one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import util

from mrstream.cluster.errors import UserError

MODULES: dict[str, tuple[str, ...]] = {
    "http": ("aiohttp", "awscrt", "markupsafe", "prometheus_client"),
    "records": ("fastavro", "google.protobuf", "pyarrow", "warcio"),
    "saw": ("google.protobuf", "grpc_tools"),
    "crawl": ("aiohttp", "protego", "selectolax", "tantivy", "warcio"),
    "ray": ("ray",),
    "spark": ("pyspark",),
    "mount": ("mfusepy",),
    "s3": ("boto3", "botocore"),
}
"""What each extra of pyproject.toml is imported as."""
ALL = "all"
NAMES = (*MODULES, ALL)


class MissingExtra(UserError):
    """What was asked for needs an extra that is not installed where it would be used."""


def known(names: Iterable[str]) -> tuple[str, ...]:
    """Return these extras, each once, `all` as what it stands for, always in the same order; a
    `ValueError` says what is wrong with a name."""
    wanted = list(names)
    for name in wanted:
        if name not in NAMES:
            raise ValueError(f"there is no extra {name!r}; {_nearest(name)}")
    return tuple(extra for extra in MODULES if extra in wanted or ALL in wanted)


def modules_of(extras: Iterable[str]) -> list[str]:
    """Return what these extras are imported as, all together."""
    return sorted({module for extra in extras for module in MODULES[extra]})


def lacking(extras: Iterable[str], found: Iterable[str]) -> dict[str, list[str]]:
    """Return extra → its libraries that are not among those found, for extras that lack any."""
    there = set(found)
    gaps = {extra: [name for name in MODULES[extra] if name not in there] for extra in extras}
    return {extra: names for extra, names in gaps.items() if names}


def missing(extras: Sequence[str]) -> dict[str, list[str]]:
    """Return extra → its libraries that this Python does not find, for extras that lack any."""
    return lacking(extras, filter(_is_here, modules_of(extras)))


def require(extras: Sequence[str], purpose: str) -> None:
    """Raise `MissingExtra` if what `purpose` names cannot be done with what is installed here."""
    gaps = missing(extras)
    if gaps:
        raise MissingExtra(
            f"{purpose} needs {_words(gaps)}, and this machine has no {_modules(gaps)}: "
            f"{pip_line(gaps)} (on a cluster: {file_line(gaps)} in cluster.yaml, then `mrstream "
            "cluster up`)"
        )


def require_of_cluster(
    extras: Sequence[str], has: Sequence[str], cluster: str, purpose: str
) -> None:
    """Raise `MissingExtra` if the hosts of a cluster do not have all of these extras."""
    gaps = [extra for extra in extras if extra not in has]
    if gaps:
        raise MissingExtra(
            f"{purpose} needs {_words(gaps)}, which cluster {cluster} does not have: write "
            f"{file_line([*has, *gaps])} into cluster.yaml, then `mrstream cluster up`"
        )


def lacking_there(gaps: dict[str, list[str]], python: str) -> str:
    """Return what to say of a host whose own Python is used and lacks libraries."""
    return f"{python} there has no {_modules(gaps)} of {_words(gaps)}: {pip_line(gaps, python)}"


def pip_line(extras: Iterable[str], python: str = "") -> str:
    """Return the command that installs these extras, for the shell's own Python or for another."""
    pip = f"{python} -m pip" if python else "pip"
    return f"`{pip} install 'mrstream[{','.join(extras)}]'`"


def file_line(extras: Iterable[str]) -> str:
    """Return the line of cluster.yaml that gives hosts these extras."""
    return f"`extras: [{', '.join(extras)}]`"


def _is_here(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def _nearest(name: str) -> str:
    import difflib  # only mistakes need it

    close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}extras are {', '.join(NAMES)}"


def _words(extras: Iterable[str]) -> str:
    names = list(extras)
    return f"the extra{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _modules(gaps: dict[str, list[str]]) -> str:
    return ", ".join(dict.fromkeys(name for names in gaps.values() for name in names))
