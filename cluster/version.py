"""Which version of mrstream this process runs."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    try:
        return metadata.version("mrstream")
    except metadata.PackageNotFoundError:
        return "0+source"
