"""A small Ray on this machine, for tests: no dashboard, nothing sent anywhere, ended with the test.

`running_ray` keeps one in a process of its own. `driver` keeps a process that is connected to it,
and runs `mrstream` for whoever calls, in the caller's directory and environment: what
a connection and fresh workers cost is then paid once, and not by each of a hundred small jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

OWN_VARIABLES = ("RAY_", "SPARK_", "PYSPARK_")
STARTS_MAX = 5
STORE_BYTES = 100 * 2**20
CALL_BYTES_MAX = 1 << 20


@contextmanager
def running_ray(
    directory: Path, inherited: Mapping[str, str] = os.environ
) -> Iterator[dict[str, str]]:
    """Give the environment in which `-engine ray` finds a Ray that has two cores and a small store,
    listens on loopback and serves who has its secret; its workers inherit the other."""
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_gcs_server_port_wait_time_s": "120",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    with _kept(["keep", str(directory)], {**inherited, **environment}) as address:
        yield {**environment, "RAY_ADDRESS": address}


@contextmanager
def driver(engine: str, environment: dict[str, str], directory: Path) -> Iterator[list[str]]:
    """Give the words that run `mrstream -engine …` by way of one process that is connected."""
    path = str(directory / "driver")
    with _kept(["serve", engine, path], environment):
        yield [sys.executable, "-P", __file__, "call", path]


@contextmanager
def _kept(words: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Run this file with these words until the end; gives the line that it says."""
    keeper = subprocess.Popen(
        [sys.executable, "-P", __file__, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
        text=True,
    )
    assert keeper.stdin is not None and keeper.stdout is not None
    try:
        line = keeper.stdout.readline().strip()
        assert line, f"{words[0]} did not start"
        yield line
    finally:
        keeper.stdin.close()
        keeper.wait(60)


def keep(directory: str) -> None:
    """Be the process that Ray belongs to."""
    import ray

    for left in reversed(range(STARTS_MAX)):
        try:
            context: Any = ray.init(
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                log_to_driver=False,
                _temp_dir=directory,
            )
            break
        except Exception:  # it gives itself 30 s, whatever else the machine does meanwhile
            ray.shutdown()
            if not left:
                raise
    print(context.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


def serve(engine: str, path: str) -> None:
    """Be the driver: one call at a time, until standard input ends."""
    import select

    leave = _connect(engine)
    own = {name: value for name, value in os.environ.items() if name.startswith(OWN_VARIABLES)}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
            caller, _ = listener.accept()
            with caller:
                data, streams, _, _ = socket.recv_fds(caller, CALL_BYTES_MAX, 2)
                request = json.loads(data)
                words = request["words"]
                first = words[: words.index("--")] if "--" in words else words
                # Behind the others: where options stand first has a meaning of its own.
                words = [*first, "-engine", engine, *words[len(first) :]]
                status = _run(words, request["cwd"], request["env"] | own, streams)
                with contextlib.suppress(BrokenPipeError):
                    caller.send(str(status).encode())
    leave()


def _connect(engine: str) -> Callable[[], None]:
    """Connect this process, before a job does; gives what ends that."""
    if engine == "ray":
        import ray

        ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
        return cast(Callable[[], None], ray.shutdown)
    from pyspark import SparkConf, SparkContext

    os.environ["SPARK_LOCAL_IP"], os.environ["PYSPARK_PYTHON"] = "127.0.0.1", sys.executable
    quiet = {"spark.ui.enabled": "false", "spark.log.level": "FATAL"}
    context = SparkContext(conf=SparkConf().setMaster("local[2,4]").setAll(list(quiet.items())))
    return context.stop


def _run(words: list[str], cwd: str, environment: dict[str, str], streams: list[int]) -> int:
    from mrstream.streaming import cli

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    saved = [os.dup(number) for number in (1, 2)]
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    try:
        return cli.main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(saved, start=1):
            os.dup2(kept, number)
            os.close(kept)


def call(path: str, words: list[str]) -> int:
    """Be `mrstream` for a moment: the driver does the work."""
    request = {"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], [1, 2])
        return int(connection.recv(100) or b"70")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", directory]:
            keep(directory)
        case ["serve", engine, path]:
            serve(engine, path)
        case ["call", path, *words]:
            sys.exit(call(path, words))
