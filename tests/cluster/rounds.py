"""Rounds of faults on three real hosts, under all kinds of users at once; they add up in a ledger.

`python tests/cluster/rounds.py --minutes N` (make soak) plays games: a new cluster, users of the
dfs (writers, renamers, appenders), of jobs and of the lock cell, one round of each fault, and then
every user's own ledger is held against what is there. A round is a line of rounds.csv, which is
kept with the sources and which later runs, on any machine, add to. It is well if nothing is wrong,
nobody was late (`promise`), and no command of a person was needed; it says who was last, and what
that one waited for. The faults that were seen least come first. `--show` prints times by kind and
verdicts by commit, and plays nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from mrstream.cluster.config.config import DFS_MASTER, GROUP_NAMES, LOCK_MASTER, MAPREDUCE_MASTER
from mrstream.cluster.errors import ClusterError, Unavailable
from mrstream.cluster.hosts.health import ask
from mrstream.cluster.leader.group_view import GroupView, look_at_groups
from mrstream.cluster.retry import RetryPolicy
from mrstream.dfs.client.client import DfsClient, client_of
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.client.records import RecordAppender, RecordCutter
from mrstream.dfs.client.writer import create
from mrstream.mapreduce.client.client import JobClient
from mrstream.mapreduce.protocol import ListJobs
from tests.cluster.diary import Diary, keep_diary
from tests.cluster.hosted import Operator
from tests.cluster.ledger import Worker
from tests.cluster.local import wait_for
from tests.cluster.lock_rounds import LockUsers, Starved
from tests.cluster.netns import NetnsHosts
from tests.cluster.promise import LATE, called_late, is_crowded, lateness
from tests.cluster.racers import Racer, check_races

LEDGER = Path(__file__).with_suffix(".csv")
LIMIT_S = 300.0
"""Only a net: a crowded machine takes long, a broken one for ever."""
SETTLE_S = 60.0
"""Guards and groups mend what was broken in this time, or a person has to."""
WRITERS, APPENDERS, RACERS, LOCK_HOLDERS = 4, 2, 3, 16
RACE_PAUSE_S = 0.25
"""A game takes minutes: with more operations the check of their history would too."""
WORDS = [f"word{number % 7}" for number in range(700)]
COUNTED = {f"word{number}": 100 for number in range(7)}
STEPS_TOLD = 3
LAST_CHARS = 300
FAULTS = ("kill", "stop", "cut", "cut two", "one way", "power off", "loss", "full disk")
"""kill -9 and SIGSTOP (5 to 40 s) of all leaders; the network of the dfs leader's host cut, with
that of a second one, or in one direction; its power; a packet in fifty lost (repeats make them
late by 200 ms and more); its disk full."""
OK = "ok"
NOT_JUDGED = "not judged"
"""How the verdict of a round begins in which the users themselves did not get to run."""
HELPED = "needed a person"
"""How that of a round begins after which not all came back by themselves."""


@dataclass(frozen=True)
class Waits:
    """How long faults last that users do not end by going on."""

    without_majority_s: float = 10.0
    """Every lease is over by then, and what was under way answered."""
    watched_s: float = 5.0
    """And for so long nothing is acknowledged."""
    lossy_s: float = 30.0
    full_s: float = 20.0


@dataclass
class Round:
    """A line of the ledger. The seconds until all users of a group went on."""

    date: str
    commit: str
    fault: str
    load: float
    seconds: dict[str, float] = field(default_factory=dict)
    verdict: str = ""
    last: str = ""
    """Who went on last, and what that one waited for."""

    @property
    def is_good(self) -> bool:
        """Is there nothing that anybody has to look at?"""
        return self.verdict == OK or is_crowded(self.verdict)

    @property
    def is_wrong(self) -> bool:
        """Was anything lost, done twice, or answered as it must not be?"""
        return not self.is_good and not self.verdict.startswith((LATE, HELPED, NOT_JUDGED))


NAMES = ("dfs", "jobs", "lock")
HEAD = ("date", "commit", "fault", "load", *(f"{name}_s" for name in NAMES), "verdict", "last")


def read_ledger(path: Path) -> list[Round]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [
            Round(
                row["date"],
                row["commit"],
                row["fault"],
                float(row["load"]),
                {name: float(row[f"{name}_s"]) for name in NAMES if row[f"{name}_s"]},
                row["verdict"],
                row["last"] or "",
            )
            for row in csv.DictReader(file)
        ]


def add_to_ledger(path: Path, rounds: Iterable[Round]) -> None:
    is_new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(HEAD)
        for one in rounds:
            times = [f"{one.seconds[name]:.1f}" if name in one.seconds else "" for name in NAMES]
            row = [one.date, one.commit, one.fault, f"{one.load:.0f}", *times, one.verdict]
            writer.writerow([*row, one.last])


def _counts(rounds: list[Round]) -> str:
    """Rounds, wrong, needed a person, late, late in a crowd, as cells of a table. Lateness is that
    of the seconds: the verdicts of the first rounds do not tell of it."""
    said = [lateness(one.fault, one.seconds, one.load) for one in rounds]
    crowded = sum(1 for words in said if is_crowded(words))
    late = sum(1 for words in said if words) - crowded
    wrong = sum(1 for one in rounds if one.is_wrong)
    helped = sum(1 for one in rounds if one.verdict.startswith(HELPED))
    return f"{len(rounds)} | {wrong} | {helped} | {late} | {crowded}"


def _judged(rounds: list[Round]) -> list[Round]:
    return [one for one in rounds if not one.verdict.startswith(NOT_JUDGED)]


def by_commit(rounds: list[Round]) -> list[str]:
    """A line for each commit that was played, as a table of a document."""
    lines = [
        "| commit | rounds | wrong | needed a person | late | late, crowded "
        "| load: median, highest |",
        "|---|---|---|---|---|---|---|",
    ]
    for commit in dict.fromkeys(one.commit for one in rounds):
        played = [one for one in _judged(rounds) if one.commit == commit]
        loads = [one.load for one in played] or [0.0]
        load = f"{statistics.median(loads):.0f}, {max(loads):.0f}"
        lines.append(f"| {commit} | {_counts(played)} | {load} |")
    return lines


def summary(rounds: list[Round]) -> list[str]:
    """A line for each kind of fault, as a table of a document."""
    lines = [
        "| fault | rounds | wrong | needed a person | late | late, crowded "
        "| dfs: median, longest s | jobs | lock |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        played = [one for one in _judged(rounds) if one.fault == fault]
        cells = []
        for name in NAMES:
            took_s = [one.seconds[name] for one in played if name in one.seconds]
            middle = f"{statistics.median(took_s):.1f}, {max(took_s):.1f}" if took_s else "–"
            cells.append(middle)
        lines.append(f"| {fault} | {_counts(played)} | {' | '.join(cells)} |")
    return lines


class Appender(threading.Thread):
    """Appends records to a file that others append to as well, and knows which are there."""

    def __init__(self, client: DfsClient, path: str, number: int, stopped: threading.Event) -> None:
        super().__init__(name=f"appender-{number}", daemon=True)
        self.acknowledged: list[bytes] = []
        self.wrong: list[str] = []
        self.given_up: list[str] = []
        self._stopped, self._number = stopped, number
        self._appender = RecordAppender(client, path)

    def run(self) -> None:
        count = 0
        while not self._stopped.wait(0.02):
            count += 1
            payload = f"{self._number}-{count}".encode()
            try:
                self._appender.append_record(payload)
            except Unavailable as error:
                self.given_up.append(f"{type(error).__name__}: {error}")
                continue  # nobody knows: it may be there or not
            except ClusterError as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
                continue
            self.acknowledged.append(payload)


class Counting(threading.Thread):
    """Counts words, one job after the other; each must give the same sums."""

    def __init__(self, operator: Operator, stopped: threading.Event) -> None:
        super().__init__(name="jobs", daemon=True)
        self.done = 0
        self.wrong: list[str] = []
        self._operator, self._stopped = operator, stopped

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            out = f"/counted-{number}"
            try:
                self._operator.good(
                    "-D", "mapreduce.job.maps=4", "-D", "mapreduce.job.reduces=2",
                    "-input", "/words", "-output", out,
                    "-mapper", "sh -c 'sleep 1; cat'", "-reducer", "uniq -c",
                    timeout_s=LIMIT_S,
                )  # fmt: skip
                said = self._operator.good("dfs", "-cat", f"{out}/part-*", timeout_s=LIMIT_S)
            except AssertionError as error:
                self.wrong.append(str(error)[-2000:])
                continue
            found = {line.split()[1]: int(line.split()[0]) for line in said.splitlines()}
            if found != COUNTED:
                self.wrong.append(f"{out}: {found}")
            self.done += 1


class Game:
    """One cluster of three hosts with all its users."""

    def __init__(self, directory: Path, chance: random.Random, waits: Waits | None = None) -> None:
        self._chance = chance
        self._waits = waits or Waits()
        self.last = ""
        """Who went on last in the last round, and what that one waited for."""
        self.help = ""
        """Who had not come back when a person had to help; nothing if nobody had to."""
        self._diaries: dict[str, Diary] = {}
        """Of each user of the dfs, by name."""
        self.hosts = NetnsHosts(3)
        self._exits = contextlib.ExitStack()
        self._exits.callback(self.hosts.close)
        self._stopped, self._ended = threading.Event(), threading.Event()
        try:
            self.operator = Operator(directory / "home", self.hosts)
            file = self.operator.write_cluster(
                dfs={"replication": 2, "dead_after": "5s", "chunk_size": "1MiB"},
                masters=self.hosts.names,
                lock={},
                defaults={"slots": 2},
            )
            self.operator.good("cluster", "up", "-f", file, timeout_s=LIMIT_S)
            self.cluster = self.operator.cluster()
            self._begin(directory)
        except BaseException:
            self._exits.close()
            raise

    def _begin(self, directory: Path) -> None:
        words = directory / "words"
        words.write_text("\n".join(WORDS) + "\n")
        self.operator.good("dfs", "-put", words, "/words")
        with create(self._client(), "/queue"):
            pass
        stopped = self._stopped
        self.writers = [
            Worker(self._client(f"worker-{number}"), number, stopped) for number in range(WRITERS)
        ]
        self.appenders = [
            Appender(self._client(f"appender-{number}"), "/queue", number, stopped)
            for number in range(APPENDERS)
        ]
        self.racers = [
            Racer(self._client(f"racer-{number}"), number, stopped, RACE_PAUSE_S)
            for number in range(RACERS)
        ]
        self.counting = Counting(self.operator, stopped)
        self.lock_users = LockUsers(self.cluster, LOCK_HOLDERS)
        self.lock_users.begin()
        for user in self._users():
            user.start()
        self._await_settled()
        self.help = ""

    def _users(self) -> list[threading.Thread]:
        return [*self.writers, *self.appenders, *self.racers, self.counting]

    def _client(self, name: str = "") -> DfsClient:
        """A client that tries for as long as any user's does."""
        # When the game is over nobody tries again: the hosts' addresses are then somebody else's.
        retry = RetryPolicy(wait=self._ended.wait)
        client = client_of(self.cluster, user="root", retry=retry)
        self._exits.callback(client.close)
        if name:
            self._diaries[name] = keep_diary(client)
        return client

    def close(self) -> None:
        self._stopped.set()
        self._ended.set()
        for host in self.hosts.names:
            with contextlib.suppress(Exception):
                self.hosts.resume(host)
        for user in self._users():
            user.join(LIMIT_S)
        self.lock_users.close()
        self._exits.close()

    # --- looking

    def _groups(self) -> dict[str, GroupView]:
        return look_at_groups(self.cluster)

    def _is_settled(self) -> bool:
        views = self._groups().values()
        return all(view.leader and len(view.answering) == 3 for view in views)

    def _await_settled(self) -> None:
        try:
            wait_for(self._is_settled, SETTLE_S, "all members to answer", 0.5)
        except AssertionError:
            views = self._groups().values()
            self.help = "; ".join(
                f"{view.role} of {view.leader or 'nobody'}, {', '.join(view.answering)} answer"
                for view in views
            )
            self.operator.good("cluster", "up", timeout_s=LIMIT_S)
            wait_for(self._is_settled, LIMIT_S, "all members to answer", 0.5)

    def _leaders(self) -> list[tuple[str, str]]:
        """Role and host of whoever leads."""
        views = wait_for(
            lambda: (found := self._groups()) and all(v.leader for v in found.values()) and found,
            LIMIT_S, "every group to have a leader",
        )  # fmt: skip
        return [(view.role, view.leader) for view in views.values()]

    def _done(self) -> list[int]:
        counts = [writer.ledger.done for writer in self.writers]
        return counts + [len(appender.acknowledged) for appender in self.appenders]

    def _time_users(self, began_s: float) -> dict[str, float]:
        """Wait until all users have gone on; the seconds since by group."""
        done, written = self._done(), self.lock_users.mark()
        took_s: dict[str, float] = {}
        names = [user.name for user in (*self.writers, *self.appenders)]
        went_on_s: dict[str, float] = {}

        def jobs() -> None:
            with JobClient(self.cluster) as client:
                client.call_patiently(ListJobs())
            took_s["jobs"] = time.monotonic() - began_s

        asking = threading.Thread(target=jobs, daemon=True)
        asking.start()

        def all_go_on() -> bool:
            now_s = time.monotonic() - began_s
            for name, now, before in zip(names, self._done(), done, strict=True):
                if now >= before + 2:
                    went_on_s.setdefault(name, now_s)
            if "dfs" not in took_s and len(went_on_s) == len(names):
                took_s["dfs"] = now_s
            if "lock" not in took_s and self.lock_users.go_on_after(written):
                took_s["lock"] = now_s
            return len(took_s) == len(NAMES) or bool(self.lock_users.errors)

        try:
            wait_for(all_go_on, LIMIT_S, "all users to go on", 0.02)
        except AssertionError as error:
            waiting = [name for name in names if name not in went_on_s]
            said = [self._story(name, began_s, LIMIT_S) for name in waiting]
            raise AssertionError(f"{error}: {took_s}; {'; '.join(said)}") from None
        self.lock_users.check_errors()
        last = max(names, key=lambda name: went_on_s[name])
        self.last = self._story(last, began_s, went_on_s[last])
        return dict(took_s)

    def _story(self, name: str, began_s: float, took_s: float) -> str:
        """What a user of the dfs waited for since then."""
        steps = self._diaries[name].since(began_s, began_s + took_s)
        return f"{name} after {took_s:.1f} s: {', '.join(steps[-STEPS_TOLD:]) or 'nothing long'}"

    def given_up(self) -> list[str]:
        """What users were told, since the last look, that their own retries did not get over."""
        said = []
        for writer in self.writers:
            said += [f"{writer.name}: {one}" for one in writer.ledger.given_up]
            writer.ledger.given_up.clear()
        for appender in self.appenders:
            said += [f"{appender.name}: {one}" for one in appender.given_up]
            appender.given_up.clear()
        return said

    # --- faults

    def round(self, fault: str) -> dict[str, float]:
        """Break something, see all users go on, mend it; return the seconds of each group."""
        self.last = self.help = ""
        leaders = self._leaders()
        victim = dict(leaders)[DFS_MASTER]
        if fault not in ("kill", "stop"):
            self._gather(victim, leaders)
        play: dict[str, Callable[[], dict[str, float]]] = {
            "kill": lambda: self._kill(leaders),
            "stop": lambda: self._stop(leaders),
            "cut": lambda: self._broken(lambda: self.hosts.cut(victim)),
            "cut two": lambda: self._cut_two(victim),
            "one way": lambda: self._broken(lambda: self._deafen(victim)),
            "power off": lambda: self._power_off(victim),
            "loss": lambda: self._lose_packets(victim),
            "full disk": lambda: self._fill(victim),
        }
        took_s = play[fault]()
        self.hosts.heal()
        self._await_settled()
        self.lock_users.judge()  # now, so that it is known which fault took a lock away
        return took_s

    def _gather(self, host: str, leaders: list[tuple[str, str]]) -> None:
        """Have every group led from one host, whose loss is then that of all leaders at once."""
        for role, leader in leaders:
            if leader != host:
                # It may be refused while somebody catches up: then another leads.
                self.operator.run("cluster", "switch", host, GROUP_NAMES[role], timeout_s=LIMIT_S)

    def _broken(self, do: Callable[[], None]) -> dict[str, float]:
        began_s = time.monotonic()
        do()
        return self._time_users(began_s)

    def _signal(self, leaders: list[tuple[str, str]], name: str) -> list[tuple[str, str]]:
        pids = []
        for role, host in leaders:
            health = ask(self.cluster, host, role).health
            assert health is not None, f"{role} of {host} does not answer"
            pids.append((host, str(health.pid)))
        for host, pid in pids:
            self.hosts.run(host, "kill", f"-{name}", pid)
        return pids

    def _kill(self, leaders: list[tuple[str, str]]) -> dict[str, float]:
        return self._broken(lambda: self._signal(leaders, "KILL") and None)

    def _stop(self, leaders: list[tuple[str, str]]) -> dict[str, float]:
        began_s = time.monotonic()
        pids = self._signal(leaders, "STOP")
        until_s = began_s + self._chance.uniform(5.0, 40.0)
        try:
            took_s = self._time_users(began_s)
            time.sleep(max(0.0, until_s - time.monotonic()))
        finally:
            for host, pid in pids:
                self.hosts.run(host, "kill", "-CONT", pid, check=False)
        return took_s

    def _cut_two(self, victim: str) -> dict[str, float]:
        """Without a majority nothing is acknowledged; with it again, all go on."""
        other = self._chance.choice([host for host in self.hosts.names if host != victim])
        self.hosts.cut(victim)
        self.hosts.cut(other)
        time.sleep(self._waits.without_majority_s)
        done, written = self._done(), self.lock_users.mark()
        time.sleep(self._waits.watched_s)
        names = slice(WRITERS)  # appenders may go on without a master, as long as a chunk has room
        assert self._done()[names] == done[names], "changes were acknowledged by a minority"
        assert self.lock_users.mark() == written, "a minority of the cell acknowledged"
        return self._broken(self.hosts.heal)

    def _deafen(self, victim: str) -> None:
        others = [host for host in self.hosts.names if host != victim]
        is_deaf = self._chance.random() < 0.5
        for other in others:
            self.hosts.deafen(*((victim, other) if is_deaf else (other, victim)))

    def _power_off(self, victim: str) -> dict[str, float]:
        took_s = self._broken(lambda: self.hosts.kill(victim))
        self.hosts.start(victim)
        self.operator.good("cluster", "up", timeout_s=LIMIT_S)
        return took_s

    def _lose_packets(self, victim: str) -> dict[str, float]:
        """Nobody has to lead anew, and everybody goes on, if slowly."""
        self.hosts.lose(victim, 0.02)
        return self._slowest_of(self._waits.lossy_s)

    def _fill(self, victim: str) -> dict[str, float]:
        """Somebody leads, with or without room."""
        try:
            self.hosts.fill_disk(victim)
            return self._slowest_of(self._waits.full_s)
        finally:
            self.hosts.free_disk(victim)

    def _slowest_of(self, seconds: float) -> dict[str, float]:
        """See users go on again and again for so long; the longest that they took."""
        slowest_s: dict[str, float] = {}
        last = ""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            seen = self._time_users(time.monotonic())
            if seen["dfs"] > slowest_s.get("dfs", 0.0):
                last = self.last
            for name, took_s in seen.items():
                slowest_s[name] = max(took_s, slowest_s.get(name, 0.0))
        self.last = last
        return slowest_s

    # --- the end

    def judge(self) -> None:
        """What every user was told is so."""
        self._stopped.set()
        for user in self._users():
            user.join(LIMIT_S)
            assert not user.is_alive(), f"{user.name} does not end"
        self.lock_users.judge()
        self.lock_users.close()
        self.lock_users.check_errors()
        assert not self.counting.wrong, self.counting.wrong
        client = self._client()
        for writer in self.writers:
            writer.check(client)
        cutter = RecordCutter(1 << 18)
        with DfsReader(client, "/queue") as file:
            there = {record.payload for record in cutter.feed(file.read())}
        for appender in self.appenders:
            assert not appender.wrong, appender.wrong
            lost = [one for one in appender.acknowledged if one not in there]
            assert not lost, f"acknowledged and lost: {lost[:10]}"
        check_races(self.racers)


def play(faults: list[str], chance: random.Random, waits: Waits | None = None) -> list[Round]:
    """A game of these faults; what was broken until something went wrong, or all of them."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="mrs-rounds-") as directory:
        game = Game(Path(directory), chance, waits)
        verdict = OK
        try:
            for fault in faults:
                date = time.strftime("%Y-%m-%d")
                one = Round(date, commit, fault, os.getloadavg()[0])
                rounds.append(one)
                one.seconds = game.round(fault)
                one.load = max(one.load, os.getloadavg()[0])
                one.last, one.verdict = game.last[:LAST_CHARS], _verdict(game, one)
                print(f"{fault}: {one.seconds}; {one.verdict}; {one.last}", flush=True)
            game.judge()
        except AssertionError as error:
            verdict = " ".join(str(error).split())[:300]
            if isinstance(error, Starved):
                verdict = f"{NOT_JUDGED}: {verdict}"
            print(f"FAILED: {error}", flush=True)
            _show_logs(game)
        finally:
            game.close()
    for one in rounds:  # what is wrong was judged together
        if verdict != OK or not one.verdict:
            one.verdict = verdict
    print(f"{game.counting.done} jobs, {sum(w.ledger.done for w in game.writers)} changes of names")
    return rounds


def _verdict(game: Game, one: Round) -> str:
    """How a round was, as long as nothing is wrong with what users were told."""
    if game.help:
        return f"{HELPED}: {game.help}"[:300]
    if given_up := game.given_up():
        return called_late(f"users gave up: {'; '.join(given_up)}", one.load)[:300]
    return lateness(one.fault, one.seconds, one.load) or OK


def _show_logs(game: Game) -> None:
    for host in game.hosts.names:
        for role in (DFS_MASTER, MAPREDUCE_MASTER, LOCK_MASTER):
            path = game.hosts.disk(host) / f"mrstream/t/{host}/logs/{role}.log"
            if path.exists():
                print(f"--- {host} {role}", *path.read_text().splitlines()[-40:], sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no game after that")
    parser.add_argument("--faults", nargs="*", default=[], help="only these, in this order")
    parser.add_argument("--show", action="store_true", help="print the table, and play nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # what was made is unmade
    until_s = time.monotonic() + options.minutes * 60.0
    is_good = True
    while not options.show and time.monotonic() < until_s:
        seen = Counter(one.fault for one in read_ledger(LEDGER))
        faults = options.faults or sorted(FAULTS, key=lambda fault: seen[fault])
        rounds = play(faults, random.Random())
        add_to_ledger(LEDGER, rounds)
        is_good = is_good and all(one.is_good for one in rounds)
    for table in (summary, by_commit):
        print("\n".join(table(read_ledger(LEDGER))), end="\n\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
