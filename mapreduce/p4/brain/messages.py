"""The ten messages of the protocol (M1 … M10), and the only reader of those that come from outside.

`decode` gives a message or refuses with `BadMessage`; nothing else about bytes from a socket is
ever trusted. What we write has exactly the fields that the specification prints, in its order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

MESSAGE_BYTES_MAX = 8 << 20
PATH_CHARS_MAX = 4096
REDUCES_MAX = 10_000
MAPS_MAX = 1_000_000

T = TypeVar("T")
Port = Annotated[int, Meta(ge=1, le=65535)]
Pid = Annotated[int, Meta(ge=1, le=(1 << 53))]
Text = Annotated[str, Meta(min_length=1, max_length=PATH_CHARS_MAX)]


class BadMessage(ValueError):
    """Bytes that are none of the ten messages; the text says why."""


class Register(msgspec.Struct, frozen=True, tag_field="message_type", tag="register"):
    """M1, worker to master: I listen."""

    worker_host: Text
    worker_port: Port
    worker_pid: Pid


class RegisterAck(msgspec.Struct, frozen=True, tag_field="message_type", tag="register_ack"):
    """M2, master to worker: you are known; begin to send heartbeats."""

    worker_host: Text
    worker_port: Port
    worker_pid: Pid


class NewMasterJob(msgspec.Struct, frozen=True, tag_field="message_type", tag="new_master_job"):
    """M3, client to master: run this job."""

    input_directory: Text
    output_directory: Text
    mapper_executable: Text
    reducer_executable: Text
    num_mappers: Annotated[int, Meta(ge=1, le=MAPS_MAX)]
    num_reducers: Annotated[int, Meta(ge=1, le=REDUCES_MAX)]


class NewWorkerJob(msgspec.Struct, frozen=True, tag_field="message_type", tag="new_worker_job"):
    """M4, master to worker: run this executable on each of these files (a map or a reduce)."""

    input_files: list[Text]
    executable: Text
    output_directory: Text
    worker_pid: Pid


class NewSortJob(msgspec.Struct, frozen=True, tag_field="message_type", tag="new_sort_job"):
    """M6, master to worker: merge these files into one sorted file."""

    input_files: list[Text]
    output_file: Text
    worker_pid: Pid


class FilesStatus(msgspec.Struct, frozen=True, tag_field="message_type", tag="status"):
    """M5, worker to master: a task of M4 is finished."""

    output_files: list[str]
    status: str
    worker_pid: int


class FileStatus(msgspec.Struct, frozen=True, tag_field="message_type", tag="status"):
    """M7 and M8, worker to master: a sort is finished, or, as printed, a reduce."""

    output_file: str
    status: str
    worker_pid: int


class AnyStatus(msgspec.Struct, frozen=True, tag_field="message_type", tag="status"):
    """M5, M7 or M8 as foreign workers write them (R1): either key, a string or a list."""

    worker_pid: Pid
    status: Literal["finished"]
    output_files: Any = ()
    output_file: Any = ()

    def __post_init__(self) -> None:
        for said in (self.output_files, self.output_file):
            paths = said if isinstance(said, list | tuple) else [said]
            if not all(isinstance(p, str) and 0 < len(p) <= PATH_CHARS_MAX for p in paths):
                raise ValueError("what is finished must be a path, or a list of paths")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The paths that it reports, under whichever name."""
        said = [self.output_files, self.output_file]
        return tuple(p for each in said for p in ([each] if isinstance(each, str) else each))


class Shutdown(msgspec.Struct, frozen=True, tag_field="message_type", tag="shutdown"):
    """M9, client to master and master to workers: end."""


class Heartbeat(msgspec.Struct, frozen=True, tag_field="message_type", tag="heartbeat"):
    """M10, worker to master, by UDP: I live."""

    worker_pid: Pid


ToMaster = Register | NewMasterJob | AnyStatus | Shutdown
ToWorker = RegisterAck | NewWorkerJob | NewSortJob | Shutdown
Status = FilesStatus | FileStatus
Message = Register | RegisterAck | NewMasterJob | NewWorkerJob | NewSortJob | Shutdown | Heartbeat

_to_master: msgspec.json.Decoder[ToMaster] = msgspec.json.Decoder(ToMaster)
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_heartbeat: msgspec.json.Decoder[Heartbeat] = msgspec.json.Decoder(Heartbeat)


def decode_to_master(data: bytes) -> ToMaster:
    """Read what came to a master's TCP port."""
    return _decoded(_to_master, data)


def decode_to_worker(data: bytes) -> ToWorker:
    """Read what came to a worker's TCP port."""
    return _decoded(_to_worker, data)


def decode_heartbeat(data: bytes) -> Heartbeat:
    """Read a datagram that came to a master's UDP port."""
    return _decoded(_heartbeat, data)


def encode(message: Message | Status) -> bytes:
    """Write a message as one JSON object."""
    return msgspec.json.encode(message)


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    # A name with a NUL is no file's, and would fail late; in JSON it can only be written so.
    if b"\\u0000" in data:
        raise BadMessage("a text holds a NUL")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
