"""Runs a module of mrstream by the Python of a job's environment, which does not have mrstream.

A file of its own that a foreign Python runs by its path: it puts the places of mrstream and of what
that needs behind those of the environment, whose own packages win, and runs the module. Imports
nothing but the standard library.
"""

from __future__ import annotations

import functools
import os
import sys

PLACES = "MRSTREAM_PLACES"
_NEEDED = ("mrstream", "msgspec", "cloudpickle")


def variables(python: str) -> dict[str, str]:
    """Return what lets the command of a function find the environment's Python and this file."""
    return {
        "MRSTREAM_ENV_PYTHON": python,
        "MRSTREAM_RUN": os.path.abspath(__file__),
        PLACES: _places(),
    }


@functools.cache
def _places() -> str:
    """Return where mrstream and what its functions need are installed."""
    import importlib.util

    found: dict[str, None] = {}
    for name in _NEEDED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found[os.path.dirname(os.path.dirname(os.path.abspath(spec.origin)))] = None
    return os.pathsep.join(found)


def main() -> None:
    """Run `-m MODULE ARGUMENT…`."""
    import runpy

    sys.path += os.environ.pop(PLACES, "").split(os.pathsep)
    module = sys.argv[2]
    sys.argv[:] = [sys.argv[0], *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
