"""Golden cases on other people's engines, with a ledger: part of `make interop`.

    python tests/cluster/engine_interop.py ray      all cases
    python tests/cluster/engine_interop.py spark    every third; an executor killed, copies
    python tests/cluster/engine_interop.py hadoop   every third, by Hadoop's own client and runner
    python tests/cluster/engine_interop.py hadoop-cluster   the same third, on its small cluster

    python tests/cluster/engine_interop.py show     the ledger as a table

Behind the engine may stand names of cases, and `faults`: what the engine repeats. Those of Ray are
in the gate (test_engine_ray.py).

A case that an engine cannot give is listed with its reason; it is wrong here if it passes. Each
is a line of engine_interop.csv, which is kept: what was run, when, of which code, how it went.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import mrstream as mr
from tests.conformance import cases
from tests.support.local_jobs import Desk, processes_with
from tests.support.ray_here import driver, running_ray

PEER = Path(__file__).parent / "hadoop_peer"
LAST = Path(__file__).parent / "engine_last.py"
LEDGER = Path(__file__).with_suffix(".csv")
COLUMNS = ("date", "commit", "engine", "case", "seconds", "load", "verdict")
# What Hadoop's scripts `mapred` and `hadoop` do, as far as jobs need it.
MAPRED = """#!/bin/sh
case $1 in
streaming) main=streaming.HadoopStreaming words='{words}';;
job) main=mapred.JobClient words=;;
fs) main=fs.FsShell words=;;
esac
shift
exec java {options} -cp '{room}:{classpath}' -Dhadoop.tmp.dir='{room}/tmp' \\
  org.apache.hadoop.$main $words "$@"
"""
# For a Java that lives for seconds.
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CASE_S_MAX = 1800.0
FAULTS = "faults"
# Ends the process of the engine that runs the program.
KILL = """
pid = os.getpid()
while {name!r} not in open(f"/proc/{{pid}}/cmdline").read():
    pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
os.kill(pid, signal.SIGKILL)
time.sleep(1000)
"""
# Goes on when the engine has begun another copy of the task.
WAIT = "wait_for(again)"
EXECUTOR, YARN_TASK = "CoarseGrainedExecutorBackend", "org.apache.hadoop.mapred.YarnChild"
NOT_ON_HADOOP: dict[str, str] = {}
NOT_ON_YARN = {
    "files_first_only": "it lists its directory, where YARN has files of the container too",
}
# The rest of the third runs each job in the container of its master: a Java a task takes long.
WITH_CONTAINERS = ("cachefile", "combiner_stdin", "env_reduce", "kfbc_k2", "out_gz")
YARN_JOBS_AT_ONCE = 3
RECORDS = ("Map input records", "Map output records", "Reduce input records",
           "Reduce output records", "Reduce input groups")  # fmt: skip
NOT_ON_SPARK = {
    "env_inherit": "a task of local mode inherits the client's environment; a worker has its own",
}
NOT_ON_RAY = {
    "env_inherit": "a task of local mode inherits the client's environment; a worker has its own",
}


Heard = Callable[[cases.Outcome], cases.Outcome]


def run_cases(
    engine: str,
    command: Sequence[str],
    names: Sequence[str],
    excused: Mapping[str, str],
    environment: Mapping[str, str],
    at_once: int = 1,
    heard: Heard = lambda outcome: outcome,
) -> int:
    """Run cases with this command; write the ledger and give how many went wrong. `heard` adds
    what the engine keeps elsewhere of what tasks said."""

    def run(name: str) -> tuple[list[str], float]:
        began_s = time.monotonic()
        case = cases.Case(name)
        case.expected["env"] = {**case.expected.get("env", {}), **environment}
        with tempfile.TemporaryDirectory(prefix="engine-case-") as room:
            outcome = heard(case.run(command, Path(room), timeout_s=CASE_S_MAX))
        return case.differences(outcome), time.monotonic() - began_s

    wrong = 0
    names = [name for name in names if name != FAULTS]
    with ThreadPoolExecutor(at_once) as pool:
        for name, (differences, took_s) in zip(names, pool.map(run, names), strict=True):
            verdict = "fails" if differences else "passes"
            if bool(differences) != (name in excused):
                wrong += 1
                verdict = f"WRONG: {verdict}"
            reason = f" ({excused[name]})" if name in excused else ""
            _tell(engine, name, verdict + reason, took_s)
            for difference in differences if name not in excused else ():
                print(f"    {difference[:600]}", flush=True)
    out_of = sum(name in excused for name in names)
    print(f"{engine}: {len(names)} cases, {wrong} wrong, {out_of} excused", flush=True)
    return wrong


def _tell(engine: str, case: str, verdict: str, took_s: float) -> None:
    """Print a line of the ledger, and write it."""
    print(f"{case}: {verdict} {took_s:.1f} s", flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=LEDGER.parent, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    today, load = datetime.date.today().isoformat(), f"{os.getloadavg()[0]:.0f}"
    is_new = not LEDGER.exists()
    with LEDGER.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow([today, commit, engine, case, f"{took_s:.1f}", load, verdict])


def show() -> int:
    """Print the ledger as a table of a document: of each case on each engine its last run."""
    with LEDGER.open(newline="") as file:
        last = {(row["engine"], row["case"]): row for row in csv.DictReader(file)}
    print("| engine | run | as Hadoop has it | excused | wrong | last |\n|---|---|---|---|---|---|")
    for engine in sorted({engine for engine, _ in last}):
        rows = [row for (of, _), row in last.items() if of == engine]
        verdicts = [row["verdict"].partition(" ")[0] for row in rows]
        counts = [verdicts.count(word) for word in ("passes", "fails", "WRONG:")]
        date = max(row["date"] for row in rows)
        print("|", " | ".join(map(str, (engine, len(rows), *counts, date))), "|")
    return 0


def ray(names: Sequence[str]) -> int:
    """All cases on one Ray."""
    with ExitStack() as stack:
        # Sockets below it have long names already.
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp"))
        environment = stack.enter_context(running_ray(Path(directory)))
        command = stack.enter_context(driver("ray", environment, Path(directory)))
        return run_cases("ray", command, names, NOT_ON_RAY, environment)


def spark(names: Sequence[str]) -> int:
    """A third of the cases on one Spark, then what Spark repeats."""
    with tempfile.TemporaryDirectory(prefix="spark-", dir="/tmp") as room:
        with driver("spark", {}, Path(room)) as command:
            wrong = run_cases("spark", command, names, NOT_ON_SPARK, {})
        if FAULTS in names:
            wrong += spark_faults(Path(room))
    return wrong


def spark_faults(room: Path) -> int:
    """What Spark repeats, on a standalone cluster of two hosts: two addresses of loopback, because
    Spark copies no task to the host that it runs on."""
    (room / "conf").mkdir()
    settings = {"": "true", ".interval": "100ms", ".quantile": "0.5", ".multiplier": "1.01",
                ".minTaskRuntime": "0ms"}  # fmt: skip
    lines = [f"spark.speculation{name} {value}" for name, value in settings.items()]
    lines += ["spark.executor.memory 512m", "spark.driver.host 127.0.0.1"]
    (room / "conf" / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with _standalone(room / "standalone", environment) as master:
        kill = KILL.format(name=EXECUTOR)
        killed = _repeated("spark", room / "killed", master, environment, kill)
        copying = {**environment, "SPARK_CONF_DIR": str(room / "conf")}
        return killed + _repeated("spark", room / "copied", master, copying, WAIT)


@contextmanager
def _standalone(room: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run Spark's own master and two workers; gives the master's URL."""
    room.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    import pyspark

    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    commands = {"127.0.0.1": [f"{deploy}.master.Master", "--port", str(port)]}
    for host in ("127.0.0.2", "127.0.0.3"):
        commands[host] = [f"{deploy}.worker.Worker", "-c", "2", "-m", "1g", "-d", str(room / host)]
    running = []
    try:
        for host, words in commands.items():
            words = [program, *words[:1], "--host", host, "--webui-port", "0", *words[1:]]
            words += [] if host == "127.0.0.1" else [f"spark://127.0.0.1:{port}"]
            own = {**os.environ, **environment, "SPARK_LOCAL_IP": host}
            log = (room / f"{host}.log").open("wb")
            running.append(subprocess.Popen(words, env=own, stdout=log, stderr=log))
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(60)


def hadoop(names: Sequence[str]) -> int:
    """A third of the cases by Hadoop's own client and local runner, from Maven."""
    with tempfile.TemporaryDirectory(prefix="hadoop-", dir="/tmp") as room:
        environment = _hadoop_home(Path(room))
        return run_cases("hadoop", [sys.executable, "-P", str(LAST)], names, NOT_ON_HADOOP,
                         environment)  # fmt: skip


def hadoop_cluster(names: Sequence[str]) -> int:
    """The third on Hadoop's own small cluster, all in one (a resource manager, node managers and
    containers of YARN's), and what YARN repeats."""
    with tempfile.TemporaryDirectory(prefix="hadoop-", dir="/tmp") as place:
        room = Path(place)
        environment = _hadoop_home(room)
        wrong = 0
        with _mini_cluster(room):
            for uber in (False, True):
                if uber and FAULTS in names:
                    wrong += hadoop_faults(room, environment)
                _write_mapred(room, f"-D mapreduce.job.ubertask.enable={str(uber).lower()}")
                wrong += run_cases(
                    f"hadoop-cluster, a container a {'job' if uber else 'task'}",
                    [sys.executable, "-P", str(LAST)],
                    [name for name in names if (name in WITH_CONTAINERS) is not uber],
                    NOT_ON_YARN,
                    environment,
                    YARN_JOBS_AT_ONCE,
                    lambda outcome: _with_container_logs(outcome, room / "cluster"),
                )
    return wrong


def hadoop_faults(room: Path, environment: Mapping[str, str]) -> int:
    """What YARN repeats: the container of a task that is killed, and copies of slow tasks."""
    kill = KILL.format(name=YARN_TASK)
    killed = _repeated("hadoop-cluster", room / "killed", "hadoop", environment, kill)
    copies = ("-D", "mapreduce.map.speculative=true")
    copied = _repeated("hadoop-cluster", room / "copied", "hadoop", environment, WAIT, copies)
    return killed + copied + hadoop_from_python(room / "python")


def hadoop_from_python(room: Path) -> int:
    """A result's records, counters and end, where Hadoop runs the job."""
    (room / "in").mkdir(parents=True)
    (room / "in" / "f").write_text("b a\na c\n" * 100)
    os.environ["MRSTREAM_HOME"] = str(room / "home")
    wrong = 0
    for what, difference_of in (("a result in Python", _result), ("killed from Python", _killed)):
        began_s = time.monotonic()
        difference = difference_of(room)
        verdict = f"WRONG: {difference}" if difference else "passes"
        _tell("hadoop-cluster", what, verdict, time.monotonic() - began_s)
        wrong += 1 if difference else 0
    return wrong


def _result(room: Path) -> str:
    results = [
        mr.Job(room / "in", mapper="tr ' ' '\\n'", reducer="uniq -c", reduces=2,
               output=room / f"out-{engine}", engine=engine).run(progress=False)
        for engine in ("own", "hadoop")
    ]  # fmt: skip
    own, there = ([*result] for result in results)
    if own != there or not own:
        return f"records {there}, ours {own}"
    counted = [[result.counter("Map-Reduce Framework", name) for name in RECORDS]
               for result in results]  # fmt: skip
    return "" if counted[0] == counted[1] else f"counters {counted}"


def _killed(room: Path) -> str:
    mark = f"mark-{time.monotonic_ns()}"
    result = mr.Job(room / "in", mapper="sleep 1000", output=room / "none", engine="hadoop",
                    cmdenv={"MARK": mark}).submit()  # fmt: skip
    sleeping = f"MARK={mark}"
    until_s = time.monotonic() + CASE_S_MAX
    while not _programs(sleeping):
        if time.monotonic() > until_s or result.state != "running":
            return f"it does not run: {result.log[-2000:]}"
        time.sleep(0.2)
    result.kill()
    until_s = time.monotonic() + 120
    while _programs(sleeping):
        if time.monotonic() > until_s:
            return f"it still runs: {result.log[-2000:]}"
        time.sleep(0.2)
    return "" if result.state == "killed" else f"it is {result.state}"


def _programs(variable: str) -> list[int]:
    """Give the programs of tasks with this in their environment."""
    found = []
    for pid in processes_with(variable):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                found.append(pid)
    return found


def _with_container_logs(outcome: cases.Outcome, cluster: Path) -> cases.Outcome:
    """Add what the job's containers said: YARN's client shows none of it, it stays in a directory
    of their node manager, where `yarn logs` finds it."""
    told = [outcome.stderr]
    for job in re.findall(r"Running job: job_(\w+)", outcome.stderr):
        for path in sorted(cluster.rglob(f"*-logDir-*/application_{job}/container_*/*")):
            told.append(path.read_text(errors="replace"))
    return dataclasses.replace(outcome, stderr="\n".join(told))


def _hadoop_home(room: Path) -> dict[str, str]:
    """Make what `-engine hadoop` takes for a home of Hadoop; gives the variables that say so."""
    for name in ("pom.xml", "log4j.properties"):
        shutil.copy(PEER / name, room)
    path = room / "classpath"
    subprocess.run(
        ["mvn", "-B", "-q", "dependency:build-classpath", f"-Dmdep.outputFile={path}"],
        cwd=room, check=True,
    )  # fmt: skip
    # What reads files wants one; it may say nothing.
    (room / "core-site.xml").write_text("<configuration/>\n")
    (room / "bin").mkdir()
    _write_mapred(room)
    return {"HADOOP_HOME": str(room), "MRSTREAM_ENGINE_LAST": "hadoop"}


def _write_mapred(room: Path, words: str = "") -> None:
    """Write what Hadoop's scripts do; `words` stand before those of a job."""
    classpath = (room / "classpath").read_text().strip()
    options = " ".join(BRIEF)
    text = MAPRED.format(classpath=classpath, room=room, options=options, words=words)
    for name in ("mapred", "hadoop"):
        program = room / "bin" / name
        program.write_text(text)
        program.chmod(0o755)


@contextmanager
def _mini_cluster(room: Path) -> Iterator[None]:
    """Run Hadoop's small cluster; its clients find it by the file that it writes."""
    inside = room / "cluster"
    inside.mkdir()
    words = ["java", "-Xmx500m", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp",
             f"{room}:{(room / 'classpath').read_text().strip()}", str(PEER / "MiniCluster.java"),
             str(room / "mapred-site.xml")]  # fmt: skip
    with (room / "cluster.log").open("wb") as log:
        running = subprocess.Popen(
            words, cwd=inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        assert running.stdin is not None and running.stdout is not None
        try:
            # Other parts of it say things there, too.
            said = iter(running.stdout.readline, b"")
            assert any(line == b"ready\n" for line in said), (room / "cluster.log").read_text()
            # Each of the two is read behind the defaults of its own part of Hadoop.
            shutil.copy(room / "mapred-site.xml", room / "yarn-site.xml")
            yield
        finally:
            running.stdin.close()
            running.wait(120)


def _repeated(
    engine: str,
    room: Path,
    address: str,
    environment: Mapping[str, str],
    once: str,
    properties: Sequence[str] = (),
) -> int:
    """Run a job of four maps and two reduces in which the first execution of one map does `once`;
    write into the ledger what is not as local mode has it, and give how much that is."""
    began_s = time.monotonic()
    difference = _repeated_job(room, address, environment, once, properties)
    what = "a speculative copy" if once == WAIT else "a worker killed"
    verdict = f"WRONG: {difference}" if difference else "passes"
    _tell(engine, what, verdict, time.monotonic() - began_s)
    return 1 if difference else 0


def _repeated_job(
    room: Path, address: str, environment: Mapping[str, str], once: str, properties: Sequence[str]
) -> str:
    room.mkdir(exist_ok=True)
    desk = Desk(room)
    for number in range(4):
        desk.write(f"in/{number}", f"b a {number}\n" * 1000)
    desk.write(
        "mapper.py",
        f"""
import os, signal, sys, time
first, again = {str(room / "first")!r}, {str(room / "again")!r}
def wait_for(path):
    until = time.monotonic() + 300
    while not os.path.exists(path):
        assert time.monotonic() < until, path
        time.sleep(0.05)
if os.environ["mapreduce_task_id"].endswith("m_000000"):
    if os.path.exists(first):
        os.makedirs(again, exist_ok=True)
    else:
        os.mkdir(first)
        print("first", os.environ["mapreduce_task_attempt_id"], file=sys.stderr)
"""
        + "".join(f"        {line}\n" for line in once.strip().splitlines())
        + "for line in sys.stdin:\n    print(*line.split(), sep='\\n')\n",
    )
    words = [*properties, "-mapper", f"{sys.executable} mapper.py", "-file", "mapper.py",
             "-reducer", "uniq -c", "-numReduceTasks", "2"]  # fmt: skip
    os.environ.update(environment)
    ran = desk.job(*words, "-engine", address, timeout_s=CASE_S_MAX)
    if ran.status != 0 or not (room / "again").exists():
        return f"exit {ran.status}, again {(room / 'again').exists()}: {ran.stderr[-3000:]}"
    # Hadoop leaves hidden sums beside files of a local disk.
    found = cases.visible_files(desk.out)
    counters = cases.printed_counters(ran.stderr)["Map-Reduce Framework"]
    desk.out = room / "own"
    own = desk.job(*words)
    wanted = cases.printed_counters(own.stderr)["Map-Reduce Framework"]
    differs = [name for name in RECORDS if counters.get(name) != wanted.get(name)]
    mine = cases.visible_files(desk.out)
    differs += [name for name in {**found, **mine} if found.get(name) != mine.get(name)]
    return f"{', '.join(differs)} differ" if differs else ""


def main() -> int:
    """Run what is asked for; 0 if all is as it should be."""
    engine, *chosen = sys.argv[1:]
    if engine == "show":
        return show()
    names = chosen or [*cases.names()[:: 1 if engine == "ray" else 3], FAULTS]
    os.environ.pop("MRSTREAM_CLUSTER", None)
    runs = {"ray": ray, "spark": spark, "hadoop": hadoop, "hadoop-cluster": hadoop_cluster}
    return 1 if runs[engine](names) else 0


if __name__ == "__main__":
    sys.exit(main())
