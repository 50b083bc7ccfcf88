"""Workers killed and stopped in every phase, rubbish on every port, ends that leave nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.conformance.p4.course import NET_S, OURS, Course, free_port, wait_for
from tests.support.local_jobs import MRSTREAM

HELD = """#!/bin/sh
# Says which worker runs it, then waits until it may go on: all of them, or those of this worker.
echo $PPID >> {name}.began
while [ ! -e {name}.go ] && [ ! -e {name}.go.$PPID ]; do sleep 0.1; done
exec {then}
"""


class Hindered:
    """A job of three workers: one is killed and one stopped, both with a task in hand."""

    def __init__(self, place: Path, phase: str) -> None:
        self.phase = phase
        self.course = Course(place, files=6)
        self.master = self.course.our_master("--verbose")
        self.crew = [self.course.our_worker() for _ in range(3)]
        self.killed, self.stopped, self.spared = self.crew

    def hold(self, name: str, then: str) -> str:
        return self.course.executable(f"held-{name}.sh", HELD.format(name=name, then=then))

    def begin(self) -> None:
        wait_for(lambda: self.said().count(" registered, on port") == 3, "workers", self.said)
        if self.phase == "reduce":
            reducer = self.hold("reduce", "exec/reduce.awk")
            self.course.submit("out", 6, 6, reducer=reducer)
        else:
            self.course.submit("out", 6, 6, mapper=self.hold("map", "exec/map.sh"))
        if self.phase == "group":
            self.freeze_before_grouping()
        else:
            wait_for(lambda: len(set(self.began())) == 3, f"{self.phase} on all", self.said)
            self.stopped.send_signal(signal.SIGSTOP)
        self.killed.send_signal(signal.SIGKILL)
        (self.course.place / f"{'reduce' if self.phase == 'reduce' else 'map'}.go").touch()

    def freeze_before_grouping(self) -> None:
        """Let two finish their maps and stop them: they are alive still when the sorts are sent."""
        wait_for(lambda: len(set(self.began())) == 3, "maps on all", self.said)
        for worker in (self.killed, self.stopped):
            (self.course.place / f"map.go.{worker.pid}").touch()
            status = f"event AnyStatus(worker_pid={worker.pid}"
            wait_for(lambda said=status: self.said().count(said) == 2, "maps", self.said)
            worker.send_signal(signal.SIGSTOP)
        (self.course.place / "map.go").touch()
        for worker in (self.killed, self.stopped):
            sort = f"command Send(pid={worker.pid}"
            wait_for(
                lambda said=sort: any(
                    said in line and "NewSortJob" in line for line in self.said().splitlines()
                ),
                "a sort",
                self.said,
            )

    def check_end(self) -> None:
        """The results are right, both were taken for dead, and the stopped one comes back."""
        assert self.course.results("out", 6) == self.course.truth()
        for worker in (self.killed, self.stopped):
            assert f"worker {worker.pid} is dead: it was silent for too long" in self.said()
        assert f"worker {self.spared.pid} is dead" not in self.said()
        self.stopped.send_signal(signal.SIGCONT)
        back = f"worker {self.stopped.pid} is back"
        wait_for(lambda: back in self.said(), "the stopped worker", self.said)

    def began(self) -> list[str]:
        path = self.course.place / f"{'reduce' if self.phase == 'reduce' else 'map'}.began"
        return path.read_text().split() if path.exists() else []

    def said(self) -> str:
        return self.course.log_of(self.master)


ENDLESS = """#!/bin/sh
setsid sleep 1000 &
echo $PPID $$ $! >> pids
sleep 1000
"""


class Orphaned:
    """Two workers whose master is killed (kill -9), one of them in the middle of a map."""

    def __init__(self, place: Path) -> None:
        self.course = Course(place, files=1)
        self.master = self.course.our_master()
        words = [*MRSTREAM, "p4", "worker", str(self.course.port)]
        self.crew = [self.course.start([*words, str(free_port())]) for _ in range(2)]

    def begin(self) -> None:
        self.course.submit("out", 1, 1, mapper=self.course.executable("endless.sh", ENDLESS))
        pids = self.course.place / "pids"
        wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), "a map", self.said)
        wait_for(lambda: self.said().count(" registered, on port") == 2, "workers", self.said)
        self.master.kill()

    def check_end(self) -> None:
        """The workers end too, with what they run: a new master would not know them."""
        assert [worker.wait(NET_S) for worker in self.crew] == [1, 1], self.said()
        says = f"no master has listened on port {self.course.port} for 12 s; the worker ends"
        assert self.said().count(says) == 2 and "Traceback" not in self.said()
        programs = map(int, (self.course.place / "pids").read_text().split()[1:])
        assert [pid for pid in programs if is_alive(pid)] == []

    def said(self) -> str:
        return self.course.logs()


class Deserted:
    """A job that comes before any worker, and whose only worker ends politely during a map."""

    def __init__(self, place: Path) -> None:
        self.course = Course(place)
        self.master = self.course.our_master()

    def begin(self) -> None:
        course = self.course
        mapper = course.executable("held.sh", HELD.format(name="map", then="exec/map.sh"))
        course.submit("out", 2, 3, mapper=mapper)
        outputs = course.place / "var/job-0/mapper-output"
        wait_for(outputs.is_dir, "directories", course.logs)
        only = course.our_worker()
        wait_for((course.place / "map.began").exists, "a map", course.logs)
        only.terminate()
        assert only.wait(NET_S) == 0
        assert os.listdir(outputs) == []  # nothing half written
        (course.place / "map.go").touch()
        course.our_worker()

    def check_end(self) -> None:
        """The job went on with the next that came."""
        assert self.course.results("out", 2) == self.course.truth()
        assert "is dead" in self.course.log_of(self.master)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def test_processes_die_in_every_phase_and_the_results_are_right(tmp_path: Path) -> None:
    """P4-22, P4-24, P4-26, P4-29: killed (kill -9) and stopped, in map, grouping and reduce.

    The stopped one comes back, reports what it had, late, and takes part in the next job. Side by
    side with that, since silence takes its 12 s: P4-06, P4-25, a job without workers; a master that
    is killed.
    """
    with contextlib.ExitStack() as opened:
        others = [Orphaned(tmp_path / "orphaned"), Deserted(tmp_path / "deserted")]
        jobs = [Hindered(tmp_path / phase, phase) for phase in ("map", "group", "reduce")]
        for each in (*others, *jobs):
            opened.enter_context(each.course)
            each.begin()
        for job in jobs:
            job.check_end()
            job.course.submit("again", 3)
        for job in jobs:
            assert job.course.results("again", 3) == job.course.truth()
            assert job.course.shut_down() == [0, -signal.SIGKILL, 0, 0]
        for other in others:
            other.check_end()


RUBBISH = [
    b"",
    b"\x00\xff\xfe" * 100,
    b"{",
    b"[]",
    b"null",
    b'{"message_type": "new_master_job"}',
    b'{"message_type": "status", "worker_pid": 1, "status": "finished", "output_file": 7}',
    b'{"message_type": "register", "worker_host": "x", "worker_port": 99999, "worker_pid": 4}',
    b'{"message_type": "register", "worker_host": "x", "worker_port": "1", "worker_pid": 4}',
    b'{"message_type": "new_worker_job", "input_files": ["a\\u0000b"], "executable": "x",'
    b' "output_directory": "y", "worker_pid": 1}',
    b'{"message_type": "register_ack"}',
    b'{"message_type": "made up"}',
    b"[" * 100_000,
    b'{"message_type": "heartbeat", "worker_pid": 123456}',
]


def test_rubbish_ends_neither_master_nor_worker(tmp_path: Path) -> None:
    """P4-28: rubbish, half a message, nothing at all, a flood, on TCP and on UDP; then a job."""
    with Course(tmp_path / "course") as course, contextlib.ExitStack() as opened:
        master = course.our_master()
        worker_port = free_port()
        worker = course.start([*OURS, "worker", str(course.port), str(worker_port)])
        wait_for(lambda: "registered" in course.log_of(master), "a worker", course.logs)
        for port in (course.port, worker_port):
            for data in RUBBISH:
                course.send(data, port)
            with contextlib.suppress(OSError):  # it is cut off, somewhere behind its limit
                course.send(b"x" * (9 << 20), port)
        for port in (course.port, worker_port):
            for _ in range(70):  # more than are served at once, and they say nothing
                idle = socket.create_connection(("127.0.0.1", port))
                opened.enter_context(idle)
            half = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            half.sendall(b'{"message_type": "regis')
        with socket.socket(type=socket.SOCK_DGRAM) as udp:
            for data in [*RUBBISH[:-2], RUBBISH[-1], os.urandom(60_000)] * 5:
                with contextlib.suppress(OSError):  # longer than a datagram
                    udp.sendto(data, ("127.0.0.1", course.port - 1))
        course.submit("out", 2)

        assert course.results("out", 2) == course.truth()
        assert master.poll() is None and worker.poll() is None
        assert course.shut_down() == [0, 0]
        assert course.logs().count("is ignored") < 120  # a flood of rubbish is not one of lines


def test_a_failing_program_is_tried_again_and_then_reported(tmp_path: Path) -> None:
    """R10: silence would stop a foreign master for ever. What it wrote last is what there is."""
    with Course(tmp_path / "course", files=2) as course:
        course.foreign_master()
        worker = course.our_worker()
        fails = course.executable("fails.sh", "#!/bin/sh\necho x >> tried\ncat\nexit 3\n")
        course.submit("out", 1, 2, mapper=fails, reducer="exec/there-is-no-such-program")

        assert course.results("out", 1) == b""
        assert (course.place / "tried").read_text().count("x") == 4
        assert "it ended with status 3" in course.log_of(worker)
        assert course.shut_down() == [0, 0]


def test_a_shutdown_ends_workers_with_all_that_they_run(tmp_path: Path) -> None:
    """P4-21: at once, though a program runs and one worker is dead; the master ends too."""
    with Course(tmp_path / "course", files=2) as course:
        course.our_master()
        gone, busy = course.our_worker(), course.our_worker()
        wait_for(lambda: course.logs().count(" registered, on port") == 2, "workers", course.logs)
        course.submit("out", 1, 2, mapper=course.executable("endless.sh", ENDLESS))
        pids = course.place / "pids"
        wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2, "maps", course.logs)
        gone.kill()

        assert course.shut_down() == [0, -signal.SIGKILL, 0]
        for line in pids.read_text().splitlines():
            worker, *programs = map(int, line.split())
            if worker == busy.pid:
                assert [pid for pid in programs if is_alive(pid)] == []
            else:
                # Nobody could end these: theirs was killed.
                for pid in programs:
                    os.kill(pid, signal.SIGKILL)


def test_an_interrupted_master_ends_its_workers(tmp_path: Path) -> None:
    """Ctrl-C is as good as a shutdown."""
    with Course(tmp_path / "course") as course:
        master = course.our_master()
        worker = course.our_worker()
        wait_for(lambda: "registered" in course.log_of(master), "a worker", course.logs)
        master.send_signal(signal.SIGINT)

        assert master.wait(NET_S) == 0
        assert worker.wait(NET_S) == 0


def run(course: Course, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*MRSTREAM, "p4", *words],
        cwd=course.place, capture_output=True, text=True, timeout=NET_S,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_what_cannot_be_is_said_in_a_line(tmp_path: Path) -> None:
    """Ports in use, no master, numbers that are none, directories that are not ours (P4-01)."""
    with Course(tmp_path / "course") as course:
        course.our_master()
        port = str(course.port)
        other = str(free_port())

        assert run(course, "master", port)[1].startswith(f"TCP port {port} of localhost cannot be")
        status, said = run(
            course, "submit", other, "input", "out", "exec/map.sh", "exec/reduce.awk"
        )
        assert (status, said) == (
            1,
            f"no master listens on port {other} of localhost; "
            f"start one: mrstream p4 master {other}\n",
        )
        assert "'0' must be a whole number from 1 to 10000" in run(
            course, "submit", port, "i", "o", "m", "r", "--reducers", "0"
        )[1]  # fmt: skip
        (course.place / "elsewhere/var").mkdir(parents=True)
        (course.place / "elsewhere/var/mail").touch()
        course.place /= "elsewhere"
        assert "is not removed: it holds 'mail'" in run(course, "master", other)[1]
        assert (course.place / "var/mail").exists()
        course.place = course.place.parent
