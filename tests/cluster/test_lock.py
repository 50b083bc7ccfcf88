"""The lock cell with real processes: the library, the commands, and a leader that dies.

Each test has names of its own; leases are short, so that the ends of sessions are soon.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrstream.lock import protocol as p
from mrstream.lock.client.client import CellClient
from mrstream.lock.client.session import Expired, Jeopardy, News, Safe
from mrstream.lock.errors import (
    GenerationChanged,
    HandleInvalid,
    LockHeld,
    NodeHasChildren,
    NoSuchNode,
    SessionExpired,
)
from tests.cluster.local import LocalCluster, wait_for
from tests.house.tree import ROOT

ROLE = "lock.master"
LEASE_S = 2.0
GRACE_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path_factory.mktemp("lock"),
        1,
        roles=[ROLE],
        more=f"lock: {{session: {LEASE_S:g}s, grace: {GRACE_S:g}s}}\n",
    ) as running:
        yield running


@pytest.fixture
def cell(cluster: LocalCluster) -> Iterator[CellClient]:
    with CellClient(cluster.cluster, user="tester").open_session() as client:
        yield client


def other(cluster: LocalCluster, on_news: object = None) -> CellClient:
    return CellClient(cluster.cluster, user="other", on_news=on_news).open_session()  # type: ignore[arg-type]


class TestLibrary:
    def test_files_are_written_read_listed_and_deleted(self, cell: CellClient) -> None:
        """CH-08, CH-24."""
        assert cell.mkdir("/ls/local/files") and not cell.mkdir("/ls/local/files")
        first = cell.put("/ls/local/files/a", b"1")
        second = cell.put("/ls/local/files/a", b"2", if_generation=first)

        assert cell.get("/ls/test/files/a") == b"2" and second == first + 1
        assert cell.list("/ls/local/files") == ("a",)
        assert cell.list_files("/ls/local/files") == {"a": b"2"}
        with pytest.raises(GenerationChanged):
            cell.put("/ls/local/files/a", b"3", if_generation=first)
        with pytest.raises(GenerationChanged):
            cell.put("/ls/local/files/a", b"3", if_generation=0)
        with pytest.raises(NodeHasChildren):
            cell.delete("/ls/local/files")
        cell.delete("/ls/local/files/a")
        with pytest.raises(NoSuchNode):
            cell.get("/ls/local/files/a")
        cell.delete("/ls/local/files")

    def test_a_cached_read_asks_nobody_and_sees_every_acknowledged_change(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        """CH-27, CH-28, CH-45, L4."""
        path = "/ls/local/cached"
        assert not cell.exists(path)
        with other(cluster) as writer:
            for number in range(20):
                writer.put(path, str(number).encode())
                assert cell.get(path) == str(number).encode()
            before = writer.figures().calls.get("Look", 0)
            for _ in range(1000):
                assert cell.get(path) == b"19"
            assert writer.figures().calls.get("Look", 0) == before
            writer.delete(path)
        assert not cell.exists(path)

    def test_one_holds_the_lock_and_its_sequencer_is_good_while_it_does(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        """CH-17, CH-20."""
        path = "/ls/local/one"
        with other(cluster) as rival:
            with cell.acquire(path) as held:
                assert rival.try_acquire(path) is None
                assert rival.check(held.sequencer) and held.fence[0] == path
                with pytest.raises(LockHeld, match="tester"):
                    rival.acquire(path, wait_s=0.3)
            assert not rival.check(held.sequencer)
            with rival.acquire(path, wait_s=5.0) as next_held:
                assert next_held.fence > held.fence

    def test_waiters_of_many_threads_count_to_the_right_sum(self, cluster: LocalCluster) -> None:
        """CH-17: a lock that does not exclude loses increments."""
        path, sums = "/ls/local/counter", []

        def work() -> None:
            with other(cluster) as client:
                for _ in range(5):
                    with client.acquire("/ls/local/counter-lock"):
                        value = int(client.get(path)) if client.exists(path) else 0
                        client.put(path, str(value + 1).encode())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        with other(cluster) as client:
            sums.append(client.get(path))

        assert sums == [b"20"]

    def test_a_watcher_hears_of_a_change_after_it(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        """CH-25, CH-26."""
        path = "/ls/local/watched"
        cell.put(path, b"0")
        seen: list[bytes] = []
        heard = threading.Event()

        def changed(event: p.Happened) -> None:
            if event.kind == p.CONTENTS_CHANGED:
                seen.append(cell.get(path))
                heard.set()

        with cell.watch(path, changed), other(cluster) as writer:
            writer.put(path, b"1")
            assert heard.wait(60)

        assert seen == [b"1"]

    def test_a_closed_session_and_handle_are_of_no_use(self, cluster: LocalCluster) -> None:
        """CH-35."""
        client = other(cluster)
        handle = client.open("/ls/local/closed", create=p.MAY_CREATE)
        handle.close()
        with pytest.raises(HandleInvalid):
            handle.set(b"x")
        client.close()
        with pytest.raises(SessionExpired):
            client.get("/ls/local/closed")

    def test_the_recipe_for_a_primary(self, cluster: LocalCluster, cell: CellClient) -> None:
        """CH-23."""
        path = "/ls/local/primary"
        leading = cell.elect(path, b"h1:80")
        with other(cluster) as rival:
            assert rival.get(path) == b"h1:80"
            done = threading.Event()

            def stand() -> None:
                rival.elect(path, b"h2:80")
                done.set()

            threading.Thread(target=stand, daemon=True).start()
            assert not done.wait(0.3)
            leading.release()
            assert done.wait(60)
            assert cell.get(path) == b"h2:80"


class TestFailover:
    def test_locks_handles_and_watches_outlive_a_leader_that_is_killed(
        self, cluster: LocalCluster
    ) -> None:
        """CH-22, CH-37 to CH-39: programs see a delay, no more."""
        news: list[News] = []
        path = "/ls/local/survives"
        changed = threading.Event()
        with other(cluster, news.append) as client, other(cluster) as writer:
            held = client.acquire(path, delay_s=5.0)
            client.watch(path, lambda event: changed.set())
            before = client.locate().epoch

            cluster.kill(ROLE, "h1")
            wait_for(lambda: any(isinstance(n, Jeopardy) for n in news), 30, "jeopardy")
            cluster.launch(ROLE, "h1")

            generation = held.handle.set(b"still mine")
            assert held.handle.sequencer() == held.sequencer
            assert client.locate().epoch > before and generation > 1
            assert writer.try_acquire(path) is None
            assert any(isinstance(n, Safe) for n in news)
            wait_for(changed.is_set, 20, "the watch to go on")
            held.release()
        cluster.wait_ready(ROLE, "h1")

    def test_a_leader_that_is_stopped_for_longer_than_a_lease_has_lost_nobody(
        self, cluster: LocalCluster
    ) -> None:
        """CH-34, CH-38: the time in which it could hear nobody does not count."""
        news: list[News] = []
        with other(cluster, news.append) as client:
            held = client.acquire("/ls/local/stopped")
            cluster.signal(ROLE, "h1", signal.SIGSTOP)
            try:
                wait_for(lambda: Jeopardy() in news, 30, "jeopardy")
            finally:
                cluster.signal(ROLE, "h1", signal.SIGCONT)

            assert held.handle.sequencer() == held.sequencer
            wait_for(lambda: Safe() in news, 30, "the session to be safe")


class TestCommands:
    def run(self, cluster: LocalCluster, *words: str, **options: object) -> str:
        done = cluster.mrstream("lock", *words, **options)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def test_files_from_a_shell(self, cluster: LocalCluster, tmp_path: Path) -> None:
        """CH-08."""
        self.run(cluster, "mkdir", "/ls/local/shell")
        generation = self.run(cluster, "put", "/ls/local/shell/f", input=b"one\n").strip()
        (tmp_path / "two").write_bytes(b"two\n")
        put = ("put", "/ls/local/shell/f", str(tmp_path / "two"), "--if-generation", generation)
        self.run(cluster, *put)

        assert self.run(cluster, "ls", "/ls/local/shell") == "f\n"
        assert self.run(cluster, "cat", "/ls/local/shell/f") == "two\n"
        assert "content generation: " in self.run(cluster, "stat", "/ls/local/shell/f")
        again = cluster.mrstream("lock", *put)
        assert again.returncode == 1 and b"generation" in again.stderr
        self.run(cluster, "rm", "/ls/local/shell/f")
        missing = cluster.mrstream("lock", "cat", "/ls/local/shell/f")
        assert (missing.returncode, missing.stdout) == (1, b"")
        assert missing.stderr == b"/ls/local/shell/f does not exist\n"

    def test_acquire_runs_a_command_with_its_status_and_its_sequencer(
        self, cluster: LocalCluster
    ) -> None:
        """CH-20."""
        script = 'echo "$MRSTREAM_SEQUENCER"; exit 7'

        done = cluster.mrstream("lock", "acquire", "/ls/local/job", "--", "sh", "-c", script)

        assert done.returncode == 7
        name, generation = done.stdout.decode().strip().split(":")
        assert name == "/ls/local/job" and int(generation) >= 1
        assert cluster.mrstream("lock", "check", done.stdout.decode().strip()).returncode == 1
        command = ("lock", "acquire", "/ls/local/job", "--", "no-such-command")
        assert cluster.mrstream(*command).returncode == 127
        killed = cluster.mrstream(
            "lock", "acquire", "/ls/local/job", "--", "sh", "-c", "kill -9 $$"
        )
        assert killed.returncode == 137

    def test_acquire_that_waited_in_vain_ends_with_75(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        with cell.acquire("/ls/local/busy"):
            words = ("acquire", "--wait", "200ms", "/ls/local/busy", "--", "true")
            done = cluster.mrstream("lock", *words)

        assert done.returncode == 75
        assert b"/ls/local/busy is held by session" in done.stderr and b"tester" in done.stderr

    def test_acquire_shares_a_lock_with_others_that_do(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        """CH-17."""
        acquire = ("lock", "acquire", "--wait", "200ms")
        with cell.acquire("/ls/local/read", shared=True):
            said = self.run(cluster, *acquire[1:], "--shared", "/ls/local/read", "--", "echo", "in")
            alone = cluster.mrstream(*acquire, "/ls/local/read", "--", "true")

        assert said == "in\n" and alone.returncode == 75

    def test_a_lost_session_ends_the_command_with_76(
        self, cluster: LocalCluster, cell: CellClient, tmp_path: Path
    ) -> None:
        """The command may not go on when somebody else may have the lock."""
        pid_file = tmp_path / "pid"
        script = f"trap '' TERM; echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 600"
        process = cluster.begin("lock", "acquire", "/ls/local/lost", "--", "sh", "-c", script)
        wait_for(pid_file.exists, 30, "the command to run")
        row = next(r for r in cell.sessions() if "/ls/local/lost" in r.locks)
        # Its session is ended at the cell behind its back, as if its lease had run out.
        cell._link._calling.call(p.EndSession(row.session, cell.locate().epoch), 10.0)

        output, errors = process.communicate(timeout=30)

        assert process.returncode == 76, errors
        assert b"session is over" in errors and output == b""
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid_file.read_text()), 0)

    def test_a_command_goes_on_in_jeopardy_with_one_line_of_warning(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        """Nobody else has the lock yet: to end the command would be to lose what it did."""
        gate, ready = tmp_path / "gate", tmp_path / "ready"
        os.mkfifo(gate)
        script = f"touch {ready}; read word < {gate}; echo $word"
        process = cluster.begin("lock", "acquire", "/ls/local/danger", "--", "sh", "-c", script)
        assert process.stderr is not None
        wait_for(ready.exists, 30, "the command to run")

        cluster.signal(ROLE, "h1", signal.SIGSTOP)
        try:
            lines = [process.stderr.readline()]
        finally:
            cluster.signal(ROLE, "h1", signal.SIGCONT)
        lines.append(process.stderr.readline())
        gate.write_text("done\n")
        output, errors = process.communicate(timeout=30)

        assert (process.returncode, output) == (0, b"done\n")
        lines += errors.splitlines(keepends=True)  # on a crowded machine it may happen again
        said = b"mrstream lock: /ls/local/danger: "
        warning = said + b"no contact with the cell, the lock may be lost; waiting\n"
        relief = said + b"contact is back; the lock was held all the time\n"
        assert lines == [warning, relief] * (len(lines) // 2)

    def test_a_signal_to_acquire_goes_to_the_command(
        self, cluster: LocalCluster, tmp_path: Path
    ) -> None:
        ready = tmp_path / "ready"
        script = f"trap 'exit 3' TERM; touch {ready}; while :; do sleep 0.05; done"
        process = cluster.begin("lock", "acquire", "/ls/local/signal", "--", "sh", "-c", script)
        wait_for(ready.exists, 30, "the command to run")

        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

        assert process.returncode == 3

    def test_elect_waits_in_line_and_writes_its_name(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        """CH-23."""
        path = "/ls/local/elected"
        with cell.acquire(path):
            process = cluster.begin("lock", "elect", "--name", "me:1", path, "--", "cat")
            wait_for(lambda: cell.lock_state(path).waiting_count == 1, 30, "it to wait")
        wait_for(lambda: cell.get(path) == b"me:1", 30, "the election")

        output, _ = process.communicate(b"bye", timeout=30)

        assert (process.returncode, output) == (0, b"bye")
        assert not cell.lock_state(path).is_held

    def test_watch_says_what_changed(self, cluster: LocalCluster, cell: CellClient) -> None:
        """CH-25."""
        path = "/ls/local/eyed"
        cell.put(path, b"0")
        process = cluster.begin("lock", "watch", "--once", path)
        assert process.stderr is not None
        assert process.stderr.readline() == f"watching {path}\n".encode()

        cell.put(path, b"1")
        output, _ = process.communicate(timeout=30)

        assert (process.returncode, output) == (0, f"contents {path}\n".encode())

    def test_sessions_and_cell_show_who_is_there(
        self, cluster: LocalCluster, cell: CellClient
    ) -> None:
        with cell.acquire("/ls/local/shown"):
            text = self.run(cluster, "sessions")
            rows = json.loads(self.run(cluster, "sessions", "--json"))
        figures = json.loads(self.run(cluster, "cell", "--json"))

        assert "holds /ls/local/shown" in text and "mrstream lock sessions" in text
        assert any("/ls/local/shown" in row["locks"] for row in rows)
        assert figures["leader"]["host"] == "h1" and figures["cell"]["step"] >= 7
        assert "leader:    h1" in self.run(cluster, "cell")

    def test_the_library_finds_the_current_cluster(self, cluster: LocalCluster) -> None:
        code = (
            "import mrstream.lock\n"
            "with mrstream.lock.connect() as cell:\n"
            "    print(cell.put('/ls/local/current', b'x'), cell.get('/ls/local/current'))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env=cluster.environment, capture_output=True, check=True
        )

        assert done.stdout.strip().endswith(b"b'x'")

    def test_the_python_of_the_guide_runs_as_it_is_written(self, cluster: LocalCluster) -> None:
        page = (ROOT / "docs" / "guide" / "locks.md").read_text(encoding="utf-8")
        (block,) = re.findall(r"```python\n(.*?)```", page, re.S)

        ended = subprocess.run(
            [sys.executable, "-c", f"def run(fence): print(fence[0])\n\n{block}"],
            env=cluster.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.split() == ["/ls/local/nightly", "b'threads=8'"]

    def test_wrong_usage_is_said(self, cluster: LocalCluster) -> None:
        for words in (["acquire", "/ls/local/x"], ["ls"], ["cat", "/ls/local/x", "--", "true"]):
            assert cluster.mrstream("lock", *words).returncode == 2
        done = cluster.mrstream("lock", "cat", "/f")
        assert done.returncode == 1 and b"begins with /ls/local/" in done.stderr


def test_the_cells_files_by_the_interface_of_file_systems(
    cluster: LocalCluster, cell: CellClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CH-09: whatever reads and writes by fsspec reads and writes here."""
    from mrstream.lock.filesystem import LockFileSystem

    monkeypatch.setenv("MRSTREAM_HOME", cluster.environment["MRSTREAM_HOME"])
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    files = LockFileSystem(skip_instance_cache=True)
    files.makedirs("ls://local/fs/deep", exist_ok=True)
    with files.open("ls://local/fs/deep/f", "w") as file:
        file.write("words\n")

    assert cell.get("/ls/local/fs/deep/f") == b"words\n"
    assert files.cat("ls://local/fs/deep/f") == b"words\n"
    assert files.cat_file("/ls/local/fs/deep/f", 1, 3) == b"or"
    assert files.find("ls://local/fs") == ["/ls/local/fs/deep/f"]
    assert files.info("ls://local/fs/deep")["type"] == "directory"
    with pytest.raises(ZeroDivisionError), files.open("ls://local/fs/half", "wb") as half:
        half.write(b"never")
        raise ZeroDivisionError
    assert not files.exists("ls://local/fs/half")
    with pytest.raises(FileNotFoundError):
        files.cat("ls://local/fs/half")
    with pytest.raises(FileExistsError):
        files.mkdir("ls://local/fs")
    with pytest.raises(OSError, match="children"):
        files.rm("ls://local/fs")
    files.rm("ls://local/fs", recursive=True)
    assert not cell.exists("/ls/local/fs")
    files.cell.close()


def test_fsspec_finds_the_cell_by_its_scheme(cluster: LocalCluster, cell: CellClient) -> None:
    """CH-09: by the entry point of what is installed, in a program that names nothing of ours."""
    cell.put("/ls/local/found", b"by fsspec")
    code = (
        "import fsspec, sys\n"
        "assert not [name for name in sys.modules if name.startswith('mrstream')]\n"
        "with fsspec.open('ls://local/found') as file: print(file.read().decode())\n"
        "print(fsspec.get_filesystem_class('ls').__module__)\n"
    )

    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=cluster.environment,
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.stdout.split("\n") == ["by fsspec", "mrstream.lock.filesystem", ""], ended.stderr


def test_a_client_that_dies_loses_its_lock_after_lease_and_delay(cluster: LocalCluster) -> None:
    """CH-21, CH-30: and not before."""
    code = (
        "import mrstream.lock, sys, time\n"
        "cell = mrstream.lock.connect()\n"
        "held = cell.acquire('/ls/local/dies', delay_s=2)\n"
        "print(held.sequencer, flush=True); time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=cluster.environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    first = process.stdout.readline().decode().strip()
    news: list[News] = []
    with other(cluster, news.append) as heir:
        assert heir.check(first)
        process.kill()
        process.communicate()
        with pytest.raises(LockHeld):
            heir.acquire("/ls/local/dies", wait_s=1.0)
        held = heir.acquire("/ls/local/dies", wait_s=30.0)

        assert int(held.sequencer.split(":")[1]) == int(first.split(":")[1]) + 1
        assert not any(isinstance(one, Expired) for one in news)
