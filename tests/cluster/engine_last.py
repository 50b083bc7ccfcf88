"""`mrstream` with `-engine` behind the other words, where it changes nothing about their order."""

from __future__ import annotations

import os
import sys

from mrstream.streaming import cli

if __name__ == "__main__":
    words = sys.argv[1:]
    first = words[: words.index("--")] if "--" in words else words
    engine = os.environ["MRSTREAM_ENGINE_LAST"]
    sys.exit(cli.main([*first, "-engine", engine, *words[len(first) :]]))
