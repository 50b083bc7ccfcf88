"""Who is let into a group of masters, and who takes a removed one's place."""

from __future__ import annotations

import pytest

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.standing import Standing
from mrstream.cluster.errors import UserError
from mrstream.cluster.hosts.membership import with_other_masters
from mrstream.cluster.leader.forming import Forming

THREE = "name: lab\nmasters: [h1, h2, h3]\nhosts: "
MEMBERS = tuple(MemberId(f"{host}/j") for host in ("h1", "h2", "h3"))


class Scripted(Forming):
    """Looks at the group as often as there are looks; each names the hosts that answer."""

    def __init__(self, looks: list[str], down: tuple[str, ...] = ()) -> None:
        self.looks = looks
        self.said: list[str] = []
        config = read_config(THREE + "{h1: {}, h2: {}, h3: {}}\n")
        cluster = Cluster(config, Secret("c1", b"s" * 32))
        super().__init__(
            cluster, "dfs.master", lambda host, text: self.said.append(f"{host}: {text}"), (), down
        )

    def standings(self) -> dict[str, Standing]:
        hosts = self.looks.pop(0).split() if len(self.looks) > 1 else self.looks[0].split()
        return {
            host: Standing(
                MemberId(f"{host}/j"), MEMBERS[0], 1, 1, 1, MEMBERS, is_serving=host == "h1"
            )
            for host in hosts
        }


def test_a_host_that_has_only_just_started_is_waited_for_and_one_that_is_down_is_not() -> None:
    waiting = Scripted(["h1 h2", "h1 h2", "h1 h2 h3"])
    waiting.run(60.0, lambda: None)
    assert waiting.looks == ["h1 h2 h3"]

    Scripted(["h1 h2"], down=("h3",)).run(60.0, lambda: None)

    late = Scripted(["h1 h2"])
    late.run(0.0, lambda: None)  # a member that never answers costs the others nothing
    assert late.said[0].startswith("h3: WARNING: is no member of dfs.master")


def test_another_host_takes_a_masters_place_of_another_rack_if_there_is_one() -> None:
    hosts = "{h1: {rack: a}, h2: {rack: b}, h3: {rack: c}, h4: {rack: a}, h5: {rack: c}}\n"
    config = read_config(THREE + hosts)
    assert with_other_masters(config, "h5") is config
    assert with_other_masters(config, "h3").masters == ("h1", "h2", "h5")
    led = with_other_masters(config, "h1")
    assert (led.master, led.masters) == ("h2", ("h4", "h2", "h3"))
    read_config_again = with_other_masters(led, "h2")
    assert read_config_again.master == "h4"

    with pytest.raises(UserError, match=r"no host is left to take its place.*cluster add"):
        with_other_masters(read_config(THREE + "{h1: {}, h2: {}, h3: {}}\n"), "h2")
    with pytest.raises(UserError, match="restore --master HOST"):
        with_other_masters(read_config("name: lab\nhosts: {h1: {}, h2: {}}\n"), "h1")
