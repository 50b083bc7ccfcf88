"""Golden cases on other people's engines, with a ledger: part of `make interop`.

    python tests/cluster/engine_interop.py ray      all cases
    python tests/cluster/engine_interop.py spark    every third; an executor killed, copies
    python tests/cluster/engine_interop.py hadoop   every third, by Hadoop's own client and runner
    python tests/cluster/engine_interop.py hadoop-cluster   the same third, on its small cluster

A case that an engine cannot give is listed with its reason; it is wrong here if it passes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conformance import cases
from tests.support.local_jobs import Desk
from tests.support.ray_here import driver, running_ray

PEER = Path(__file__).parent / "hadoop_peer"
LAST = Path(__file__).parent / "engine_last.py"
# What Hadoop's scripts do, as far as streaming on a local runner needs it.
MAPRED = """#!/bin/sh
shift
exec java {options} -cp '{room}:{classpath}' -Dhadoop.tmp.dir='{room}/tmp' \\
  org.apache.hadoop.streaming.HadoopStreaming {words} "$@"
"""
# For a Java that lives for seconds.
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CASE_S_MAX = 1800.0
KILL_EXECUTOR = """
pid = os.getpid()
while "CoarseGrainedExecutorBackend" not in open(f"/proc/{pid}/cmdline").read():
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
os.kill(pid, signal.SIGKILL)
time.sleep(1000)
"""
NOT_ON_HADOOP: dict[str, str] = {}
NOT_ON_YARN: dict[str, str] = {}
# What programs and tasks say stays in the logs of YARN's containers; bytes and counters are judged.
UNHEARD_ON_YARN = ("counter_prefix", "counter_user")
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


def run_cases(
    engine: str,
    command: Sequence[str],
    names: Sequence[str],
    excused: Mapping[str, str],
    environment: Mapping[str, str],
    at_once: int = 1,
    unheard: Sequence[str] = (),
) -> int:
    """Run cases with this command; print the ledger and give how many went wrong. Of the `unheard`
    what is said on standard error does not count."""

    def run(name: str) -> tuple[list[str], float]:
        began_s = time.monotonic()
        case = cases.Case(name)
        case.expected["env"] = {**case.expected.get("env", {}), **environment}
        if name in unheard:
            del case.expected["stderr_contains"]
        with tempfile.TemporaryDirectory(prefix="engine-case-") as room:
            differences = case.differences(case.run(command, Path(room), timeout_s=CASE_S_MAX))
        return differences, time.monotonic() - began_s

    wrong = 0
    with ThreadPoolExecutor(at_once) as pool:
        for name, (differences, took_s) in zip(names, pool.map(run, names), strict=True):
            verdict = "fails" if differences else "passes"
            if bool(differences) != (name in excused):
                wrong += 1
                verdict = f"WRONG: {verdict}"
            reason = f" ({excused[name]})" if name in excused else ""
            print(f"{name}: {verdict}{reason} {took_s:.1f} s", flush=True)
            for difference in differences if name not in excused else ():
                print(f"    {difference[:600]}", flush=True)
    out_of = sum(name in excused for name in names)
    print(f"{engine}: {len(names)} cases, {wrong} wrong, {out_of} excused", flush=True)
    return wrong


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
        if names == cases.names()[::3]:
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
        killed = _repeated(room / "killed", master, environment, KILL_EXECUTOR)
        copying = {**environment, "SPARK_CONF_DIR": str(room / "conf")}
        copied = _repeated(room / "copied", master, copying, "wait_for(again)")
    return _told("an executor killed", killed) + _told("a speculative copy", copied)


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
    """The third on Hadoop's own small cluster, all in one: a resource manager, node managers and
    containers of YARN's."""
    with tempfile.TemporaryDirectory(prefix="hadoop-", dir="/tmp") as place:
        room = Path(place)
        environment = _hadoop_home(room)
        wrong = 0
        with _mini_cluster(room):
            for uber in (False, True):
                _write_mapred(room, f"-D mapreduce.job.ubertask.enable={str(uber).lower()}")
                wrong += run_cases(
                    f"hadoop-cluster, {'a container a job' if uber else 'a container a task'}",
                    [sys.executable, "-P", str(LAST)],
                    [name for name in names if (name in WITH_CONTAINERS) is not uber],
                    NOT_ON_YARN,
                    environment,
                    YARN_JOBS_AT_ONCE,
                    UNHEARD_ON_YARN,
                )
    return wrong


def _hadoop_home(room: Path) -> dict[str, str]:
    """Make what `-engine hadoop` takes for a home of Hadoop; gives the variables that say so."""
    for name in ("pom.xml", "log4j.properties"):
        shutil.copy(PEER / name, room)
    path = room / "classpath"
    subprocess.run(
        ["mvn", "-B", "-q", "dependency:build-classpath", f"-Dmdep.outputFile={path}"],
        cwd=room, check=True,
    )  # fmt: skip
    (room / "bin").mkdir()
    _write_mapred(room)
    return {"HADOOP_HOME": str(room), "MRSTREAM_ENGINE_LAST": "hadoop"}


def _write_mapred(room: Path, words: str = "") -> None:
    """Write what Hadoop's scripts do; `words` stand before those of a job."""
    classpath = (room / "classpath").read_text().strip()
    options = " ".join(BRIEF)
    mapred = room / "bin" / "mapred"
    mapred.write_text(MAPRED.format(classpath=classpath, room=room, options=options, words=words))
    mapred.chmod(0o755)


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


def _told(what: str, difference: str) -> int:
    print(f"{what}: {difference or 'passes'}", flush=True)
    return 1 if difference else 0


def _repeated(room: Path, engine: str, environment: Mapping[str, str], once: str) -> str:
    """Run a job of four maps and two reduces in which the first execution of one map does `once`;
    say what is not as local mode has it."""
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
    words = ["-mapper", f"{sys.executable} mapper.py", "-file", "mapper.py", "-reducer", "uniq -c",
             "-numReduceTasks", "2"]  # fmt: skip
    os.environ.update(environment)
    ran = desk.job(*words, "-engine", engine, timeout_s=900)
    if ran.status != 0 or not (room / "again").exists():
        return f"exit {ran.status}, again {(room / 'again').exists()}: {ran.stderr[-3000:]}"
    found, counters = desk.parts(), cases.printed_counters(ran.stderr)["Map-Reduce Framework"]
    desk.out = room / "own"
    own = desk.job(*words)
    wanted = cases.printed_counters(own.stderr)["Map-Reduce Framework"]
    differs = [name for name in RECORDS if counters.get(name) != wanted.get(name)]
    return "" if found == desk.parts() and not differs else f"bytes or {differs} differ"


def main() -> int:
    """Run what is asked for; 0 if all is as it should be."""
    engine, *chosen = sys.argv[1:]
    names = chosen or cases.names()[:: 1 if engine == "ray" else 3]
    os.environ.pop("MRSTREAM_CLUSTER", None)
    runs = {"ray": ray, "spark": spark, "hadoop": hadoop, "hadoop-cluster": hadoop_cluster}
    return 1 if runs[engine](names) else 0


if __name__ == "__main__":
    sys.exit(main())
