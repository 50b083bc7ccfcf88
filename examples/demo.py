#!/usr/bin/env python3
"""`make demo`: a three-host cluster on this machine, a file stored three times, its words counted.

Real daemons, a real replicated file, a real job. Everything it starts, it stops; everything it stores,
it removes, also after Ctrl-C.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MRSTREAM = str(Path(sys.executable).with_name("mrstream"))
MAPPER = ROOT / "examples" / "word_count" / "map.py"
REDUCER = ROOT / "examples" / "word_count" / "reduce.py"
LINES = 200_000
TOP = 10


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def run(*words: str, quiet: bool = False) -> str:
    """Run an mrstream command in plain sight; gives what it printed on standard output."""
    shown = " ".join(word if " " not in word else f"'{word}'" for word in words)
    print(f"$ mrstream {shown}", flush=True)
    done = subprocess.run([MRSTREAM, *words], stdout=subprocess.PIPE, text=True)
    if not quiet:
        print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"mrstream {words[0]} ended with status {done.returncode}")
    return done.stdout


def write_cluster(home: Path) -> str:
    """Write the cluster file of this checkout with directories of this run alone: another user's
    demonstration, or a cluster of your own from that file, has its own."""
    text = (ROOT / "cluster.yaml").read_text().replace("/var/tmp/mrstream", f"{home}/hosts")
    (home / "cluster.yaml").write_text(text)
    return str(home / "cluster.yaml")


def write_text(path: Path) -> None:
    """Write prose-like text: the words of our own documents, over and over."""
    words = re.findall("[a-z]+", (ROOT / "ARCHITECTURE.md").read_text().lower())
    with open(path, "w") as file:
        for number in range(LINES):
            start = number * 7 % max(1, len(words) - 10)
            file.write(" ".join(words[start : start + 10]) + "\n")


def show(counts: str) -> None:
    ranked = sorted(
        (line.split("\t") for line in counts.splitlines()), key=lambda pair: -int(pair[1])
    )
    for word, count in ranked[:TOP]:
        print(f"{int(count):>10,}  {word}")


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="mrstream-demo-"))
    os.environ["MRSTREAM_HOME"] = str(home)
    os.environ.pop("MRSTREAM_CLUSTER", None)
    cluster = write_cluster(home)
    started = time.monotonic()
    try:
        say("1. Three hosts, each with a chunkserver and a worker; h1 has both masters")
        run("cluster", "up", "-f", cluster)
        say(f"2. A file of {LINES:,} lines, stored three times")
        write_text(home / "text")
        run("dfs", "-mkdir", "-p", "/demo")
        run("dfs", "-put", str(home / "text"), "/demo/text")
        run("dfs", "-ls", "/demo")
        say("3. How often does each word occur?")
        counts = run(
            "-D", "mapreduce.job.maps=4", "-D", "mapreduce.job.reduces=2",
            "-input", "/demo/text", "-mapper", str(MAPPER), "-reducer", str(REDUCER),
            quiet=True,
        )  # fmt: skip
        say(f"4. The {TOP} most frequent words")
        show(counts)
        say("5. The store, checked")
        run("dfs", "-fsck", "/demo")
    finally:
        say("6. Down, and nothing left behind")
        subprocess.run(
            [MRSTREAM, "cluster", "down", "-f", cluster, "--purge", "--yes"], check=False
        )
        shutil.rmtree(home, ignore_errors=True)
    took_s = time.monotonic() - started
    say(f"Done in {took_s:.0f} s. Next: README.md, or `{os.path.relpath(MRSTREAM)} top --demo`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
