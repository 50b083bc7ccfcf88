"""What goes into the master's brain, and what comes out of it."""

from __future__ import annotations

import msgspec

from mrstream.mapreduce.p4.brain.messages import (
    AnyStatus,
    Heartbeat,
    NewMasterJob,
    NewSortJob,
    NewWorkerJob,
    Register,
    RegisterAck,
    Shutdown,
)


class InputListed(msgspec.Struct, frozen=True):
    """The input directory of a job was read: the paths of its files, or why not."""

    job_id: int
    files: tuple[str, ...] = ()
    error: str = ""


class Grouped(msgspec.Struct, frozen=True):
    """The sorted files of a job are merged and cut, or not, and why."""

    job_id: int
    error: str = ""


class ResultsPlaced(msgspec.Struct, frozen=True):
    """The results of a job are in its output directory, or not, and why."""

    job_id: int
    error: str = ""


class DeliveryFailed(msgspec.Struct, frozen=True):
    """For as long as a silent worker is waited for, nobody took the messages to this one."""

    pid: int


class TimePassed(msgspec.Struct, frozen=True):
    """The clock moved, and nothing else."""


Event = (
    Register
    | NewMasterJob
    | AnyStatus
    | Shutdown
    | Heartbeat
    | InputListed
    | Grouped
    | ResultsPlaced
    | DeliveryFailed
    | TimePassed
)


class MakeDirectories(msgspec.Struct, frozen=True):
    """Make the four directories of a job that arrived."""

    job_id: int


class ListInput(msgspec.Struct, frozen=True):
    """Read which files a job has; answered by `InputListed`."""

    job_id: int
    directory: str


class Send(msgspec.Struct, frozen=True):
    """Send a message to a worker, behind those sent to it before."""

    pid: int
    host: str
    port: int
    message: RegisterAck | NewWorkerJob | NewSortJob | Shutdown


class Forget(msgspec.Struct, frozen=True):
    """A worker is dead: drop what was not delivered to it."""

    pid: int


class MergeAndCut(msgspec.Struct, frozen=True):
    """Merge sorted files and cut them, by key, into `targets`; answered by `Grouped`."""

    job_id: int
    sources: tuple[str, ...]
    targets: tuple[str, ...]


class PlaceResults(msgspec.Struct, frozen=True):
    """Copy files, each under a name of its own, into a directory; answered by `ResultsPlaced`."""

    job_id: int
    sources: tuple[str, ...]
    names: tuple[str, ...]
    directory: str


class Say(msgspec.Struct, frozen=True):
    text: str


class End(msgspec.Struct, frozen=True):
    """All workers were told to end: end, once they have heard it."""


Command = MakeDirectories | ListInput | Send | Forget | MergeAndCut | PlaceResults | Say | End
