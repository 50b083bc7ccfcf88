"""Who is let into a group of masters, and who takes a removed one's place."""

from __future__ import annotations

import pytest

from mrstream.cluster.config.config import Cluster
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.cluster.consensus.members import MemberId, host_of
from mrstream.cluster.consensus.standing import AskGroup, Standing
from mrstream.cluster.errors import UserError
from mrstream.cluster.hosts.membership import with_other_masters
from mrstream.cluster.leader.forming import Forming, LogLost
from mrstream.cluster.wire.messages import Request

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


def test_where_no_host_is_left_fewer_are_masters() -> None:
    three = read_config(THREE + "{h1: {}, h2: {}, h3: {}}\n")
    two = with_other_masters(three, "h1")
    assert (two.master, two.masters, two.learner) == ("h2", (), "h3")
    five = read_config('name: lab\nmasters: [h1, h2, h3, h4, h5]\nhosts: {"h[1-5]": {}}\n')
    assert with_other_masters(five, "h2").masters == ("h1", "h3", "h4")
    pair = read_config("name: lab\nhosts: {h1: {}, h2: {}}\n")
    assert with_other_masters(pair, "h2").learner == ""
    with pytest.raises(UserError, match="restore --master HOST"):
        with_other_masters(pair, "h1")


class Answering(Forming):
    """A group that does as it is asked, in the order of the wishes."""

    def __init__(self, text: str, voters: list[str], learners: list[str]) -> None:
        self.voters, self.learners, self.leader = voters, learners, voters[0]
        self.asked: list[str] = []
        cluster = Cluster(read_config(text), Secret("c1", b"s" * 32))
        super().__init__(cluster, "dfs.master", lambda host, text: None)

    def standings(self) -> dict[str, Standing]:
        voters, learners = (
            tuple(MemberId(f"{host}/j") for host in hosts) for hosts in (self.voters, self.learners)
        )
        leader = MemberId(f"{self.leader}/j")
        return {
            host: Standing(
                MemberId(f"{host}/j"), leader, 1, 1, 1, voters, learners,
                is_serving=host == self.leader,
            )
            for host in self._hosts
        }  # fmt: skip

    def _ask(self, host: str, request: Request, seconds: float) -> Standing:
        assert isinstance(request, AskGroup)
        member = host_of(request.member)
        self.asked.append(f"{request.verb} {member}")
        match request.verb:
            case "add":
                self.learners.append(member)
            case "promote":
                self.learners.remove(member)
                self.voters.append(member)
            case "remove":
                (self.voters if member in self.voters else self.learners).remove(member)
            case "transfer":
                self.leader = member
        return self.standings()[self.leader]


TWO = "name: lab\nhosts: {h1: {}, h2: {}}\n"


def test_of_two_hosts_the_second_listens_and_never_votes() -> None:
    forming = Answering(TWO, ["h1"], [])
    forming.run(60.0, lambda: None)
    assert forming.asked == ["add h2"] and forming.learners == ["h2"]


def test_a_third_host_makes_voters_of_all_and_going_back_lets_them_go() -> None:
    more = Answering("name: lab\nhosts: {h1: {}, h2: {}, h3: {}}\n", ["h1"], ["h2"])
    more.run(60.0, lambda: None)
    assert more.asked == ["promote h2", "add h3", "promote h3"]

    fewer = Answering(TWO, ["h1", "h2", "h3"], [])
    fewer.run(60.0, lambda: None)
    assert fewer.asked == ["remove h3", "remove h2", "add h2"]

    led = Answering(TWO, ["h2", "h1"], [])
    led.run(60.0, lambda: None)
    assert led.asked == ["transfer h1", "remove h2", "add h2"]


def test_a_lone_voter_that_has_lost_its_log_is_named_with_the_way_back() -> None:
    class Lost(Answering):
        def standings(self) -> dict[str, Standing]:
            old, heard = MemberId("h1/old"), MemberId("h2/j")
            return {
                "h1": Standing(MemberId("h1/new"), MemberId(""), 0, 0, 0),
                "h2": Standing(heard, MemberId(""), 4, 70, 70, (old,), (heard,)),
            }

    words = r"h1.*lost its log.*restore --master h1.*h2 goes to record 70"
    with pytest.raises(LogLost, match=words):
        Lost(TWO, ["h1"], []).run(60.0, lambda: None)
