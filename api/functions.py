"""Functions on their way to a task: one file of a job, checked at its end.

    mrstream functions 2 3.11 LF
    a pickle of `Functions` (`pickles`)

What is defined in a notebook, in the script itself or in a module that lies beside it travels by
value; installed libraries travel by name. The file is kept in the state directory under a name made
of its content, as long as failed jobs are, so that `-repeat` finds it. Never calls a function.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import msgspec

from mrstream.api import pickles
from mrstream.api.codecs import Codec
from mrstream.api.layout import Layout
from mrstream.cluster.errors import UserError

MAGIC = b"mrstream functions 2 "
LINK = "mrstream.functions"
"""The name of the file in the working directory of a task."""
_PACKAGES = ("site-packages", "dist-packages")


class BadFunctions(UserError):
    """Functions that cannot travel, or that cannot be run where they arrived."""


class Functions(msgspec.Struct, frozen=True):
    """The functions of a job, and how their records lie in lines."""

    mapper: Any
    combiner: Any
    reducer: Any
    layout: Layout
    reads: Codec | None
    """How a mapper reads pairs; None: it takes lines of text."""
    writes: Codec
    """How the last function writes the results."""
    is_map_only: bool = False
    only_pairs: bool = False
    """Whether the last function must give pairs alone."""
    keeps_bytes: bool = False
    """Whether bytes that are no UTF-8 come through as they are: text can, JSON cannot."""
    source: Any = None
    """What gives the records, if no files do."""


class Stage(msgspec.Struct, frozen=True):
    """A function as the loops call it, with what it does before the first and after the last."""

    call: Callable[..., Any]
    setup: Callable[[], Any] | None = None
    close: Callable[[], Any] | None = None


def stage_of(given: Any, method: str) -> Stage:
    """Return the stage of a function, of an object with `method`, or of a class of such objects."""
    if inspect.isclass(given):
        given = given()
    call = getattr(given, method, None)
    if call is not None and callable(call) and not inspect.isroutine(given):
        return Stage(call, getattr(given, "setup", None), getattr(given, "close", None))
    if callable(given):
        return Stage(given)
    raise TypeError(
        f"{given!r} is neither a command nor a function, nor has it a method {method!r}"
    )


def takes_pairs(mapper: Any) -> bool:
    """Whether a mapper wants a key and a value: whether it has two parameters to fill."""
    call = getattr(mapper, "map", None) if not inspect.isroutine(mapper) else None
    try:
        parameters = list(inspect.signature(call or mapper).parameters.values())
    except (TypeError, ValueError):
        return False
    if inspect.isclass(mapper) and call is not None:
        parameters = parameters[1:]  # self
    needed = [
        each
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 2


def pack(functions: Functions) -> bytes:
    """Return the bytes of a file of functions."""
    return pack_value(msgspec.structs.asdict(functions))


def unpack(data: bytes) -> Functions:
    """Return the functions of a file; `BadFunctions` if this Python cannot run them."""
    return Functions(**unpack_value(data))


def pack_value(value: Any) -> bytes:
    """Return the bytes of a file that holds a value, functions in it by value."""
    import cloudpickle  # only who makes a job of functions needs it

    head = MAGIC + b"%d.%d\n" % sys.version_info[:2]
    with _local_modules_by_value(cloudpickle):
        try:
            body = pickles.dumps(value)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise BadFunctions(
                f"the functions of the job cannot travel to its tasks: {error}; what they use from "
                "outside must be plain values: open files and connections in a class's setup()"
            ) from error
    return head + body


def unpack_value(data: bytes) -> Any:
    """Return the value of a file; `BadFunctions` if this Python cannot run what it holds."""
    head, _, body = data.partition(b"\n")
    if not head.startswith(MAGIC):
        raise BadFunctions(f"this is no file of functions: it begins with {data[:40]!r}")
    theirs = head.removeprefix(MAGIC).decode("ascii", "replace")
    ours = "{}.{}".format(*sys.version_info[:2])
    if theirs != ours:
        raise BadFunctions(
            f"these functions are of Python {theirs}, and {sys.executable} is Python {ours}: "
            "submit the job with the Python that the hosts have, or write its programs as commands"
        )
    return pickles.loads(body)


def keep(data: bytes) -> str:
    """Write a file of functions where `-repeat` will find it; return its path."""
    import hashlib

    from mrstream.mapreduce.history import home, write_whole  # not for tasks, which start quickly

    directory = os.path.join(home(), "functions")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    _drop_old(directory)
    path = os.path.join(directory, hashlib.sha256(data).hexdigest()[:32])
    if os.path.exists(path):
        os.utime(path)
        return path
    write_whole(path, data)
    return path


def _drop_old(directory: str) -> None:
    """Remove what no kept job can name any more."""
    from mrstream.mapreduce.history import KEPT_S_MAX

    for entry in os.scandir(directory):
        with contextlib.suppress(FileNotFoundError):  # another process may be at it too
            if time.time() - entry.stat().st_mtime > 2 * KEPT_S_MAX:
                os.unlink(entry.path)


@contextlib.contextmanager
def _local_modules_by_value(cloudpickle: Any) -> Iterator[None]:
    """Let everything travel by value that an interpreter elsewhere could not import."""
    known = cloudpickle.list_registry_pickle_by_value()
    # By their own names: a module may be known under several.
    local = {
        module.__name__: module
        for name, module in list(sys.modules.items())
        if _is_local(name, module) and module.__name__ not in known
    }.values()
    for module in local:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in local:
            cloudpickle.unregister_pickle_by_value(module)


def _is_local(name: str, module: ModuleType | None) -> bool:
    path = getattr(module, "__file__", None)
    if name.partition(".")[0] in ("mrstream", "__main__", "__mp_main__") or not path:
        return False
    return path.endswith(".py") and not os.path.abspath(path).startswith(_installed_places())


def _installed_places() -> tuple[str, ...]:
    import site
    import sysconfig

    paths = sysconfig.get_paths()
    places = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    # Of another environment, too, whose packages this one uses.
    places |= {path for path in sys.path if os.path.basename(path) in _PACKAGES}
    return tuple(os.path.abspath(place) + os.sep for place in places)
