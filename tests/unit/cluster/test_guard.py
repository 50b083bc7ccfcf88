"""The guard of a host: when it starts what again, with an agent and real processes, without SSH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.agent import boot, guard
from mrstream.cluster.agent.watch import BUGS_MAX, EXIT_BUG, Watch
from mrstream.cluster.config.config import Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.hosts.health import RoleState
from mrstream.cluster.hosts.session import AgentSession, LocalTransport
from mrstream.cluster.hosts.status import guard_lines, status_document
from mrstream.cluster.wire.messages import GuardReply, HealthReply
from tests.cluster.machine import wait_for

ROLE = "dfs.chunkserver"


# --- when


def test_an_ended_daemon_is_started_after_1_2_4_to_60_s_and_a_steady_one_begins_anew() -> None:
    watch, now_s, waits = Watch(), 100.0, []
    assert watch.is_due(now_s)  # never seen: the host has just booted
    watch.started(now_s)
    for _ in range(9):
        watch.ended(1, now_s)
        due_s = watch.due_s
        assert due_s is not None and not watch.is_due(due_s - 0.01) and watch.is_due(due_s)
        waits.append(due_s - now_s)
        now_s = due_s
        watch.started(now_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    watch.runs(now_s + 59.0)
    watch.ended(-9, now_s + 59.5)
    assert watch.due_s == now_s + 59.5 + 60
    watch.started(now_s)
    watch.runs(now_s + 60.0)
    assert "in 1 s" in watch.ended(-9, now_s + 61.0)


@pytest.mark.parametrize("status", [EXIT_BUG, -signal.SIGSEGV])
def test_after_five_bugs_in_ten_minutes_a_role_is_left_down(status: int) -> None:
    watch, now_s = Watch(), 0.0
    for _ in range(BUGS_MAX - 1):
        watch.started(now_s)
        watch.ended(status, now_s)
        now_s += 100.0
    watch.started(now_s)
    now_s += 201.0  # the first of them is more than ten minutes ago
    watch.ended(status, now_s)
    assert not watch.left_down
    watch.started(now_s)
    assert "left down" in watch.ended(status, now_s + 1)
    assert "5 times within 10 minutes" in watch.left_down and not watch.is_due(now_s + 1e6)


def test_no_other_end_counts_as_a_bug() -> None:
    watch = Watch()
    for status in [0, 1, 3, -signal.SIGKILL, -signal.SIGTERM, None] * 10:
        watch.started(0.0)
        watch.ended(status, 0.0)
    assert not watch.left_down


# --- with processes


class Host:
    """A place with an agent, and daemons that do what a file beside them says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.python = place / "python"
        # The guard is the real one; every other role is a shell that ends as it is told to.
        self.python.write_text(
            f'#!/bin/sh\ncase "$3" in *guard) exec {sys.executable} "$@";; esac\n'
            f"[ -e {place}/ends ] && exit $(cat {place}/ends)\n"
            f'exec {sys.executable} -c "import time; time.sleep(1000)" "$@"\n'
        )
        self.python.chmod(0o755)

    def agent(self) -> AgentSession:
        made = AgentSession.over("h1", LocalTransport())
        made.call("hello", directory=str(self.place), host="h1", lock=True)
        return made

    def up(self, at_boot: bool | None = None) -> Any:
        agent = self.agent()
        agent.call("start", role=ROLE, python=str(self.python), environment={})
        said = self.keep(agent, at_boot)
        agent.close()
        wait_for(lambda: self.state(), "the guard to be there")
        return said

    def keep(self, agent: AgentSession, at_boot: bool | None = None) -> Any:
        plan = {
            "roles": [ROLE],
            "python": str(self.python),
            "environment": {"PYTHONPATH": os.pathsep.join(sys.path)},
            "backup": None,
        }
        return agent.call("keep", guard=plan, at_boot=at_boot)["said"]

    def down(self) -> Any:
        agent = self.agent()
        said = agent.call("unguard")
        assert agent.call("stop", roles=[ROLE], grace_s=5.0)["left"] == []
        agent.close()
        return said

    def state(self) -> dict[str, Any]:
        return guard.guard_state(str(self.place)) or {}

    def pids(self) -> list[int]:
        return guard.Processes(str(self.place)).of_role(ROLE)

    def log(self) -> str:
        return (self.place / "logs" / f"{guard.ROLE}.out").read_text()

    def other_than(self, pid: int) -> int:
        wait_for(lambda: [one for one in self.pids() if one != pid], "another process")
        return next(one for one in self.pids() if one != pid)

    def close(self) -> None:
        """End what is left, the guard first."""
        for _ in range(2):
            for pid, _ in guard.Processes(str(self.place)).alive():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "place")
    yield made
    made.close()


def test_a_killed_daemon_is_back_and_down_ends_the_guard_first(host: Host) -> None:
    host.up()
    pid = host.pids()[0]
    os.kill(pid, signal.SIGKILL)
    again = host.other_than(pid)
    wait_for(lambda: host.state().get("restarts") == {ROLE: 1}, "the guard to say so")
    os.kill(again, signal.SIGKILL)  # its own child now: it tells how that ended
    host.other_than(again)
    assert "was ended by SIGKILL: it is started again in 2 s" in host.log()
    host.down()
    assert guard.Processes(str(host.place)).alive() == []
    assert not os.path.exists(guard.plan_path(str(host.place)))


def test_kill_9_of_the_guard_harms_nobody_and_up_brings_another(host: Host) -> None:
    host.up()
    pid = host.pids()[0]
    os.kill(host.state()["pid"], signal.SIGKILL)
    wait_for(lambda: not host.state(), "the guard to be gone")
    assert host.pids() == [pid]
    host.up()
    assert host.pids() == [pid]
    os.kill(pid, signal.SIGKILL)
    host.other_than(pid)
    host.down()
    assert guard.Processes(str(host.place)).alive() == []


def test_while_a_launcher_is_at_work_the_guard_keeps_still_and_then_repairs(host: Host) -> None:
    """kill -9 of `up` in the middle: what it had stopped comes back as it was before."""
    host.up()
    pid = host.pids()[0]
    agent = host.agent()
    agent.call("stop", roles=[ROLE], grace_s=5.0)
    looks = 6  # at rest, a guard that did not keep still would have started it twice over
    time.sleep(looks * guard.LOOK_S)  # the fault itself: a launcher that takes its time
    assert host.pids() == []
    agent.close()  # without `keep`, as when the launcher is killed
    assert host.other_than(pid)
    host.down()


def test_a_guard_that_hangs_does_not_stop_a_launcher(host: Host) -> None:
    """It may hang while it holds the lock that a launcher needs."""
    (host.place / "run").mkdir()
    code = "import sys, time; sys.path[:0] = %r; from mrstream.cluster.agent import guard; "
    code += "held = guard.open_starting_lock(%r); print(held, flush=True); time.sleep(1000)"
    words = ["-c", code % (sys.path, str(host.place)), "-m", f"mrstream.{guard.ROLE}"]
    argv = [sys.executable, *words, "--dir", str(host.place)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as hung:
        assert hung.stdout is not None and hung.stdout.readline().strip().isdigit()
        os.kill(hung.pid, signal.SIGSTOP)
        host.up()
        assert hung.wait(60) == -signal.SIGKILL
    host.down()
    assert guard.Processes(str(host.place)).alive() == []


def test_bug_upon_bug_is_left_down_until_up_and_is_told(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.up()
    (host.place / "ends").write_text(str(EXIT_BUG))
    watcher = guard.Guard(str(host.place), "h1")
    os.kill(host.state()["pid"], signal.SIGKILL)
    os.kill(host.pids()[0], signal.SIGKILL)
    wait_for(lambda: not host.pids(), "it to be gone")
    now_s = 1000.0

    def is_left() -> bool:
        nonlocal now_s
        now_s += 61.0
        watcher.look(now_s)
        return bool(watcher._watches[ROLE].left_down)

    wait_for(is_left, "five bugs")
    said = json.loads((host.place / "run" / f"{guard.ROLE}.json").read_text())
    assert said["left_down"] == {ROLE: "ended by a bug (status 70), 5 times within 10 minutes"}
    (host.place / "ends").unlink()
    watcher.look(now_s + 1e6)
    assert host.pids() == []
    host.up()  # a person's word: it is tried again
    watcher.look(now_s + 1e6)
    assert host.pids() and not watcher._watches[ROLE].left_down
    host.down()


@pytest.mark.parametrize(
    ("comes_of_it", "minutes"),
    [(True, [0, 60, 120, 180]), (False, list(range(0, 181, 10)))],
    ids=["done", "in vain"],
)
def test_the_backup_is_made_every_so_often_and_in_vain_is_tried_again_sooner(
    tmp_path: Path, comes_of_it: bool, minutes: list[int]
) -> None:
    """Time passes as the guard sees it: by its own clock, and by the age of the note that the last
    backup has left."""
    note, begun, wanted = tmp_path / "note", list[int](), {"every_s": 3600.0}
    backup = guard._Backup()
    for minute in range(181):
        if begun and comes_of_it:
            at_s = time.time() - 60 * (minute - begun[-1])
            note.write_text(json.dumps({"at_s": at_s}))
        backup.look(wanted | {"note": str(note)}, 60.0 * minute, lambda _: begun.append(minute))  # noqa: B023

    assert begun == minutes
    assert bool(backup.said) == comes_of_it


def test_status_says_what_guards_did_and_what_they_gave_up() -> None:
    config = read_config("name: lab\nhosts: {h1: {}, h2: {}}\n")
    said = GuardReply(7, {"dfs.master": 3}, {"dfs.chunkserver": "ended by a bug, 5 times"})

    def health(guard: GuardReply | None) -> RoleState:
        return RoleState("up", HealthReply(ROLE, "h", 1, 0.0, "0", True, "", guard))

    down = RoleState("down", None, "refused")
    roles = {"h1": {ROLE: down, "dfs.master": health(said)}, "h2": {ROLE: health(None)}}
    cluster = Cluster(config, Secret("c1", b"s" * 32))

    document = status_document(cluster, roles, {}, {})

    assert document["hosts"]["h1"]["guard"]["left_down"] == said.left_down
    assert guard_lines(document) == [
        "h1: dfs.chunkserver ended by a bug, 5 times; its guard leaves it down: see `mrstream "
        "cluster logs h1 dfs.chunkserver`, then `mrstream cluster up`",
        "h1: its guard has started dfs.master again, 3 times",
        "h2 has no guard: `mrstream cluster up` starts it",
    ]
    without = Cluster(replace(config, guard=False), cluster.secret)
    assert guard_lines(status_document(without, roles, {}, {})) == []


# --- at boot


@pytest.fixture
def crontab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A crontab that is a file: what `crontab -l` and `crontab -` do."""
    table, tools = tmp_path / "table", tmp_path / "tools"
    tools.mkdir()
    program = tools / "crontab"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in -l) [ -e {table} ] && exec cat {table}\n'
        f'echo "no crontab for $USER" >&2; exit 1;; -) exec cat > {table};; esac\nexit 2\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return table


def test_at_boot_is_one_line_of_the_crontab_that_brings_everything_back(
    host: Host, crontab: Path
) -> None:
    crontab.write_text("# mine\n5 4 * * * backup 50%\n")
    host.up(at_boot=True)
    host.up()  # stays
    lines = crontab.read_text().splitlines()
    assert lines[:2] == ["# mine", "5 4 * * * backup 50%"] and len(lines) == 3
    assert lines[2].startswith("@reboot ")

    host.close()  # the host loses power
    wait_for(lambda: not guard.Processes(str(host.place)).alive(), "all to be gone")
    line = lines[2].removeprefix("@reboot ").replace("\\%", "%")
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(host.place)}
    booted = subprocess.Popen(["/bin/sh", "-c", line], env=bare, stdin=subprocess.DEVNULL)
    try:
        wait_for(host.pids, "the boot to bring the daemon back")
        host.down()
    finally:
        booted.wait(60)
    assert crontab.read_text() == "# mine\n5 4 * * * backup 50%\n"
    host.up(at_boot=True)
    host.up(at_boot=False)
    assert crontab.read_text() == "# mine\n5 4 * * * backup 50%\n"
    host.down()


def test_a_host_without_cron_is_told_and_is_up_all_the_same(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "few"
    tools.mkdir()
    for name in ("sh", "env", "cat"):
        (tools / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    assert "there is no cron there" in host.up(at_boot=True)
    assert host.pids() and host.down() == {"was_at_boot": False}


def test_a_path_of_any_kind_stands_in_a_crontab(crontab: Path, tmp_path: Path) -> None:
    odd = str(tmp_path / "50% 'of' it; echo $HOME")
    boot.at_boot(odd, ["/bin/echo", odd], {"A": "b c"})
    line = crontab.read_text().splitlines()[0].removeprefix("@reboot ")
    assert "%" not in line.replace("\\%", "")
    said = subprocess.run(["/bin/sh", "-c", line.replace("\\%", "%")], capture_output=True)
    assert said.stdout.decode() == f"{odd}\n"
    assert boot.is_at_boot(odd) and boot.not_at_boot(odd) and not boot.is_at_boot(odd)


def test_other_lines_of_a_crontab_stay_byte_for_byte(crontab: Path) -> None:
    """Of another encoding, with form feeds, with what Unicode takes for line ends."""
    others = b"# caf\xe9\n\x0c\n5 4 * * * echo \xe2\x80\xa8 \xc2\x85\r\n# no line end"
    crontab.write_bytes(others)

    assert not boot.is_at_boot("/a")
    boot.at_boot("/a", ["/bin/true"], {})
    assert crontab.read_bytes().startswith(others + b"\n@reboot ")

    assert boot.not_at_boot("/a")
    assert crontab.read_bytes() == others + b"\n"


def test_a_crontab_that_cannot_be_read_matters_only_to_who_wants_a_line_in_it(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that has the program and no spool; a user who may not use it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "crontab").write_text("#!/bin/sh\necho /var/spool/cron: No such file >&2\nexit 1\n")
    (tools / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    assert host.up() == "" and host.pids()
    assert "`crontab -l` failed there: /var/spool/cron" in host.up(at_boot=True)
    assert host.down() == {"was_at_boot": False}
