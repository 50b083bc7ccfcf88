"""cluster.yaml: what is right is understood, what is wrong is all named at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mrstream.cluster.config import config as cluster_config
from mrstream.cluster.config import state
from mrstream.cluster.config.config import CHUNKSERVER, DFS_MASTER, WORKER
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.writer import write_config
from mrstream.cluster.errors import BadConfig, UserError
from mrstream.cluster.units import expand_range, parse_size, parse_time

LOCAL = '{"h[1-3]": {via: local, address: "127.0.0.[1-3]"}}'
FULL = """\
name: demo
master: h2
install: wheelhouse
tls: false
ports: {base: 7800}
defaults: {user: me, key: ~/.ssh/id_ed25519, dir: ~/.mrstream, slots: 2}
hosts:
  h1: {address: 127.0.0.1, via: local, dir: /var/tmp/mrstream/h1}
  h2: {address: 10.0.0.2, port: 2222, rack: r1, slots: 4, disks: [/data1, /data2]}
  node[08-11]: {address: '10.1.0.[8-11]'}
dfs: {chunk_size: 1MiB, replication: 2, dead_after: 10s, trash_after: 3d, reserve: 5%}
mapreduce: {mapreduce.job.reduces: 4}
"""


def test_the_file_of_the_guide_is_understood() -> None:
    config = read_config(FULL)

    assert [host.name for host in config.hosts] == [
        "h1",
        "h2",
        "node08",
        "node09",
        "node10",
        "node11",
    ]
    assert config.master == "h2"
    assert config.host("h2").slots == 4 and config.host("h1").slots == 2
    assert config.host("h2").disks == ("/data1", "/data2")
    assert config.host("node10").address == "10.1.0.10"
    assert config.host("node10").user == "me"
    assert (config.dfs.chunk_bytes, config.dfs.trash_after_s) == (1 << 20, 259_200.0)
    assert config.dfs.reserve_share == 0.05
    assert config.mapreduce == {"mapreduce.job.reduces": "4"}
    assert config.master_address(DFS_MASTER) == "10.0.0.2:7800"
    assert config.address("h1", CHUNKSERVER) == "127.0.0.1:7801"
    assert config.masters == ("h2", "h1", "node08"), "another rack first"
    assert config.roles_of("node11") == (CHUNKSERVER, WORKER)
    assert len(config.roles_of("h2")) == 4


def test_what_is_written_reads_back_the_same() -> None:
    config = read_config(FULL)
    again = read_config(write_config(config))

    assert again.hosts == config.hosts and again.dfs == config.dfs
    assert (again.master, again.base_port, again.install) == ("h2", 7800, "wheelhouse")


def test_the_least_file_is_a_name_and_a_host() -> None:
    config = read_config("name: x\nhosts: {solo: {}}\n")

    assert config.master == "solo"
    assert config.host("solo").via == "ssh" and config.host("solo").address == "solo"


def test_extras_are_the_same_in_whatever_order_and_all_means_all() -> None:
    """What `up` installs is named after them, and hosts are told in full what they have."""
    base = "name: x\nhosts: {solo: {}}\n"

    one, other = (
        read_config(f"{base}extras: {names}\n") for names in ("[saw, http]", "[http, saw]")
    )
    every = read_config(f"{base}extras: [all]\n")

    assert one.extras == other.extras == one.extras_of("solo") == ("http", "saw")
    assert "records" in every.extras and "all" not in every.extras
    assert read_config(write_config(one)).extras == one.extras
    assert read_config(f"{base}extras:\n").extras == ()
    # A file without extras stays one that versions before them can read.
    assert "extras" not in write_config(read_config(base))


def test_every_mistake_is_named_at_once_with_its_line_and_the_nearest_key() -> None:
    """Issue: validated as a whole."""
    text = """\
nam: demo
master: h9
instal: wheel
ports: {base: 70}
hosts:
  h1: {adress: 10.0.0.1, slots: none}
  h1: {}
  h2: {via: locl, address: 0.0.0.0}
  bad name: {}
dfs: {chunk_size: 5 parsecs, replicaton: 3, dead_after: 1s}
"""
    with pytest.raises(BadConfig) as caught:
        read_config(text, "c.yaml")

    lines = str(caught.value).splitlines()
    expected = [
        "c.yaml:1: unknown key 'nam'; did you mean 'name'?",
        "c.yaml:2: master is 'h9', which is not a host; did you mean 'h",
        "c.yaml:3: unknown key 'instal'; did you mean 'install'?",
        "c.yaml:4: ports.base is '70': it must be a whole number from 1,024",
        "c.yaml:6: hosts.h1.slots is 'none': it must be a whole number",
        "c.yaml:6: unknown key 'adress' in hosts.h1; did you mean 'address'?",
        "c.yaml:7: host 'h1' is there twice",
        "c.yaml:8: hosts.h2.address is '0.0.0.0': nothing listens on all addresses",
        "c.yaml:8: hosts.h2.via is 'locl': it must be ssh or local; did you mean 'local'?",
        "c.yaml:9: host 'bad name': a name has letters",
        "c.yaml:10: dfs.chunk_size is '5 parsecs': a size is a number and a unit",
        "c.yaml:10: dfs.dead_after is 1s, dfs.heartbeat 1s",
        "c.yaml:10: unknown key 'replicaton' in dfs; did you mean 'replication'?",
    ]
    for line in expected:
        assert any(got.startswith(line) for got in lines), (line, lines)
    assert len(lines) == len(expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "name at least one host"),
        ("", "a cluster needs a name"),
        ("name: x\nhosts:\n\ta: {}\n", "c.yaml:3: this is not YAML: a tab indents this line"),
        ("name: x\nhosts: {a: {disks: 7}}", "hosts.a.disks is '7': a path begins"),
        ("name: x\nhosts: {a: {}}\ndfs: {chunk_size: 64MB}", "did you mean '64MiB'"),
        ("[1, 2]", "must be a mapping"),
        ("a: b: c", "c.yaml:1: this is not YAML"),
        ("name: x\nhosts: {a: {address: 1.2.3.4}, b: {address: 1.2.3.4}}", "the same address"),
        ("name: x\nhosts: {'n[1-3]': {address: '10.0.0.[1-2]'}}", "stands for 2 values"),
        ("name: x\nhosts: {'n[3-1]': {}}", "goes down"),
        ("name: x\nhosts: {a: {disks: [relative]}}", "a path begins with / or ~"),
        ("name: ../up\nhosts: {a: {}}", "a name has letters"),
        (
            "name: x\nhosts: {a: {}}\nextras: [saw, record]",
            "c.yaml:3: extras: there is no extra 'record'; did you mean 'records'",
        ),
        ("name: x\nhosts: {a: {}}\nextras: [zzz]", "'zzz'; extras are http, records, saw, "),
        ("name: x\nhosts: {a: {}}\nextras: [saw, saw]", "c.yaml:3: extras names saw twice"),
        (
            "name: x\nhosts: {a: {}}\nextras: saw",
            "c.yaml:3: extras must be a list, such as [records, saw], not 'saw'",
        ),
        ("name: x\nhosts: {a: {}}\nextras: {saw: 1}", "c.yaml:3: extras must be a list"),
        ("name: x\nhosts: {a: {}}\nextras: [[saw]]", "a name is a single word, not a list"),
        ("name: x\nname: y\nhosts: {a: {}}", "is there twice"),
    ],
)
def test_bad_files_are_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says.replace("[", r"\[")):
        read_config(text, "c.yaml")


def test_what_stands_under_a_misspelt_key_is_looked_at_too() -> None:
    """Every mistake at once: correcting `hots` must not bring up new ones, one after the other."""
    with pytest.raises(BadConfig) as caught:
        read_config("name: x\nhots: {a: {adress: 1.2.3.4, slots: many}}\n", "c.yaml")

    assert str(caught.value).splitlines() == [
        "c.yaml:2: hosts.a.slots is 'many': it must be a whole number from 1 to 10,000",
        "c.yaml:2: unknown key 'adress' in hosts.a; did you mean 'address'?",
        "c.yaml:2: unknown key 'hots'; did you mean 'hosts'?",
    ]


@pytest.mark.parametrize("name", ["a\\nb", "a\\u2028b", "a\\eb"])
def test_a_host_whose_name_would_break_the_line_is_told_of_in_one(name: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_config(f'name: x\nhosts: {{"{name}": {{slots: 0, slat: 1}}}}\n', "c.yaml")

    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and all(line.startswith("c.yaml:2: ") for line in lines)
    assert str(caught.value).replace("\n", "").isprintable()


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "noise.yaml").write_bytes(b"abc\xff\xfe")

    with pytest.raises(BadConfig, match=r"^/.* cannot be read: Is a directory$"):
        cluster_config.load(str(tmp_path))
    with pytest.raises(BadConfig, match=r"byte 3 of it is not text in UTF-8$"):
        cluster_config.load(str(tmp_path / "noise.yaml"))


def test_units_and_ranges_of_hosts_are_read() -> None:
    assert [parse_size(t) for t in ("64MiB", "1k", "10", "1.5GB")] == [
        64 << 20,
        1024,
        10,
        1_500_000_000,
    ]
    assert [parse_time(t) for t in ("500ms", "10s", "3d", "2m")] == [0.5, 10.0, 259_200.0, 120.0]
    assert expand_range("r[1-2]n[09-11]") == ["r1n09", "r1n10", "r1n11", "r2n09", "r2n10", "r2n11"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    return tmp_path


def test_which_cluster_is_the_one_named_then_the_environments_then_the_current_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the guide: -cluster, $MRSTREAM_CLUSTER, the last `up`, none."""
    assert cluster_config.current() is None
    state.write_private(state.cluster_file("kept"), "name: kept\nhosts: {a: {}}\n")
    state.make_current("kept")
    assert cluster_config.current().name == "kept"  # type: ignore[union-attr]
    (home / "other.yaml").write_text("name: other\nhosts: {a: {}}\n")
    monkeypatch.setenv("MRSTREAM_CLUSTER", str(home / "other.yaml"))
    assert cluster_config.current().name == "other"  # type: ignore[union-attr]
    assert cluster_config.current("kept").name == "kept"  # type: ignore[union-attr]
    monkeypatch.delenv("MRSTREAM_CLUSTER")
    state.make_current(None)
    assert cluster_config.current() is None


def test_a_cluster_that_was_taken_down_is_not_no_cluster(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its paths would be looked for on this machine's own disk, without a word."""
    state.write_private(state.cluster_file("kept"), "name: kept\nhosts: {a: {}}\n")
    state.make_current("kept")
    state.write_private(state.down_mark("kept"), "")

    for ask in (state.chosen, state.chosen_config, cluster_config.current):
        with pytest.raises(state.ClusterIsDown, match=r"cluster kept is down: .* up -f kept"):
            ask()
    assert state.known() == state.cluster_file("kept"), "who looks after clusters finds it"
    assert state.chosen("kept") == state.cluster_file("kept"), "who names it may know better"
    monkeypatch.setenv("MRSTREAM_CLUSTER", "kept")
    assert state.chosen() == state.cluster_file("kept")
    monkeypatch.delenv("MRSTREAM_CLUSTER")

    state.make_current("kept")
    assert state.chosen() == state.cluster_file("kept"), "it was brought up again"
    state.write_private(state.down_mark("kept"), "")
    os.unlink(state.current_file())
    assert state.chosen() is None


def test_a_directory_named_like_a_cluster_does_not_hide_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of that name is a cluster file; a directory of that name is nothing."""
    state.write_private(state.cluster_file("kept"), "name: kept\nhosts: {a: {}}\n")
    monkeypatch.chdir(home)
    (home / "kept").mkdir()
    assert cluster_config.current("kept").name == "kept"  # type: ignore[union-attr]
    monkeypatch.setenv("MRSTREAM_CLUSTER", "kept")
    assert cluster_config.current().name == "kept"  # type: ignore[union-attr]

    (home / "kept").rmdir()
    (home / "kept").write_text("name: other\nhosts: {a: {}}\n")
    assert cluster_config.current().name == "other"  # type: ignore[union-attr]


def test_state_that_cannot_be_written_is_one_line_with_what_to_do(home: Path) -> None:
    """A read-only or full home is common on shared machines."""
    (home / "home").write_text("a file where the directory should be")

    with pytest.raises(UserError, match=r"cannot be written \(.*\): .* set MRSTREAM_HOME"):
        state.make_current("x")


def test_the_secret_is_for_its_owner_only_and_never_shown(home: Path) -> None:
    """faults.md: mode 0600; never in a log or message."""
    secret = state.Secret.new()
    path = state.identity_file("demo")
    state.write_private(path, secret.to_text())

    assert state.read_identity(path) == secret
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert secret.secret.hex() not in repr(secret)
    os.chmod(path, 0o644)
    with pytest.raises(UserError, match="can be read by others"):
        state.read_identity(path)


def test_asking_for_the_current_cluster_does_not_load_yaml() -> None:
    """Every command asks; most have no cluster."""
    import subprocess
    import sys

    code = (
        "import sys, mrstream.cluster.config.state as s\n"
        "sys.exit('yaml' in sys.modules or 'asyncio' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000 + "a"])
def test_a_file_that_is_nested_beyond_reason_is_refused(text: str) -> None:
    """It overflowed the stack of libyaml's composer: the process was gone, with SIGSEGV."""
    with pytest.raises(BadConfig, match=r"c\.yaml:1: nested deeper than 32 levels"):
        read_config(text, "c.yaml")


def test_an_identity_that_is_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(UserError, match="is not the identity of a cluster"):
        state.Secret.from_text("[" * 100_000, "here")


def test_a_directory_does_not_hide_the_cluster_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    kept = Path(state.cluster_file("lab"))
    kept.parent.mkdir(parents=True)
    kept.write_text("")

    assert state.chosen("lab") == str(kept)
    (tmp_path / "lab").rmdir()
    (tmp_path / "lab").write_text("")
    assert state.chosen("lab") == "lab"


class TestMasters:
    """Who can lead."""

    HOSTS = "name: t\nhosts: {h1: {}, h2: {}, h3: {}, h4: {}, h5: {}}\nlock: {}\n"

    def test_three_or_five_hosts_run_all_masters_and_one_leads_first(self) -> None:
        config = read_config(self.HOSTS + "masters: [h2, h3, h1]\nfailover_after: 5s\n")

        assert config.master == "h2" and config.masters == ("h2", "h3", "h1")
        assert config.masters_of("lock.master") == ("h2", "h3", "h1")
        assert config.masters_of("dfs.master") == ("h2", "h3", "h1")
        assert config.masters_of("mapreduce.master") == ("h2", "h3", "h1")
        assert "mapreduce.master" in config.roles_of("h3")
        assert "mapreduce.master" not in config.roles_of("h4")
        assert config.group_addresses("mapreduce.master")["h1"] == "h1:7707"
        assert "lock.master" in config.roles_of("h3") and "lock.master" not in config.roles_of("h4")
        assert config.group_addresses("lock.master")["h3"] == "h3:7708"
        assert config.failover_after_s == 5.0
        assert read_config(write_config(config)).masters == config.masters
        assert read_config(write_config(config)).failover_after_s == 5.0

    def test_one_master_by_word_is_one_also_when_it_is_read_again(self) -> None:
        config = read_config(self.HOSTS + "masters: [h3]\n")
        for one in (config, read_config(write_config(config))):
            assert one.masters == () and one.masters_of("lock.master") == ("h3",)
            assert one.masters_of("mapreduce.master") == ("h3",)

    def test_three_hosts_and_more_have_three_masters_of_different_racks(self) -> None:
        assert read_config(self.HOSTS).masters == ("h1", "h2", "h3")
        assert read_config(self.HOSTS + "master: h4\n").masters == ("h4", "h1", "h2")
        racks = "name: t\nhosts: {h1: {rack: a}, h2: {rack: a}, h3: {rack: b}, h4: {rack: a}}\n"
        assert read_config(racks).masters == ("h1", "h3", "h2")
        again = read_config(write_config(read_config(racks)))
        assert again.masters == ("h1", "h3", "h2") and again.voters_of("dfs.master")[0] == "h1"

    def test_of_two_hosts_one_leads_and_both_have_the_log(self) -> None:
        config = read_config("name: t\nlock: {}\nhosts: {h1: {}, h2: {}}\n")
        for one in (config, read_config(write_config(config))):
            assert one.masters == () and one.learner == "h2"
            assert one.voters_of("dfs.master") == ("h1",)
            assert one.masters_of("dfs.master") == ("h1", "h2")
            assert "lock.master" in one.roles_of("h2")
        assert config.without("h2").learner == ""

    def test_one_host_and_hosts_of_one_machine_have_one_master(self) -> None:
        for hosts in ("{h1: {}}", LOCAL, '{"h[1-2]": {via: local, address: "127.0.0.[1-2]"}}'):
            config = read_config(f"name: t\nhosts: {hosts}\n")
            assert config.masters_of("dfs.master") == ("h1",) and not config.learner
        given = read_config(f"name: t\nhosts: {LOCAL}\nmasters: [h1, h2, h3]\n")
        assert given.masters == ("h1", "h2", "h3")

    def test_log_replicas_of_before_are_read_and_not_written(self) -> None:
        config = read_config(self.HOSTS + "dfs: {log_replicas: 2}\n")
        assert config.dfs.log_replicas == 2 and "log_replicas" not in write_config(config)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("masters: [h1, h2]", "no more hosts than 1"),
            ("masters: [h1, h2, h3, h4]", "no more hosts than 3"),
            ("masters: []", "must be 1, 3 or 5"),
            ("masters: h1", "must be a list"),
            ("masters: [h1, h2, h9]", "'h9' is not a host"),
            ("masters: [h1, h2, h2]", "names h2 twice"),
            ("masters: [h1, h2, [h3]]", "is not a host"),
            ("master: h4\nmasters: [h1, h2, h3]", "name it there too"),
            ("masters: [h1, h2, h3]\nfailover_after: 500ms", "from 1s to 60s"),
            ("masters: [h1, h2, h3]\nlearner: h4", "learner is for one master"),
            ("masters: [h1]\nlearner: h9", "'h9', which is not a host"),
            ("masters: [h1]\nlearner: h1", "the master itself"),
        ],
    )
    def test_what_cannot_lead_is_refused_with_the_reason(self, text: str, words: str) -> None:
        with pytest.raises(BadConfig, match=words):
            read_config(self.HOSTS + text + "\n")
