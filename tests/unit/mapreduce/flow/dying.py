"""`mrstream` that dies, as by kill -9, just before its Nth change of files or processes.

    python dying.py N WORD…     dies before change N; with N = 0 lives, and says how many there were

Counted are the calls of this process that change something: files made, written or removed, names,
directories, processes started. So each moment at which a crash may matter has a number.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate",
           "subprocess.Popen", "fcntl.flock")  # fmt: skip


class Changes:
    """An audit hook that counts, and ends the process when it is time."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last
        self._lock = threading.Lock()

    def __call__(self, event: str, details: tuple[object, ...]) -> None:
        if event in CHANGES or (event == "open" and _writes(details)):
            with self._lock:
                self.count += 1
                if self.count == self._last:
                    os.kill(os.getpid(), signal.SIGKILL)


def _writes(details: tuple[object, ...]) -> bool:
    path, _, flags = details
    written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return bool(written) and path != os.devnull


if __name__ == "__main__":
    from mrstream.streaming import cli

    changes = Changes(int(sys.argv[1]))
    sys.addaudithook(changes)
    status = cli.main(sys.argv[2:])
    print(f"changes: {changes.count}", file=sys.stderr)
    sys.exit(status)
