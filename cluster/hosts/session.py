"""A conversation with the agent on a host, over a pipe (local hosts) or an SSH channel.

`AgentSession.call` sends one request and returns its answer. Closing the session ends the agent,
which undoes what it had begun unless it was told to `keep`. One thread at a time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mrstream.cluster import agent
from mrstream.cluster.errors import ClusterError, HostUnreachable, UserError

CALL_S_MAX = 60.0
LINE_BYTES_MAX = 64 * 1024 * 1024
"""Of what an agent says at once: a piece of a file, in base64, is the longest."""
_PIECE_BYTES = 128 * 1024
PYTHONS = (
    "python3",
    "python3.13",
    "python3.12",
    "python3.11",
    "/usr/local/bin/python3",
    "/opt/homebrew/bin/python3",
)
_SAID = frozenset(("ok", "error", "event"))
# Modules by name, as JSON, become modules there; the last one is the program.
_BOOT = """
import json, os, sys, types
size = b""
while size[-1:] != b"\\n":
    size += os.read(0, 1)
sent = b""
while len(sent) < int(size):
    sent += os.read(0, int(size) - len(sent))
for name, source in json.loads(sent).items():
    module = sys.modules[name] = types.ModuleType(name)
    package, _, own_name = name.rpartition(".")
    if package:
        setattr(sys.modules[package], own_name, module)
    exec(compile(source, "<" + name + ">", "exec"), vars(module))
module.main()
"""


class HostRefused(UserError):
    """A host cannot do what the launcher asked; the message is for the person at the keyboard."""


class UnknownHostKey(HostRefused):
    """Nobody has vouched for the host's key; `type_this` in the details makes it known."""


def advice_on_keys(failed: Iterable[ClusterError]) -> list[str]:
    """Return what to type about all hosts with unknown keys, at once; nothing if there are none."""
    lines = [error.details["type_this"] for error in failed if isinstance(error, UnknownHostKey)]
    if not lines:
        return []
    return [
        "Compare the fingerprints above with what `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` "
        "says on each host, then type here:",
        *(f"  {line}" for line in lines),
    ]


class Transport(Protocol):
    """Bytes to and from an agent."""

    def send(self, data: bytes) -> None:
        """Send all of it."""

    def receive(self, timeout_s: float) -> bytes:
        """Return some bytes; empty: the other side has ended. `TimeoutError` when none came."""

    def close(self) -> None:
        """End the conversation."""

    def last_words(self) -> str:
        """What the other side said besides, such as an error of its shell."""


@functools.cache
def agent_source() -> bytes:
    """Return what `_BOOT` wants: the modules of the agent, in their order."""
    folder = os.path.dirname(agent.__file__)
    package = agent.__name__
    sources = {"mrstream": "", "mrstream.cluster": "", package: ""}
    for name in agent.MODULES:
        with open(os.path.join(folder, f"{name}.py"), encoding="utf-8") as file:
            sources[f"{package}.{name}"] = file.read()
    return json.dumps(sources).encode()


def bootstrap_command(pythons: tuple[str, ...]) -> str:
    """Return the command (for any login shell) that finds a Python that is new enough there and
    lets it run the agent, whose modules come first on its input."""
    # No quotes but the outer ones, no newlines: also csh and fish pass it on unharmed.
    boot = f"exec(bytes.fromhex({_hex_digits(_BOOT.strip())}))"
    test = "import sys;print(sys.version.split()[0]);sys.exit(sys.version_info<(3,11))"
    script = (
        "for p in " + " ".join(pythons) + "; do "
        'command -v "$p" >/dev/null 2>&1 || continue; '
        f'v=$("$p" -c "{test}" 2>/dev/null) && exec "$p" -I -c "{boot}"; '
        f'seen="$seen $p=$v"; done; echo "no python:$seen;{" ".join(pythons)}" >&2; exit 127'
    )
    return f"exec /bin/sh -c '{script}'"


def _hex_digits(text: str) -> str:
    # A number needs no quotes within the shell's double quotes; the text must not begin with "0".
    return f"hex(0x{text.encode().hex()})[2:]"


class AgentSession:
    """Requests to one agent, and its answers."""

    def __init__(self, host: str, transport: Transport) -> None:
        self.host = host
        self._transport = transport
        self._held = b""

    @staticmethod
    def over(host: str, transport: Transport) -> AgentSession:
        """Begin a conversation with a shell that runs `bootstrap_command`."""
        session = AgentSession(host, transport)
        source = agent_source()
        session._send(b"%d\n" % len(source) + source)
        return session

    def call(
        self,
        do: str,
        *,
        payload: bytes | None = None,
        on_event: Callable[[Any], None] | None = None,
        timeout_s: float = CALL_S_MAX,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Return the agent's answer; `HostRefused` says what is wrong there, `HostUnreachable`
        that the host is gone."""
        request: dict[str, Any] = {"do": do, **arguments}
        if payload is not None:
            request["bytes"] = len(payload)
        self._send(json.dumps(request).encode() + b"\n")
        if payload:
            self._send(payload)
        deadline_s = time.monotonic() + timeout_s
        while True:
            line = self._line(deadline_s, do)
            if not line.startswith(b"{"):
                continue  # what a login shell's start-up files said before the agent began
            answer = self._read(line, do)
            if "event" in answer:
                if on_event is not None:
                    on_event(answer["event"])
                continue
            if "error" in answer:
                raise HostRefused(f"{answer['error']}")
            result: dict[str, Any] = answer["ok"]
            return result

    def _read(self, line: bytes, do: str) -> dict[str, Any]:
        """Return an answer or an event; a host may say anything, also brackets by the million."""
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._nonsense(do, str(error)) from None
        is_known = not _SAID.isdisjoint(answer)
        if not is_known or not isinstance(answer.get("ok", {}), dict):
            raise self._nonsense(do, f"{line[:80]!r}")
        found: dict[str, Any] = answer
        return found

    def _nonsense(self, do: str, reason: str) -> HostUnreachable:
        return HostUnreachable(f"{self.host}: the answer to {do!r} cannot be read: {reason}")

    def close(self) -> None:
        self._transport.close()

    def _send(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), _PIECE_BYTES):
                self._transport.send(data[at : at + _PIECE_BYTES])
        except OSError as error:
            raise self._lost(str(error)) from error

    def _line(self, deadline_s: float, do: str) -> bytes:
        while b"\n" not in self._held:
            if len(self._held) > LINE_BYTES_MAX:
                raise self._nonsense(do, f"a line of more than {LINE_BYTES_MAX:,} bytes")
            try:
                more = self._transport.receive(max(0.01, deadline_s - time.monotonic()))
            except TimeoutError:
                raise HostUnreachable(f"{self.host}: no answer to {do!r} in time") from None
            except OSError as error:
                raise self._lost(str(error)) from error
            if not more:
                raise self._lost("the connection ended")
            self._held += more
        line, _, self._held = self._held.partition(b"\n")
        return line

    def _lost(self, reason: str) -> HostUnreachable | HostRefused:
        words = self._transport.last_words().strip()
        if words.startswith("no python:"):
            return HostRefused(_no_python(words.removeprefix("no python:")))
        if words:
            return HostUnreachable(f"{self.host}: {reason}: {words[-500:]}")
        return HostUnreachable(f"{self.host}: {reason}")


def _no_python(words: str) -> str:
    seen, _, wanted = words.partition(";")
    found = [item.partition("=") for item in seen.split()]
    if not found:
        return (
            f"no Python there (looked for {', '.join(wanted.split())}): install Python 3.11 or "
            "newer, or name it with `python: PATH`"
        )
    versions = ", ".join(f"{name} is {version or 'broken'}" for name, _, version in found)
    return (
        f"Python there is too old ({versions}); mrstream needs 3.11 or newer: install one and name "
        "it with `python: PATH`"
    )


class LocalTransport:
    """An agent as a child process of ours."""

    def __init__(self, python: str | None = None) -> None:
        self._process = subprocess.Popen(
            [python or sys.executable, "-I", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the launcher, which then tells the agent
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def send(self, data: bytes) -> None:
        self._input.write(data)
        self._input.flush()

    def receive(self, timeout_s: float) -> bytes:
        if not select.select([self._output], [], [], timeout_s)[0]:
            raise TimeoutError
        return os.read(self._output.fileno(), 65536)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it may have ended before we did
            self._input.close()
        self._process.wait()
        self._output.close()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def last_words(self) -> str:
        stderr = self._process.stderr
        if stderr is None or stderr.closed or not select.select([stderr], [], [], 0.2)[0]:
            return ""
        return os.read(stderr.fileno(), 65536).decode(errors="replace")
