"""A peer played by the test, byte by byte: when messages come, and how they may be cut."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.p4.course import NET_S, OURS, Course, free_port, wait_for


class Peer:
    """A TCP port on which messages come, and a UDP port below it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.tcp = socket.create_server(("127.0.0.1", self.port))
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port - 1))
        self.tcp.settimeout(NET_S)
        self.udp.settimeout(NET_S)

    def hear(self) -> Any:
        """Give the next message; it must be all that comes on its connection (R4)."""
        connection, _ = self.tcp.accept()
        with connection:
            data = b"".join(iter(lambda: connection.recv(65536), b""))
        return json.loads(data)

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with contextlib.closing(Peer()) as found:
        yield found


def test_a_worker_under_a_master_that_is_played(tmp_path: Path, peer: Peer) -> None:
    """P4-02, P4-04, P4-12 … P4-15, M1, M2, M4 … M8, M10, R1 … R5, R7, all in one life."""
    with Course(tmp_path / "course", files=3) as course:
        port = free_port()
        worker = course.start(
            [*OURS, "worker", str(peer.port), str(port), "--reduce-status", "output_file"]
        )

        registered = peer.hear()
        assert registered == {
            "message_type": "register", "worker_host": "localhost", "worker_port": port,
            "worker_pid": worker.pid,
        }  # fmt: skip
        # P4-04, R5: no heartbeat before the acknowledgement, however long that takes.
        peer.udp.settimeout(1.0)
        with pytest.raises(TimeoutError):
            peer.udp.recv(100)
        peer.udp.settimeout(NET_S)
        acknowledged_s = time.monotonic()
        course.send({**registered, "message_type": "register_ack"}, port)
        for _ in range(3):
            beat = json.loads(peer.udp.recv(1000))
            assert beat == {"message_type": "heartbeat", "worker_pid": worker.pid}
        # Two periods of 2 s; from the acknowledgement on, so that a first one which a busy machine
        # holds back takes nothing off them.
        assert time.monotonic() - acknowledged_s > 3.99

        for name in ("m", "r/reducer-output", "g"):
            (course.place / name).mkdir(parents=True)
        # P4-12: several at once. P4-14: it cannot know which is a map; R2: paths come back as
        # they were, a slash at the end apart; R7: an empty task is answered.
        files = ["input/file_000.txt", "input/file_001.txt"]
        job = {"message_type": "new_worker_job", "executable": "exec/map.sh", "worker_pid": 1}
        course.send({**job, "input_files": files, "output_directory": "m/"}, port)
        course.send({**job, "input_files": [], "output_directory": "m"}, port)
        sort = {"message_type": "new_sort_job", "worker_pid": worker.pid}
        outputs = ["m/file_000.txt", "m/file_001.txt"]
        course.send({**sort, "input_files": outputs, "output_file": "g/s"}, port)
        course.send({**sort, "input_files": [], "output_file": "g/none"}, port)
        course.send({**job, "input_files": ["g/s"], "executable": "exec/reduce.awk",
                     "output_directory": "r/reducer-output"}, port)  # fmt: skip

        done = {"message_type": "status", "status": "finished", "worker_pid": worker.pid}
        assert [peer.hear() for _ in range(5)] == [
            {**done, "output_files": outputs},
            {**done, "output_files": []},
            {**done, "output_file": "g/s"},
            {**done, "output_file": "g/none"},
            {**done, "output_file": "r/reducer-output/s"},  # M8 as printed, by the switch
        ]
        lines = (course.place / "g/s").read_bytes().splitlines()
        assert lines == sorted(lines) and len(lines) > 100
        assert (course.place / "g/none").read_bytes() == b""
        assert sorted(os.listdir(course.place / "m")) == ["file_000.txt", "file_001.txt"]
        course.send({"message_type": "shutdown"}, port)
        assert worker.wait(NET_S) == 0


def test_a_master_with_a_worker_that_is_played(tmp_path: Path) -> None:
    """P4-01, P4-03, P4-07, P4-10, P4-11, P4-16, R4: a message ends with its object or stream."""
    with Course(tmp_path / "course", files=2) as course, contextlib.closing(Peer()) as peer:
        (course.place / "var/job-7").mkdir(parents=True)
        course.our_master()
        assert os.listdir(course.place / "var") == []  # P4-01
        register = json.dumps(
            {
                "message_type": "register", "worker_host": "localhost", "worker_port": peer.port,
                "worker_pid": 4711,
            },
            indent=4,
        ).encode()  # fmt: skip
        with socket.create_connection(("127.0.0.1", course.port)) as connection:
            connection.sendall(register[:20])
            connection.sendall(register[20:])
            # R4: it is not closed, and yet answered.
            assert peer.hear() == {**json.loads(register), "message_type": "register_ack"}
        course.submit("out", 2, 4)

        maps = [peer.hear(), peer.hear()]
        assert [job["input_files"] for job in maps] == [
            ["input/file_000.txt"],
            ["input/file_001.txt"],
        ]
        for job in maps:
            name = os.path.basename(job["input_files"][0])
            (course.place / job["output_directory"] / name).write_text("b\t1\na\t1\n")
        for job in reversed(maps):  # R3: by names, whatever their order is
            name = os.path.basename(job["input_files"][0])
            course.send(
                {
                    "message_type": "status", "status": "finished", "worker_pid": 4711,
                    "output_files": [f"{job['output_directory']}/{name}"],
                }
            )  # fmt: skip
        sort = peer.hear()
        assert sort["message_type"] == "new_sort_job"
        wait_for(lambda: (course.place / "var/job-0/grouper-output").is_dir(), "directories")
        course.send({"message_type": "shutdown"})
        assert peer.hear() == {"message_type": "shutdown"}
        assert course.started[0].wait(NET_S) == 0
