"""Random operations of several clients against a dict, with servers killed in between."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mrstream.dfs.client import writer
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.client.reader import DfsReader
from mrstream.dfs.errors import FileExists, NoSuchFile
from tests.cluster.local import CHUNKSERVER, MASTER, LocalCluster, wait_for
from tests.support.examples import examples

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"])
SIZES = st.one_of(
    st.integers(0, 500), st.sampled_from([65535, 65536, 65537, 131072, 140_000, 300_000])
)
CLIENTS = st.integers(0, 2)
SEEDS = st.integers(0, 1000)

_running: list[LocalCluster] = []
_clients: list[DfsClient] = []
_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    directory = tmp_path_factory.mktemp("stateful")
    with LocalCluster(directory, 3, dfs={"chunk_size": "128KiB", "replication": "2"}) as running:
        _running.append(running)
        _clients.extend(running.client(retry_s=30.0) for _ in range(3))
        yield
        _running.clear()
        _clients.clear()


class Files(RuleBasedStateMachine):
    """The model is a dict of paths to bytes; directories are implied by their files."""

    @initialize()
    def begin(self) -> None:
        self.root = f"/run{next(_numbers)}"
        self.model: dict[str, bytes] = {}
        _clients[0].make_directory(self.root)

    @rule(name=NAMES, size=SIZES, seed=SEEDS, client=CLIENTS, overwrite=st.booleans())
    def create(self, name: str, size: int, seed: int, client: int, overwrite: bool) -> None:
        data = random.Random(seed).randbytes(size)
        try:
            with writer.create(_clients[client], self.path(name), overwrite=overwrite) as file:
                file.write(data[: size // 3])
                file.write(data[size // 3 :])
        except FileExists:
            assert name in self.model and not overwrite
            return
        assert overwrite or name not in self.model
        self.model[name] = data

    @rule(name=NAMES, size=SIZES, seed=SEEDS, client=CLIENTS)
    def append(self, name: str, size: int, seed: int, client: int) -> None:
        data = random.Random(-seed).randbytes(size)
        try:
            with writer.append(_clients[client], self.path(name)) as file:
                file.write(data)
        except NoSuchFile:
            assert name not in self.model
            return
        self.model[name] += data

    @rule(name=NAMES, where=st.floats(0, 1), size=SIZES, client=CLIENTS)
    def read(self, name: str, where: float, size: int, client: int) -> None:
        if name not in self.model:
            with pytest.raises(NoSuchFile):
                DfsReader(_clients[client], self.path(name))
            return
        data = self.model[name]
        offset = int(where * len(data))
        with DfsReader(_clients[client], self.path(name)) as file:
            assert file.size == len(data)
            assert file.pread(offset, size) == data[offset : offset + size]

    @rule(source=NAMES, final=NAMES, client=CLIENTS)
    def rename(self, source: str, final: str, client: int) -> None:
        if source == final:
            return
        try:
            _clients[client].make_directory(self.path(final).rpartition("/")[0], parents=True)
            _clients[client].rename(self.path(source), self.path(final), overwrite=True)
        except NoSuchFile:
            assert source not in self.model
            return
        self.model[final] = self.model.pop(source)

    @rule(name=NAMES, client=CLIENTS, skip_trash=st.booleans())
    def delete(self, name: str, client: int, skip_trash: bool) -> None:
        try:
            _clients[client].delete(self.path(name), skip_trash=skip_trash)
        except NoSuchFile:
            assert name not in self.model
            return
        del self.model[name]

    @rule(source=NAMES, final=NAMES, client=CLIENTS)
    def snapshot(self, source: str, final: str, client: int) -> None:
        if source not in self.model or final in self.model or source == final:
            return
        _clients[client].make_directory(self.path(final).rpartition("/")[0], parents=True)
        _clients[client].snapshot(self.path(source), self.path(final))
        self.model[final] = self.model[source]

    @rule(host=st.sampled_from(["h1", "h2", "h3"]))
    def restart_a_chunkserver(self, host: str) -> None:
        _running[0].kill(CHUNKSERVER, host)
        _running[0].start(CHUNKSERVER, host)

    @rule()
    def restart_the_master(self) -> None:
        _running[0].kill(MASTER, "h1")
        _running[0].start(MASTER, "h1")

    @invariant()
    def the_listing_is_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        found = {
            status.path.removeprefix(self.root + "/"): status.length_bytes
            for status in _clients[0].find(self.root)
            if not status.is_directory
        }
        assert found == {name: len(data) for name, data in self.model.items()}

    def teardown(self) -> None:
        for name, data in getattr(self, "model", {}).items():
            with DfsReader(_clients[1], self.path(name)) as file:
                assert file.pread(0, 1 << 30) == data
        wait_for(lambda: _is_replicated(_clients[0]), 60.0, "all chunks to be replicated")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"


def _is_replicated(client: DfsClient) -> bool | None:
    report = client.report()
    return (report.under_replicated, report.missing, report.corrupt) == (0, 0, 0) or None


TestFiles: Any = Files.TestCase
TestFiles.settings = settings(
    max_examples=examples(6),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
