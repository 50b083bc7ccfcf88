"""`python -m mrstream.api.call FILE OUTPUT INPUT…` runs a function that is a step of a flow."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mrstream.api.functions import BadFunctions, unpack_value


def main(argv: Sequence[str]) -> int:
    """Call the function with its output directory and its inputs; return the exit status."""
    path, output, *inputs = argv
    try:
        with open(path, "rb") as file:
            function = unpack_value(file.read())
    except (OSError, BadFunctions) as error:
        print(f"mrstream: {error}", file=sys.stderr)
        return 1
    function(output, *inputs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
