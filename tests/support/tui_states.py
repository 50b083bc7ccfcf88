"""Recorded states of a cluster for the monitor's tests: empty, busy, failing, huge, lost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from mrstream.cluster.config.config import DFS_MASTER, LOCK_MASTER, MAPREDUCE_MASTER, group_name
from mrstream.cluster.errors import Unavailable, UserError
from mrstream.cluster.leader.group_view import LEADER, SHADOW, SILENT, GroupView, MemberView
from mrstream.mapreduce.protocol import AttemptRecord, JobReport
from mrstream.mapreduce.snapshot import (
    BACKUP,
    COMMITTED,
    FAILED,
    IDLE,
    RUNNING,
    AttemptRow,
    Board,
    ClusterSnapshot,
    DiskRow,
    EventRow,
    HostRow,
    JobBoard,
    JobRow,
    JobSeen,
    JobSnapshot,
    RatePoint,
    TaskRow,
)
from mrstream.view.picture import (
    ChunkCounts,
    ChunkPlace,
    Download,
    FileEntry,
    KeyEntry,
    Masters,
    SilentCell,
    Storage,
    StorageRow,
    Trash,
)

NOW_S = 1_700_000_000.0
GIB = 1 << 30
JOB = "job_1700000000_0007"


@dataclass
class Recorded:
    """A source that answers from memory and notes what it was asked to do."""

    cluster: str = "demo"
    masters: Masters = field(default_factory=lambda: Masters("h1", "h1"))
    hosts: Board[HostRow] = field(default_factory=Board)
    jobs: Board[JobRow] = field(default_factory=Board)
    boards: dict[str, JobBoard] = field(default_factory=dict)
    past: dict[str, JobBoard] = field(default_factory=dict)
    store: Storage = field(default_factory=Storage)
    led: dict[str, GroupView] = field(default_factory=dict)
    files: dict[str, list[FileEntry]] = field(default_factory=dict)
    deleted: list[FileEntry] = field(default_factory=list)
    silent: list[SilentCell] = field(default_factory=list)
    places: list[ChunkPlace] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    lost: str = ""
    done: list[str] = field(default_factory=list)
    closed: bool = False
    abandoned: threading.Event = field(default_factory=threading.Event)

    def now_s(self) -> float:
        return NOW_S

    def _answer(self) -> None:
        if self.lost:
            raise Unavailable(self.lost)

    def snapshot(self, hosts_version: int, jobs_version: int) -> ClusterSnapshot:
        self._answer()
        return ClusterSnapshot(
            NOW_S, self.hosts.since(hosts_version), self.jobs.since(jobs_version)
        )

    def storage(self) -> Storage:
        self._answer()
        return self.store

    def groups(self, wait_s: float = 0.0) -> dict[str, GroupView]:
        return self.led

    def job(self, job_id: str, seen: JobSeen) -> JobSnapshot:
        self._answer()
        if job_id not in self.boards:
            raise UserError(f"{job_id} is not shown: it never was, or it ended long ago")
        return self.boards[job_id].since(seen, NOW_S)

    def log(self, attempt_id: str, stream: str, offset: int) -> bytes:
        self._answer()
        return self.logs.get(f"{attempt_id} {stream}", b"")[offset:]

    def log_bytes(self, attempt_id: str, stream: str) -> int:
        return len(self.log(attempt_id, stream, 0))

    def failure_report(self, job_id: str) -> str:
        return f"{job_id}: map 3 failed four times\nexit code 1 [not markup]\n"

    def all_jobs(self) -> tuple[JobRow, ...]:
        self._answer()
        return tuple(sorted(self.jobs, key=lambda job: job.key))

    def figures(self) -> list[tuple[str, str, dict[str, float]]]:
        self._answer()
        return [
            ("mapreduce.master", "h1", {"attempts_failed": 7.0, "workers": 10.0}),
            ("dfs.master", "h1", {"files": 1200.0}),
        ]

    def report(self, job_id: str) -> JobReport:
        self._answer()
        if job_id not in self.boards | self.past:
            raise UserError(f"{job_id} is not shown: it never was, or it ended long ago")
        board = (self.boards | self.past)[job_id]
        attempts = tuple(
            AttemptRecord(
                row.key, row.host, row.state, row.started_at_s, row.finished_at_s, row.locality,
                row.diagnosis, row.records,
            )
            for row in board.attempts
        )  # fmt: skip
        properties = {"mapreduce.job.reduces": str(board.job.reduces)}
        return JobReport(
            board.job, board.counters, tuple(board.events), attempts,
            facts={"elapsed_s": 300.0, "worker_deaths": 1.0}, properties=properties,
        )  # fmt: skip

    def stat(self, path: str) -> FileEntry:
        self._answer()
        for entry in (FileEntry("/", True, 0, 0, "ann", "lab", 0o755, NOW_S), *self._all_files()):
            if entry.path == path:
                return entry
        raise UserError(f"{path}: no such file or directory")

    def _all_files(self) -> list[FileEntry]:
        return [entry for entries in self.files.values() for entry in entries]

    def head(self, path: str) -> bytes:
        return self.contents.get(path, b"first line\nsecond line\n")

    def story(self, path: str) -> list[tuple[float, str]]:
        return [(NOW_S - 4000, f"{path} was made by ann")]

    def list_directory(self, path: str) -> list[FileEntry]:
        return self.files.get(path, [])

    def usage(self, path: str) -> list[tuple[str, int]]:
        return [("/logs", 3 * GIB), ("/in", GIB)]

    def preview(self, path: str) -> str:
        return f"first line of {path}\nsecond line\n"

    def chunks(self, path: str) -> list[ChunkPlace]:
        return self.places

    def trash(self) -> Trash:
        return Trash(tuple(self.deleted), tuple(self.silent))

    def keys(self) -> list[KeyEntry]:
        return [
            KeyEntry("etl", "ann", ("/in", "/logs"), "rw", NOW_S - 4000),
            KeyEntry("<b>old", "bob", ("/",), "r", NOW_S - 9000, NOW_S - 10),
            KeyEntry("grafana", "eve", ("/",), "r", NOW_S - 50, NOW_S + 86_400),
        ]

    def kill_job(self, job_id: str) -> str:
        return self._did(f"killed {job_id}")

    def kill_attempt(self, attempt_id: str, *, fail: bool) -> str:
        return self._did(f"{'failed' if fail else 'killed'} {attempt_id}")

    def set_priority(self, job_id: str, priority: str) -> str:
        return self._did(f"{job_id} is now {priority}")

    def set_replication(self, path: str, replication: int) -> str:
        return self._did(f"{path} has {replication} copies")

    def undelete(self, path: str) -> str:
        return self._did(f"{path} is back")

    def make_directory(self, path: str) -> str:
        return self._did(f"made {path}")

    def rename(self, path: str, target: str) -> str:
        return self._did(f"{path} is now {target}")

    def delete(self, path: str) -> str:
        return self._did(f"{path} is in the trash")

    def download(self, path: str) -> Download:
        data = self.head(path)
        return Download(len(data), iter([data]))

    def upload(self, path: str, *, replace: bool = False) -> RecordedUpload:
        self._did(f"upload {path}{' over' if replace else ''}")
        return RecordedUpload(self, path)

    def _did(self, what: str) -> str:
        self._answer()
        self.done.append(what)
        return what

    def close(self) -> None:
        self.closed = True


class RecordedUpload:
    """A file being brought to a `Recorded`."""

    def __init__(self, state: Recorded, path: str) -> None:
        self._state, self._path, self._data = state, path, b""

    def write(self, data: bytes, /) -> int:
        self._data += data
        return len(data)

    def close(self) -> None:
        self._state.contents[self._path] = self._data

    def abandon(self) -> None:
        self._state.done.append(f"abandoned {self._path}")
        self._state.abandoned.set()


def empty() -> Recorded:
    """A cluster that nobody uses yet."""
    state = Recorded()
    for i in (1, 2, 3):
        state.hosts.put(_host(i, 0))
    state.store = Storage(NOW_S, tuple(_server(i, 0) for i in (1, 2, 3)))
    return state


def busy() -> Recorded:
    """Ten hosts, a sort that runs, jobs that wait and jobs that ended."""
    state = Recorded()
    for i in range(1, 11):
        state.hosts.put(_host(i, i % 3, quarantined=i == 7))
    state.store = Storage(
        NOW_S,
        tuple(_server(i, i * 7 * GIB) for i in range(1, 11)),
        ChunkCounts(total=4812, under_replicated=3, repairing=2, files=1200),
    )
    state.led = groups(group(DFS_MASTER), group(MAPREDUCE_MASTER, "h2", 3), group(LOCK_MASTER))
    sort = _job(JOB, "sort of the web log", "running", 0.62, 0.41, 0.05)
    state.jobs.put(sort)
    state.jobs.put(_job("job_1700000000_0006", "word count", "succeeded", 1.0, 1.0, 1.0))
    state.jobs.put(_job("job_1700000000_0008", "inverted index", "waiting", 0.0, 0.0, 0.0))
    state.boards[JOB] = _board(sort, maps=200, reduces=40)
    state.files = _files()
    state.deleted = [FileEntry("/in/old.txt", False, 12345, 3, "ann", "lab", 0o644, NOW_S - 9000)]
    state.places = [
        ChunkPlace(0, 0x1001, 2, 64 << 20, ("h1", "h4", "h9"), "good"),
        ChunkPlace(1, 0x1002, 2, 64 << 20, ("h2", "h3"), "under-replicated"),
        ChunkPlace(2, 0x1003, 1, 5 << 20, ("h5", "h6", "h10"), "good"),
    ]
    attempt = f"attempt_{JOB[4:]}_m_000003_0"
    state.logs[f"{attempt} stderr"] = b"reading\nwarning: odd line 17\nstill reading\n"
    state.logs[f"{attempt} stdout"] = b"key\t1\n"
    return state


HOSTILE = "[/zz][bold]\x1b]0;owned\x07\u202etxt.exe"


def hostile() -> Recorded:
    """A cluster whose users gave things names that are markup or commands of a terminal."""
    state = busy()
    sort = _job(JOB, HOSTILE, "running", 0.62, 0.41, 0.05, diagnosis=HOSTILE)
    state.jobs.put(sort)
    state.boards[JOB] = _board(sort, maps=20, reduces=4)
    state.boards[JOB].events.append(EventRow(NOW_S, HOSTILE))
    state.files["/"] = [FileEntry("/" + HOSTILE, False, 1, 3, HOSTILE, HOSTILE, 0o644, NOW_S)]
    state.deleted = state.files["/"]
    for name in state.logs:
        state.logs[name] = HOSTILE.encode() + b"\n"
    return state


def failing() -> Recorded:
    """A job whose map 3 fails again and again, and another that has failed."""
    state = busy()
    bad = "job_1700000000_0005"
    state.jobs.put(
        _job(bad, "parse", "failed", 0.3, 0.0, 0.0, failed=5, diagnosis="map 3 failed four times")
    )
    state.boards[bad] = _board(_found(state, bad), maps=10, reduces=2, failing=True)
    state.store = Storage(
        NOW_S,
        state.store.servers,
        ChunkCounts(total=4812, under_replicated=120, missing=2, corrupt=1, repairing=8),
    )
    state.led |= groups(
        group(DFS_MASTER, "h2", 8, silent=("h1",)), group(LOCK_MASTER, "", silent=("h1", "h3"))
    )
    return state


def huge() -> Recorded:
    """The paper's sort: 15,000 maps and 4,000 reduces, 200 hosts."""
    state = busy()
    for i in range(11, 201):
        state.hosts.put(_host(i, 2))
    sort = _job(JOB, "sort, 10^10 records", "running", 0.71, 0.3, 0.0, maps=15_000, reduces=4_000)
    state.jobs.put(sort)
    state.boards[JOB] = _board(sort, maps=15_000, reduces=4_000)
    return state


def lost() -> Recorded:
    """A master that does not answer: of its group there is one member left."""
    return Recorded(
        lost="mapreduce.master at h1:7703 refuses the connection",
        led=groups(group(DFS_MASTER), group(MAPREDUCE_MASTER, "", 8, silent=("h1", "h2"))),
    )


def group(role: str, leader: str = "h1", epoch: int = 7, silent: tuple[str, ...] = ()) -> GroupView:
    """Three masters, led for the last three minutes; the silent ones say nothing."""
    hosts = ("h1", "h2", "h3")
    states = dict.fromkeys(hosts, SHADOW) | dict.fromkeys(silent, SILENT)
    if leader:
        states[leader] = LEADER
    members = {
        host: MemberView(state, 50, 50, 0.0 if state == LEADER else 0.04 if leader else 34.0)
        for host, state in states.items()
    }
    return GroupView(role, leader, epoch, 50, hosts, members, since_s=NOW_S - 187 if leader else 0)


def groups(*views: GroupView) -> dict[str, GroupView]:
    """These by name."""
    return {group_name(view.role): view for view in views}


def _found(state: Recorded, key: str) -> JobRow:
    row = state.jobs.get(key)
    assert row is not None
    return row


def _host(i: int, used: int, *, quarantined: bool = False) -> HostRow:
    return HostRow(
        f"h{i}", f"10.0.0.{i}", f"r{i % 3}", "quarantined" if quarantined else "up",
        2, min(used, 2),
        0.3 * i, i * GIB // 2, 8 * GIB, (DiskRow("/data1", i * 7 * GIB, 100 * GIB),),
        NOW_S - (8.0 if quarantined else 0.4),
        tuple(f"attempt_{JOB[4:]}_m_{n:06}_0" for n in range(min(used, 2))),
        "6 attempts failed here in a row" if quarantined else "",
    )  # fmt: skip


def _server(i: int, used_bytes: int) -> StorageRow:
    return StorageRow(
        f"h{i}", f"r{i % 3}", "up", used_bytes, 100 * GIB, used_bytes >> 26, NOW_S - 0.5
    )


def _job(
    key: str, name: str, state: str, done: float, shuffled: float, reduced: float, *,
    maps: int = 200, reduces: int = 40, failed: int = 0, diagnosis: str = "",
) -> JobRow:  # fmt: skip
    return JobRow(
        key, name, "ann", state, "NORMAL", NOW_S - 300,
        0.0 if state in ("running", "waiting") else NOW_S - 60,
        maps, int(maps * done), 8 if state == "running" else 0,
        reduces, int(reduces * reduced), 4 if state == "running" else 0,
        done, shuffled, reduced,
        int(9 * GIB * done), int(9 * GIB * shuffled), int(9 * GIB * reduced),
        10**8, 10**7, failed, 187.0 if state == "running" else -1.0, "/out/" + key[-4:], diagnosis,
    )  # fmt: skip


def _board(job: JobRow, *, maps: int, reduces: int, failing: bool = False) -> JobBoard:
    board = JobBoard(job)
    for kind, total, fraction in (
        ("m", maps, job.map_fraction),
        ("r", reduces, job.reduce_fraction),
    ):
        for n in range(total):
            state = (
                COMMITTED if n < total * fraction else RUNNING if n < total * fraction + 8 else IDLE
            )
            if n == 3 and kind == "m":
                state = FAILED if failing else BACKUP
            board.tasks.put(TaskRow(f"{kind}{n:06}", state, f"h{1 + n % 10}", NOW_S - 200 + n, 0.5))
    for n in range(min(maps, 600)):
        running = n >= maps * job.map_fraction or n == 3
        board.attempts.put(
            AttemptRow(
                f"attempt_{job.key[4:]}_m_{n:06}_0", f"m{n:06}", f"h{1 + n % 10}",
                "failed" if failing and n == 3 else "running" if running else "succeeded",
                ("host", "rack", "far")[n % 3], NOW_S - 200, 0.0 if running else NOW_S - 150,
                0.5 if running else 1.0, "map", 1000 + n, 64 << 20, 60 << 20,
                "reading line 17" if running else "",
                "exit code 1: the program says it failed" if failing and n == 3 else "",
            )
        )  # fmt: skip
    board.events = [EventRow(NOW_S - 290 + i, f"map {i} done on h{1 + i % 10}") for i in range(30)]
    board.rates = [
        RatePoint(
            NOW_S - 300 + 3 * i,
            2e8 * min(1, i / 20) * (1.2 if i < 60 else 0.3),
            1e8 * max(0.0, min(1.0, (i - 15) / 30)),
            5e7 * max(0.0, (i - 70) / 30),
        )
        for i in range(100)
    ]
    board.counters = {
        "Map-Reduce Framework": {"Map input records": 123456789, "Map output records": 99},
        "words": {"odd": 3},
    }
    return board


def _files() -> dict[str, list[FileEntry]]:
    def directory(path: str) -> FileEntry:
        return FileEntry(path, True, 0, 0, "ann", "lab", 0o755, NOW_S - 5000)

    def file(path: str, length: int) -> FileEntry:
        return FileEntry(path, False, length, 3, "ann", "lab", 0o644, NOW_S - 4000)

    return {
        "/": [directory("/in"), directory("/out"), file("/readme.txt", 912)],
        "/in": [file("/in/web.log", 133 << 20), file("/in/words.gz", 5 << 20)],
    }
