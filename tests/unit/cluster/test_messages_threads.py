"""Messages are decoded by many threads from the first moment on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own, since the race is over once the types have been used; and since losing
# it ends the process.
_RACE = """
import sys, threading
sys.setswitchinterval(1e-6)
import mrstream.dfs.protocol as protocol
from mrstream.cluster.wire.messages import pack, unpack
status = protocol.FileStatus("/a", False, 1, 1, 1, 1.0, 1.0, "o", "g", 1, 1, 1)
values = [protocol.OpenFile(status, 1), protocol.Located(status, ()), status]
values += [protocol.Page((status,))]
begin = threading.Barrier(60)
def decode(number):
    value = values[number % len(values)]
    packed = pack(value)
    begin.wait()
    assert unpack(packed, type(value)) == value
threads = [threading.Thread(target=decode, args=(number,)) for number in range(60)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_sixty_threads_may_decode_the_first_messages_at_once() -> None:
    """msgspec crashed the process when several decoders of the same types were made at once."""
    root = Path(__file__).parent.parent.parent.parent
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _RACE], cwd=root, check=False)
        assert done.returncode == 0
