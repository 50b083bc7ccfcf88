"""The `proto` files of a Sawzall program, compiled: from their names to descriptors.

Runs protoc, which comes with the extra `saw`, on the machine that submits; hosts get descriptors.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import msgspec

from mrstream.cluster.config import extras
from mrstream.cluster.errors import UserError

DESCRIPTOR_BYTES_MAX = 4 << 20
_SUFFIX = ".proto"


class BadProto(UserError):
    """A `proto` file that is not there, or has a fault."""


def encoded(descriptors: dict[str, bytes]) -> str:
    """Return descriptors by file as they stand in a job's settings."""
    return base64.b64encode(msgspec.msgpack.encode(descriptors)).decode()


def decoded(text: str) -> dict[str, bytes]:
    """Read what `encoded` gave, or anyone else wrote."""
    try:
        data = base64.b64decode(text, validate=True)
        return msgspec.msgpack.decode(data, type=dict[str, bytes]) if data else {}
    except (ValueError, msgspec.DecodeError) as error:
        raise BadProto(f"mrstream.saw.protos cannot be read: {error}") from None


def compiled(names: Sequence[str], program: str) -> dict[str, bytes]:
    """Return the descriptors of files that a program names; they lie where it does, or below."""
    extras.require(["saw"], f"`proto` in {program}")
    return {name: _descriptors(name, program) for name in names}


def _descriptors(name: str, program: str) -> bytes:
    home = os.path.dirname(os.path.abspath(program))
    path = os.path.normpath(os.path.join(home, name))
    what = f'{program}: proto "{name}"'
    try:
        if name.endswith(_SUFFIX):
            os.stat(path)
            data = _by_protoc(path, home, what)
        else:  # what protoc made before
            with open(path, "rb") as file:
                data = file.read(DESCRIPTOR_BYTES_MAX + 1)
    except OSError as error:
        raise BadProto(f"{what}: {path}: {error.strerror}") from None
    if len(data) > DESCRIPTOR_BYTES_MAX:
        raise BadProto(
            f"{what} describes more than {DESCRIPTOR_BYTES_MAX:,} bytes; leave out what the "
            "program does not read"
        )
    return data


def _by_protoc(path: str, home: str, what: str) -> bytes:
    """Compile a file with those that it imports, which it names as seen from the program's place
    (or from its own, if it lies elsewhere)."""
    root = home if path.startswith(os.path.join(home, "")) else os.path.dirname(path)
    with tempfile.TemporaryDirectory(prefix="mrstream-proto-") as room:
        made = os.path.join(room, "descriptors")
        words = [f"-I{root}", "--include_imports", f"--descriptor_set_out={made}", path]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "grpc_tools.protoc", *words],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise BadProto(f"{what} cannot be compiled:\n{said}")
        with open(made, "rb") as file:
            return file.read()
