"""The launcher's parts: agent, sessions, logins, wheels and commands, without any SSH."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.agent import checks
from mrstream.cluster.cli import _finish_up, main
from mrstream.cluster.config import extras, state
from mrstream.cluster.config.config import DFS_MASTER, Cluster, ClusterConfig, HostConfig
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.standing import Standing, WhoLeads
from mrstream.cluster.errors import ClusterError, HostUnreachable
from mrstream.cluster.hosts import software
from mrstream.cluster.hosts.arguments import _tell_follow_from_file
from mrstream.cluster.hosts.launcher import HostLink
from mrstream.cluster.hosts.session import (
    AgentSession,
    HostRefused,
    LocalTransport,
    bootstrap_command,
)
from mrstream.cluster.hosts.ssh import connect, resolve
from mrstream.cluster.hosts.switch import switch_alone
from mrstream.cluster.hosts.wheel import requirements_of, running_wheel
from mrstream.cluster.wire.network import Server
from tests.support.ports import free_ports

SLEEPER = "import sys, time; time.sleep(1000)"


def session(tmp_path: Path, lock: bool = True) -> AgentSession:
    made = AgentSession.over("h1", LocalTransport())
    made.call("hello", directory=str(tmp_path), host="h1", lock=lock)
    return made


@pytest.fixture
def fake_role(tmp_path: Path) -> str:
    """A Python that runs a sleeping process whatever it is asked: the agent cannot tell."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SLEEPER}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_an_agent_started_ends_with_it_unless_it_is_to_be_kept(
    tmp_path: Path, fake_role: str
) -> None:
    """Ctrl-C, a lost connection, a killed launcher: nothing half-begun is left."""
    first = session(tmp_path)
    pid = first.call("start", role="dfs.master", python=fake_role, environment={})["pid"]
    assert is_alive(pid)
    first.close()
    assert not is_alive(pid)

    second = session(tmp_path)
    pid = second.call("start", role="dfs.master", python=fake_role, environment={})["pid"]
    second.call("keep")
    second.close()
    assert is_alive(pid)

    third = session(tmp_path)
    again = third.call("start", role="dfs.master", python=fake_role, environment={})
    assert again == {"pid": pid, "already": True}
    stopped = third.call("stop", roles=["dfs.master"], grace_s=5.0)
    assert stopped == {"forced": [], "left": []}
    third.close()
    assert not is_alive(pid)


def test_a_process_that_a_daemon_left_behind_is_found_by_its_mark(
    tmp_path: Path, fake_role: str
) -> None:
    """It called setsid and has another parent by now; its environment still says whose it was."""
    agent = session(tmp_path)
    script = Path(fake_role)
    script.write_text('#!/bin/sh\nsetsid sleep 1000 &\necho $! > "$0.pid"\n')
    agent.call("start", role="dfs.master", python=fake_role, environment={})
    deadline_s = time.monotonic() + 60
    # For a moment it is still the shell, then setsid, and only then what it will be.
    while [command for _, command in agent.call("processes")["left"]] != ["sleep 1000"]:
        assert time.monotonic() < deadline_s, agent.call("processes")
        time.sleep(0.01)
    stopped = agent.call("stop", roles=["dfs.master"], grace_s=1.0)

    assert len(stopped["forced"]) == 1 and stopped["left"] == []
    agent.close()


def test_only_one_launcher_works_on_a_host_at_a_time(tmp_path: Path) -> None:
    first = session(tmp_path)
    second = AgentSession.over("h1", LocalTransport())

    with pytest.raises(HostRefused, match="another `mrstream cluster` command is at work"):
        second.call("hello", directory=str(tmp_path), host="h1", lock=True)

    first.close()
    second.close()
    session(tmp_path).close()


def test_a_file_is_put_whole_with_its_mode(tmp_path: Path) -> None:
    agent = session(tmp_path)
    agent.call("put", path=str(tmp_path / "a" / "b"), mode=0o600, payload=b"x" * 3_000_000)
    agent.close()

    assert (tmp_path / "a" / "b").stat().st_size == 3_000_000
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o600


def test_ports_that_are_taken_and_addresses_that_are_not_ours_are_told_apart(
    tmp_path: Path,
) -> None:

    agent = session(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = agent.call("check", address="127.0.0.1", ports=[port], disks=[str(tmp_path)])
        assert "in use" in found["busy"][str(port)]
    found = agent.call("check", address="192.0.2.1", ports=[port], disks=[])
    assert "assign" in found["busy"][str(port)]
    agent.close()


def test_the_noise_of_a_login_shell_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    """`.bashrc` files that print a greeting are common."""

    class Greeting(LocalTransport):
        greeted = False

        def receive(self, timeout_s: float) -> bytes:
            if not self.greeted:
                self.greeted = True
                return b"Welcome to h1!\nYou have mail.\n"
            return super().receive(timeout_s)

    agent = AgentSession.over("h1", Greeting())
    assert agent.call("hello", directory=str(tmp_path), host="h", lock=False)["cores"] > 0
    agent.close()


def test_the_agent_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """It runs on hosts where nothing is installed yet: here, in a Python without site-packages."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)

    agent = AgentSession.over("h1", LocalTransport(str(bare)))

    assert agent.call("hello", directory=str(tmp_path), host="h", lock=True)["running"] == {}
    agent.close()


def test_a_directory_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    agent = AgentSession.over("h1", LocalTransport())

    with pytest.raises(HostRefused, match=r"cannot write to .*/file/t/run \(Not a directory\): "):
        agent.call("hello", directory=str(tmp_path / "file" / "t"), host="h1", lock=True)
    with pytest.raises(HostRefused, match="choose another dir or disks"):
        agent.call("check", address="127.0.0.1", ports=[], disks=[str(tmp_path / "file" / "d")])
    with pytest.raises(HostRefused, match=r"^/.*/file: Not a directory$"):
        agent.call("names", path=str(tmp_path / "file"))
    agent.close()


def test_a_python_that_is_not_there_is_named() -> None:
    ended = subprocess.run(
        ["sh", "-c", bootstrap_command(("/no/such/python",))], capture_output=True, text=True
    )

    assert ended.returncode == 127 and "/no/such/python" in ended.stderr


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_bootstrap_passes_unharmed_through_a_login_shell(shell: str, tmp_path: Path) -> None:
    from mrstream.cluster.hosts.session import agent_source

    source = agent_source()
    hello = json.dumps({"do": "hello", "directory": str(tmp_path), "host": "h", "lock": False})
    ended = subprocess.run(
        [shell, "-c", bootstrap_command(("no-such-python", sys.executable))],
        input=b"%d\n" % len(source) + source + hello.encode() + b"\n",
        capture_output=True,
    )

    assert json.loads(ended.stdout)["ok"]["directory"] == str(tmp_path), ended.stderr
    assert "\n" not in bootstrap_command(("python3",))


def test_ssh_config_is_respected_and_cluster_yaml_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        "Host web\n HostName 10.1.2.3\n Port 2222\n User alice\n IdentityFile ~/.ssh/web\n"
        " ProxyJump gate\nHost 10.9.9.9\n User bob\n"
    )

    plain = resolve(HostConfig("web", "web"))
    given = resolve(HostConfig("web", "10.0.0.7", user="carol", port=22, key="/k"))
    by_address = resolve(HostConfig("db", "10.9.9.9"))

    assert (plain.address, plain.port, plain.user) == ("10.1.2.3", 2222, "alice")
    assert plain.keys == (str(tmp_path / ".ssh" / "web"),)
    assert plain.proxy_command == "ssh -W 10.1.2.3:2222 gate"
    assert (given.address, given.port, given.user, given.keys) == ("10.0.0.7", 22, "carol", ("/k",))
    assert by_address.user == "bob" and by_address.address == "10.9.9.9"


def test_a_user_without_a_name_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container that runs under a number of its own has no name for it."""
    monkeypatch.setattr("getpass.getuser", lambda: {}["getpwuid(): uid not found"])
    monkeypatch.setenv("HOME", str(tmp_path))

    assert checks.facts()["user"] == f"uid {os.getuid()}"
    with pytest.raises(HostRefused, match="set the variable USER"):
        resolve(HostConfig("web", "web"))


def test_ssh_files_that_cannot_be_used_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a traceback, and not as a host that does not answer."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "config").mkdir(parents=True)
    with pytest.raises(HostRefused, match=r"/\.ssh/config cannot be read: Is a directory"):
        resolve(HostConfig("web", "web"))
    (tmp_path / ".ssh" / "config").rmdir()
    (tmp_path / ".ssh" / "known_hosts").write_text("web ssh-ed25519 not-a-key\n")
    with pytest.raises(HostRefused, match=r"known_hosts has a line that is no host key: 'web ssh"):
        connect(HostConfig("web", "127.0.0.1"))


def test_the_wheel_of_the_running_version_is_the_same_each_time_and_whole() -> None:
    first = running_wheel(platform.machine())
    running_wheel.cache_clear()
    second = running_wheel(platform.machine())
    foreign = running_wheel("vax")

    assert first.digest == second.digest
    assert foreign.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(BytesIO(first.content)) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert "mrstream/cluster/agent/serving.py" in names and "mrstream/dfs/master.py" in names
    assert any(name.endswith(".dist-info/RECORD") for name in names)
    assert not any("__pycache__" in name for name in names)


class SlowHost(HostLink):
    """A host on which pip takes until its progress has been told of twice."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config, config.hosts[0])
        self.facts = {"machine": platform.machine(), "version": "3.11"}
        self.told_twice = threading.Event()

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        if do == "install":
            assert self.told_twice.wait(60), "nobody was told that it still goes on"
            return {"python": "/there/bin/python"}
        return {"paths": arguments["paths"]}  # all is there already


def test_a_long_installation_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes of silence look like a hang."""
    monkeypatch.setattr(software, "SIGN_OF_LIFE_S", 0.01)
    config = read_config("name: x\nhosts: {web: {}}\n")
    host = SlowHost(config)
    said: list[str] = []

    def say(name: str, words: str) -> None:
        said.append(f"{name}: {words}")
        if len(said) == 2:
            host.told_twice.set()

    assert software.Software(config, say).install(host) == "/there/bin/python"
    assert re.fullmatch(r"web: still installing \(\d+ s\)", said[0])


def test_the_wheel_names_its_extras_and_what_they_need() -> None:
    """Else pip on a host would pass over `[records]` with a warning."""
    with zipfile.ZipFile(BytesIO(running_wheel(platform.machine()).content)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = archive.read(name).decode().splitlines()

    assert {f"Provides-Extra: {name}" for name in extras.NAMES} <= set(lines)
    assert any(line.startswith("Requires-Dist: grpcio-tools") for line in lines)


def test_a_wheelhouse_holds_what_the_chosen_extras_need_and_nothing_of_the_others() -> None:
    declared = [
        "crc32c>=2.7",
        "uvloop>=0.19; platform_python_implementation == 'CPython'",
        'aiohttp>=3.10; extra == "http"',
        'warcio>=1.7; extra == "records"',
        'pyarrow>=17; (python_version < "3.14") and extra == "records"',
        'warcio>=1.7; extra == "crawl"',
        'mrstream[crawl,http,records]; extra == "all"',
    ]

    assert requirements_of(declared, []) == declared[:2]
    assert requirements_of(declared, ["records", "crawl"]) == [
        *declared[:2],
        "warcio>=1.7",
        'pyarrow>=17; (python_version < "3.14")',
    ]


def test_a_bad_cluster_file_and_no_cluster_at_all_are_one_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)

    assert main(["status"]) == 1
    assert "which cluster?" in capsys.readouterr().err
    (tmp_path / "cluster.yaml").write_text("name: x\nhost: {}\n")
    assert main(["up"]) == 1
    assert "cluster.yaml:2: unknown key 'host'; did you mean 'hosts'?" in capsys.readouterr().err


def test_an_up_that_no_host_is_good_for_leaves_nothing_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even the identity of a cluster that never was."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    hosts = "{a: {via: local, address: 127.0.0.77, dir: /proc/nowhere}}"
    (tmp_path / "c.yaml").write_text(f"name: x\nhosts: {hosts}\n")

    assert main(["up", "-f", str(tmp_path / "c.yaml")]) == 1

    assert "cannot write to /proc/nowhere/x/a/run" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_an_up_says_which_host_lacks_a_library_of_which_extra_and_what_to_type_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is installed on local hosts, so a job would find out instead, on some of them."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(extras.MODULES, "saw", ("no_such_library",))
    hosts = f"{{a: {{via: local, address: 127.0.0.78, dir: {tmp_path}/a}}}}"
    (tmp_path / "c.yaml").write_text(f"name: x\nextras: [saw]\nhosts: {hosts}\n")

    assert main(["up", "-f", str(tmp_path / "c.yaml")]) == 1

    assert (
        f"a (the master): {sys.executable} there has no no_such_library of the extra saw: "
        f"`{sys.executable} -m pip install 'mrstream[saw]'`"
    ) in capsys.readouterr().err
    assert not (tmp_path / "a" / "x" / "a" / "cluster.yaml").exists()


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        ("{a: {dir: /d}}", "lacks b, which cluster x has: `mrstream cluster remove b`"),
        ("{a: {dir: /d}, b: {dir: /e}}", "puts b into /e, but cluster x has it in /d"),
    ],
)
def test_up_never_forgets_a_host_that_the_cluster_has(
    hosts: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its daemons would run on unseen (orphans), and `down --purge` of the rest would take the
    secret that its data needs."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    kept = "name: x\nhosts: {a: {dir: /d}, b: {dir: /d}}\n"
    state.write_private(state.cluster_file("x"), kept)
    (tmp_path / "c.yaml").write_text(f"name: x\nhosts: {hosts}\n")

    assert main(["up", "-f", str(tmp_path / "c.yaml")]) == 1

    said = capsys.readouterr().err
    assert says in said and "another cluster, name it otherwise" in said
    assert Path(state.cluster_file("x")).read_text() == kept


@pytest.mark.parametrize(
    "command",
    ["up", "down", "status", "logs", "doctor", "add", "remove", "join", "restore"],
)
def test_the_help_of_every_command_says_its_file_and_its_exit_status(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "-f FILE" in said and "exit status: 0 " in said
    assert "example" in said or command == "doctor"


def test_f_means_follow_for_logs_and_file_elsewhere() -> None:
    assert _tell_follow_from_file(["logs", "h1", "-f"]) == ["logs", "h1", "--follow"]
    assert _tell_follow_from_file(["logs", "-f", "c.yaml", "h1"]) == ["logs", "-f", "c.yaml", "h1"]
    assert _tell_follow_from_file(["up", "-f", "x"]) == ["up", "-f", "x"]


class Interrupted(Exception):
    """As Ctrl-C of somebody who has seen enough."""


def test_a_log_is_followed_also_over_its_turning_over(tmp_path: Path) -> None:
    """`logs -f`: the last lines, then what is added, a whole line at a time."""
    log = tmp_path / "logs" / "dfs.master.log"
    log.parent.mkdir()
    log.write_text("one\ntwo\nthree\n")
    following = session(tmp_path, lock=False)
    seen: list[str] = []

    def show(event: list[str]) -> None:
        name, line = event
        assert name == "dfs.master.log"
        seen.append(line)
        if line == "three":
            with log.open("a") as file:
                file.write("four\nhalf a li")
        elif line == "four":
            log.rename(tmp_path / "logs" / "dfs.master.log.1")
            log.write_text("anew\n")
        elif line == "anew":
            raise Interrupted

    try:
        with pytest.raises(Interrupted):
            following.call(
                "logs", roles=["dfs.master"], lines=2, follow=True, on_event=show, timeout_s=120.0
            )
    finally:
        following.close()

    assert seen == ["two", "three", "four", "anew"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"ok": ' + b"[" * 100_000,
        b'{"ok": {}',
        b'{"ok": 3}',
        b'{"what": 1}',
        b'{"ok": "\xff"}',
        b"{",
        b"{" * 70_000_000,
    ],
    ids=lambda line: f"{line[:9]!r}",
)
def test_an_answer_that_is_none_is_told_with_its_host(line: bytes) -> None:
    """A host may say anything; it ended the launcher with a traceback."""

    class Liar:
        said = line + b"\n"

        def send(self, data: bytes) -> None: ...

        def receive(self, timeout_s: float) -> bytes:
            said, self.said = self.said, b""
            return said

        def close(self) -> None: ...

        def last_words(self) -> str:
            return ""

    with pytest.raises(HostUnreachable, match=r"h1: the answer to 'facts' cannot be read"):
        AgentSession("h1", Liar()).call("facts")


@pytest.mark.parametrize(
    ("unreached", "said"),
    [(("h3",), "has no leader that could hand over"), (("h2", "h3"), "port 1 does not answer")],
)
def test_a_switch_needs_a_majority_of_the_hosts_for_itself_and_not_all(
    tmp_path: Path, unreached: tuple[str, ...], said: str
) -> None:
    """It is what one does before a host is taken down, and one may be down already. (No master runs
    here: who gets as far as that has the hosts.)"""
    hosts = ", ".join(
        f"h{number}: {{address: 127.0.0.{number}, "
        + ("port: 1}" if f"h{number}" in unreached else f"via: local, dir: {tmp_path}/h{number}}}")
        for number in (1, 2, 3)
    )
    head = f"name: t\nports: {{base: {free_ports(1)[0]}}}\nmasters: [h1, h2, h3]"
    cluster = Cluster(read_config(f"{head}\nhosts: {{{hosts}}}\n"), state.Secret.new())

    with pytest.raises(ClusterError, match=said):
        switch_alone(cluster, "h2", "dfs")


async def test_the_last_line_of_up_names_who_leads_or_says_that_nobody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the first of `masters` that is up."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path))
    hosts = ", ".join(f"h{n}: {{address: 127.0.0.{n}, via: local}}" for n in (1, 2, 3))
    port = free_ports(1)[0]  # the dfs master's is the first of all
    text = f"name: t\nports: {{base: {port}}}\nmasters: [h1, h2, h3]\nhosts: {{{hosts}}}\n"
    secret = state.Secret.new()
    state.write_private(state.cluster_file("t"), text)
    state.write_private(state.identity_file("t"), secret.to_text())
    config = read_config(text)
    seen = Standing(MemberId("h2/x"), MemberId("h2/x"), 3, 1, 1, is_serving=True)
    identity = Cluster(config, secret).identity(DFS_MASTER, "h2")
    server = Server({WhoLeads: lambda request, peer: seen}, identity)

    await server.start(config.address("h2", DFS_MASTER))
    assert await asyncio.to_thread(_finish_up, config, {}) == 0
    await server.close()
    assert await asyncio.to_thread(_finish_up, config, {}) == 0

    led, unled = capsys.readouterr().out.splitlines()
    assert led == "cluster t is up: 3 hosts, master h2 (127.0.0.2)"
    assert unled.startswith("cluster t is up: 3 hosts, no master leads at the moment")
